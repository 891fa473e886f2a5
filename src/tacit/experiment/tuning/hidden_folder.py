"""A run folder that is made in a hidden folder and appears when the work is done, for work whose duration is secret.

Nothing exists at the folder's path before, and no time of a file or folder in it is from before the end. Work that
fails or is stopped leaves nothing; a kill leaves the hidden folder. Condition: no one else reads the disk meanwhile.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import ConfigError
from tacit.experiment.runs.folder import RunFolder
from tacit.experiment.runs.location import record_location


@dataclass(frozen=True, kw_only=True)
class HiddenFolder:
    """The hidden folder beside the requested one; only the owner can read it."""

    folder: Path

    @property
    def hidden(self) -> Path:
        requested = self.folder.resolve()
        return requested.with_name(f".{requested.name}-unseen")

    @property
    def run(self) -> RunFolder:
        """The run folder inside the hidden folder."""
        return RunFolder(path=self.hidden / "run")

    @contextmanager
    def made(self) -> Iterator[None]:
        """Make the hidden folder; the requested one appears on exit."""
        self.hidden.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.hidden.mkdir(mode=0o700)
        except FileExistsError:
            raise ConfigError(
                f"{self.hidden} exists: another process is tuning {self.folder}, or was killed; wait for it, or delete "
                "that folder (what was charged stays charged)"
            ) from None
        try:
            yield
        except BaseException:
            shutil.rmtree(self.hidden, ignore_errors=True)
            raise
        self._appear()  # if the disk is full, what was paid for is still in the hidden folder
        shutil.rmtree(self.hidden, ignore_errors=True)

    def _appear(self) -> None:
        """Copy the files, since a moved file keeps its time of creation. Private parts may be large and only the owner
        can read them, so their content is moved."""
        done = self.run.path
        shutil.copytree(
            done, self.folder, ignore=shutil.ignore_patterns("private"), copy_function=shutil.copy, dirs_exist_ok=True
        )
        for private in done.glob("seeds/*/private"):
            target = self.folder / private.relative_to(done)
            target.mkdir(mode=0o700)
            for path in private.iterdir():
                shutil.move(path, target / path.name)
        record_location(RunFolder(path=self.folder))
        now = time.time()
        for path in (self.folder, *self.folder.rglob("*")):
            os.utime(path, (now, now))
