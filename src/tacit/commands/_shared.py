"""What the commands share: two consoles, errors as sentences, and the options that several of them have.

A module of this package is one group of commands. It imports at the top only what is quick, and torch, the accountants
and the ledger inside the commands that need them: `tacit --help` and tab completion answer at once.
"""

import errno
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from tacit.commands._stopped import STOPPED, sentence
from tacit.errors import LedgerError, TacitError

if TYPE_CHECKING:
    from tacit.experiment.config import Config
    from tacit.privacy.ledger import Ledger, LedgerView, StreamTerms

MISTAKE = 3
"""Exit code after an error that tacit did not foresee."""
TRACEBACK = "TACIT_TRACEBACK"
"""Set this environment variable to 1 to see where an unforeseen error comes from."""

# Without markup: a path or a sentence with [brackets] in it is printed as it is. Colours are given by style.
out = Console(highlight=False, soft_wrap=True, markup=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)

LedgerPath = Annotated[Path, typer.Option("--ledger", envvar="TACIT_LEDGER", help="The ledger file.")]
By = Annotated[str, typer.Option(help="Who decides; it stays in the ledger. With --key, the officer's name.")]
Keys = Annotated[
    list[Path] | None,
    typer.Option("--key", help="The private key of an officer of the ledger; repeat it where the policy asks for two."),
]
Why = Annotated[str, typer.Option(help="Why; it stays in the ledger.")]
Json = Annotated[bool, typer.Option("--json", help="For scripts.")]


@contextmanager
def sentences() -> Iterator[None]:
    """An error of tacit is shown as its sentence, and the exit code is 1."""
    try:
        yield
    except TacitError as error:
        _fail(str(error), 1)


class OneSentence(TyperGroup):
    """Whatever goes wrong in a command is one sentence and an exit code.

    A traceback may quote records, so the owner has to ask for it."""

    def make_context(self, *given: Any, **named: Any) -> Any:
        try:
            return super().make_context(*given, **named)
        except KeyboardInterrupt:
            _stop()

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            _stop()
        except TacitError as error:
            _fail(str(error), 1)
        except OSError as error:
            _fail(_of_system(error), 1)
        except MemoryError:
            _fail(TOO_LARGE, 1)
        except Exception as error:
            if hasattr(error, "exit_code"):  # a wrong call, which the command line says itself
                raise
            if isinstance(error, ValueError) and "has an empty name" in str(error):  # what pathlib says of . and /
                _fail("a path such as . or / names a folder and no file; give the path of a file", 1)
            if os.environ.get(TRACEBACK) == "1":
                traceback.print_exc()
            if _is_memory(error):
                _fail(TOO_LARGE, 1)
            _fail(
                f"tacit failed in a way it did not foresee ({type(error).__name__}); please report it. What was "
                f"charged stays charged, and --resume charges nothing twice. {TRACEBACK}=1 shows where it happened, "
                "and may quote records",
                MISTAKE,
            )


TOO_LARGE = "this needs more memory than there is; use a smaller model, batch or file"


def _fail(said: str, code: int) -> NoReturn:
    err.print(Text.assemble(("error: ", "red"), said))
    raise typer.Exit(code) from None


def _stop() -> NoReturn:
    """After Ctrl-C where no run was there to stop between two steps."""
    err.print(Text(sentence(), style="yellow"))
    raise typer.Exit(STOPPED) from None


def _of_system(error: OSError) -> str:
    """The sentence for what the operating system refused."""
    where = "" if error.filename is None else f" {error.filename}"
    why = error.strerror or type(error).__name__
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"cannot write{where}: {why}; free some space and call again, with --resume where a run has begun: what "
            "was charged stays charged, and nothing is charged twice"
        )
    return f"cannot read or write{where}: {why}; check the path and its owner"


def _is_memory(error: Exception) -> bool:
    """torch has no error type of its own for memory on the CPU."""
    return type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)


@contextmanager
def stopping(how: str) -> Iterator[None]:
    """After Ctrl-C: the sentence that says how to go on, and the exit code that shells expect."""
    from tacit.experiment.events import Stopped

    try:
        yield
    except Stopped as stopped:
        err.print(Text(f"{stopped}; {how}", style="yellow"))
        raise typer.Exit(STOPPED) from None


def existing(path: Path) -> "Ledger":
    """The ledger at this path; a wrong path never makes a new one."""
    from tacit.privacy.ledger import Ledger

    if not path.exists():
        raise LedgerError(f"there is no ledger at {path}; give its path with --ledger or TACIT_LEDGER")
    if path.is_file() and path.stat().st_size == 0:
        raise LedgerError(f"{path} is an empty file and no ledger; check the path, or restore the file from its backup")
    return Ledger(path)


@contextmanager
def looked_at(path: Path, *, checking: bool = False) -> "Iterator[LedgerView]":
    """The ledger at this path for reading: nothing is written, no keys are needed, and what could not be checked is
    said."""
    from sqlalchemy.exc import SQLAlchemyError

    from tacit.privacy.ledger import LedgerView
    from tacit.privacy.ledger.view import NO_KEYS

    if not path.exists():
        raise LedgerError(f"there is no ledger at {path}; give its path with --ledger or TACIT_LEDGER")
    try:
        with LedgerView(path) as book:
            for note in (one for one in book.notes if checking or one != NO_KEYS):
                err.print(f"{path}: {note}", style="dim")
            yield book
    except TacitError:
        raise
    except (LookupError, ValueError, TypeError, ArithmeticError, SQLAlchemyError) as error:  # whatever damage provokes
        raise LedgerError(
            f"the ledger {path} cannot be read, it is damaged ({type(error).__name__}); restore it from a backup"
        ) from None


def cap_asked(given: str | None, ledger: Path | None, config: "Config") -> str | None:
    """What one unit may lose over all streams of a ledger that is made: as given, or asked for at a terminal."""
    from tacit.experiment.new_ledger import to_ask

    if given is not None or not sys.stdin.isatty() or (budget := to_ask(ledger, config)) is None:
        return given
    question = (
        f"A new ledger is made. The most that one {budget.unit} may lose over all streams that will ever be in it "
        f"(ε, or none; this stream may lose {budget.epsilon:g})"
    )
    return str(typer.prompt(question, default=f"{budget.epsilon:g}", err=True))


def stream_named(book: "Ledger", name: str) -> "tuple[int, StreamTerms]":
    """The stream of this name, and what was declared about it."""
    found = {terms.name: (number, terms) for number, terms in book.streams()}
    if name not in found:
        raise TacitError(f"the ledger has no stream {name!r}; it has {', '.join(found) or 'none'}")
    return found[name]


def read(file: Path) -> bytes:
    """What is in the file, or one sentence."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise TacitError(f"cannot read {file}: {error.strerror}") from None


def write_new(file: Path, content: bytes) -> None:
    """Write a file that only its owner can read; never over another one."""
    try:
        with file.open("xb") as handle:
            file.chmod(0o600)
            handle.write(content)
    except FileExistsError:
        raise TacitError(f"{file} exists; choose another name") from None
    except OSError as error:
        raise TacitError(f"cannot write {file}: {error.strerror}") from None
