"""`tacit policy`: the policy that a ledger enforces."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.commands.console import err, out
from tacit.commands.ledger_access import open_ledger, view_ledger
from tacit.commands.options import By, Keys, LedgerPath, Why
from tacit.errors import LedgerError

policy = typer.Typer(no_args_is_help=True, help="The policy that a ledger enforces: show, adopt.")


@policy.command("show")
def show(ledger: LedgerPath) -> None:
    """Print the policy in force."""
    from tacit.certificate.log_text import lines

    with view_ledger(ledger) as book:
        out.print_json(data=book.policy.to_dict())
        adopted = [line for line in lines(book.entries()) if line.kind == "policy"][-1]
        err.print(f"adopted by {adopted.who}: {adopted.why}", style="dim")


@policy.command("adopt")
def adopt(
    file: Path,
    ledger: LedgerPath,
    why: Why,
    by: By = "",
    key: Keys = None,
    new: Annotated[bool, typer.Option("--new", help="Create the ledger with this policy.")] = False,
) -> None:
    """Put the policy in FILE (TOML) into force; the ledger records who adopted it and why."""
    from tacit.privacy.ledger import Ledger
    from tacit.privacy.ledger.limits.policy import Policy

    wanted = Policy.load(file)
    if new and ledger.exists():
        raise LedgerError(f"there is already a ledger at {ledger}; omit --new")
    if not new and not ledger.exists():
        raise LedgerError(f"there is no ledger at {ledger}; check the path, or add --new to create one")
    with Ledger(ledger) if new else open_ledger(ledger) as book:
        book.adopt(wanted, by=by, why=why, keys=key or ())
    out.print(f"adopted {file}")
    if new and wanted.unit_cap is None:
        out.print(
            "no unit_cap: each new stream adds its whole budget to the loss of one unit; set [unit_cap] in the file"
        )
