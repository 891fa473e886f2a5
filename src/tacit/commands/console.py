"""Console output of the command line, and errors as one-sentence messages with an exit code."""

import errno
import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from tacit.charge_flag import INTERRUPTED, interrupted_message
from tacit.errors import TacitError, is_out_of_memory

UNEXPECTED = 3
"""Exit code after an error that is a bug in tacit."""
TRACEBACK = "TACIT_TRACEBACK"
"""Environment variable: set to 1, unexpected errors, and those of a user's own code, print their traceback."""
OUT_OF_MEMORY = "not enough memory; use a smaller model, batch or file"

# Markup is off, so that [brackets] in paths and messages are printed unchanged. Colours are set by style.
out = Console(highlight=False, soft_wrap=True, markup=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)


class CommandGroup(TyperGroup):
    """The root command: every error ends as one sentence on stderr and an exit code.

    Tracebacks are printed only on request, because they may quote private records.
    """

    def make_context(self, *args: Any, **extra: Any) -> Any:
        # A path may have bytes that no text has, and a terminal an encoding without ε: these are printed escaped.
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().make_context(*args, **extra)
        except KeyboardInterrupt:
            _exit_interrupted()

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            _exit_interrupted()
        except TacitError as error:
            if error.__cause__ is not None and os.environ.get(TRACEBACK) == "1":
                traceback.print_exc()
            _fail(str(error), 1)
        except OSError as error:
            _fail(_os_error_message(error), 1)
        except MemoryError:
            _fail(OUT_OF_MEMORY, 1)
        except Exception as error:
            if hasattr(error, "exit_code"):  # wrong usage, which typer reports itself
                raise
            if isinstance(error, ValueError) and "has an empty name" in str(error):  # pathlib's message for . and /
                _fail("a path such as . or / is a folder, not a file; give the path of a file", 1)
            if os.environ.get(TRACEBACK) == "1":
                traceback.print_exc()
            if is_out_of_memory(error):
                _fail(OUT_OF_MEMORY, 1)
            _fail(
                f"unexpected error in tacit ({type(error).__name__}); please report it. What was charged stays "
                f"charged, and --resume charges nothing twice. Set {TRACEBACK}=1 to see the traceback, which may quote "
                "records",
                UNEXPECTED,
            )


@contextmanager
def resume_hint(hint: str) -> Iterator[None]:
    """After Ctrl-C in a run, prints where it stopped and how to resume it."""
    from tacit.experiment.progress import Stopped

    try:
        yield
    except Stopped as stopped:
        err.print(Text(f"{stopped}; {hint}", style="yellow"))
        raise typer.Exit(INTERRUPTED) from None


def _fail(message: str, code: int) -> NoReturn:
    err.print(Text.assemble(("error: ", "red"), message))
    raise typer.Exit(code) from None


def _exit_interrupted() -> NoReturn:
    """Ctrl-C outside a run, which would have stopped between two steps."""
    err.print(Text(interrupted_message(), style="yellow"))
    raise typer.Exit(INTERRUPTED) from None


def _os_error_message(error: OSError) -> str:
    path = "" if error.filename is None else f" {error.filename}"
    reason = error.strerror or type(error).__name__
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"cannot write{path}: {reason}; free some space and repeat the command, with --resume if a run had "
            "started: what was charged stays charged, and nothing is charged twice"
        )
    return f"cannot read or write{path}: {reason}; check the path and its permissions"
