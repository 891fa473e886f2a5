"""The folder of a stream without end: a few last releases, where it stands, and a log that is never read whole.

Guarantee: its size does not grow with the number of tasks, but for the ledger in `private/` (public data only; that of
private data lies elsewhere), which forgets nothing. `releases/last` is always a whole release, once there is one.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError
from tacit.experiment.changes import read
from tacit.experiment.endless_config import Endless
from tacit.experiment.folder import RunFolder, SeedFolder, add_line, read_json, write_json
from tacit.privacy.store import sync

LOG_BYTES = 2**22
"""So long a log is put aside (`metrics.1.jsonl`, over the one before) and a new one begun."""
TAIL_BYTES = 2**16
"""The last line of a log is in so many last bytes."""


@dataclass(frozen=True, kw_only=True)
class EndlessFolder(RunFolder):
    """`config.yaml`, `environment.json`, `ledger.json`, `state.json`, `metrics.jsonl`, `releases/`, `private/`."""

    def config(self) -> Endless:
        return Endless.of(read(self.path / "config.yaml"))

    def seed(self, seed: int) -> SeedFolder:
        """There is one seed, and this is its folder."""
        return SeedFolder(path=self.path, seed=seed)

    @property
    def last(self) -> Path:
        """A link to the newest release, for whoever answers from it."""
        return self.path / "releases" / "last"

    @property
    def learnt(self) -> int:
        """How many tasks were learnt and released."""
        if not (self.last / "release.json").exists():
            return 0
        try:
            return int(read_json(self.last / "release.json")["task"]["number"]) + 1
        except (KeyError, TypeError, ValueError):
            raise ConfigError(
                f"{self.last / 'release.json'} was changed or is damaged; restore it from a backup"
            ) from None

    def publish(self, release: Path) -> None:
        """Make it the last one: before this moment the task is not learnt, after it it is."""
        for file in (*release.iterdir(), release):
            sync(file)
        draft = self.last.with_name("last.new")
        draft.unlink(missing_ok=True)
        draft.symlink_to(release.name)
        draft.replace(self.last)
        sync(self.last.parent)  # before the ledger is told that it left

    def forget(self, learnt: int, keep: int) -> None:
        """Delete all releases but the last `keep`."""
        for release in self.last.parent.iterdir():
            number = release.name.partition("-")[0]
            if number.isdigit() and int(number) <= learnt - keep:
                shutil.rmtree(release, ignore_errors=True)

    def state(self) -> dict[str, Any]:
        """What was last written down; empty before."""
        path = self.path / "state.json"
        return read_json(path) if path.exists() else {}

    def write_state(self, state: Mapping[str, Any]) -> None:
        write_json(self.path / "state.json", state)

    def note(self, line: Mapping[str, Any]) -> None:
        """Add what was measured after a task to the log, once."""
        log = self.path / "metrics.jsonl"
        if log.exists():
            if f'"task": {line["task"]},' in _last_line(log):
                return
            if log.stat().st_size > LOG_BYTES:
                log.replace(self.path / "metrics.1.jsonl")
        add_line(log, line)


def is_endless(folder: Path) -> bool:
    """Whether it is the folder of a stream without end."""
    config = folder / "config.yaml"
    return config.is_file() and read(config).get("kind") == "endless"


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        whole = file.read().rpartition(b"\n")[0]  # what comes after was torn
    return whole.rpartition(b"\n")[2].decode(errors="replace")
