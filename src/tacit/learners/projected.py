"""A-GEM on noisy gradients: the step that DP-CL and DP-AGEM share (Desai et al. 2021, Algorithm 1, Lines 5 to 17), and
what Hassanpour et al. 2022 add to it: robust A-GEM (Eq. 5) and the efficient memory (Eq. 6), see docs/robust.md."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import nn

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners import masks
from tacit.learners.gradient import Gradient, by_moments, gathered, project, smoothed
from tacit.learners.margin import Margin, check_margin, public_draws
from tacit.learners.replay import ReplayLearner
from tacit.memory import Mode, Schedule, calibrated
from tacit.models.noisy import Noisy
from tacit.privacy.budget import Adjacency
from tacit.privacy.claims import moments_accountant
from tacit.privacy.declared import Block
from tacit.privacy.vault import Vault

_DRAWS = 7
"""Of the learner's public coins, those of the margin's noise."""


@dataclass(kw_only=True, eq=False)
class Projected(ReplayLearner):
    """The noisy gradient of the task, projected where it conflicts with that of the memory.

    With momentum the velocity is projected: it carries less noise than one gradient, and so does the conflict.
    """

    memory_batch: float = 50
    """Expected number of memory records in a reference gradient."""
    memory_noise: float | None = None
    """Noise multiplier of the reference gradients. None: the least that the budget allows for a unit of the memory."""
    project: Literal["conflict", "always"] = "conflict"
    """When a step is projected: where it conflicts with the memory's gradient, or in every step."""
    smooth: float = 0.0
    """Weight of the past in a running mean of the reference gradients of a task: less noise, at no cost. 0: none."""
    by_class: bool = False
    """Robust A-GEM: each step is held against the remembered records of one label. The labels come in turn."""
    margin: float | None = None
    """Efficient memory: use a remembered record only while its own margin, under the last released model, is at least
    this, between -1 and 1: below 0, records pass too of which that model is unsure. None: use all of them."""
    margin_draws: int = 32
    """How many draws of a noise layer's noise a margin is the mean of."""
    margin_confidence: float = 0.95
    """That the bounds of the margin hold over the noise."""

    def start(self, stream: StreamInfo) -> None:
        if self.by_class:
            self._check_classes(stream)
        super().start(stream)
        if self.margin is not None:
            check_margin(
                threshold=self.margin, draws=self.margin_draws, confidence=self.margin_confidence,
                labels=len(self.labels_), noisy=isinstance(self.model_, Noisy),
            )  # fmt: skip
            self.used(self.model_)  # a network that it cannot judge by is refused before anything is read

    @abstractmethod
    def mode(self) -> Mode:
        """How the memory is read."""

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        train, memory = self.cut(block, vault)
        self.train(task, train, vault)
        vault.drop(train)
        self.memory_.add(task.number, memory, vault)

    def train(self, task: TaskInfo, block: Block, vault: Vault, *, reader: str | None = None) -> None:
        """Train `model_` on the task's training part and what was planned of the memory.

        `reader`: who reads, where several networks are trained on one task: each has grants of its own."""
        select = self.used(self.judge())  # before the first step
        grant = vault.grant(block, self.plan(task), self.model_, self.loss_, work=self.settings(), reader=reader)
        references = self.memory_.grants(
            task.number, vault, self.model_, self.loss_, self.settings(), select=select, reader=reader
        )
        optimizer = self.optimizer(task, momentum=0)
        velocity: Gradient | None = None
        means: dict[int | None, Gradient] = {}
        for step in self.turns(grant, task):
            velocity = gathered(grant.gradient(), velocity, self.momentum)
            direction = velocity
            if references:
                place = references.place(step)
                means[place] = smoothed(references.gradient(step), means.get(place), self.smooth)
                direction = project(velocity, means[place], always=self.project == "always")
            self.update(optimizer, direction)

    def judge(self) -> nn.Module:
        """The model by which remembered records are judged: the last released one, asked for before training."""
        return self.model_

    def used(self, released: nn.Module) -> Margin | None:
        """Which remembered records are used, by a released model; None: all of them."""
        if self.margin is None:
            return None
        coins = int(np.random.SeedSequence([self.seed, _DRAWS]).generate_state(1)[0])
        own = masks.by_label(self.stream_.tasks, self.labels_) if self.stream_.task_id == "given" else None
        return Margin(
            released,
            public_draws(released, self.stream_.shape, self.margin_draws, coins),
            threshold=self.margin,
            confidence=self.margin_confidence,
            masks=None if own is None else own.to(self.device),
        )

    def given(self) -> bool:
        return self.noise is not None or self.memory_noise is not None

    def schedule(self, stream: StreamInfo) -> Schedule:
        if self.memory_noise is not None:
            return self.reads(stream, (self.memory_noise,))
        return calibrated(self.budget, self.reads(stream, (1.0,)))

    def reads(self, stream: StreamInfo, noise: tuple[float, ...]) -> Schedule:
        """All reads of the memory, with this noise."""
        return Schedule(
            mode=self.mode(),
            sizes=self.memory_sizes(stream),
            steps=self.steps_of(stream),
            batch=self.memory_batch,
            clip=self.clip,
            clipping=self.clipping,
            noise=noise,
            tasks_per_unit=stream.tasks_per_unit,
            seed=self.seed,
            stay=self.stay,
            leave=self.leave,
            endless=stream.endless,
            classes=tuple(tuple(self.positions(task.labels).tolist()) for task in stream.tasks)
            if self.by_class
            else (),
        )

    def _check_classes(self, stream: StreamInfo) -> None:
        """Refuse robust A-GEM where a unit could be read in the turns of two labels, before anything is planned."""
        if self.mode() == "block":
            raise LearnerError(
                "by_class goes through the labels of the whole memory in turn, and memory='block' reads one block a "
                "step; use memory='union'"
            )
        if stream.records_per_unit > 1 or self.budget.adjacency is not Adjacency.ADD_OR_REMOVE:
            said = (
                f"units of {stream.name!r} may have {stream.records_per_unit} records in a task"
                if stream.records_per_unit > 1
                else f"the budget protects neighbours by {self.budget.adjacency}"
            )
            raise LearnerError(
                f"by_class prices a unit by the turns of its one label, and {said}, so of two labels; use "
                "by_class=False, or protect single records that are added or removed"
            )

    def claimed_pairs(self) -> list[tuple[float, float]]:
        """(ε_i, ε'_i) of the tasks learnt so far, as the paper computes them: by the moments accountant, and the memory
        as if one block were read at its own rate in every step of one task."""
        delta, schedule = self.budget.delta, self.memory_.schedule

        def reference(task: TaskInfo) -> float:
            rate = min(1.0, schedule.batch / schedule.size_of(task.number))
            return moments_accountant(rate, schedule.noise_of(task.number), schedule.steps_of(task.number), delta)

        return [(by_moments(self.plan(task), delta), reference(task)) for task in self.tasks_]
