"""`tacit policy`: what a ledger enforces."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tacit.commands._shared import By, Keys, LedgerPath, Why, err, existing, looked_at, out, sentences
from tacit.errors import LedgerError

policy = typer.Typer(no_args_is_help=True, help="The policy that a ledger enforces: show, adopt.")


@policy.command("show")
def show(ledger: LedgerPath) -> None:
    """The policy in force."""
    from tacit.privacy.log_lines import lines

    with sentences(), looked_at(ledger) as book:
        out.print_json(json.dumps(book.policy.to_dict()))
        adopted = [line for line in lines(book.entries()) if line.kind == "policy"][-1]
        err.print(f"adopted by {adopted.who}: {adopted.why}", style="dim")


@policy.command("adopt")
def adopt(
    file: Path,
    ledger: LedgerPath,
    why: Why,
    by: By = "",
    key: Keys = None,
    new: Annotated[bool, typer.Option("--new", help="Make the ledger: it is under the policy from the start.")] = False,
) -> None:
    """Put the policy in FILE (TOML) in force; the hash chain records who and why."""
    from tacit.privacy.ledger import Ledger
    from tacit.privacy.policy import Policy

    with sentences():
        wanted = Policy.load(file)
        if new and ledger.exists():
            raise LedgerError(f"there is a ledger at {ledger} already; leave --new out")
        if not new and not ledger.exists():
            raise LedgerError(f"there is no ledger at {ledger}; check the path, or add --new to make one")
        with Ledger(ledger) if new else existing(ledger) as book:
            book.adopt(wanted, by=by, why=why, keys=key or ())
        out.print(f"adopted {file}")
        if new and wanted.unit_cap is None:
            out.print(
                "no unit_cap: every stream that is added may cost its people more; [unit_cap] in the file sets one"
            )
