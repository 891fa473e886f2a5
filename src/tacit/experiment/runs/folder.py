"""The folder of a run: its configuration, its environment, its results; private parts are in `seeds/*/private`.

Everything outside `private/` is public or charged. Every file is written whole (a draft is moved over it) or line by
line (a torn last line is dropped), so that the folder can be resumed after a kill at any moment. What a resumed run
reads of it is `_resume` of `FiniteLoop` and `EndlessLoop` (`finite_and_endless._resume`).
"""

import fcntl
import itertools
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from tacit.certificate.provenance import checkout, library
from tacit.data.stream import TaskInfo
from tacit.errors import ConfigError
from tacit.experiment.config.config import Config
from tacit.experiment.files import Values, add_line, lines, read_json, read_written, write, write_csv, write_json
from tacit.experiment.progress import Stopped
from tacit.privacy.vault.intake.store import delete_private


@dataclass(frozen=True, kw_only=True)
class SeedFolder:
    """One seed: its releases, its log of measurements, and its private part."""

    path: Path
    seed: int

    @property
    def private(self) -> Path:
        """The ledger, keys and store; only the owner can read them."""
        return self.path / "private"

    @property
    def features(self) -> Path:
        """Features of private records; those of a task are deleted when it is settled."""
        return self.private / "features"

    def release(self, number: int, name: str) -> Path:
        """The path of the release after a task."""
        plain = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)
        return self.path / "releases" / f"{number + 1:02d}-{plain}"

    def released(self, tasks: Sequence[TaskInfo]) -> int:
        """How many of the tasks have a whole release, from the first on."""
        paths = (self.release(task.number, task.name) / "release.json" for task in tasks)
        return len(list(itertools.takewhile(Path.exists, paths)))

    @property
    def finished(self) -> bool:
        return any(note.get("finished") for note in self.notes())

    @property
    def tasks_learned(self) -> int:
        """How many tasks were learned when the seed last ended; 0 before."""
        return max((len(note["tasks"]) for note in self.notes() if "finished" in note), default=0)

    def note(self, line: Values) -> None:
        """Append a line to the log; it is on disk when this returns."""
        add_line(self.path / "progress.jsonl", line)

    def notes(self) -> list[dict[str, Any]]:
        """The lines of the log; a line that was torn by a crash is dropped."""
        return lines(self.path / "progress.jsonl")

    @contextmanager
    def locked(self, wait_s: float = 15.0) -> Iterator[None]:
        """Make the folder, and keep other processes from working on the seed.

        A process whose parent died needs a moment to stop, so the lock is waited for."""
        (self.path / "releases").mkdir(parents=True, exist_ok=True)
        self.private.mkdir(mode=0o700, exist_ok=True)
        self.private.chmod(0o700)
        with (self.private / "lock").open("w") as file:
            until = time.monotonic() + wait_s
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if time.monotonic() > until:
                        raise ConfigError(
                            f"another process is using {self.path}; wait for it to end, or stop it"
                        ) from None
                    time.sleep(0.1)
            yield

    def clear(self) -> None:
        """Delete the store and the throw-away ledger of a finished seed: records are not kept longer than needed."""
        delete_private(self.private)


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """`config.yaml`, `environment.json`, `ledger.json`, `metrics.json`, `timing.json`, `accuracy.csv`, `seeds/`."""

    path: Path

    @property
    def has_run(self) -> bool:
        return (self.path / "config.yaml").exists()

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.json"

    @property
    def finished(self) -> bool:
        return self.metrics.exists()

    def seed(self, seed: int) -> SeedFolder:
        return SeedFolder(path=self.path / "seeds" / f"seed-{seed}", seed=seed)

    def begin(self, config: Config, *, resume: bool) -> Config:
        """Make the folder or resume it; returns the configuration that the run was begun with."""
        if self.has_run:
            begun = self.config()
            if not resume:
                raise ConfigError(
                    f"{self.path} already has a run; continue it with --resume, or pass another folder with --out"
                )
            _same(config, begun, self.path)
            return begun
        refuse_full(self.path)
        self.lay_out(config)
        return config

    def correct(self, config: Config) -> None:
        """Use other settings from here on; earlier ones are kept as `config.before-N.yaml`."""
        before = self.path / "config.yaml"
        number = len(list(self.path.glob("config.before-*.yaml"))) + 1
        write(self.path / f"config.before-{number}.yaml", before.read_text(encoding="utf-8"))
        write(before, config.to_yaml())

    def lay_out(self, config: Config) -> None:
        """Write the files that a run begins with."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.path / "environment.json", environment(config) | {"folder": str(self.path.resolve())})
        write(self.path / "config.yaml", config.to_yaml())

    @contextmanager
    def unless_refused(self, seeds: Sequence[int]) -> Iterator[None]:
        """Delete what was written if the start is refused before a seed has begun.

        A seed that has begun has a line in its log before its first record is read."""
        before = self.path.is_dir() and any(self.path.iterdir())
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            begun = any(self.seed(seed).notes() for seed in seeds)
            if self.path.is_dir() and not (before or begun or isinstance(error, Stopped)):
                shutil.rmtree(self.path / "seeds", ignore_errors=True)
                for name in ("arrived.json", "environment.json", "ledger.json", "config.yaml"):
                    (self.path / name).unlink(missing_ok=True)
                for folder in made:
                    if folder.is_dir() and not any(folder.iterdir()):
                        folder.rmdir()
            raise

    def ledger(self) -> dict[str, Any]:
        """The `path` and `id` of the lasting ledger that the run is charged to; empty before."""
        pointer = self.path / "ledger.json"
        found = read_json(pointer) if pointer.exists() else {}
        if not isinstance(found.get("path"), str | None):
            raise ConfigError(f"{pointer} was changed or is damaged; restore it from a backup of the folder")
        return found

    def config(self) -> Config:
        return Config.of(read_written(self.path / "config.yaml"))

    def write_accuracy(self, rows: Sequence[tuple[int, int, int, float]]) -> None:
        """Write the accuracies of all seeds, in order."""
        write_csv(self.path / "accuracy.csv", [("seed", "after_task", "on_task", "accuracy"), *rows])


def refuse_full(path: Path) -> None:
    """Refuse a folder that holds other files."""
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path} is a file, and a run needs a folder; pass an empty or new one with --out")
    if path.exists() and any(path.iterdir()):
        raise ConfigError(f"{path} is not empty and has no run; pass an empty or new folder with --out")


def environment(config: Config) -> dict[str, Any]:
    """The versions and the machine that the numbers depend on."""
    tacit = library()
    return {
        "tacit": tacit.version,
        "git_commit": tacit.git_commit,
        "dirty": checkout().dirty,
        "python": sys.version.split()[0],
        "torch": metadata.version("torch"),
        "numpy": metadata.version("numpy"),
        "dp_accounting": metadata.version("dp-accounting"),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": config.threads,
        "device": config.device,
    }


def changed(asked: Config, begun: Config) -> dict[str, tuple[Any, Any]]:
    """The keys in which two configurations of a run differ, with both values. The number of threads is that with which
    the run began."""
    plain = asked.model_copy(update={"threads": asked.threads or begun.threads}).plain()
    before, now = flat(begun.plain()), flat(plain)
    return {
        key: (before.get(key), value)
        for key, value in now.items()
        if key not in ("name", "description") and value != before.get(key)
    }


def _same(asked: Config, begun: Config, where: Path) -> None:
    """Refuse to resume with another configuration."""
    for key, (before, value) in changed(asked, begun).items():
        raise ConfigError(
            f"{where} was begun with {key} = {before!r}, got {value!r}; continue with the same configuration, or "
            "start a new run with --out"
        )


def flat(values: Values, prefix: str = "") -> dict[str, Any]:
    """Nested values by their dotted keys."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        out |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return out
