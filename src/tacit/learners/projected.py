"""A-GEM on noisy gradients: the step that DP-CL and DP-AGEM share (Desai et al. 2021, Algorithm 1, Lines 5 to 17)."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.learners.gradient import Gradient, by_moments, gathered, project, smoothed
from tacit.learners.replay import ReplayLearner
from tacit.memory import Mode, Schedule, calibrated
from tacit.privacy.claims import moments_accountant
from tacit.privacy.declared import Block
from tacit.privacy.vault import Vault


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
    smooth: float = 0.0
    """Weight of the past in a running mean of the reference gradients of a task: less noise, at no cost. 0: none."""

    @abstractmethod
    def mode(self) -> Mode:
        """How the memory is read."""

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        train, memory = self.cut(block, vault)
        grant = vault.grant(train, self.plan(task), self.model_, self.loss_, work=self.settings())
        references = self.memory_.grants(task.number, vault, self.model_, self.loss_, self.settings())
        optimizer = self.optimizer(task, momentum=0)
        velocity: Gradient | None = None
        reference: Gradient | None = None
        for step in self.turns(grant, task):
            velocity = gathered(grant.gradient(), velocity, self.momentum)
            direction = velocity
            if references:
                reference = smoothed(references.gradient(step), reference, self.smooth)
                direction = project(velocity, reference, always=self.project == "always")
            self.update(optimizer, direction)
        vault.drop(train)
        self.memory_.add(task.number, memory, vault)

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
        )

    def claimed_pairs(self) -> list[tuple[float, float]]:
        """(ε_i, ε'_i) of the tasks learnt so far, as the paper computes them: by the moments accountant, and the memory
        as if one block were read at its own rate in every step of one task."""
        delta, schedule = self.budget.delta, self.memory_.schedule

        def reference(task: TaskInfo) -> float:
            rate = min(1.0, schedule.batch / schedule.sizes[task.number])
            return moments_accountant(rate, schedule.noise_of(task.number), schedule.steps[task.number], delta)

        return [(by_moments(self.plan(task), delta), reference(task)) for task in self.tasks_]
