"""A pool of networks that take turns on a stream (Hassanpour et al. 2022, Section IV.A and B, Q2, Q3), made valid.

A network is trained on some tasks; then it is finished, answers for its tasks and learns no more, and a new one begins.
With an early start the new one also learns the last task of the old one, which the old one answers for. The pool holds:
* `member_`: the learner that trains them all, by A-GEM on noisy gradients with one shared memory;
* `learner_schedule_`: which network learns which task, public and known before a record is read;
* `initial_`: how a new network begins;
* `pool_`: the trained weights of the networks.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from dp_accounting.dp_event import DpEvent
from torch import nn

from tacit.certificate.certificate import Certificate
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import BudgetExceeded, LearnerError
from tacit.learners.base.public_figures import Consumption
from tacit.learners.base.weights import trained
from tacit.learners.pool.initial_training import InitialTraining
from tacit.learners.pool.learner_schedule import LearnerSchedule, Steps
from tacit.learners.pool.member import Member
from tacit.learners.pool.turns import TakingTurns
from tacit.learners.replay.dpcl import ProjectedReplay, ProjectionSettings
from tacit.memory import ReplayMemory
from tacit.privacy.vault import Block, GradientPlan, Vault


@dataclass(kw_only=True, eq=False)
class Pool(ProjectionSettings, TakingTurns):
    """Networks that take turns on a stream, trained by A-GEM on noisy gradients with one shared memory of records.

    Settings that decide whose turn it is: `tasks_per_learner` or `learner_budget` (neither: one network for all tasks),
    `learners`, `early_start`; how a new network begins: `fine_tune`; who answers: `finished`, `vote`; the memory:
    `memory`, `memory_share`, `stay`, `leave`, `by_class`, `margin`; the rest is as in `DPCL`.

    Reference: Hassanpour et al. 2022, Section IV.
    Claim: each network's own budget stays below a global one, so that the bound holds for ever. It does not: a new
    network is not a new budget. Budgets belong to records, and a remembered record is read by every later network.
    Certified: a record is charged for every read, whichever network reads. In a task with two networks it is trained on
    twice, and the noise is calibrated for both.
    Sharp edges: a new network is no new budget: remembered records pay for every network that reads them. At the
    paper's batch of 10 gradients drown in noise; take 1,000 or more.
    """

    fine_tune: Literal["public", "charged"] | None = None
    """New networks begin by passes over the held-out tasks. public: their records are public, and read without noise.
    charged: by noisy gradients; the passes of all networks are committed before the first. None: no such passes."""
    fine_tune_epochs: float = 1.0
    """Number of passes over the held-out tasks that a new network makes."""
    fine_tune_lr: float | None = None
    """Learning rate of these passes. None: as in tasks; gradients without clipping and noise may need a smaller one."""
    finished: int | None = None
    """Number of finished networks that are kept, the latest; the vote answers for the tasks of others. None: all."""
    memory: Literal["union", "each"] = "union"
    """How the memory is read: in one draw from all blocks, or each block on its own, where a longer stay costs more."""

    supports_endless: ClassVar[bool] = True
    reference: ClassVar[str] = "Hassanpour et al. 2022, Section IV"
    claim: ClassVar[str] = "each learner's budget ≤ GPB, by the moments accountant over its own steps"
    certifies: ClassVar[str] = "a record: the larger of its training plan, for each learner of the task, and all reads "
    certifies += "of its memory block by all learners"

    def start(self, stream: StreamInfo) -> None:
        self._check(stream)
        super().start(stream)
        self.initial_ = InitialTraining(
            fine_tune=self.fine_tune, epochs=self.fine_tune_epochs, lr=self.fine_tune_lr, member=self.member_
        )
        self.initial_.check(stream)
        self.check_learner_schedule()

    def build(self) -> nn.Module:
        """The one network in memory: the member's, which takes the weights of each network in turn."""
        shared = {one.name: getattr(self, one.name) for one in fields(ProjectedReplay)}
        self.member_ = Member(**shared, pool=self, read_memory=self.memory, turns_by=self.turn_settings())
        self.member_.start(self.stream_)
        return self.member_.model_

    @property
    def learner_schedule_(self) -> LearnerSchedule:
        return self.member_.learner_schedule_

    @property
    def memory_(self) -> ReplayMemory:
        return self.member_.memory_

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        if (reason := self.stop_reason(task.number)) is not None:
            raise BudgetExceeded(f"nothing more may be spent: {reason}; the last release still predicts")
        train, memory = self.memory_.split(block, vault)
        self._train_readers(task, train, vault)
        vault.drop(train)
        self.memory_.add(task.number, memory, vault)
        answers = self.learner_schedule_.answers(task.number)
        assert answers is not None  # otherwise the pool is over
        self.take_up(answers)
        if self.finished is not None:
            self.pool_ = {number: state for number, state in self.pool_.items() if number >= answers - self.finished}

    def _train_readers(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        """Trains every network that reads the task, the one that answers for it first; all are billed before."""
        readers = self.learner_schedule_.readers(task.number)
        # Remembered records are judged by the last released network, whichever network learns.
        judge = self.model_ if self.margin is None else deepcopy(self.model_)
        if len(readers) > 1:
            vault.commit({block: self.member_.events_in(task)})
        for number in readers:
            if number in self.pool_:
                self.take_up(number)
            else:
                self.initial_.begin(number, task, vault)
            # While it is trained, it answers with its current weights.
            self.pool_[number] = {name: p for name, p in self.model_.named_parameters() if p.requires_grad}
            self.member_.train(task, block, vault, judge=judge, reader=f"learner {number + 1}")
            self.pool_[number] = trained(self.model_)

    def plan(self, task: TaskInfo) -> GradientPlan:
        """The plan of each network that reads the task."""
        return self.member_.plan(task)

    def charges(self) -> list[list[DpEvent]]:
        return self.member_.charges()

    def consumption(self, task: TaskInfo) -> Consumption:
        return self.member_.consumption(task)

    @property
    def held_out_access(self) -> Literal["public", "charged"] | None:
        return self.fine_tune

    def receive_held_out(self, blocks: Sequence[Block], vault: Vault) -> None:
        """Takes the held-out tasks, each under its own labels. Where they are charged, all passes are committed."""
        self.initial_.take(blocks, vault, self.stream_)

    def on_saved(self, block: Block, vault: Vault) -> None:
        super().on_saved(block, vault)
        if self.stream_.endless:  # nothing reads the training part again, and such parts would pile up
            part = "train" if block.part == "all" else f"{block.part}/train"
            vault.retire(vault.find(block.stream, block.task, part))

    def steps_of_learner(self, task: TaskInfo) -> Steps:
        plan = self.plan(task)
        return plan.rate, plan.noise, plan.steps

    def certify(self, block: Block, vault: Vault, *, beside: Sequence[str] = ()) -> Certificate:
        """The certificate also names the held-out tasks that networks begin on."""
        held = self.initial_.held
        if self.fine_tune is None:
            return super().certify(block, vault, beside=beside)
        if held is not None:
            return super().certify(block, vault, beside=(*beside, held.said(vault)))
        before: Certificate | None = getattr(self, "certificate_", None)  # no network has begun since
        return super().certify(block, vault, beside=(*beside, *(() if before is None else before.beside)))

    def _check(self, stream: StreamInfo) -> None:
        if self.finished is not None and (not isinstance(self.finished, int) or self.finished < 0):
            raise LearnerError(f"finished must be a whole number ≥ 0, or None, got {self.finished!r}")
        if stream.endless and (self.stay is None or self.finished is None):
            raise LearnerError(
                f"the stream {stream.name!r} is endless, so the pool must be bounded; give stay (how many later tasks "
                f"read a remembered record) and finished (how many finished learners are kept), got stay={self.stay} "
                f"and finished={self.finished}"
            )
        if self.fine_tune not in (None, "public", "charged"):
            raise LearnerError(f"fine_tune must be 'public', 'charged' or None, got {self.fine_tune!r}")
        for name in ("fine_tune_epochs", "fine_tune_lr"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise LearnerError(f"{name} must be a number > 0, got {value}")
        if self.fine_tune == "charged" and (stream.tasks_per_unit > 1 or stream.unit == "person"):
            raise LearnerError(
                f"a {stream.unit} of {stream.name!r} may be in a held-out task and in one that is learned, and would "
                "pay in both streams for the same model; use fine_tune='public' on other data, or None"
            )
