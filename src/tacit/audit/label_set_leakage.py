"""Leakage through label sets: a membership attack (Tobaben et al. 2025, Prop. 4.6 and F.1).

Each canary record is included by a fair coin and has a label of its own. The attacker sees the release, a label set
with a noisy sum for each label (Algorithm 1 of the paper), and guesses for each canary whether it was included. The
advantage is the true positive rate minus the false positive rate. For each canary the two streams are neighbours
whatever the other coins are, so (ε, δ)-DP bounds the advantage by (e^ε − 1 + 2δ)/(e^ε + 1). It is 1 if the label set is
read from the data, however much noise the sums have.

The attack can refute a guarantee, and does for `FromData`; it cannot prove one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.audit.membership import CONFIDENCE, at_least
from tacit.data.stream import Label
from tacit.errors import PlanError
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.ledger import Ledger
from tacit.privacy.randomness.keys import KeyRing
from tacit.privacy.vault import Constant, Declared, FromData, LabelSpace, Learned, Prior, SumPlan, Vault
from tacit.privacy.vault.label_spaces import under

USUAL = ("common", "usual")
OTHER = "other"
SIZE = 12
"""The number of ordinary records of a task."""
MOST = 2000
"""The largest number of canaries with a task of their own."""
CROWD = 10
"""How many times more canaries there are in the tasks that also contain ordinary records."""

Array = NDArray[Any]
Neighbours = Literal["the task's labels", "the union so far", "the empty task"]
Sums = dict[Label, Tensor]
"""The noisy sum of each label; empty if no classifier is released."""


@dataclass(frozen=True, kw_only=True)
class Leakage:
    """How well the attacker distinguishes streams that differ in one record."""

    neighbours: Neighbours
    space: str
    advantage: float
    """The measured advantage of the attacker's best test."""
    at_least: float
    """The lower confidence bound of the advantage."""
    bound: float
    """The largest advantage that (ε, δ) allows."""

    @property
    def consistent(self) -> bool:
        """Whether the measurement is consistent with (ε, δ)."""
        return self.at_least <= self.bound


LARGEST = 700.0
"""The largest ε whose exponential is a float."""


def audit(
    *, epsilon: float = 1.0, delta: float = 1e-5, records: int | None = None, seed: int | None = None
) -> list[Leakage]:
    """Attack every kind of label space on every kind of neighbours.

    Args:
        epsilon: The ε of one record.
        delta: The δ of one record.
        records: The number of canaries; by default the smallest number that can show an advantage of 1.
        seed: Makes coins and noise reproducible.

    Raises:
        PlanError: An argument is out of range, or no leak could be shown.
    """
    budget = Budget(epsilon=epsilon, delta=delta)
    if seed is not None and seed < 0:
        raise PlanError(f"seed must be a whole number ≥ 0, got {seed}")
    if epsilon > LARGEST:
        raise PlanError(f"ε = {epsilon:g} allows an advantage near 1, so no leak could be shown; look at one below 5")
    bound = (math.expm1(epsilon) + 2 * delta) / (math.exp(epsilon) + 1)
    least = 2 * math.ceil(math.log(_ERROR) / math.log((1 + bound) / 2) + 1) if bound < 1 else math.inf
    if least > MOST:
        raise PlanError(f"ε = {epsilon:g} allows an advantage of {bound:.4f}, near 1; look at one below 5")
    records = int(least) if records is None else records
    if records < least:
        raise PlanError(f"with {records} canary records no leak could be shown at ε = {epsilon:g}; use {least}")
    rng = np.random.default_rng(seed)
    few, many = (rng.permutation(np.arange(count) % 2 == 0) for count in (records, CROWD * records))
    results = []
    with Ledger.throwaway(keys=None if seed is None else KeyRing.for_tests(seed)) as ledger:
        for name, space in spaces(budget, len(many)).items():
            sums = space.rest(budget).sums() if isinstance(space, Learned) else SumPlan.for_budget(budget)
            trial = Trial(name=name, space=space, budget=budget, sums=sums, vault=Vault(ledger))
            seen: dict[Neighbours, tuple[list[View], Array]] = {
                "the task's labels": (trial.crowd("one", many, tasks=1), many),
                "the union so far": (trial.crowd("two", many, tasks=2), many),
                "the empty task": (trial.empty(few, len(many)), few),
            }
            for neighbours, (views, coins) in seen.items():
                advantage, least = _advantage(views, coins)
                results.append(
                    Leakage(neighbours=neighbours, space=name, advantage=advantage, at_least=least, bound=bound)
                )
    return results


def spaces(budget: Budget, records: int) -> dict[str, LabelSpace]:
    """Every kind of label space. The threshold of the learned one is half a record, where one record shows most."""
    known = (*USUAL, *map(_rare, range(records)))
    prior = {"1": known, "2": USUAL} | {f"empty {i}": known for i in range(records)}
    half = 0.5 / Learned(candidates=known, share=0.5).plan(budget).noise
    return {
        "from data": FromData(),
        "declared per task": Prior(declared=prior),
        "declared constant": Constant(declared=known),
        "declared, remapped": Constant(declared=(*USUAL, OTHER), other=OTHER),
        "learned": Learned(candidates=known, share=0.5, threshold=half),
        "discovered": Learned(share=0.5, other=OTHER),
    }


@dataclass(frozen=True, kw_only=True)
class View:
    """What the attacker sees of one canary."""

    classifier: bool
    """Whether a classifier was released."""
    named: bool
    """Whether the canary's label is in the label set."""
    along: float
    """The sum that would contain the canary, projected on its features."""


TESTS: tuple[Callable[[View], bool], ...] = (
    lambda view: view.classifier,
    lambda view: view.named,
    lambda view: view.along > 0.5,
)
_ERROR = (1 - CONFIDENCE) / len(TESTS) / 2


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The attack on one label space, with streams of its own."""

    name: str
    space: LabelSpace
    budget: Budget
    sums: SumPlan
    """The plan of the sums, for the whole budget or what the label query leaves of it."""
    vault: Vault

    def crowd(self, stream: str, coins: Array, tasks: int) -> list[View]:
        """All canaries in the first task, beside ordinary records; the attacker looks after the last task."""
        total: Sums = {}
        for number in range(tasks):
            there = np.flatnonzero(coins) if number == 0 else np.zeros(0, dtype=np.int64)
            for label, row in self._release(stream, str(number + 1), there, len(coins), usual=SIZE).items():
                total[label] = total.get(label, torch.zeros_like(row)) + row
        return [_view(total, i) for i in range(len(coins))]

    def empty(self, coins: Array, records: int) -> list[View]:
        """A task for each canary, which contains that record or none."""
        return [
            _view(self._release("many", f"empty {i}", np.flatnonzero([coin]) + i, records, usual=0), i)
            for i, coin in enumerate(coins)
        ]

    def _release(self, stream: str, task: str, there: Array, records: int, *, usual: int) -> Sums:
        """The release of one task with this label space, within the budget."""
        facts = {"stream": f"{self.name}: {stream}", "task": task, "size": SIZE, "shape": (records + 1,)}
        declared = Declared(**facts, budget=self.budget, public=True)  # type: ignore[arg-type]
        block = self.vault.admit(_records(there, records, usual), declared)
        if isinstance(self.space, Learned):
            self.vault.commit({block: [self.space.plan(self.budget), self.sums]})
        if isinstance(self.space, FromData) and not self.space.labels(self.vault, block):
            return {}  # no label, no classifier
        block = under(self.space, self.vault, block)
        sums = self.vault.sums(block, self.sums)
        self.vault.drop(block)
        return dict(zip(block.labels or (), sums, strict=True))


def _records(there: Array, records: int, usual: int) -> tuple[Array, Array]:
    """Ordinary records, and the included canaries, each with a label and a direction of its own."""
    x = np.eye(records + 1, dtype=np.float32)[np.concatenate([np.full(usual, records), there])]
    y = [USUAL[i % len(USUAL)] for i in range(usual)] + [_rare(i) for i in there.tolist()]
    return x, np.asarray(y, dtype=str)


def _rare(number: int) -> str:
    return f"rare {number}"


def _view(sums: Sums, number: int) -> View:
    row = sums.get(_rare(number), sums.get(OTHER))
    along = -math.inf if row is None else float(row[number])
    return View(classifier=bool(sums), named=_rare(number) in sums, along=along)


def _advantage(views: Sequence[View], coins: Array) -> tuple[float, float]:
    """The largest advantage of any test, and the largest lower bound; all bounds hold together with CONFIDENCE."""
    included = int(coins.sum())
    excluded = len(coins) - included
    results = []
    for test in TESTS:
        guesses = np.asarray([test(view) for view in views])
        hits, misses = int(guesses[coins].sum()), int((~guesses[~coins]).sum())
        lower = at_least(hits, included, _ERROR) + at_least(misses, excluded, _ERROR) - 1
        results.append((hits / included + misses / excluded - 1, lower))
    return max(advantage for advantage, _ in results), max(lower for _, lower in results)
