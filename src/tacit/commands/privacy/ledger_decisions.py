"""`tacit ledger raise`, `reanchor` and `officers`: decisions that people make about a ledger."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.commands.console import out
from tacit.commands.ledger_access import find_stream, open_ledger, view_ledger
from tacit.commands.options import By, Json, Keys, LedgerPath, Why

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.privacy.ledger import Officer

officers = typer.Typer(no_args_is_help=True, help="Officers, who sign decisions about a ledger: add, list, remove.")
UNSIGNED = "no officers: the names of those who adopt policies, raise budgets or accept losses are not authenticated"


def signing_status(officers: "Sequence[Officer]") -> str:
    """Who signs decisions about the ledger, in one line."""
    names = ", ".join(officer.name for officer in officers)
    return f"decisions are signed by officers: {names}" if officers else UNSIGNED


def raise_budget(
    stream: str,
    ledger: LedgerPath,
    epsilon: Annotated[float, typer.Option(help="The new ε of one unit.")],
    why: Why,
    by: By = "",
    key: Keys = None,
) -> None:
    """Raise the budget of a STREAM, if the policy allows this person to."""
    with open_ledger(ledger) as book:
        number, terms = find_stream(book, stream)
        book.raise_budget(number, replace(terms.budget, epsilon=epsilon), by=by, why=why, keys=key or ())
        out.print(f"{stream}: ε {terms.budget.epsilon:g} → {epsilon:g}")


def reanchor(
    ledger: LedgerPath,
    why: Why,
    by: By = "",
    key: Keys = None,
    anyway: Annotated[
        bool,
        typer.Option("--anyway", help="Record the decision even if nothing is wrong."),
    ] = False,
) -> None:
    """Accept a ledger that was rolled back or lost its anchor; every later certificate states it.

    Also for a ledger that was copied, restored or moved to another disk, once no other copy is in use. Nothing is
    lost then, and certificates state that this rests on your word.
    """
    from tacit.privacy.ledger import Ledger

    head = Ledger.reanchor(ledger, by=by, why=why, keys=key or (), anyway=anyway)
    with view_ledger(ledger) as book:
        (entry,) = (entry for entry in book.entries() if entry.seq == head.seq)
    moved = entry.kind == "move"
    effect = "the ledger may be used at this path" if moved else "earlier charges may be missing from it"
    out.print(f"accepted: {effect}; the head is now {head.seq}")


@officers.command("add")
def add(
    name: str,
    ledger: LedgerPath,
    why: Why,
    public: Annotated[
        Path | None,
        typer.Option(
            help="The officer's public key (FILE.pub of `tacit keys signing`); not needed for the first officer, whose "
            "--key is enough."
        ),
    ] = None,
    by: By = "",
    key: Keys = None,
) -> None:
    """Register an officer. The first signs with their own --key; later ones are added by those already registered.

    From then on, adopting a policy, raising a budget, changing the officers and accepting a loss require the --key of
    an officer, and `tacit ledger verify` checks the signatures.

    \b
    tacit keys signing ann.key
    tacit ledger officers add ann --key ann.key --why "appointed in May" --ledger mydata.ledger
    tacit ledger officers add bob --public bob.key.pub --key ann.key --why "deputy" --ledger mydata.ledger
    """
    from tacit.errors import LedgerError

    with open_ledger(ledger) as book:
        known = book.officers()
        if public is None and (known or not key):
            raise LedgerError(f"give the public key of {name!r} with --public FILE.pub")
        book.add_officer(
            name, public or (key or [Path()])[0], by=by or ("" if known else name), why=why, keys=key or ()
        )
        out.print(f"{name} is an officer of this ledger and signs its decisions")


@officers.command("list")
def list_officers(ledger: LedgerPath, as_json: Json = False) -> None:
    """List the officers and their public keys."""
    with view_ledger(ledger) as book:
        known, signatures = book.officers(), book.policy.signatures
    if as_json:
        return out.print_json(data={"officers": [asdict(one) for one in known], "signatures": signatures})
    for officer in known:
        out.print(f"{officer.name}  {officer.public_key}")
    plural = "" if signatures == 1 else "s"
    out.print(f"a decision needs {signatures} signature{plural}" if known else UNSIGNED)


@officers.command("remove")
def remove(name: str, ledger: LedgerPath, why: Why, by: By = "", key: Keys = None) -> None:
    """Remove an officer; decisions they signed stay valid."""
    with open_ledger(ledger) as book:
        book.remove_officer(name, by=by, why=why, keys=key or ())
        out.print(f"{name} is no longer an officer of this ledger")


def register(group: typer.Typer) -> None:
    """Adds these commands to `tacit ledger`."""
    group.command("raise")(raise_budget)
    group.command("reanchor")(reanchor)
    group.add_typer(officers, name="officers")
