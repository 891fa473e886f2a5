"""Label spaces: where the label set of a task comes from, and what it costs (Tobaben et al. 2025, Section 4.2).

Formal guarantees
  * A declared set (`Prior`, `Constant`) does not depend on the data and costs nothing.
  * A `Learned` set is a charged release of the exit `vault.label_set`.
  * A set read off the data (`FromData`) is refused for private data.
  * Records outside the set are skipped, or get one public label of it (`other`). Either acts on each record by itself
    inside the vault, and their number is not released.
  * A set is never empty, so a task without records has a classifier too (Prop. F.1).

The budget can be split between labels and weights. `Learned(share=s)` gives a share s of the budget in μ² = 1/σ² to the
labels and 1 − s to what follows (`rest`); both are committed in one transaction before the first read:

    learned = Learned(candidates=diseases, share=0.1)
    labels, sums = learned.plan(budget), learned.rest(budget).sums()
    vault.commit({block: [labels, sums]})
    block = under(learned, vault, block)
    vault.sums(block, sums)

Alternatively the units can be split: a share s of the units answers only the label query, and each part has the whole
budget (parallel composition). With n units of a label and noise σ for the whole budget, the signal-to-noise ratio of
the label's count is n√s/σ if the budget is split and n·s/σ if the units are: smaller by 1/√s (4.5 at s = 0.05). The
ratio of what is learned afterwards is n√(1 − s)/σ against n(1 − s)/σ: smaller by 1/√(1 − s) (1.03). So splitting the
budget is always better in noise. Splitting units is better where a learner must not know of it (it plans with the whole
budget; the runner does so), and for discovery, whose additive δ then costs the weights nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Protocol

from tacit.data.stream import Label
from tacit.errors import PlanError, VaultError
from tacit.privacy.accounting import calibrate, events
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.ledger.storage.values import LabelPolicy
from tacit.privacy.vault.exits.label_set import LabelPlan
from tacit.privacy.vault.exits.plans import GradientPlan, SumPlan
from tacit.privacy.vault.intake.blocks import Block, check_other_label, label_set
from tacit.privacy.vault.vault import Vault

REFUSED = (
    "a label set from private data is refused: which labels occur depends on one record (Tobaben et al. 2025, Prop. "
    "4.6), so the set alone can reveal a record; declare it (Prior, Constant; data.label_space: task, constant), or "
    "learn it at a charge (Learned; data.label_space: learned)"
)


class LabelSpace(Protocol):
    """A source of label sets."""

    @property
    def policy(self) -> LabelPolicy:
        """What certificates say about the label set."""

    @property
    def other(self) -> Label | None:
        """The label that records outside the set get; None if they are skipped."""

    def labels(self, vault: Vault, block: Block) -> tuple[Label, ...]:
        """The label set of the block's task."""


def under(space: LabelSpace, vault: Vault, block: Block) -> Block:
    """The block under its label set."""
    return vault.with_labels(block, space.labels(vault, block), other=space.other)


@dataclass(frozen=True, kw_only=True)
class Constant:
    """One declared set for all tasks (S_prior^const). It costs nothing."""

    declared: Sequence[Label]
    other: Label | None = None
    policy: ClassVar[LabelPolicy] = "declared constant"

    def __post_init__(self) -> None:
        object.__setattr__(self, "declared", label_set(self.declared))
        check_other_label(self.other, self.declared)

    def labels(self, vault: Vault, block: Block) -> tuple[Label, ...]:
        return tuple(self.declared)


@dataclass(frozen=True, kw_only=True)
class Prior:
    """A declared set for each task, by the task's name (S_prior). It costs nothing."""

    declared: Mapping[str, Sequence[Label]]
    other: Label | None = None
    policy: ClassVar[LabelPolicy] = "declared per task"

    def __post_init__(self) -> None:
        object.__setattr__(self, "declared", {task: label_set(labels) for task, labels in self.declared.items()})
        for labels in self.declared.values():
            check_other_label(self.other, labels)

    def labels(self, vault: Vault, block: Block) -> tuple[Label, ...]:
        if block.task not in self.declared:
            raise VaultError(f"no label set was declared for task {block.task!r}; declare one for every task")
        return tuple(self.declared[block.task])


@dataclass(frozen=True, kw_only=True)
class FromData:
    """The labels that occur (S_data): NOT PRIVATE, for any ε and δ < 1 (Prop. 4.6).

    It is refused for private data. On public data, or if the ledger's policy allows unsafe exits, the stream is
    certified as not private. An empty task has no labels and so no classifier, which reveals that it is empty (Prop.
    F.1).
    """

    other: Label | None = None
    policy: ClassVar[LabelPolicy] = "from data, not private"

    def check(self, vault: Vault, *, public: bool) -> None:
        """Refuses private data before any of it is read."""
        if not public and not vault.ledger.policy.allow_unsafe:
            raise VaultError(REFUSED)

    def labels(self, vault: Vault, block: Block) -> tuple[Label, ...]:
        self.check(vault, public=block.public)
        found = vault.unsafe.labels(block)
        return found if self.other is None else _with(found, self.other)


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A privately learned set: a noisy count for each candidate, or discovery by a stable histogram.

    The release uses a share of the budget; discovery also uses a share of δ. If no candidate passes, the set is all of
    them. `other` is in every set. Labels of another type than the declared ones of the block (strings, integers) are
    refused before the charge.

    Attributes:
        candidates: The public labels to choose from; None to discover labels, where `other` is needed.
        share: The share of the budget in μ²; 1 for units that answer only the label query.
        labels_per_unit: The largest number of labels of one unit that count.
        threshold: With candidates, the smallest noisy count that is kept, in standard deviations of its noise. An
            absent label passes with probability 1 − Φ(threshold), 2.3 % by default: it costs a little noise, whereas a
            missed label costs its records.
        delta_share: For discovery, the share of δ that bounds the probability to release a label of one unit alone.
        other: The label that records outside the set get.
    """

    candidates: Sequence[Label] | None = None
    share: float = 0.1
    labels_per_unit: int = 1
    threshold: float = 2.0
    delta_share: float = 0.1
    other: Label | None = None
    policy: ClassVar[LabelPolicy] = "learned privately"

    def __post_init__(self) -> None:
        for name, most in (("share", 1.0), ("delta_share", 0.999)):
            if not 0 < getattr(self, name) <= most:
                raise PlanError(f"{name} must be in (0, {most:g}], got {getattr(self, name)}; it is part of the budget")
        if self.candidates is not None:
            object.__setattr__(self, "candidates", label_set(self.candidates))
            check_other_label(self.other, self.candidates)
        elif self.other is None:
            raise PlanError("discovery may find nothing, and a set is never empty; name other='…', or the candidates")

    def plan(self, budget: Budget, *, tasks_per_unit: int = 1) -> LabelPlan:
        """The label query on its share of the budget of a unit that is in `tasks_per_unit` tasks.

        Args:
            budget: What a unit may lose in all.
            tasks_per_unit: The number of tasks of a unit.
        """
        whole = self._gaussian(budget)
        noise = SumPlan.for_budget(whole, share=self.share, tasks_per_unit=tasks_per_unit).noise
        plan = partial(LabelPlan, noise=noise, labels_per_unit=self.labels_per_unit)
        if self.candidates is not None:
            return plan(candidates=tuple(self.candidates), threshold=self.threshold * noise)
        return plan(delta=(budget.delta - whole.delta) / tasks_per_unit * (1 - 1e-12))  # parts must not add up to more

    def rest(self, budget: Budget, *, tasks_per_unit: int = 1) -> "Rest":
        """What is left of the budget for other reads of the same units.

        Args:
            budget: What a unit may lose in all.
            tasks_per_unit: The number of tasks of a unit.

        Raises:
            PlanError: The labels take the whole budget.
        """
        if self.share == 1:
            raise PlanError(
                "share = 1 spends the whole budget on the labels; use share < 1, or other units for learning"
            )
        return Rest(learned=self, budget=budget, tasks_per_unit=tasks_per_unit)

    def labels(self, vault: Vault, block: Block) -> tuple[Label, ...]:
        """The released label set. Charged.

        Args:
            vault: The vault.
            block: The block that is read.
        """
        return self.ask(vault, block, self.plan(block.budget, tasks_per_unit=block.tasks_per_unit))

    def ask(self, vault: Vault, block: Block, plan: LabelPlan) -> tuple[Label, ...]:
        """The released label set by a given plan. Charged.

        Args:
            vault: The vault.
            block: The block that is read.
            plan: The plan of the query.

        Raises:
            PlanError: The named labels are of another kind than the block's.
        """
        named = (*(self.candidates or ()), *(() if self.other is None else (self.other,)))
        if block.labels is not None and type(named[0]) is not type(block.labels[0]):
            raise PlanError(
                f"{named[0]!r} is named as a label, and the labels of {block} are of another kind, such as "
                f"{block.labels[0]!r}; name whole numbers beside whole numbers, texts beside texts"
            )
        found = vault.label_set(block, plan) or tuple(self.candidates or ())
        return found if self.other is None else _with(found, self.other)

    def _gaussian(self, budget: Budget) -> Budget:
        """The budget without the additive δ of discovery."""
        left = 1.0 if self.candidates is not None else 1 - self.delta_share
        return replace(budget, delta=budget.delta * left)


@dataclass(frozen=True, kw_only=True)
class Rest:
    """What is left of a budget beside the label query. Commit both plans together, before the first read."""

    learned: Learned
    budget: Budget
    tasks_per_unit: int

    def sums(self, *, share: float = 1.0, clip: float = 1.0, horizon: int | None = 1, series: str = "") -> SumPlan:
        """A plan for sums on a share of what is left."""
        return SumPlan.for_budget(
            self.learned._gaussian(self.budget),
            clip=clip,
            horizon=horizon,
            participations=1 if horizon == 1 else self.tasks_per_unit,
            series=series,
            share=share * (1 - self.learned.share),
            tasks_per_unit=self.tasks_per_unit,
        )

    def gradient(self, *, rate: float, steps: int, clip: float = 1.0, clipping: str = "flat") -> GradientPlan:
        """A plan for gradients with the least noise that fits beside the label query."""
        plan = GradientPlan(rate=rate, steps=steps, noise=1.0, clip=clip, clipping=clipping)
        asked = self.learned.plan(self.budget, tasks_per_unit=self.tasks_per_unit).event
        noise = calibrate.noise_for(
            self.budget,
            lambda noise: events.repeat(events.compose([asked, replace(plan, noise=noise).event]), self.tasks_per_unit),
        )
        return replace(plan, noise=noise)


def _with(labels: tuple[Label, ...], other: Label) -> tuple[Label, ...]:
    return labels if other in labels else (*labels, other)
