"""What learners with an episodic memory share: the split, the schedule of all later reads, going on after a crash."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.gradient import GradientLearner, at, by_moments
from tacit.learners.learner import reopened
from tacit.memory import Memory, Mode, Schedule, calibrated
from tacit.privacy.claims import moments_accountant
from tacit.privacy.declared import Block
from tacit.privacy.vault import Vault


@dataclass(kw_only=True, eq=False)
class ReplayLearner(GradientLearner):
    """A task's units are cut by one coin each: a share of them is the memory, the others are trained on."""

    memory_share: float = 0.1
    memory_batch: float = 50
    """Expected number of memory records in a reference gradient."""
    memory_noise: float | None = None
    """Noise multiplier of the reference gradients. None: the least that the budget allows for a unit of the memory."""

    def mode(self) -> Mode:
        return "union"

    def start(self, stream: StreamInfo) -> None:
        if not 0 < self.memory_share < 1:
            raise LearnerError(f"memory_share must be between 0 and 1, got {self.memory_share}; 0.1 keeps a tenth")
        super().start(stream)
        self.memory_ = Memory(schedule=self.schedule(stream))

    def schedule(self, stream: StreamInfo) -> Schedule:
        """All later reads of all blocks, from public facts."""
        planned = Schedule(
            mode=self.mode(),
            sizes=self.memory_sizes(stream),
            steps=tuple(at(self.steps, task, "steps") for task in stream.tasks),
            batch=self.memory_batch,
            clip=self.clip,
            clipping=self.clipping,
            noise=(self.memory_noise or 1.0,),
            tasks_per_unit=stream.tasks_per_unit,
            seed=self.seed,
        )
        return planned if self.memory_noise is not None else calibrated(self.budget, planned)

    def memory_sizes(self, stream: StreamInfo) -> tuple[int, ...]:
        return tuple(max(1, round(self.memory_share * task.size)) for task in stream.tasks)

    def train_size(self, task: TaskInfo) -> int:
        return max(1, round((1 - self.memory_share) * task.size))

    def cut(self, block: Block, vault: Vault) -> tuple[Block, Block]:
        train, memory = vault.split(block, {"train": 1 - self.memory_share, "memory": self.memory_share})
        return train, memory

    def claimed_pairs(self) -> list[tuple[float, float]]:
        """(ε_i, ε'_i) of the tasks learnt so far, as the paper computes them: by the moments accountant, and the memory
        as if one block were read at its own rate in every step of one task."""
        delta, pairs = self.budget.delta, []
        for task in self.tasks_:
            schedule = self.memory_.schedule
            rate, steps = min(1.0, schedule.batch / schedule.sizes[task.number]), schedule.steps[task.number]
            noise = schedule.noise_of(task.number)
            pairs.append((by_moments(self.plan(task), delta), moments_accountant(rate, noise, steps, delta)))
        return pairs

    def restore(
        self,
        tensors: Mapping[str, Tensor],
        tasks: Sequence[TaskInfo],
        vault: Vault | None = None,
        *,
        part: str = "all",
    ) -> None:
        super().restore(tensors, tasks, vault, part=part)
        where = "memory" if part == "all" else f"{part}/memory"
        if vault is None:
            return
        for task in tasks:
            if self.memory_.schedule.events(task.number):
                self.memory_.blocks[task.number] = reopened(vault, self.stream_, task, where)
