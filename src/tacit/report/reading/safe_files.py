"""Reading of files that may be missing, damaged or hostile: every problem becomes a sentence, none an error.

Nothing under a folder named `private` is opened, no link is followed out of the run folder, and only regular files of a
reasonable size are read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tacit.certificate import Certificate
from tacit.errors import TacitError
from tacit.experiment.files import lines, read, read_json

T = TypeVar("T")
LARGEST = 2**26
"""Bytes of the largest file that is read."""
PROBLEMS = (TacitError, OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What reading a damaged file can raise."""


@dataclass(frozen=True, kw_only=True)
class SafeFolder:
    """A folder and the sentences about what could not be read in it.

    Attributes:
        path: The folder.
        missing: One sentence for each problem; it grows while files are read.
    """

    path: Path
    missing: list[str] = field(default_factory=list)

    def readable(self, name: str) -> bool:
        """Whether a file of the folder exists and may be read; says why not, unless it does not exist."""
        path = self.path / name
        try:
            real = path.resolve()
            if not path.exists():
                return False
            if not self._inside(real) or not real.is_file():
                self.say(f"{name} is not a plain file of the folder and was not read")
                return False
            if real.stat().st_size > LARGEST:
                self.say(f"{name} is larger than {LARGEST // 2**20} MiB and was not read")
                return False
        except (OSError, RuntimeError, ValueError):
            self.say(f"{name} cannot be read")
            return False
        return True

    def say(self, sentence: str) -> None:
        """Add a sentence once."""
        if sentence not in self.missing:
            self.missing.append(sentence)

    def attempt(self, what: str, work: Callable[[], T], otherwise: T) -> T:
        """The result of some reading, or another value and a sentence if the files do not allow it.

        Args:
            what: The sentence.
            work: Reads.
            otherwise: The value in case of a problem.

        Returns:
            The result or the other value.
        """
        try:
            return work()
        except PROBLEMS:
            self.say(what)
            return otherwise

    def json(self, name: str) -> dict[str, Any]:
        """The content of a JSON file; empty if it is missing or damaged."""
        return self._content(name, read_json, {})

    def yaml(self, name: str) -> dict[str, Any]:
        """The content of a YAML file; empty if it is missing or damaged."""
        return self._content(name, read, {})

    def log(self, name: str) -> list[dict[str, Any]]:
        """The whole lines of a log."""
        return self._content(name, lines, [])

    def text(self, name: str) -> str:
        """The text of a file; bytes that are no text are replaced."""
        return self._content(name, lambda path: path.read_text(encoding="utf-8", errors="replace"), "")

    def certificate(self, name: str) -> Certificate | None:
        """A certificate; None if it is missing, damaged or of a newer version."""
        return self._content(name, Certificate.load, None)

    def folders(self, name: str) -> list[Path]:
        """The folders in a folder, in the order of their names; none that is private."""
        path = self.path / name
        try:
            found = sorted(one for one in path.iterdir() if one.name != "private" and one.is_dir())
            return [one for one in found if self._inside(one.resolve())]
        except (OSError, RuntimeError):
            return []

    def _inside(self, real: Path) -> bool:
        """Whether a path without links is in the folder, and not in a private part of it."""
        home = self.path.resolve()
        return real.is_relative_to(home) and "private" not in real.relative_to(home).parts

    def _content(self, name: str, reader: Callable[[Path], T], otherwise: T) -> T:
        if not self.readable(name):
            return otherwise
        return self.attempt(
            f"{name} is damaged or of another version and was left out", lambda: reader(self.path / name), otherwise
        )


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping, otherwise an empty one."""
    return value if isinstance(value, Mapping) else {}


def number(value: Any) -> float | None:
    """The value if it is a finite number, otherwise None."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    return float(value) if usable else None


def words(value: Any) -> str:
    """A plain value as one line of text."""
    return " ".join(str(value).split()) if isinstance(value, str | int | float) else ""
