"""Routed experts: one private expert per task and a private router, without a memory of records (tacit's own method).

Each task makes two releases: an expert (DP-SGD) and a noisy sum of the task's L2-normalised inputs (one Gaussian
release), which takes `router_share` of the budget. The rest is post-processing: the experts' probabilities are averaged
with weights softmax(sharpness · cosine), where the cosine compares the input with the mean of each expert's task.

`start_from="aligned"` is for tasks whose records differ by the order of their entries only, such as permuted MNIST or
tables with unnamed columns: the order is found from the router's sums (`alignment`), each task continues from the last
expert, and the new expert, moved to their orders, also replaces the earlier ones. It does not help where tasks differ
in another way.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from dp_accounting.dp_event import DpEvent
from torch import Tensor, nn

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError, PlanError
from tacit.learners.base.frozen_features import UnitNorm
from tacit.learners.base.gradient import Each
from tacit.learners.base.weights import State, trained
from tacit.learners.closed_form.routing import entropy, logarithm, mixture
from tacit.learners.experts.alignment import first_layer, matching, moved
from tacit.learners.experts.merging import closest, merged
from tacit.learners.experts.per_task_models import PerTaskModels
from tacit.models.interval import Interval
from tacit.models.lowrank import adapted
from tacit.models.smoothed import Smoothed
from tacit.privacy.accounting import calibrate, events
from tacit.privacy.vault import Block, GradientPlan, SumPlan, Vault
from tacit.words import rounded_up


@dataclass(kw_only=True, eq=False)
class RoutedExperts(PerTaskModels):
    """One private expert per task and a private router: each task keeps its own expert.

    Reference: tacit.
    Claim: none.
    Certified: a record's privacy cost is that of its task's expert and sum together, once; later tasks do not read it.
    Sharp edges: the model grows with each task (`rank` makes later experts small, `most` merges them at a cost).
    The router knows tasks by the mean of their inputs: where these are alike, experts are mixed, and
    `router="prototypes"` or a task that is given at test helps.
    """

    steps: Each[int] | None = 200
    batch: Each[float] = 4000
    lr: Each[float] = 0.5
    momentum: float = 0.9
    router: Literal["mean", "prototypes", "scores"] = "mean"
    """What an input is compared with: the mean of each task, or the means of each task's labels (`prototypes`). With
    `scores` experts are weighted by the entropy of their predictions, and the router's share goes to the experts."""
    router_share: float = 0.1
    """Share of the budget for the router."""
    sharpness: float = 50.0
    """Inverse temperature of the router's softmax."""
    rank: int | None = None
    """Rank of the experts' low-rank updates: the first expert is a whole network, later ones train low-rank updates of
    its layers and its head. If None, every expert is a whole network."""
    start_from: Literal["initial", "aligned"] = "initial"
    """What an expert is trained from. initial: the same initial weights for every task. aligned: the last expert, its
    first layer reordered to the new task, which needs router='prototypes'."""
    most: int | None = None
    """Largest number of experts; beyond it the two most similar are merged, without data. If None, no limit."""

    reference: ClassVar[str] = "tacit"
    certifies: ClassVar[str] = "a record: the expert and the router's sum of its own task, together, once"

    def start(self, stream: StreamInfo) -> None:
        if not 0 < self.router_share < 1:
            raise LearnerError(f"router_share must be between 0 and 1, got {self.router_share}; 0.1 is a good start")
        for name in ("rank", "most"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise LearnerError(f"{name} must be a whole number ≥ 1, or None for no bound, got {value}")
        super().start(stream)
        if self.rank is not None and isinstance(self.model_, Interval | Smoothed):
            raise LearnerError(
                f"low-rank updates have no interval bounds and no noisy copies, got rank={self.rank}; use whole "
                "experts (rank=None)"
            )
        if self.start_from == "aligned":
            self._check_alignment()
        self.of_task_: list[int] = []
        self.sums_: list[Tensor] = []

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        plan, look = self.plan(task), self.look()
        vault.commit({block: [plan, look] if self.router != "scores" else [plan]})
        if self.start_from == "aligned":
            self.sums_.append(self.sums(block, vault, look))  # before training: the order of entries follows from it
            if self.experts_:
                self.start_ = self.reordered(self.experts_[-1], -2, -1)
        expert = self.train(task, block, vault, plan, self.loss_)
        if self.start_from != "aligned" and self.router != "scores":
            self.sums_.append(self.sums(block, vault, look))
        vault.drop(block)
        if self.rank is not None and task.number == 0:
            self.model_ = adapted(self.model_, self.rank, self.seed)
            expert = self.start_ = trained(self.model_)
        self.of_task_.append(len(self.experts_))
        self.experts_.append(expert)
        if self.start_from == "aligned":
            self.experts_ = [*(self.reordered(expert, -1, n) for n in range(len(self.experts_) - 1)), expert]
        while self.most is not None and len(self.experts_) > self.most:
            self.merge()

    def sums(self, block: Block, vault: Vault, look: SumPlan) -> Tensor:
        """The router's noisy sum of the task, or of each of its labels."""
        return vault.sums(block, look, by_label=self.router == "prototypes", through=UnitNorm().eval())

    def reordered(self, expert: State, old: int, new: int) -> State:
        """An expert of the task with sums `sums_[old]`, for records in the order of the task with `sums_[new]`."""
        means = [self.sums_[number] / self.stream_.tasks[number % len(self.sums_)].size for number in (old, new)]
        return moved(expert, first_layer(self.model_, self.stream_.shape), matching(*means))

    def _check_alignment(self) -> None:
        labels = {task.labels for task in self.stream_.tasks}
        for wrong, fix in (
            (self.router != "prototypes", "router='prototypes', whose sums tell the entries apart"),
            (self.rank is not None or self.most is not None, "rank=None and most=None, because experts are whole"),
            (len(labels) > 1, "tasks with the same labels in the same order"),
        ):
            if wrong:
                raise LearnerError(f"start_from='aligned' needs {fix}; or use start_from='initial'")
        first_layer(self.model_, self.stream_.shape)

    def look(self) -> SumPlan:
        """The plan of the router's sum."""
        return SumPlan.for_budget(self.budget, share=self.router_share, tasks_per_unit=self.stream_.tasks_per_unit)

    def plan(self, task: TaskInfo) -> GradientPlan:
        """The plan with the least noise for which the expert and the router's sum fit the budget together."""
        plan = super().plan(task)
        if self.router == "scores":
            return plan
        least = _least_noise(self, plan)
        if self.noise is None:
            return replace(plan, noise=least)
        if plan.noise < least:
            raise PlanError(
                f"noise {plan.noise:g} leaves no room for the router's share of {self.budget}; it takes noise ≥ "
                f"{rounded_up(least)}, fewer steps, a smaller batch, or router='scores'"
            )
        return plan

    def charges(self) -> list[list[DpEvent]]:
        look = [self.look().event] if self.router != "scores" else []
        return [[*charge, *look] for charge in super().charges()]

    def merge(self) -> None:
        """Replace the two most similar experts by the mean of their weights, weighted by their numbers of tasks."""
        first, second = closest(self.experts_, self.start_)
        weights = [self.of_task_.count(first), self.of_task_.count(second)]
        self.experts_[first] = merged(self.experts_[first], self.experts_[second], weights)
        del self.experts_[second]
        self.of_task_ = [first if e == second else e - (e > second) for e in self.of_task_]

    def scores(self, x: Tensor, task: TaskInfo | None = None) -> Tensor:
        """Log-probabilities; where the task is given, by its own expert. While a task is learned, by its expert alone:
        there is no router for it yet."""
        rows = x.to(self.device)
        if self.learning_ or not self.experts_:
            return super().scores(rows, task)
        if task is not None and task.number >= len(self.of_task_):
            logits = self.outputs(rows, self.start_)  # nothing is learned of this task yet
            return logits.masked_fill(~self.mask(task).to(logits.device), -torch.inf)
        if task is not None:
            own = torch.nn.functional.one_hot(torch.tensor(task.number), len(self.of_task_))
            trust = own.to(rows).expand(len(rows), -1)
        else:
            trust = self.trust(rows)
        found = logarithm(mixture(rows, trust, self.answers, len(self.labels_)))
        return found if task is None else found.masked_fill(~self.mask(task).to(found.device), -torch.inf)

    def trust(self, x: Tensor) -> Tensor:
        """The router's weight of each task for each input: (inputs, tasks); each row sums to 1."""
        if self.router == "scores":
            entropies = [entropy(self.answers(x, number)) for number in range(len(self.of_task_))]
            return (-self.sharpness * torch.stack(entropies, 1)).softmax(1)
        unit = UnitNorm()(x)
        cosines = [(unit @ mean.to(unit).T).amax(1) for mean in self.directions()]
        return (self.sharpness * torch.stack(cosines, 1)).softmax(1)

    def directions(self) -> list[Tensor]:
        """What the router compares an input with: for each task, the shrunk directions of its sums."""
        return [shrunk(sums, self.look().std) for sums in self.sums_]

    def answers(self, x: Tensor, number: int) -> Tensor:
        """The probabilities of a task's expert, over the task's labels."""
        logits = self.outputs(x, self.experts_[self.of_task_[number]])
        return logits.masked_fill(~self.mask(self.tasks_[number]).to(logits.device), -torch.inf).softmax(1)

    def tensors(self) -> State:
        tensors = super().tensors() | {f"sum.{i}": sums for i, sums in enumerate(self.sums_)}
        return tensors | {"of_task": torch.tensor(self.of_task_)}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        super().load(tensors)
        self.of_task_ = tensors["of_task"].tolist()
        self.sums_ = [tensors[f"sum.{i}"] for i in range(len(self.tasks_))] if self.router != "scores" else []

    def skeleton(self) -> nn.Module:
        return self.build() if self.rank is None else adapted(self.build(), self.rank, self.seed)


def shrunk(sums: Tensor, std: float) -> Tensor:
    """Directions of noisy sums, shrunk by the share of noise in each (positive-part James–Stein)."""
    square = sums.square().sum(1, keepdim=True)
    weight = (1 - std**2 * sums.shape[1] / square.clamp(min=1e-12)).clamp(min=0)
    return torch.nn.functional.normalize(sums, dim=1) * weight.sqrt()


def _least_noise(learner: RoutedExperts, plan: GradientPlan) -> float:
    times, look = learner.stream_.tasks_per_unit, learner.look()
    return calibrate.noise_for(
        learner.budget,
        lambda noise: events.repeat(events.compose([replace(plan, noise=noise).event, look.event]), times),
    )
