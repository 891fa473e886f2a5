"""A corrected lifelong DP mechanism: each task releases noisy coefficients of its objective once; training uses those.

As in Phan et al. 2019 and Lai et al. 2022, the polynomial objective is perturbed instead of the gradients, so that any
number of tasks, epochs and replays has no further privacy cost. Their mechanism is not private (docs/lifelong.md), so
these parts differ: the coefficients depend on the data only (Σφφᵀ and Σyφᵀ of L2-normalised features φ from a public
map), and their noise is Gaussian, calibrated to their joint sensitivity, and drawn independently for every task. Raw
records are freed after one pass.

If the tasks' label sets are disjoint, one classifier minimises the sum of all objectives. Otherwise every task has its
own classifier, regularised towards the other tasks as far as they agree (`ridge`), and inputs are routed to tasks by
linear discriminant analysis on the same coefficients, without a further release.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, Literal

import numpy as np
import torch
from dp_accounting.dp_event import DpEvent
from torch import Tensor, nn

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.base import weights
from tacit.learners.base.callbacks import Step
from tacit.learners.base.inference import answering
from tacit.learners.base.learner import Learner
from tacit.learners.base.weights import State
from tacit.learners.closed_form import maps
from tacit.learners.closed_form.noisy_moment import Moment
from tacit.learners.closed_form.ridge import Objective, minimum
from tacit.learners.closed_form.routing import Router, logarithm, mixture
from tacit.models.devices import check_device
from tacit.privacy.accounting import calibrate
from tacit.privacy.vault import Block, SumPlan, Vault

ROWS = 4096
"""Number of records per forward pass of the feature map."""


@dataclass(kw_only=True, eq=False)
class LifelongDP(Learner):
    """The noisy coefficients of each task's objective are released once; all learning uses these.

    Reference: tacit, after Phan et al. 2019 and Lai et al. 2022.
    Claim: none of the papers' (their formula is about another mechanism).
    Certified: a record's privacy cost is one Gaussian release of its own task's coefficients, once; it also holds
    against an observer of all stored state.
    Sharp edges: features are frozen and the classifier is linear in them: on a pretrained backbone
    `MomentsClassifier` is better, and `RoutedExperts` where there is time to train. Noise is added once per task,
    so many small tasks are learned less well than a large one, and a task without records still releases noise.
    """

    has_network: ClassVar[bool] = False
    remembers: ClassVar[bool] = False
    features: str | nn.Module | None = "relu"
    """relu, fourier: random features of the record. spectrum: of a sensor window's spectrum. encoder: of an
    auto-encoder trained on the first task's noisy moments. Or a public backbone, by name or as a module. If None,
    records are features already, such as embeddings."""
    width: int | None = None
    """Number of random features. If None, 2·(records/σ)^⅔, at most 1,000."""
    combine: Literal["auto", "pooled", "routed"] = "auto"
    """pooled: one classifier. routed: one for each task. auto: pooled if no two tasks share a label."""
    moment_share: float = 0.5
    """Share of the budget (in 1/σ²) for Σφφᵀ; the rest is for Σyφᵀ."""
    encoder_share: float = 0.2
    """Share of the first task's budget for the encoder."""
    encoder_width: int = 64
    """Number of outputs of the encoder."""
    epochs: int | None = None
    """Number of epochs of gradient descent on the released objective. If None, its exact minimum is used."""
    keep: Literal["heads", "half", "full"] = "heads"
    """What is stored of each task in `routed`: its classifier (heads), or also its coefficients in half or full
    precision, with which earlier tasks' classifiers are updated by later tasks."""
    scale: float = 10.0
    """Factor from scores to logits (an inverse temperature)."""

    reference: ClassVar[str] = "tacit, after Phan et al. 2019 and Lai et al. 2022"
    certifies: ClassVar[str] = "a record: the coefficients of its own task, once, for ever"

    def start(self, stream: StreamInfo) -> None:
        self._check()
        self.times_ = stream.tasks_per_unit
        super().start(stream)
        sets = [set(task.labels) for task in stream.tasks]
        disjoint = all(not (a & b) for a, b in combinations(sets, 2)) if len(sets) <= len(stream.labels) else False
        self.pooled_ = self.combine == "pooled" or (self.combine == "auto" and (disjoint or len(sets) == 1))
        self.all_: Objective | None = None
        """The sum of all tasks' objectives."""
        self.own_: list[State] = []
        """Coefficients of each task, if `keep` stores them."""
        self.seen_ = torch.zeros(len(self.labels_), dtype=torch.bool)
        self.heads_: list[Tensor] = []
        self.places_: list[Tensor] = []
        """Label indices of the rows of each task's classifier."""
        self.router_ = Router()
        self._pooled: Tensor | None = None

    def _check(self) -> None:
        for name in ("moment_share", "encoder_share"):
            if not 0 < getattr(self, name) < 1:
                raise LearnerError(
                    f"{name} must be between 0 and 1, got {getattr(self, name)}; omit it to use the default"
                )
        for name in ("width", "encoder_width", "epochs"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise LearnerError(f"{name} must be a whole number ≥ 1, got {value!r}; omit it to use the default")
        for name, known in (("combine", ("auto", "pooled", "routed")), ("keep", ("heads", "half", "full"))):
            if getattr(self, name) not in known:
                raise LearnerError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        if not 0 < self.scale < math.inf:
            raise LearnerError(f"scale must be a number > 0, got {self.scale}; 10 is the default")

    def build(self) -> nn.Module:
        """The map from records to L2-normalised features."""
        check_device(self.device)
        self.map_ = maps.build_map(
            self.features, self.stream_.shape,
            width=self.width or self._width(), encoder_width=self.encoder_width, seed=self.seed,
        ).to(self.device)  # fmt: skip
        return self.map_

    def _width(self) -> int:
        """The number of random features for this level of noise, from public facts."""
        noise = calibrate.gaussian_noise(self.budget) * math.sqrt(2 * self.times_)
        records = sum(task.size for task in self.stream_.tasks) / len(self.stream_.tasks)
        worth = 2 * math.pow(records / noise, 2 / 3)
        return max(16, min(1000, round(worth)))

    def sums_plan(self, task: TaskInfo) -> SumPlan:
        return self._plan((1 - self.moment_share) * (1 - self._encoding(task)))

    def moment_plan(self, task: TaskInfo) -> SumPlan:
        return self._plan(self.moment_share * (1 - self._encoding(task)))

    def encoder_plans(self, task: TaskInfo) -> list[SumPlan]:
        """Plans of Σx and Σxxᵀ for training the encoder, in the first task only."""
        share = self._encoding(task) / 2
        return [self._plan(share), self._plan(share)] if share else []

    def _encoding(self, task: TaskInfo) -> float:
        return self.encoder_share if self.features == "encoder" and task.number == 0 else 0.0

    def _plan(self, share: float) -> SumPlan:
        return SumPlan.for_budget(self.budget, share=share, tasks_per_unit=self.times_)

    def plans(self, task: TaskInfo) -> list[SumPlan]:
        """All plans that read a task's records."""
        return [*self.encoder_plans(task), self.sums_plan(task), self.moment_plan(task)]

    def charges(self) -> list[list[DpEvent]]:
        return [[plan.event for plan in self.plans(task)] for task in self.stream_.tasks]

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        self.report(Step(task=task, step=0, of=1))
        vault.check_map(block, self.model_)
        vault.commit({block: self.plans(task)})
        if encoding := self.encoder_plans(task):
            self._encode(block, vault, encoding)
        new = self._read(task, block, vault)
        vault.drop(block)
        if not self.pooled_:
            self.places_.append(self.positions(task.labels))
            self.heads_.append(self._head(task.number, new, self.all_))
            self.router_.add(new.sums[self.places_[-1]], self.sums_plan(task).std, new.moment.records)
            if self.keep != "heads":
                self.own_.append(new.tensors(torch.float16 if self.keep == "half" else torch.float32))
        self.all_ = new if self.all_ is None else self.all_.plus(new, 1.0)
        self._learn_again()
        self.seen_ |= self.mask(task)
        self._pooled = None
        self.report(Step(task=task, step=1, of=1))

    def on_saved(self, block: Block, vault: Vault) -> None:
        """Retire the records: no later task reads them."""
        vault.retire(block)

    def _encode(self, block: Block, vault: Vault, plans: list[SumPlan]) -> None:
        encoder = self._encoder()
        assert isinstance(encoder, maps.Encoder)
        total = vault.sums(block, plans[0], by_label=False, through=encoder.unit)
        encoder.trained(total[0], vault.second_moment(block, plans[1], through=encoder.unit))

    def _read(self, task: TaskInfo, block: Block, vault: Vault) -> Objective:
        """Release the coefficients of the task's objective, in one pass over its records."""
        sums, moment = self.sums_plan(task), self.moment_plan(task)
        released = vault.sums(block, sums, labels=task.labels, through=self.model_)
        rows, indices = torch.zeros(len(self.labels_), released.shape[1]), self.positions(task.labels)
        rows[indices] = released
        value = vault.second_moment(block, moment, through=self.model_)
        noise = torch.zeros(len(rows))
        noise[indices] = sums.std
        return Objective(sums=rows, std=noise, moment=Moment(value=value, std=moment.std, records=float(task.size)))

    def _head(self, number: int, own: Objective, others: Objective | None) -> Tensor:
        return minimum(own, others, self._coins(number), self.epochs)[self.places_[number]]

    def _coins(self, number: int) -> int:
        """A public seed for each task's noisy copies (`ridge.minimum`), different from that of the map."""
        return int(np.random.SeedSequence([self.seed, 1, number]).generate_state(1)[0])

    def _learn_again(self) -> None:
        """Recompute the earlier tasks' classifiers from all objectives, if coefficients are stored."""
        assert self.all_ is not None
        for number, coefficients in enumerate(self.own_[:-1]):
            objective = Objective.of(coefficients)
            self.heads_[number] = self._head(number, objective, self.all_.less(objective))

    def scores(self, x: Tensor, task: TaskInfo | None = None) -> Tensor:
        """`scale` · the classifier's score, −∞ for labels not seen; where no allowed label is seen, all of those
        alike."""
        allowed = torch.ones_like(self.seen_) if task is None else self.mask(task)
        known = allowed & self.seen_
        if not bool(known.any()):
            return torch.zeros(len(x), len(known)).masked_fill(~allowed, -torch.inf).to(self.device)
        found = torch.cat([self._scores(rows.to(self.device), task) for rows in torch.split(x, ROWS)])
        return found.masked_fill(~known.to(found.device), -torch.inf)

    def _scores(self, x: Tensor, task: TaskInfo | None) -> Tensor:
        with answering(self.model_):
            unit: Tensor = self.model_(x)
        if self.pooled_:
            return self.scale * unit @ self._pooled_head().to(unit).T
        if task is not None and task.number < len(self.heads_):
            return logarithm(self._answers(unit, task.number))
        assert self.all_ is not None
        trust = self.router_.trust(unit.cpu(), self.all_.moment).to(unit)
        return logarithm(mixture(unit, trust, self._answers, len(self.labels_)))

    def _answers(self, unit: Tensor, number: int) -> Tensor:
        """Probabilities by a task's classifier, over its labels."""
        out = torch.zeros(len(unit), len(self.labels_), device=unit.device)
        out[:, self.places_[number].to(unit.device)] = (self.scale * unit @ self.heads_[number].to(unit).T).softmax(1)
        return out

    def _pooled_head(self) -> Tensor:
        if self._pooled is None:
            assert self.all_ is not None
            self._pooled = minimum(self.all_, None, self._coins(0), self.epochs)
        return self._pooled

    def tensors(self) -> State:
        """The stored state: released coefficients and values computed from them. It may be published."""
        tensors = {"seen": self.seen_.clone(), "map": self._fingerprint()} | weights.keys(self.model_)
        if self.all_ is not None:
            tensors |= {f"all.{name}": value for name, value in self.all_.tensors().items()}
        if self.all_ is not None and self.pooled_:
            tensors |= {"head": self._pooled_head()}
        tensors |= {f"router.{name}": value for name, value in self.router_.tensors().items()}
        for number, head in enumerate(self.heads_):
            tensors |= {f"head.{number}": head}
        for number, coefficients in enumerate(self.own_):
            tensors |= {f"own.{number}.{name}": value for name, value in coefficients.items()}
        if isinstance(encoder := self._encoder(), maps.Encoder):
            tensors |= {"encoder": encoder.theta.cpu().clone()}
        return tensors

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        weights.check_keys(self.model_, tensors)
        if not torch.equal(tensors.get("map", torch.zeros(0)), self._fingerprint()):
            raise LearnerError(
                "this release was made with another feature map; give the features, width and seed of it"
            )
        if isinstance(encoder := self._encoder(), maps.Encoder):
            encoder.theta.copy_(tensors["encoder"])
        self.seen_ = tensors["seen"].clone()
        self.all_ = Objective.of(weights.under(tensors, "all.")) if "all.facts" in tensors else None
        self._pooled = tensors.get("head")
        self.router_ = Router.of(weights.under(tensors, "router."))
        numbers = range(0 if self.pooled_ else len(self.tasks_))
        self.places_ = [self.positions(self.tasks_[number].labels) for number in numbers]
        self.heads_ = [tensors[f"head.{number}"] for number in numbers]
        coefficients = [weights.under(tensors, f"own.{number}.") for number in numbers]
        self.own_ = [state for state in coefficients if state]

    def _encoder(self) -> nn.Module | None:
        return self.map_.first if isinstance(self.map_, maps.RandomFeatures) else None

    def _fingerprint(self) -> Tensor:
        """The first public random weights of the map, which identify it."""
        if isinstance(self.map_, maps.RandomFeatures):
            return self.map_.weights.flatten()[:8].cpu().clone()
        return torch.zeros(1)
