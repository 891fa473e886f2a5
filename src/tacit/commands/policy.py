"""`tacit policy`: what a ledger enforces."""

import json
from pathlib import Path

import typer

from tacit.commands._shared import By, LedgerPath, Why, existing, out, sentences

policy = typer.Typer(no_args_is_help=True, help="The policy that a ledger enforces: show, adopt.")


@policy.command("show")
def show(ledger: LedgerPath) -> None:
    """The policy in force."""
    with sentences(), existing(ledger) as book:
        out.print_json(json.dumps(book.policy.to_dict()))


@policy.command("adopt")
def adopt(file: Path, ledger: LedgerPath, by: By, why: Why) -> None:
    """Put the policy in FILE (TOML) in force; the hash chain records who and why."""
    from tacit.privacy.policy import Policy

    with sentences(), existing(ledger) as book:
        book.adopt(Policy.load(file), by=by, why=why)
        out.print(f"adopted {file}")
