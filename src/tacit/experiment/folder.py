"""The folder of a run: what was asked for, where it ran, what it found; private parts in `seeds/*/private`.

Guarantee: what is in it outside `private/` is public or charged. Every file is written whole (a draft is moved into
place) or line by line (a torn last line is dropped), so a kill at any moment leaves a folder that can be taken up.
"""

import csv
import fcntl
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError
from tacit.experiment.changes import read
from tacit.experiment.config import Config
from tacit.experiment.events import Stopped
from tacit.privacy.issue import checkout, library

Values = Mapping[str, Any]


def write(path: Path, text: str) -> None:
    """The whole file or none of it."""
    draft = path.with_name(path.name + ".new")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_json(path: Path, values: Values) -> None:
    write(path, json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ConfigError(f"{path} was changed or is damaged; restore it from a backup of the folder")
    return found


def add_line(path: Path, line: Values) -> None:
    """Add a line to a log; it is on disk when this returns."""
    with path.open("a+b") as file:
        if file.tell() and not _ends_whole(file):
            file.write(b"\n")  # a torn line stays alone, and is dropped when read
        file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def lines(path: Path) -> list[dict[str, Any]]:
    """What is in a log; lines that a crash tore are dropped."""
    found = path.read_bytes().split(b"\n") if path.exists() else []
    return [line for one in found if (line := _parsed(one)) is not None]


def delete(folder: Path) -> None:
    """Delete private data, or say that some of it is still there."""
    shutil.rmtree(folder, ignore_errors=True)
    # What is deleted while it is open, such as the lock of a seed, stays under such a name on some file systems.
    if any(one.name != "lock" and not one.name.startswith(".nfs") for one in folder.glob("*")):
        raise ConfigError(
            f"{folder} still holds private data, since it is a link or cannot be written to; delete what it holds "
            "yourself"
        )


@dataclass(frozen=True, kw_only=True)
class SeedFolder:
    """One seed: its releases, its log of measurements, and its private part."""

    path: Path
    seed: int

    @property
    def private(self) -> Path:
        """Ledger, keys and store; only the owner can read it."""
        return self.path / "private"

    @property
    def features(self) -> Path:
        """Features of private records, each task's until it is settled."""
        return self.private / "features"

    def release(self, number: int, name: str) -> Path:
        """Where the release after a task lies."""
        plain = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)
        return self.path / "releases" / f"{number + 1:02d}-{plain}"

    @property
    def finished(self) -> bool:
        return any(note.get("finished") for note in self.notes())

    @property
    def learnt(self) -> int:
        """How many tasks there were when the seed last came to an end; 0 before."""
        return max((len(note["tasks"]) for note in self.notes() if "finished" in note), default=0)

    def note(self, line: Values) -> None:
        """Add a line to the log; it is on disk when this returns."""
        add_line(self.path / "progress.jsonl", line)

    def notes(self) -> list[dict[str, Any]]:
        """The log; lines that a crash tore are dropped."""
        return lines(self.path / "progress.jsonl")

    @contextmanager
    def held(self, wait_s: float = 15.0) -> Iterator[None]:
        """Lay the folder out; within it, no other process works on the seed.

        A process whose parent died needs a moment to stop, so wait for it."""
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
                            f"another process is at work on {self.path}; wait for it to end, or stop it"
                        ) from None
                    time.sleep(0.1)
            yield

    def clear(self) -> None:
        """A finished seed needs no store and no throw-away ledger: records are not kept longer than needed."""
        delete(self.private)


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
        """Lay the folder out, or take it up; the configuration that was begun with is the one that counts."""
        if self.has_run:
            begun = self.config()
            if not resume:
                raise ConfigError(
                    f"{self.path} holds a run already; go on with it by --resume, or give another folder by --out"
                )
            _same(config, begun, self.path)
            return begun
        refuse_full(self.path)
        self.lay_out(config)
        return config

    def correct(self, config: Config) -> None:
        """Go on with other settings from here on; those before stay beside them."""
        before = self.path / "config.yaml"
        number = len(list(self.path.glob("config.before-*.yaml"))) + 1
        write(self.path / f"config.before-{number}.yaml", before.read_text(encoding="utf-8"))
        write(before, config.to_yaml())

    def lay_out(self, config: Config) -> None:
        """Write what a run begins with."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.path / "environment.json", environment(config) | {"folder": str(self.path.resolve())})
        write(self.path / "config.yaml", config.to_yaml())

    @contextmanager
    def unless_refused(self, seeds: Sequence[int]) -> Iterator[None]:
        """A start that is refused before a seed has begun leaves nothing behind. (A seed that has begun has a note in
        its log before its first record is read.)"""
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
        """Where the run is charged to: `path` and `id` of a lasting ledger; empty before."""
        pointer = self.path / "ledger.json"
        found = read_json(pointer) if pointer.exists() else {}
        if not isinstance(found.get("path"), str | None):
            raise ConfigError(f"{pointer} was changed or is damaged; restore it from a backup of the folder")
        return found

    def config(self) -> Config:
        return Config.of(read(self.path / "config.yaml"))

    def write_accuracy(self, rows: Sequence[tuple[int, int, int, float]]) -> None:
        """All seeds, in order."""
        lines: list[Sequence[Any]] = [("seed", "after_task", "on_task", "accuracy"), *rows]
        draft = self.path / "accuracy.csv.new"
        with draft.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)
        draft.replace(self.path / "accuracy.csv")


def refuse_full(path: Path) -> None:
    """Nothing is written among files of other work."""
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path} is a file, and a run needs a folder; give an empty or a new folder by --out")
    if path.exists() and any(path.iterdir()):
        raise ConfigError(f"{path} is not empty and holds no run; give an empty or a new folder by --out")


def environment(config: Config) -> dict[str, Any]:
    """What the numbers were made with."""
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
    """The keys in which two configurations of a run differ, with what each says; the number of threads was fixed when
    the run began."""
    plain = asked.model_copy(update={"threads": asked.threads or begun.threads}).plain()
    before, now = _flat(begun.plain()), _flat(plain)
    return {
        key: (before.get(key), value)
        for key, value in now.items()
        if key not in ("name", "description") and value != before.get(key)
    }


def _same(asked: Config, begun: Config, where: Path) -> None:
    """Refuse to go on with another configuration."""
    for key, (before, value) in changed(asked, begun).items():
        raise ConfigError(
            f"{where} was begun with {key} = {before!r}, got {value!r}; go on with the same configuration, or "
            "start a new run by --out"
        )


def _flat(values: Values, prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in values.items():
        out |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return out


def _ends_whole(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
