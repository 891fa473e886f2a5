"""Routed experts: one small private expert a task and a private router; no memory, no forgetting (tacit's own).

A task releases two things: an expert (DP-SGD), and a noisy sum of the task's inputs, scaled to unit norm (one Gaussian
release), on `router_share` of the budget. Everything after is post-processing: an input goes to the experts whose tasks
it resembles, weighted by exp(sharpness · cosine), so that a router that is unsure averages.

Claim: none. Certified: a record loses its task's expert and sum together, once; later tasks do not touch it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from dp_accounting.dp_event import DpEvent
from torch import Tensor, nn

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError, PlanError
from tacit.learners.apart import Apart
from tacit.learners.features import UnitNorm
from tacit.learners.gradient import Each, rounded_up
from tacit.learners.merging import closest, merged
from tacit.learners.routing import entropy, logarithm, mixture
from tacit.learners.weights import State, trained
from tacit.models.lowrank import adapted
from tacit.privacy import calibrate, events
from tacit.privacy.declared import Block
from tacit.privacy.plan import GradientPlan, SumPlan
from tacit.privacy.vault import Vault


@dataclass(kw_only=True, eq=False)
class RoutedExperts(Apart):
    """Every task is answered by its own expert, for ever."""

    steps: Each[int] | None = 200
    batch: Each[float] = 4000
    lr: Each[float] = 0.5
    momentum: float = 0.9
    router: Literal["mean", "prototypes", "scores"] = "mean"
    """What an input is compared with: its task's mean, the means of the task's labels, or nothing (`scores`: each
    expert is trusted by its own certainty, and the router's share of the budget goes to the experts)."""
    router_share: float = 0.1
    """Of the budget, what the router's sums may cost."""
    sharpness: float = 50.0
    """How sure the router is: experts are weighted by exp(sharpness · cosine)."""
    rank: int | None = None
    """None: every expert is a whole network. A number: the first expert is released as a trunk that all later ones
    share; they train low-rank changes of its layers, and its head."""
    most: int | None = None
    """The largest number of experts; beyond it the two most alike are merged, without data."""

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
        self.of_task_: list[int] = []
        self.sums_: list[Tensor] = []

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        plan, look = self.plan(task), self.look()
        vault.commit({block: [plan, look] if self.router != "scores" else [plan]})
        expert = self.train(task, block, vault, plan, self.loss_)
        if self.router != "scores":
            self.sums_.append(vault.sums(block, look, by_label=self.router == "prototypes", through=UnitNorm().eval()))
        vault.drop(block)
        if self.rank is not None and task.number == 0:
            self.model_ = adapted(self.model_, self.rank, self.seed)
            expert = self.start_ = trained(self.model_)
        self.of_task_.append(len(self.experts_))
        self.experts_.append(expert)
        while self.most is not None and len(self.experts_) > self.most:
            self.merge()

    def look(self) -> SumPlan:
        """The plan of the router's sum."""
        return SumPlan.for_budget(self.budget, share=self.router_share, tasks_per_unit=self.stream_.tasks_per_unit)

    def plan(self, task: TaskInfo) -> GradientPlan:
        """The least noise with which the expert and the router's sum fit together."""
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
        return [[*one, *look] for one in super().charges()]

    def merge(self) -> None:
        """Put one expert in the place of the two most alike: the mean of their weights, by the tasks they answer."""
        first, second = closest(self.experts_, self.start_)
        weights = [self.of_task_.count(first), self.of_task_.count(second)]
        self.experts_[first] = merged(self.experts_[first], self.experts_[second], weights)
        del self.experts_[second]
        self.of_task_ = [first if e == second else e - (e > second) for e in self.of_task_]

    def scores(self, x: Tensor, task: TaskInfo | None = None) -> Tensor:
        """Log-probabilities; where the task is given, by its own expert. While a task is learnt, by its expert alone:
        there is no router for it yet."""
        rows = x.to(self.device)
        if self.learning_ or not self.experts_:
            return super().scores(rows, task)
        if task is not None and task.number >= len(self.of_task_):
            logits = self.outputs(rows, self.start_)  # nothing is learnt of this task yet
            return logits.masked_fill(~self.mask(task).to(logits.device), -torch.inf)
        if task is not None:
            own = torch.nn.functional.one_hot(torch.tensor(task.number), len(self.of_task_))
            trust = own.to(rows).expand(len(rows), -1)
        else:
            trust = self.trust(rows)
        found = logarithm(mixture(rows, trust, self.answers, len(self.labels_)))
        return found if task is None else found.masked_fill(~self.mask(task).to(found.device), -torch.inf)

    def trust(self, x: Tensor) -> Tensor:
        """How much each task is believed to be the source of each row: (rows, tasks), each row adds up to 1."""
        if self.router == "scores":
            unsure = [entropy(self.answers(x, number)) for number in range(len(self.of_task_))]
            return (-self.sharpness * torch.stack(unsure, 1)).softmax(1)
        unit = UnitNorm()(x)
        means = [shrunk(one, self.look().std) for one in self.sums_]
        alike = [(unit @ one.to(unit).T).amax(1) for one in means]
        return (self.sharpness * torch.stack(alike, 1)).softmax(1)

    def answers(self, x: Tensor, number: int) -> Tensor:
        """The probabilities of a task's expert, over the task's labels."""
        logits = self.outputs(x, self.experts_[self.of_task_[number]])
        return logits.masked_fill(~self.mask(self.tasks_[number]).to(logits.device), -torch.inf).softmax(1)

    def tensors(self) -> State:
        kept = super().tensors() | {f"sum.{i}": one for i, one in enumerate(self.sums_)}
        return kept | {"of_task": torch.tensor(self.of_task_)}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        super().load(tensors)
        self.of_task_ = tensors["of_task"].tolist()
        self.sums_ = [tensors[f"sum.{i}"] for i in range(len(self.tasks_))] if self.router != "scores" else []

    def skeleton(self) -> nn.Module:
        return self.build() if self.rank is None else adapted(self.build(), self.rank, self.seed)


def shrunk(sums: Tensor, std: float) -> Tensor:
    """Directions of noisy sums, shortened by how much of each is noise of known size (positive-part James–Stein)."""
    square = sums.square().sum(1, keepdim=True)
    weight = (1 - std**2 * sums.shape[1] / square.clamp(min=1e-12)).clamp(min=0)
    return torch.nn.functional.normalize(sums, dim=1) * weight.sqrt()


def _least_noise(learner: RoutedExperts, plan: GradientPlan) -> float:
    times, look = learner.stream_.tasks_per_unit, learner.look()
    return calibrate.noise_for(
        learner.budget,
        lambda noise: events.repeat(events.compose([replace(plan, noise=noise).event, look.event]), times),
    )
