"""Networks that take turns on a stream: when one ends and the next begins, and which of them answers."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor

from tacit.certificate.claims import LEARNER_ORDER, Claim, hassanpour, moments_of
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.base import weights
from tacit.learners.base.learner import Learner
from tacit.learners.base.public_figures import Claimed
from tacit.learners.base.weights import State, put, trained, under
from tacit.learners.closed_form.routing import entropy, logarithm
from tacit.learners.experts.per_task_models import outputs
from tacit.learners.pool.learner_schedule import LearnerSchedule, Priced, Steps, schedule_by_budget, schedule_by_count


@dataclass(frozen=True, kw_only=True)
class TurnSettings:
    """When one network of a pool ends and the next begins; the fields are settings of `TakingTurns`."""

    tasks_per_learner: int | None
    learner_budget: float | None
    learners: int | None
    early_start: bool

    def check(self, stream: StreamInfo) -> None:
        """Refuses settings that contradict each other or the stream."""
        if self.learner_budget is not None and not self.learner_budget > 0:
            raise LearnerError(f"learner_budget must be an ε > 0 or None, got {self.learner_budget:g}")
        if self.tasks_per_learner is not None and self.learner_budget is not None:
            raise LearnerError(
                f"give tasks_per_learner or learner_budget, got {self.tasks_per_learner} and {self.learner_budget:g}; "
                "each decides when a learner ends"
            )
        for name in ("tasks_per_learner", "learners"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise LearnerError(f"{name} must be a whole number ≥ 1, or None, got {value!r}")
        if stream.endless and self.tasks_per_learner is None and self.learner_budget is None:
            raise LearnerError(
                f"the stream {stream.name!r} is endless, so learners must take turns; give tasks_per_learner or "
                "learner_budget"
            )

    def learner_schedule(self, stream: StreamInfo, priced: Priced, delta: float) -> LearnerSchedule:
        """Which network learns which task, from public facts and plans."""
        tasks = len(stream.tasks)
        if self.learner_budget is None:
            each = tasks if self.tasks_per_learner is None else self.tasks_per_learner
            return schedule_by_count(
                tasks, each, early=self.early_start, learners=self.learners, endless=stream.endless
            )
        return schedule_by_budget(
            tasks, priced, self.learner_budget, delta,
            early=self.early_start, learners=self.learners, endless=stream.endless,
        )  # fmt: skip


@dataclass(kw_only=True, eq=False)
class TakingTurns(Learner):
    """Several networks, of which one in turn learns. A subclass says how, and puts their weights into `pool_`."""

    tasks_per_learner: int | None = None
    """Number of tasks that a network is trained on before the next one begins."""
    learner_budget: float | None = None
    """The paper's global budget (GPB): a network is trained while the cost of its own steps stays below it, by the
    moments accountant at the budget's δ. It decides only when networks end: the certified ε comes from the ledger."""
    learners: int | None = None
    """Largest number of networks, after which nothing is learned; a finite stream may plan no more. None: no limit."""
    early_start: bool = False
    """A new network is also trained on the last task of the one before, whose records are then charged for both."""
    vote: Literal["mean", "confident"] = "mean"
    """Who answers where no task is given, or its network is gone: the mean of all networks' probabilities, or for each
    input the network whose answer has the least entropy."""

    @property
    @abstractmethod
    def learner_schedule_(self) -> LearnerSchedule:
        """Which network learns which task."""

    @abstractmethod
    def steps_of_learner(self, task: TaskInfo) -> Steps:
        """Rate, noise and steps of one network in a task, which the paper's accountant prices."""

    def start(self, stream: StreamInfo) -> None:
        if self.vote not in ("mean", "confident"):
            raise LearnerError(f"vote must be 'mean' or 'confident', got {self.vote!r}")
        if self.supports_endless or not stream.endless:  # otherwise the stream is refused for its own reason
            self.turn_settings().check(stream)
        self.pool_: dict[int, State] = {}
        super().start(stream)

    def check_learner_schedule(self) -> None:
        """Refuses a finite stream with more tasks than all networks together learn."""
        tasks = len(self.stream_.tasks)
        if not self.stream_.endless and (most := sum(self.learner_schedule_.spans)) < tasks:
            raise LearnerError(
                f"{tasks} tasks are planned and the {self.learner_schedule_.learners} learner(s) of this pool end "
                f"after {most}; plan {most} tasks, or more learners"
            )

    def turn_settings(self) -> TurnSettings:
        return TurnSettings(**{one.name: getattr(self, one.name) for one in fields(TurnSettings)})

    def stop_reason(self, number: int) -> str | None:
        if self.learner_schedule_.answers(number) is not None:
            return None
        learners = self.learner_schedule_.learners
        return f"this pool may have {learners} learner(s), and they have learned their {number} tasks"

    def answers_for(self, task: TaskInfo) -> int | None:
        """The network that answers for a task. None: all of them vote, since it has not begun or is gone."""
        own = self.learner_schedule_.answers(task.number)
        return own if own in self.pool_ else None

    def scores(self, x: Tensor, task: TaskInfo | None = None) -> Tensor:
        """Where the task is given, the logits of the network that answers for it, −∞ outside its labels; otherwise the
        log-probabilities of the pool's vote."""
        own = None if task is None else self.answers_for(task)
        states = [self.pool_[own]] if own is not None else list(self.pool_.values()) or [trained(self.model_)]
        answers = [outputs(self.model_, x.to(self.device), state) for state in states]
        if task is not None:
            answers = [one.masked_fill(~self.mask(task).to(one.device), -torch.inf) for one in answers]
        return answers[0] if len(answers) == 1 else logarithm(self._together([one.softmax(1) for one in answers]))

    def _together(self, answers: Sequence[Tensor]) -> Tensor:
        """The probabilities of the vote."""
        if self.vote == "mean":
            return torch.stack(list(answers)).mean(0)
        surest = torch.stack([entropy(one) for one in answers]).argmin(0)
        return torch.stack(list(answers))[surest, torch.arange(len(surest), device=surest.device)]

    def groups(self) -> list[range]:
        """The tasks learned so far by the network that answers for them; on an endless stream, of those kept."""
        begun = sorted(self.pool_) if self.stream_.endless else range(max(self.pool_, default=-1) + 1)
        each = [self.learner_schedule_.own(number) for number in begun]
        return [range(own.start, min(own.stop, self.tasks_learned)) for own in each if own.start < self.tasks_learned]

    def spent(self, number: int) -> float:
        """ε of a network's steps so far, by the moments accountant, as in the paper."""
        steps: Counter[tuple[float, float]] = Counter()
        for index in self.learner_schedule_.tasks(number):
            task = self.stream_.task(index)
            if task is not None and index < self.tasks_learned:
                rate, noise, count = self.steps_of_learner(task)
                steps[rate, noise] += count
        return moments_of(steps, self.budget.delta, LEARNER_ORDER)

    def claims(self) -> tuple[Claim, ...]:
        if not self.pool_:
            return ()
        begun = self.pool_ if self.stream_.endless else range(max(self.pool_) + 1)
        spent = [self.spent(number) for number in begun]
        return (hassanpour(spent, self.learner_budget, self.budget.delta, LEARNER_ORDER),)

    def claimed(self) -> Claimed | None:
        claims = self.claims()
        if not claims:
            return None
        steps = (self.steps_of_learner(task) for task in self.tasks_)
        each = [moments_of({(rate, noise): count}, self.budget.delta, LEARNER_ORDER) for rate, noise, count in steps]
        return Claimed(per_task=max(each), total=claims[0].epsilon, delta=self.budget.delta)

    def tensors(self) -> State:
        """The network that answers for the last task, whole, and the trained weights of all that are kept."""
        kept = {f"current.{name}": value for name, value in weights.released(self.model_).items()}
        for index, state in enumerate(self.pool_.values()):
            kept |= {f"learner.{index}.{name}": value.cpu() for name, value in state.items()}
        return kept | {"numbers": torch.tensor(list(self.pool_), dtype=torch.int64)}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        if "numbers" not in tensors:
            raise LearnerError("this is not the release of a pool: it does not name the learners in it")
        weights.load(self.model_, under(tensors, "current."))
        states = weights.each(tensors, "learner", self.device)
        self.pool_ = dict(zip(tensors["numbers"].tolist(), states, strict=True))

    def take_up(self, number: int) -> None:
        """Puts the weights of a network, where it has begun, into the one that is in memory."""
        put(self.model_, self.pool_[number])
