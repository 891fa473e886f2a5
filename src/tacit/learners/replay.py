"""What learners with an episodic memory share: the split, the schedule of all later reads, going on after a crash."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import partial

from dp_accounting.dp_event import DpEvent

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError, PlanError
from tacit.learners.consumption import Consumption
from tacit.learners.gradient import GradientLearner
from tacit.learners.kept import reopened
from tacit.memory import Leave, Memory, Schedule, most_read
from tacit.privacy import calibrate
from tacit.privacy.declared import Block
from tacit.privacy.plan import GradientPlan
from tacit.privacy.vault import Vault

_MORE = 1.02


@dataclass(kw_only=True, eq=False)
class ReplayLearner(GradientLearner):
    """A task's units are cut by one coin each: a share of them is the memory, the others are trained on."""

    memory_share: float = 0.1
    """Of a task's units, how many are remembered instead of trained on, by one secret coin each."""
    stay: int | None = None
    """In how many later tasks a remembered record is read at most; then it is retired for good. None: in all."""
    leave: Leave = "together"
    """How a task's remembered records leave: all after `stay` tasks, or (thinning) an equal share after each of them,
    by a secret tag of their own."""

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
        # A unit that does not recur is in one block: those that cost most speak for all. Else the ledger asks for each.
        few = schedule.tasks_per_unit == 1 and not schedule.alone
        blocks = most_read(schedule) if few else schedule.blocks
        return self.train_lists() + [events for block in blocks if (events := schedule.events(block))]

    def train_lists(self) -> list[list[DpEvent]]:
        """What a unit that is trained on is charged, in each task of the stream (or of its period)."""
        return [[self.train_event(task)] for task in self.stream_.tasks]

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

    def consumption(self, task: TaskInfo) -> Consumption:
        memory = self.memory_.schedule.expected(task.number)
        trained = super().consumption(task).trained
        return Consumption(
            trained=trained, read=memory.read, admitted=memory.admitted, retired=memory.retired, held=memory.held
        )

    def saved(self, block: Block, vault: Vault) -> None:
        """Remembered records whose time is over are retired: the last task that read them need not be learnt again."""
        number = next((task.number for task in reversed(self.tasks_) if task.name == block.task), None)
        if number is not None:
            self.memory_.retire(number, lambda task, part: self._found(task, part, block.part, vault), vault)

    @property
    def holds(self) -> bool:
        return bool(self.memory_.blocks)

    def take_up(self, vault: Vault, part: str) -> None:
        schedule, done = self.memory_.schedule, self.learnt
        for number in schedule.held(done):
            task = self.stream_.task(number)
            assert task is not None  # it was learnt
            reopen = partial(self._reopened, vault, task, part)
            self.memory_.hold(number, done, reopen)

    def _reopened(self, vault: Vault, task: TaskInfo, given: str, stays: int | None) -> Block:
        return reopened(vault, self.stream_, task, self._part(given, stays))

    def _found(self, number: int, stays: int, given: str, vault: Vault) -> Block:
        """The handle of a part of an earlier task's memory."""
        task = self.stream_.task(number)
        assert task is not None  # it was learnt
        return vault.find(self.stream_.name, task.name, self._part(given, stays))

    def _part(self, given: str, stays: int | None) -> str:
        """The name of a part of the memory, where the learner gets this part of a task's records."""
        whole = "memory" if given == "all" else f"{given}/memory"
        return f"{whole}/{stays}" if len(self.memory_.schedule.parts) > 1 else whole
