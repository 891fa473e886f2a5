"""A tiny stream of random blobs, a configuration that learns it in a moment, and a process that is killed."""

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np

from tacit.data.stream import Loader, Stream, StreamInfo, Task
from tacit.experiment.config.config import Config

SIZE = 80


def make_blobs(seed: int, *, public: bool = True, test: bool = True, tasks: int = 3, **facts: Any) -> Stream:
    """Two Gaussian blobs in each task, at places of their own."""
    info = StreamInfo.uniform("blobs", labels=(0, 1), shape=(4,), size=SIZE, tasks=tasks, public=public, **facts)

    def load(task: int, part: int) -> Loader:
        def loader() -> tuple[Any, ...]:
            rng = np.random.default_rng([seed, task, part])
            y = rng.integers(0, 2, SIZE)
            x = 2 * np.random.default_rng(task).normal(size=(2, 4))[y] + rng.normal(size=(SIZE, 4))
            ids = np.arange(SIZE).astype(str) if facts.get("unit") == "person" else None
            records = (x.astype(np.float32), y) if ids is None or part else (x.astype(np.float32), y, ids)
            return records

        return loader

    return Stream(
        info,
        [Task(info=one, records=load(one.number, 0), test=load(one.number, 1) if test else None) for one in info.tasks],
    )


def make_config(**changes: Any) -> Config:
    values: dict[str, Any] = {
        "name": "blobs",
        "data": {"source": "digits", "scenario": "permuted", "tasks": 3},
        "learner": {"method": "DPCL", "steps": 12, "batch": 20, "memory_batch": 5, "lr": 0.5},
        "model": {"network": "mlp", "hidden": [6]},
        "budget": {"epsilon": 2.0, "delta": 1e-3},
        "lca": 5,
        "threads": 1,
        "repeatable_noise": True,
    }
    return Config.of({**values, **changes})


def killed_at(owner: type, name: str, count: int, *, before: bool, work: Callable[[], object]) -> None:
    """Do the work in a process that dies by SIGKILL at the `count`-th call of a method."""
    child = os.fork()
    if child == 0:
        try:
            original, calls = getattr(owner, name), [0]

            def deadly(*args: Any, **named: Any) -> Any:
                calls[0] += 1
                if before and calls[0] == count:
                    os.kill(os.getpid(), signal.SIGKILL)
                found = original(*args, **named)
                if calls[0] == count:
                    os.kill(os.getpid(), signal.SIGKILL)
                return found

            setattr(owner, name, deadly)
            work()
        finally:
            os._exit(3)  # whatever happened: a child that returned would go on with the tests
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def in_a_process(work: Callable[[], bool]) -> bool:
    """What the work returns in a process that then ends, and lets go of its locks."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
