"""The folder of an endless stream: the last releases, the state, and a log that is never read as a whole.

Its size does not grow with the number of tasks, except for the throw-away ledger of public data in `private/`.
`releases/last` is always a whole release, once there is one.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError
from tacit.experiment.config.endless_config import Endless
from tacit.experiment.files import add_line, read, read_json, read_written, write_json
from tacit.experiment.runs.folder import RunFolder, SeedFolder
from tacit.privacy.vault.intake.store import sync

LOG_BYTES = 2**22
"""A log of this size becomes `metrics.1.jsonl`, in place of the one before, and a new one is begun."""
TAIL_BYTES = 2**16
"""The last line of a log is within this number of last bytes."""


@dataclass(frozen=True, kw_only=True)
class EndlessFolder(RunFolder):
    """`config.yaml`, `environment.json`, `ledger.json`, `state.json`, `metrics.jsonl`, `releases/`, `private/`."""

    def config(self) -> Endless:
        return Endless.of(read_written(self.path / "config.yaml"))

    def seed(self, seed: int) -> SeedFolder:
        """The folder of the only seed is the run folder itself."""
        return SeedFolder(path=self.path, seed=seed)

    @property
    def last(self) -> Path:
        """A link to the newest release, for serving predictions."""
        return self.path / "releases" / "last"

    @property
    def tasks_learned(self) -> int:
        """How many tasks were learned and released."""
        if not (self.last / "release.json").exists():
            return 0
        try:
            return int(read_json(self.last / "release.json")["task"]["number"]) + 1
        except (KeyError, TypeError, ValueError):
            raise ConfigError(
                f"{self.last / 'release.json'} was changed or is damaged; restore it from a backup"
            ) from None

    def publish(self, release: Path) -> None:
        """Make it the last release, atomically: from this moment on the task is learned."""
        for file in (*release.iterdir(), release):
            sync(file)
        draft = self.last.with_name("last.new")
        draft.unlink(missing_ok=True)
        draft.symlink_to(release.name)
        draft.replace(self.last)
        sync(self.last.parent)  # before the ledger marks it as released

    def forget(self, learned: int, keep: int) -> None:
        """Delete all releases but the last `keep`."""
        for release in self.last.parent.iterdir():
            number = release.name.partition("-")[0]
            if number.isdigit() and int(number) <= learned - keep:
                shutil.rmtree(release, ignore_errors=True)

    def state(self) -> dict[str, Any]:
        """The state that was last written; empty before."""
        path = self.path / "state.json"
        return read_json(path) if path.exists() else {}

    def write_state(self, state: Mapping[str, Any]) -> None:
        write_json(self.path / "state.json", state)

    def note(self, line: Mapping[str, Any]) -> None:
        """Append the measurements after a task to the log, unless they are there."""
        log = self.path / "metrics.jsonl"
        if log.exists():
            if f'"task": {line["task"]},' in _last_line(log):
                return
            if log.stat().st_size > LOG_BYTES:
                log.replace(self.path / "metrics.1.jsonl")
        add_line(log, line)


def is_endless(folder: Path) -> bool:
    """Whether it is the folder of an endless stream."""
    config = folder / "config.yaml"
    return config.is_file() and read(config).get("kind") == "endless"


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        whole = file.read().rpartition(b"\n")[0]  # what comes after it was torn
    return whole.rpartition(b"\n")[2].decode(errors="replace")
