"""What a label set tells: an attacker looks at releases of neighbouring streams (Tobaben et al. 2025, Prop. 4.6, F.1).

Records in question are there or not, each by a fair coin, and nobody else has their labels. The attacker sees what is
released, the label set and a noisy sum for each label of it (Algorithm 1 of the paper), and says of each whether it is
there. The advantage is the share of those there that are found, less the share of those not there that are "found". For
each record the two streams are neighbours, whatever the other coins are, so under (ε, δ) the advantage is at most
(e^ε − 1 + 2δ)/(e^ε + 1). It is 1 where the set is read off the data, however much noise the sums have.

Evidence, not proof: it can refute a guarantee, and does for `FromData`; against the others it finds nothing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from tacit.data.stream import Label
from tacit.errors import PlanError
from tacit.privacy.budget import Budget
from tacit.privacy.declared import Declared
from tacit.privacy.keys import KeyRing
from tacit.privacy.labelspace import Constant, FromData, LabelSpace, Learned, Prior, under
from tacit.privacy.ledger import Ledger
from tacit.privacy.plan import SumPlan
from tacit.privacy.vault import Vault

USUAL = ("common", "usual")
OTHER = "other"
SIZE = 12
"""Usual records of a task."""
CONFIDENCE = 0.95
MOST = 2000
"""Records in question, in tasks without others."""
CROWD = 10
"""A task with usual records has so many times as many in question: they cost no more runs."""

Array = NDArray[Any]
Neighbours = Literal["the task's labels", "the union so far", "the empty task"]
Sums = dict[Label, Tensor]
"""Label → noisy sum. Empty: no classifier is released."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """How well the attacker tells streams apart that differ in one record."""

    neighbours: Neighbours
    space: str
    advantage: float
    """Measured, of the attacker's best way to look."""
    at_least: float
    """Its lower confidence bound."""
    bound: float
    """The most that (ε, δ) allows."""

    @property
    def consistent(self) -> bool:
        """Whether what was measured is consistent with (ε, δ)."""
        return self.at_least <= self.bound


LARGEST = 700.0
"""e to the power of more is no float."""


def audit(
    *, epsilon: float = 1.0, delta: float = 1e-5, records: int | None = None, seed: int | None = None
) -> list[Finding]:
    """Every label space on every kind of neighbours. `records`: how many tasks have one record in question or none
    (None: the least with which an advantage of 1 shows); `seed`: coins and noise that can be repeated."""
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
        raise PlanError(f"with {records} records in question no leak could be shown at ε = {epsilon:g}; use {least}")
    rng = np.random.default_rng(seed)
    few, many = (rng.permutation(np.arange(count) % 2 == 0) for count in (records, CROWD * records))
    found = []
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
                found.append(
                    Finding(neighbours=neighbours, space=name, advantage=advantage, at_least=least, bound=bound)
                )
    return found


def spaces(budget: Budget, records: int) -> dict[str, LabelSpace]:
    """Every way to a label set. The learned one cuts where one record shows most: at half a record."""
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
    """What the attacker sees of one record in question."""

    classifier: bool
    """There is a release at all."""
    named: bool
    """The record's label is in the set."""
    along: float
    """The sum that the record would be in, along its features."""


LOOKS: tuple[Callable[[View], bool], ...] = (
    lambda view: view.classifier,
    lambda view: view.named,
    lambda view: view.along > 0.5,
)
_ERROR = (1 - CONFIDENCE) / len(LOOKS) / 2


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One label space, on streams of its own."""

    name: str
    space: LabelSpace
    budget: Budget
    sums: SumPlan
    """On the whole budget, or on what the label query leaves of it."""
    vault: Vault

    def crowd(self, stream: str, coins: Array, tasks: int) -> list[View]:
        """All records in question in the first task, which has usual ones too; what is seen after the last task."""
        total: Sums = {}
        for number in range(tasks):
            there = np.flatnonzero(coins) if number == 0 else np.zeros(0, dtype=np.int64)
            for label, row in self._release(stream, str(number + 1), there, len(coins), usual=SIZE).items():
                total[label] = total.get(label, torch.zeros_like(row)) + row
        return [_view(total, i) for i in range(len(coins))]

    def empty(self, coins: Array, records: int) -> list[View]:
        """A task for each record in question, which has that record or none."""
        return [
            _view(self._release("many", f"empty {i}", np.flatnonzero([coin]) + i, records, usual=0), i)
            for i, coin in enumerate(coins)
        ]

    def _release(self, stream: str, task: str, there: Array, records: int, *, usual: int) -> Sums:
        """What is released of one task, under the label space and within the budget."""
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
    """Usual records, and those in question: each with a label and a direction of its own."""
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
    """The largest advantage of any look, and the largest lower bound: sure of all of them together by CONFIDENCE."""
    there = int(coins.sum())
    gone = len(coins) - there
    found = []
    for look in LOOKS:
        yes = np.asarray([look(view) for view in views])
        hits, misses = int(yes[coins].sum()), int((~yes[~coins]).sum())
        least = _lower(hits, there, _ERROR) + _lower(misses, gone, _ERROR) - 1
        found.append((hits / there + misses / gone - 1, least))
    return max(one for one, _ in found), max(least for _, least in found)


def _lower(hits: int, draws: int, error: float) -> float:
    """Clopper–Pearson."""
    return float(stats.beta.ppf(error, hits, draws - hits + 1)) if hits else 0.0
