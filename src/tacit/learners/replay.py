"""What learners with an episodic memory share: the split, the schedule of all later reads, going on after a crash."""

from abc import abstractmethod
from dataclasses import dataclass, replace

from dp_accounting.dp_event import DpEvent

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError, PlanError
from tacit.learners.gradient import GradientLearner
from tacit.learners.learner import reopened
from tacit.memory import Memory, Schedule
from tacit.privacy import calibrate
from tacit.privacy.declared import Block
from tacit.privacy.plan import GradientPlan
from tacit.privacy.vault import Vault

_MORE = 1.02


@dataclass(kw_only=True, eq=False)
class ReplayLearner(GradientLearner):
    """A task's units are cut by one coin each: a share of them is the memory, the others are trained on."""

    memory_share: float = 0.1

    def start(self, stream: StreamInfo) -> None:
        if not 0 < self.memory_share < 1:
            raise LearnerError(f"memory_share must be between 0 and 1, got {self.memory_share}; 0.1 keeps a tenth")
        super().start(stream)
        self.slack_ = 1.0
        schedule = self.schedule(stream)
        # A unit may be trained on in one task and remembered in another: a mixture can cost a little more than either.
        while not self.fits(stream, schedule):
            if self.given() or self.slack_ > 2:
                raise PlanError(
                    f"the planned reads of the memory do not fit {self.budget} for a unit in {stream.tasks_per_unit} "
                    "task(s); leave noise and batch of the memory to the budget, or use fewer steps"
                )
            self.slack_ *= _MORE
            schedule = replace(schedule, noise=self.more(schedule))
        self.memory_ = Memory(schedule=schedule)

    def plan(self, task: TaskInfo) -> GradientPlan:
        plan = super().plan(task)
        return plan if self.noise is not None else replace(plan, noise=self.slack_ * plan.noise)

    @abstractmethod
    def given(self) -> bool:
        """Whether the user fixed what would have to give way."""

    def more(self, schedule: Schedule) -> tuple[float, ...]:
        """The schedule's noise after `slack_` was raised."""
        return tuple(_MORE * noise for noise in schedule.noise)

    def fits(self, stream: StreamInfo, schedule: Schedule) -> bool:
        """Whether any tasks that one unit can be in stay within the budget together."""
        return calibrate.fits_mixed(self._lists(schedule), self.budget, stream.tasks_per_unit)

    def charges(self) -> list[list[DpEvent]]:
        return self._lists(self.memory_.schedule)

    def _lists(self, schedule: Schedule) -> list[list[DpEvent]]:
        """What a unit may be charged in one task: it is trained on, or remembered."""
        tasks = self.stream_.tasks
        remembered = [events for task in tasks if (events := schedule.events(task.number))]
        return [[self.train_event(task)] for task in tasks] + remembered

    def train_event(self, task: TaskInfo) -> DpEvent:
        """What a unit that is trained on is charged."""
        return self.plan(task).event

    @abstractmethod
    def schedule(self, stream: StreamInfo) -> Schedule:
        """All later reads of all blocks, from public facts."""

    def steps_of(self, stream: StreamInfo) -> tuple[int, ...]:
        return tuple(self.steps_in(task) for task in stream.tasks)

    def memory_sizes(self, stream: StreamInfo) -> tuple[int, ...]:
        return tuple(max(1, round(self.memory_share * task.size)) for task in stream.tasks)

    def train_size(self, task: TaskInfo) -> int:
        return max(1, round((1 - self.memory_share) * task.size))

    def cut(self, block: Block, vault: Vault) -> tuple[Block, Block]:
        train, memory = vault.split(block, {"train": 1 - self.memory_share, "memory": self.memory_share})
        return train, memory

    def take_up(self, vault: Vault, part: str) -> None:
        where = "memory" if part == "all" else f"{part}/memory"
        for task in self.tasks_:
            if self.memory_.schedule.events(task.number):
                self.memory_.blocks[task.number] = reopened(vault, self.stream_, task, where)
