"""A small world for learners: separable tasks of a few records, tiny networks, vaults whose noise can be repeated."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tacit import Block, Budget, Ledger, Vault
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.learners import find
from tacit.learners.base.callbacks import Callback, Step
from tacit.learners.base.learner import Learner
from tacit.learners.base.release import Release
from tacit.learners.base.task_loop import admit
from tacit.memory import References
from tacit.privacy.randomness.keys import KeyRing
from tacit.privacy.vault import GradientPlan, Grant

SIZE = 120
GENEROUS = Budget(epsilon=50.0, delta=1e-5)
ROOMY = Budget(epsilon=1e4, delta=1e-5)
"""For plans whose noise is given."""

torch.set_num_threads(1)


def facts(tasks: int = 3, *, size: int = SIZE, public: bool = True, **said: Any) -> StreamInfo:
    """Two labels in every task."""
    return StreamInfo.uniform("blobs", labels=(0, 1), shape=(6,), size=size, tasks=tasks, public=public, **said)


def split_facts(tasks: int = 3, **said: Any) -> StreamInfo:
    """Two labels of its own for each task: 0 1, 2 3, 4 5."""
    own = (TaskInfo(name=f"t{n}", number=n, labels=(2 * n, 2 * n + 1), size=SIZE) for n in range(tasks))
    return StreamInfo(name="split", shape=(6,), tasks=tuple(own), public=True, **said)


def records(task: int, n: int = SIZE, *, part: int = 0, first: int = 0) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Task t lies at 3 on axis t; its two labels on both sides of axis 3 + t. `part` 1 is for tests."""
    rng = np.random.default_rng([task, part])
    side = rng.integers(0, 2, n)
    x = rng.normal(size=(n, 6)) * 0.4
    x[:, task % 3] += 3
    x[:, 3 + task % 3] += 6 * side - 3
    return x.astype(np.float32), side + first


def nothing() -> tuple[NDArray[np.float32], NDArray[Any]]:
    return np.zeros((0, 6), dtype=np.float32), np.zeros(0, dtype=np.int64)


def tiny(info: StreamInfo) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, len(info.labels)))


PRIVATE: dict[str, tuple[str, dict[str, Any]]] = {
    "adaptive": ("AdaptiveDPSGD", {"check": 2, "by_step": 2, "watch_share": 0.2}),
    "DPAGEM average": ("DPAGEM", {"memory_batch": 8, "visible": "average"}),
    "DPAGEM each": ("DPAGEM", {"memory_batch": 8, "visible": "each"}),
    "DPCL union": ("DPCL", {"memory_batch": 8, "memory": "union"}),
    "DPCL block": ("DPCL", {"memory_batch": 8, "memory": "block"}),
    "DPER": ("DPER", {}),
    "Joint": ("Joint", {"batch": 90}),
    "NaiveDPSGD": ("NaiveDPSGD", {}),
    "NaiveGaussian": ("NaiveGaussian", {"memory_batch": 8, "epochs": None}),
    "pool": ("Pool", {"memory_batch": 8, "tasks_per_learner": 2, "early_start": True}),
    "experts": ("RoutedExperts", {"router": "mean"}),
    "experts by prototypes": ("RoutedExperts", {"router": "prototypes"}),
    "experts by scores": ("RoutedExperts", {"router": "scores", "sharpness": 5.0}),
    "low-rank experts": ("RoutedExperts", {"rank": 2}),
    "few experts": ("RoutedExperts", {"most": 2}),
    "aligned experts": ("RoutedExperts", {"router": "prototypes", "start_from": "aligned"}),
    "cosine": ("CosineClassifier", {}),
    "lifelong": ("LifelongDP", {"width": 40}),
    "moments": ("MomentsClassifier", {}),
    "ensemble": ("PEFTEnsemble", {"epochs": None, "rule": "sgd"}),
    "ensemble by entropy": ("PEFTEnsemble", {"epochs": None, "rule": "sgd", "aggregate": "entropy"}),
}
HAVE_MEMORY = ("DPAGEM", "DPCL", "DPER", "NaiveGaussian", "Pool")
REPLAY = [name for name, (method, _) in PRIVATE.items() if method in HAVE_MEMORY]
ALL = {"AGEM": ("AGEM", {"memory_batch": 20}), **PRIVATE}
STEPLESS = ("AGEM", "CosineClassifier", "LifelongDP", "MomentsClassifier")
"""Methods without steps of DP-SGD, whose noise is not given."""


def make(name: str, **settings: Any) -> Learner:
    """A learner of the table, with other settings where they are given."""
    method, own = ALL[name]
    common: dict[str, Any] = {"budget": GENEROUS, "network": tiny}
    if method not in STEPLESS:
        common |= {"steps": 20, "batch": 30, "lr": 0.5, "momentum": 0.0}
    made: Learner = find(method)(**common | own | settings)
    return made


def given(name: str, **settings: Any) -> dict[str, Any]:
    """Settings with given noise and a few steps: nothing is calibrated, and all tests use the same plans (quick)."""
    method, _ = ALL[name]
    if method in STEPLESS:
        return settings
    own: dict[str, Any] = {"budget": ROOMY, "steps": 5, "noise": 1.0}
    if method == "DPER":
        own |= {"replay": 10}
    elif name in REPLAY:
        own |= {"memory_noise": 1.0}
    return own | settings


def fixed(store: Path | None = None, keys: int = 0) -> Vault:
    """Coins and noise are the same in every run: for what must not be flaky, and for twins that are compared."""
    return Vault(Ledger.throwaway(keys=KeyRing.for_tests(keys)), store)


def take(
    vault: Vault, info: StreamInfo, number: int, source: Any, budget: Budget, *, like: GradientPlan | None = None
) -> Block:
    return admit(vault, source, info, info.tasks[number], budget, like=like)


def learn(
    learner: Learner, vault: Vault, numbers: Sequence[int], sources: Callable[[int], Any] = records
) -> list[Release]:
    """Some tasks of the learner's stream, in turn."""
    info, releases = learner.stream_, []
    for task in (info.tasks[number] for number in numbers):
        block = take(
            vault, info, task.number, sources(task.number), learner.budget, like=learner.representative_plan(task)
        )
        releases.append(learner.learn(task, block, vault))
    return releases


def started(name: str, info: StreamInfo | None = None, **settings: Any) -> Learner:
    learner = make(name, **settings)
    learner.start(info or facts())
    return learner


@cache
def whole_run(name: str) -> tuple[Learner, Vault, list[Release]]:
    """Three tasks with given noise, learned once for all tests that only look at it."""
    learner, vault = started(name, **given(name)), fixed(Path(mkdtemp()))
    return learner, vault, learn(learner, vault, [0, 1, 2])


def accuracies(learner: Learner, numbers: Sequence[int] = (0, 1, 2)) -> list[float]:
    """On made-up test records; also of a learner that has learned nothing yet."""
    asked = [records(n, part=1) for n in numbers]
    right = [learner.scores(torch.from_numpy(x)).argmax(1) == learner.positions(y) for x, y in asked]
    return [float(one.float().mean()) for one in right]


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def uncommitted(vault: Vault) -> Counter[tuple[int, str]]:
    """Events that a block was committed to and no grant took, or that were taken and not committed: none of either."""
    statement = vault.ledger.statement(1)
    assert {grant.state for grant in statement.grants} <= {"RELEASED"}
    whole = [block for block in statement.blocks if block.row.state != "split"]
    promised = Counter((block.row.id, event) for block in whole for event in block.events)
    taken = Counter((block, event) for grant in statement.grants for block, event in grant.reads)
    return (promised - taken) + (taken - promised)


class Stopped(Exception):
    """What a crash is in these tests."""


class OnStep(Callback):
    """A callback that passes every step to a function."""

    def __init__(self, function: Callable[[Step], object]) -> None:
        self._function = function

    def on_step(self, step: Step) -> None:
        self._function(step)


def stop_at(number: int, step: int) -> Callback:
    """A callback that crashes before one step of one task."""

    def crash(now: Step) -> None:
        if (now.task.number, now.step) == (number, step):
            raise Stopped

    return OnStep(crash)


class Watched:
    """Every gradient that leaves a vault, by the grant it came from, in the order of the grants; and every g_ref."""

    def __init__(self, monkeypatch: Any) -> None:
        self.found: dict[Grant, list[torch.Tensor]] = {}
        honest = Grant.gradient

        def gradient(grant: Grant) -> dict[str, torch.Tensor]:
            out = honest(grant)
            self.found.setdefault(grant, []).append(torch.cat([value.flatten() for value in out.values()]))
            return out

        monkeypatch.setattr(Grant, "gradient", gradient)
        self._formed: dict[References, list[torch.Tensor]] = {}
        formed = References.gradient

        def reference(references: References, step: int) -> dict[str, torch.Tensor]:
            out = formed(references, step)
            self._formed.setdefault(references, []).append(torch.cat([value.flatten() for value in out.values()]))
            return out

        monkeypatch.setattr(References, "gradient", reference)

    @property
    def references(self) -> list[torch.Tensor]:
        """g_ref of every step, as a learner got it: the second task's, then the third's."""
        return [torch.stack(values) for values in self._formed.values()]

    def of_memory(self) -> Iterator[tuple[Grant, torch.Tensor]]:
        return ((grant, values) for grant, values, memory in self._sorted() if memory)

    def of_training(self) -> Iterator[tuple[Grant, torch.Tensor]]:
        return ((grant, values) for grant, values, memory in self._sorted() if not memory)

    def _sorted(self) -> Iterator[tuple[Grant, torch.Tensor, bool]]:
        for grant, values in self.found.items():
            parts = {sampled.read.block.part.split("/")[-1] for sampled in grant._reads}
            yield grant, torch.stack(values), parts == {"memory"}


def person_facts(tasks: int = 3) -> StreamInfo:
    """People with up to two records a task, in up to two tasks."""
    return replace(facts(tasks), name="people", unit="person", tasks_per_unit=2, records_per_unit=2)


def of_people(task: int) -> tuple[Any, ...]:
    """80 people a task, of whom half are in the next one too."""
    x, y = records(task)
    return x, y, np.arange(len(y)) % 80 + 40 * task
