"""Lifelong DP that holds: a task's objective leaves once, as noisy coefficients, and all learning is done on those.

Kept of Phan et al. 2019 and Lai et al. 2022: perturb the polynomial objective, not the gradients; then any number of
tasks, epochs and replays costs nothing more. Changed, since their mechanism protects nobody (docs/lifelong.md): the
coefficients depend on the data alone (Σφφᵀ and Σyφᵀ through a public map φ of unit length), their noise is Gaussian,
fits their true joint sensitivity, and is drawn afresh for every task. Raw records are let go after one reading.

Where the tasks' labels differ, one classifier is the minimum of all objectives together. Where they are the same, every
task has its own, which borrows from the others as far as they agree (`ridge`), and an input goes to the tasks that it
resembles by the same coefficients (linear discriminant analysis; nothing more is released for it).

Claim: none of the papers' (their formula is about another mechanism). Certified: a record loses one Gaussian release of
its own task's coefficients, once and for ever, also against someone who holds all that is stored.
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
from tacit.learners import maps, weights
from tacit.learners.core import Step, answering
from tacit.learners.learner import Learner
from tacit.learners.ridge import Objective, minimum
from tacit.learners.routing import Router, logarithm, mixture
from tacit.learners.second_moment import Moment
from tacit.learners.weights import State
from tacit.privacy import calibrate
from tacit.privacy.declared import Block
from tacit.privacy.plan import SumPlan
from tacit.privacy.vault import Vault

ROWS = 4096
"""So many records go through the map at a time."""


@dataclass(kw_only=True, eq=False)
class LifelongDP(Learner):
    """A task's noisy coefficients leave once; a classifier is made of them."""

    has_network: ClassVar[bool] = False
    remembers: ClassVar[bool] = False
    features: str | nn.Module | None = "relu"
    """relu, fourier: random features of the record. spectrum: of a sensor's window. encoder: of an auto-encoder that is
    trained from the first task's private moments. Or a public backbone, by name or as a module; None: records are
    features already, such as embeddings."""
    width: int | None = None
    """How many random features. None: 2·(records/σ)^⅔, at most 1,000."""
    combine: Literal["auto", "pooled", "routed"] = "auto"
    """pooled: one classifier. routed: one for each task. auto: pooled if no two tasks share a label."""
    moment_share: float = 0.5
    """Share of the budget (in 1/σ²) for Σφφᵀ; the rest is for Σyφᵀ."""
    encoder_share: float = 0.2
    """Share of the first task's budget for its encoder."""
    encoder_width: int = 64
    """How many outputs the encoder has."""
    epochs: int | None = None
    """So many epochs of gradient descent on the released objective. None: its minimum. Neither costs anything."""
    keep: Literal["heads", "half", "full"] = "heads"
    """What stays of each task in `routed`: its classifier; or its coefficients too (in half or full precision), and
    then earlier tasks also learn from later ones."""
    scale: float = 10.0
    """A logit is so many times the score: how sure probabilities look."""

    reference: ClassVar[str] = "tacit, after Phan et al. 2019 and Lai et al. 2022"
    certifies: ClassVar[str] = "a record: the coefficients of its own task, once, for ever"

    def start(self, stream: StreamInfo) -> None:
        self._check()
        self.times_ = stream.tasks_per_unit
        super().start(stream)
        sets = [set(task.labels) for task in stream.tasks]
        apart = all(not (a & b) for a, b in combinations(sets, 2)) if len(sets) <= len(stream.labels) else False
        self.pooled_ = self.combine == "pooled" or (self.combine == "auto" and (apart or len(sets) == 1))
        self.all_: Objective | None = None
        """Of all tasks together."""
        self.own_: list[State] = []
        """Of each task, where they are kept."""
        self.seen_ = torch.zeros(len(self.labels_), dtype=torch.bool)
        self.heads_: list[Tensor] = []
        self.places_: list[Tensor] = []
        """Of each task's classifier: which labels its rows are for."""
        self.router_ = Router()
        self._pooled: Tensor | None = None

    def _check(self) -> None:
        for name in ("moment_share", "encoder_share"):
            if not 0 < getattr(self, name) < 1:
                raise LearnerError(f"{name} must be between 0 and 1, got {getattr(self, name)}; leave it out")
        for name in ("width", "encoder_width", "epochs"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise LearnerError(f"{name} must be a whole number ≥ 1, got {value!r}; leave it out")
        for name, known in (("combine", ("auto", "pooled", "routed")), ("keep", ("heads", "half", "full"))):
            if getattr(self, name) not in known:
                raise LearnerError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        if not 0 < self.scale < math.inf:
            raise LearnerError(f"scale must be a number > 0, got {self.scale}; 10 is the default")

    def build(self) -> nn.Module:
        """The map from records to unit features."""
        self.check_device()
        self.map_ = maps.build_map(
            self.features, self.stream_.shape,
            width=self.width or self._width(), encoder_width=self.encoder_width, seed=self.seed,
        ).to(self.device)  # fmt: skip
        return self.map_

    def _width(self) -> int:
        """As many as the noise lets one learn about, from public facts."""
        noise = calibrate.gaussian_noise(self.budget) * math.sqrt(2 * self.times_)
        records = sum(task.size for task in self.stream_.tasks) / len(self.stream_.tasks)
        worth = 2 * math.pow(records / noise, 2 / 3)
        return max(16, min(1000, round(worth)))

    def sums_plan(self, task: TaskInfo) -> SumPlan:
        return self._plan((1 - self.moment_share) * (1 - self._encoding(task)))

    def moment_plan(self, task: TaskInfo) -> SumPlan:
        return self._plan(self.moment_share * (1 - self._encoding(task)))

    def encoder_plans(self, task: TaskInfo) -> list[SumPlan]:
        """Of Σx and Σxxᵀ: the first task's, where there is an encoder to train."""
        share = self._encoding(task) / 2
        return [self._plan(share), self._plan(share)] if share else []

    def _encoding(self, task: TaskInfo) -> float:
        return self.encoder_share if self.features == "encoder" and task.number == 0 else 0.0

    def _plan(self, share: float) -> SumPlan:
        return SumPlan.for_budget(self.budget, share=share, tasks_per_unit=self.times_)

    def plans(self, task: TaskInfo) -> list[SumPlan]:
        """All that is ever read of a task's records."""
        return [*self.encoder_plans(task), self.sums_plan(task), self.moment_plan(task)]

    def charges(self) -> list[list[DpEvent]]:
        return [[plan.event for plan in self.plans(task)] for task in self.stream_.tasks]

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        self.watch(Step(task=task, step=0, of=1))
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
        self.watch(Step(task=task, step=1, of=1))

    def saved(self, block: Block, vault: Vault) -> None:
        """The records are retired: nothing reads them any more, whatever is learnt later."""
        vault.retire(block)

    def _encode(self, block: Block, vault: Vault, plans: list[SumPlan]) -> None:
        encoder = self._encoder()
        assert isinstance(encoder, maps.Encoder)
        total = vault.sums(block, plans[0], by_label=False, through=encoder.unit)
        encoder.trained(total[0], vault.second_moment(block, plans[1], through=encoder.unit))

    def _read(self, task: TaskInfo, block: Block, vault: Vault) -> Objective:
        """The coefficients of the task's objective: the one reading of its records."""
        sums, moment = self.sums_plan(task), self.moment_plan(task)
        found = vault.sums(block, sums, labels=task.labels, through=self.model_)
        rows, place = torch.zeros(len(self.labels_), found.shape[1]), self.positions(task.labels)
        rows[place] = found
        value = vault.second_moment(block, moment, through=self.model_)
        noise = torch.zeros(len(rows))
        noise[place] = sums.std
        return Objective(sums=rows, std=noise, moment=Moment(value=value, std=moment.std, records=float(task.size)))

    def _head(self, number: int, own: Objective, others: Objective | None) -> Tensor:
        return minimum(own, others, self._coins(number), self.epochs)[self.places_[number]]

    def _coins(self, number: int) -> int:
        """A public seed of its own for each task's splits: not that of the map."""
        return int(np.random.SeedSequence([self.seed, 1, number]).generate_state(1)[0])

    def _learn_again(self) -> None:
        """Where coefficients are kept: every earlier task's classifier anew, borrowing from all the others."""
        assert self.all_ is not None
        for number, kept in enumerate(self.own_[:-1]):
            own = Objective.of(kept)
            self.heads_[number] = self._head(number, own, self.all_.less(own))

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
        """All that is stored: released coefficients and what follows from them. It may be published as it is."""
        kept = {"seen": self.seen_.clone(), "map": self._fingerprint()} | weights.keys(self.model_)
        if self.all_ is not None:
            kept |= {f"all.{name}": value for name, value in self.all_.tensors().items()}
        if self.all_ is not None and self.pooled_:
            kept |= {"head": self._pooled_head()}
        kept |= {f"router.{name}": value for name, value in self.router_.tensors().items()}
        for number, head in enumerate(self.heads_):
            kept |= {f"head.{number}": head}
        for number, own in enumerate(self.own_):
            kept |= {f"own.{number}.{name}": value for name, value in own.items()}
        if isinstance(encoder := self._encoder(), maps.Encoder):
            kept |= {"encoder": encoder.theta.cpu().clone()}
        return kept

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
        kept = [weights.under(tensors, f"own.{number}.") for number in numbers]
        self.own_ = [one for one in kept if one]

    def _encoder(self) -> nn.Module | None:
        return self.map_.first if isinstance(self.map_, maps.RandomFeatures) else None

    def _fingerprint(self) -> Tensor:
        """A few of the map's public random weights: enough to know it by."""
        if isinstance(self.map_, maps.RandomFeatures):
            return self.map_.weights.flatten()[:8].cpu().clone()
        return torch.zeros(1)
