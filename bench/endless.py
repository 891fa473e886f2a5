"""Does a stream without end stay as it is? Time per task, memory, size of the ledger, and ε, over many tasks.

    python bench/endless.py [--tasks 10000] [--every 1000] [--learner pool|naive] [--out FOLDER]

A simulated stream of tiny records and few steps, through `run_endless` as `tacit run` calls it: every task is admitted,
charged, learned, certified, released, settled, and its old records and releases are forgotten. Milliseconds a task are
split: in the ledger, in the certificate (beside the ledger), in learning (beside both), and the rest (records, release,
accuracy on the last tasks, notes). With --out and a folder that was begun, it goes on.
"""

import argparse
import functools
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.stream import Stream, StreamInfo, Task
from tacit.experiment.config.endless_config import Endless
from tacit.experiment.progress import Event
from tacit.experiment.runs.endless import run_endless
from tacit.learners.base.learner import Learner
from tacit.privacy.ledger import Ledger
from tacit.privacy.vault import Vault

SIZE, WIDTH = 60, 8
GRADIENTS = {"steps": 2, "batch": 20, "lr": 0.2}
LEARNERS: dict[str, dict[str, Any]] = {
    "naive": {"method": "NaiveDPSGD", **GRADIENTS},
    "pool": {
        "method": "Pool", **GRADIENTS, "memory_share": 0.3, "memory_batch": 10, "stay": 3, "leave": "thinning",
        "tasks_per_learner": 5, "early_start": True, "finished": 2,
    },
}  # fmt: skip


class Parts:
    """Seconds by part; a part inside another is taken out of it."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(("ledger", "certificate", "learn", "rest"), 0.0)
        self._open, self._since = ["rest"], time.perf_counter()

    def turn(self) -> None:
        now = time.perf_counter()
        self.spent[self._open[-1]] += now - self._since
        self._since = now

    def watch(self, owner: type, name: str, part: str) -> None:
        """Count the calls of a method to a part."""
        original: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(original)
        def timed(*args: Any, **named: Any) -> Any:
            self.turn()
            self._open.append(part)
            try:
                return original(*args, **named)
            finally:
                self.turn()
                self._open.pop()

        setattr(owner, name, timed)

    def take(self) -> dict[str, float]:
        self.turn()
        found, self.spent = self.spent, dict.fromkeys(self.spent, 0.0)
        return found


def stream(seed: int) -> Stream:
    """Two blobs that wander for ever."""
    info = StreamInfo.uniform("blobs", labels=(0, 1), shape=WIDTH, size=SIZE, tasks=1, public=True, endless=True)

    def task(number: int) -> Task:
        def load(part: int) -> tuple[Any, Any]:
            rng = np.random.default_rng([seed, number, part])
            y = rng.integers(0, 2, SIZE)
            centre = np.cos(number / 20 + np.arange(WIDTH))
            return (np.where(y[:, None] == 0, centre, -centre) + rng.normal(size=(SIZE, WIDTH))).astype("float32"), y

        facts = info.task(number)
        assert facts is not None
        return Task(info=facts, records=lambda: load(0), test=lambda: load(1))

    return Stream(info, [task(0)], later=task)


def resident() -> float:
    """Megabytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--tasks", type=int, default=10_000)
    asked.add_argument("--every", type=int, default=1_000)
    asked.add_argument("--learner", choices=LEARNERS, default="pool")
    asked.add_argument("--out", type=Path, default=None)
    given = asked.parse_args()
    config = Endless.of(
        {
            "kind": "endless", "name": "bench", "threads": 1,
            "data": {"source": "digits", "scenario": "drifting"},
            "learner": LEARNERS[given.learner],
            "model": {"network": "mlp", "hidden": [8]},
            "budget": {"epsilon": 1.0, "delta": 1e-3},
        }
    )  # fmt: skip
    parts = Parts()
    for name in [one for one in vars(Ledger) if not one.startswith("_") and callable(vars(Ledger)[one])]:
        if not isinstance(vars(Ledger)[name], classmethod | staticmethod):
            parts.watch(Ledger, name, "ledger")
    parts.watch(Vault, "certificate", "certificate")
    parts.watch(Learner, "learn", "learn")
    with tempfile.TemporaryDirectory() as made:
        folder: Path = given.out or Path(made) / "run"
        print(f"{given.learner}; milliseconds a task")
        print(
            " ".join(f"{name:>8}" for name in ("tasks", "ledger", "certif.", "learn", "rest", "RSS MB", "book MB", "ε"))
        )

        def hear(said: Event) -> None:
            if said.kind == "begin":
                parts.take()
            if said.kind == "task" and (said.task + 1) % given.every == 0:
                ms = {name: 1e3 * spent / given.every for name, spent in parts.take().items()}
                book = sum(file.stat().st_size for file in (folder / "private").glob("throwaway.ledger*")) / 1e6
                times = " ".join(f"{ms[name]:8.2f}" for name in ("ledger", "certificate", "learn", "rest"))
                print(f"{said.task + 1:8,} {times} {resident():8.0f} {book:8.1f} {said.epsilon:8.4f}", flush=True)

        run_endless(config, folder, resume=True, tasks=given.tasks, stream=stream, progress=hear)


if __name__ == "__main__":
    main()
