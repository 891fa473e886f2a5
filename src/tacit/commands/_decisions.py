"""`tacit ledger raise`, `officers` and `reanchor`: what people decide about a ledger."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.commands._shared import By, Json, Keys, LedgerPath, Why, existing, looked_at, out, sentences, stream_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.privacy.ledger import Officer

officers = typer.Typer(no_args_is_help=True, help="Who signs decisions about a ledger: add, list, remove.")
UNSIGNED = "no officers: who adopts policies, raises budgets or accepts losses is not authenticated"


def signing(officers: "Sequence[Officer]") -> str:
    """Who answers for decisions about the ledger."""
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
    """Raise the budget of a STREAM, if the policy lets this person."""
    with sentences(), existing(ledger) as book:
        number, terms = stream_named(book, stream)
        book.raise_budget(number, replace(terms.budget, epsilon=epsilon), by=by, why=why, keys=key or ())
        out.print(f"{stream}: ε {terms.budget.epsilon:g} → {epsilon:g}")


def reanchor(
    ledger: LedgerPath,
    why: Why,
    by: By = "",
    key: Keys = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Also where nothing is wrong with the ledger.")] = False,
) -> None:
    """Accept a ledger that was rolled back or lost its anchor; every later certificate says so.

    Also for a ledger that was copied, restored or moved to another disk, when no other copy of it is in use any more:
    that loses nothing, and certificates say that it is your word.
    """
    from tacit.privacy.ledger import Ledger

    with sentences():
        head = Ledger.reanchor(ledger, by=by, why=why, keys=key or (), anyway=anyway)
        with looked_at(ledger) as book:
            (entry,) = (one for one in book.entries() if one.seq == head.seq)
        what = "the ledger may be used at this place" if entry.kind == "move" else "charges may be missing from now on"
        out.print(f"accepted: {what}; the head is now {head.seq}")


@officers.command("add")
def add(
    name: str,
    ledger: LedgerPath,
    why: Why,
    public: Annotated[
        Path | None,
        typer.Option(help="Their public key (FILE.pub of `tacit keys signing`); of the first, --key is enough."),
    ] = None,
    by: By = "",
    key: Keys = None,
) -> None:
    """Register an officer. The first signs with their own --key; later ones are added by those who are there.

    From then on policies, raises, changes of the officers and accepted losses need a --key of an officer, and `tacit
    ledger verify` checks the signatures.

    \b
    tacit keys signing ann.key
    tacit ledger officers add ann --key ann.key --why "appointed in May" --ledger mydata.ledger
    tacit ledger officers add bob --public bob.key.pub --key ann.key --why "deputy" --ledger mydata.ledger
    """
    from tacit.errors import LedgerError

    with sentences(), existing(ledger) as book:
        known = book.officers()
        if public is None and (known or not key):
            raise LedgerError(f"give the public key of {name!r} by --public FILE.pub")
        book.add_officer(
            name, public or (key or [Path()])[0], by=by or ("" if known else name), why=why, keys=key or ()
        )
        out.print(f"{name} signs decisions about this ledger from now on")


@officers.command("list")
def listed(ledger: LedgerPath, as_json: Json = False) -> None:
    """The officers and their public keys."""
    with sentences(), looked_at(ledger) as book:
        found, needed = book.officers(), book.policy.signatures
    if as_json:
        return out.print_json(json.dumps({"officers": [asdict(one) for one in found], "signatures": needed}))
    for one in found:
        out.print(f"{one.name}  {one.public_key}")
    out.print(f"a decision needs {needed} of them" if found else UNSIGNED)


@officers.command("remove")
def remove(name: str, ledger: LedgerPath, why: Why, by: By = "", key: Keys = None) -> None:
    """Take an officer's right to sign; what they signed stays valid."""
    with sentences(), existing(ledger) as book:
        book.remove_officer(name, by=by, why=why, keys=key or ())
        out.print(f"{name} signs nothing any more")


def register(group: typer.Typer) -> None:
    """Put these commands into `tacit ledger`."""
    group.command("raise")(raise_budget)
    group.command("reanchor")(reanchor)
    group.add_typer(officers, name="officers")
