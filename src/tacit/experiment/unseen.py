"""A run folder that is made out of sight, and appears when the work in it is done: for work whose duration is a secret.

Guarantee: nothing lies at the folder's place before, and no time of a file or folder there, of its making or of its
last change, is from before the end. What fails or is stopped leaves nothing; a kill leaves the hidden folder.
Condition: nobody else looks at the disk meanwhile.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import ConfigError
from tacit.experiment.folder import RunFolder
from tacit.experiment.run_place import settle


@dataclass(frozen=True, kw_only=True)
class Unseen:
    """The hidden folder beside the one that is asked for; only the owner can read it."""

    folder: Path

    @property
    def hidden(self) -> Path:
        whole = self.folder.resolve()
        return whole.with_name(f".{whole.name}-unseen")

    @property
    def run(self) -> RunFolder:
        """Where the work is done."""
        return RunFolder(path=self.hidden / "run")

    @contextmanager
    def made(self) -> Iterator[None]:
        """Work within it; at its end the folder appears."""
        self.hidden.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.hidden.mkdir(mode=0o700)
        except FileExistsError:
            raise ConfigError(
                f"{self.hidden} is there: other work on {self.folder} goes on, or was killed; wait for it, or delete "
                "it (what was charged stays charged)"
            ) from None
        try:
            yield
        except BaseException:
            shutil.rmtree(self.hidden, ignore_errors=True)
            raise
        self._appear()  # if the disk is full, what was paid for is still in the hidden folder
        shutil.rmtree(self.hidden, ignore_errors=True)

    def _appear(self) -> None:
        """Copied, because what is moved keeps the time at which it was made; private parts may be large, and nobody
        else can look into them, so their content is moved."""
        done = self.run.path
        shutil.copytree(
            done, self.folder, ignore=shutil.ignore_patterns("private"), copy_function=shutil.copy, dirs_exist_ok=True
        )
        for private in done.glob("seeds/*/private"):
            place = self.folder / private.relative_to(done)
            place.mkdir(mode=0o700)
            for one in private.iterdir():
                shutil.move(one, place / one.name)
        settle(RunFolder(path=self.folder))
        now = time.time()
        for path in (self.folder, *self.folder.rglob("*")):
            os.utime(path, (now, now))
