"""Opening ledgers from the command line, and finding their streams."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tacit.commands.console import err
from tacit.errors import LedgerError, TacitError

if TYPE_CHECKING:
    from tacit.experiment.config.config import Config
    from tacit.privacy.ledger import Ledger, LedgerView, StreamTerms


def open_ledger(path: Path) -> "Ledger":
    """Opens an existing ledger for writing; a wrong path never creates a new one."""
    from tacit.privacy.ledger import Ledger

    _require_file(path)
    if path.is_file() and path.stat().st_size == 0:
        raise LedgerError(f"{path} is empty and not a ledger; check the path, or restore the file from its backup")
    return Ledger(path)


@contextmanager
def view_ledger(path: Path, *, verifying: bool = False) -> "Iterator[LedgerView]":
    """Opens a ledger read-only: nothing is written and no keys are needed. Prints what could not be checked.

    Args:
        path: The ledger file.
        verifying: Also print that signatures of the keys were not checked, if the keys are absent.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from tacit.privacy.ledger import LedgerView
    from tacit.privacy.ledger.ledger_view import NO_KEYS

    _require_file(path)
    try:
        with LedgerView(path) as ledger:
            for note in ledger.notes:
                if verifying or note != NO_KEYS:
                    err.print(f"{path}: {note}", style="dim")
            yield ledger
    except TacitError:
        raise
    except (LookupError, ValueError, TypeError, ArithmeticError, SQLAlchemyError) as error:  # damaged content
        raise LedgerError(
            f"the ledger {path} is damaged and cannot be read ({type(error).__name__}); restore it from a backup"
        ) from None


def find_stream(ledger: "Ledger", name: str) -> "tuple[int, StreamTerms]":
    """The number of the stream with this name, and what was declared about it."""
    streams = {terms.name: (number, terms) for number, terms in ledger.streams()}
    if name not in streams:
        raise TacitError(f"the ledger has no stream {name!r}; it has {', '.join(streams) or 'none'}")
    return streams[name]


def ask_unit_cap(given: str | None, ledger: Path | None, config: "Config") -> str | None:
    """The cap of one unit's loss in a new ledger: as given, or the answer to a prompt on a terminal."""
    from tacit.experiment.runs.charged_ledger import budget_of_new

    if given is not None or not sys.stdin.isatty() or (budget := budget_of_new(ledger, config)) is None:
        return given
    question = (
        f"A new ledger will be created. Maximum ε of one {budget.unit} over all streams that it will ever hold "
        f"(a number, or none; this stream's budget is {budget.epsilon:g})"
    )
    return str(typer.prompt(question, default=f"{budget.epsilon:g}", err=True))


def _require_file(path: Path) -> None:
    if not path.exists():
        raise LedgerError(f"there is no ledger at {path}; give its path with --ledger or TACIT_LEDGER")
