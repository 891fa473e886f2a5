"""A pool of learners that take turns (Hassanpour et al. 2022, Section IV.A and B, Q2, Q3), made so that it holds.

A learner is trained on some tasks, then it is finished: it answers for its tasks and learns no more, and a new one
begins. With an early start the new one also learns the last task of the old one, which the old one answers for. All of
them learn by A-GEM on noisy gradients and share one memory (`Projected`).

Claim: each learner's own budget stays below a global one, so that holds for ever. It does not: a fresh learner is not a
fresh budget. Budgets belong to records, and a record of the memory is read by every learner that comes.
Certified: a record pays for every read, whoever reads: in a task with two learners it is trained on twice, and the
noise is found for both. Which learner learns what, and when it halts, is public and known before a record is read.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import BudgetExceeded, LearnerError
from tacit.learners import weights
from tacit.learners.apart import outputs
from tacit.learners.core import Claimed
from tacit.learners.gradient import by_moments
from tacit.learners.pool_turns import TakingTurns
from tacit.learners.routing import entropy, logarithm
from tacit.learners.weights import State, put, trained, under
from tacit.memory import Mode
from tacit.privacy.claims import LEARNER_ORDER, Claim, hassanpour, moments_of
from tacit.privacy.declared import Block
from tacit.privacy.vault import Vault


@dataclass(kw_only=True, eq=False)
class Pool(TakingTurns):
    """Learners that take turns on a stream: each is trained on some tasks by A-GEM on noisy gradients, then answers for
    them and learns no more, and a new one begins. All of them share one memory of records.

    Settings that decide whose turn it is: `tasks_per_learner` or `learner_budget`, `learners`, `early_start`; how a new
    one begins: `fine_tune`; who answers: `finished`, `vote`; the memory: `memory`, `memory_share`, `stay`, `leave`,
    `by_class`, `margin`; the rest is as in `DPCL` (`steps`, `batch`, `lr`, `clip`, `noise`). Each field says what it
    does. A record pays for every read, whoever reads: `certificate_` says what it lost, `claims()` what the paper says.
    """

    finished: int | None = None
    """How many finished learners are kept, the last ones; the tasks of others are answered by the vote. None: all."""
    memory: Literal["union", "each"] = "union"
    """How the memory is read: in one draw from all blocks, or each by itself, where a longer stay costs more."""
    vote: Literal["mean", "confident"] = "mean"
    """Where no task is given, or its learner is gone: the mean of all learners' probabilities, or for each input the
    learner whose answer has the least entropy."""

    forever: ClassVar[bool] = True
    reference: ClassVar[str] = "Hassanpour et al. 2022, Section IV"
    claim: ClassVar[str] = "each learner's budget ≤ GPB, by the moments accountant over its own steps"
    certifies: ClassVar[str] = "a record: the larger of its training plan, for each learner of the task, and all reads "
    certifies += "of its memory block by all learners"

    def mode(self) -> Mode:
        return self.memory

    def start(self, stream: StreamInfo) -> None:
        if self.vote not in ("mean", "confident"):
            raise LearnerError(f"vote must be 'mean' or 'confident', got {self.vote!r}")
        if self.finished is not None and (not isinstance(self.finished, int) or self.finished < 0):
            raise LearnerError(f"finished must be a whole number ≥ 0, or None, got {self.finished!r}")
        if stream.endless and (self.stay is None or self.finished is None):
            raise LearnerError(
                f"{stream.name!r} has no last task, so the pool must be bounded; give stay (in how many later tasks a "
                f"remembered record is read) and finished (how many finished learners are kept), got stay={self.stay} "
                f"and finished={self.finished}"
            )
        self.pool_: dict[int, State] = {}
        super().start(stream)
        if not stream.endless and (most := sum(self.rota_.spans)) < len(stream.tasks):
            raise LearnerError(
                f"{len(stream.tasks)} tasks are planned and the {self.rota_.learners} learner(s) of this pool end "
                f"after {most}; plan {most} tasks, or more learners"
            )

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        if (why := self.over(task.number)) is not None:
            raise BudgetExceeded(f"nothing more may be spent: {why}; the last release answers on")
        own = self.rota_.answers(task.number)
        assert own is not None  # otherwise it is over
        super().fit(task, block, vault)
        put(self.model_, self.pool_[own])
        if self.finished is not None:
            self.pool_ = {learner: state for learner, state in self.pool_.items() if learner >= own - self.finished}

    def train(self, task: TaskInfo, block: Block, vault: Vault, *, reader: str | None = None) -> None:
        """Every learner of the task, the one that answers for it first; all of them are billed before the first."""
        readers = self.rota_.readers(task.number)
        self.judge_ = self.model_ if self.margin is None else deepcopy(self.model_)
        if len(readers) > 1:
            vault.commit({block: self.events_in(task)})
        for learner in readers:
            if learner in self.pool_:
                put(self.model_, self.pool_[learner])
            else:
                self.begin(learner, task, vault)
            # While it learns, it is asked as it is.
            self.pool_[learner] = {name: p for name, p in self.model_.named_parameters() if p.requires_grad}
            super().train(task, block, vault, reader=f"learner {learner + 1}")
            self.pool_[learner] = trained(self.model_)

    def saved(self, block: Block, vault: Vault) -> None:
        super().saved(block, vault)
        if self.stream_.endless:  # nothing reads the training part again, and such parts would pile up
            part = "train" if block.part == "all" else f"{block.part}/train"
            vault.retire(vault.find(block.stream, block.task, part))

    def over(self, number: int) -> str | None:
        if self.rota_.answers(number) is not None:
            return None
        return f"this pool may have {self.rota_.learners} learner(s), and they have learnt their {number} tasks"

    def let_go(self, vault: Vault) -> None:
        schedule = self.memory_.schedule
        for number in schedule.held(self.learnt):
            for part in schedule.parts:
                if part is not None and schedule.to_come(number, part, self.learnt):
                    vault.retire(self._found(number, part, "all", vault))
        self.memory_.blocks.clear()

    def judge(self) -> nn.Module:
        """As the last release had it: the learner that answered for the task before, whoever learns now."""
        return self.judge_

    def answers_for(self, task: TaskInfo) -> int | None:
        """The learner that answers for a task. None: all of them vote, since it has not begun or is gone."""
        own = self.rota_.answers(task.number)
        return own if own in self.pool_ else None

    def scores(self, x: Tensor, task: TaskInfo | None = None) -> Tensor:
        """Where the task is given, the logits of the learner that answers for it, −∞ outside its labels; else the
        logarithm of what the pool's learners say together."""
        own = None if task is None else self.answers_for(task)
        asked = [self.pool_[own]] if own is not None else list(self.pool_.values()) or [trained(self.model_)]
        found = [outputs(self.model_, x.to(self.device), state) for state in asked]
        if task is not None:
            found = [one.masked_fill(~self.mask(task).to(one.device), -torch.inf) for one in found]
        return found[0] if len(found) == 1 else logarithm(self._together([one.softmax(1) for one in found]))

    def _together(self, answers: Sequence[Tensor]) -> Tensor:
        """What several learners say, as probabilities."""
        if self.vote == "mean":
            return torch.stack(list(answers)).mean(0)
        surest = torch.stack([entropy(one) for one in answers]).argmin(0)
        return torch.stack(list(answers))[surest, torch.arange(len(surest), device=surest.device)]

    def groups(self) -> list[range]:
        """The tasks learnt by now, by the learner that answers for them; on an endless stream, of those kept."""
        begun = sorted(self.pool_) if self.stream_.endless else range(max(self.pool_, default=-1) + 1)
        each = [self.rota_.own(learner) for learner in begun]
        return [range(own.start, min(own.stop, self.learnt)) for own in each if own.start < self.learnt]

    def spent(self, learner: int) -> float:
        """ε of a learner's steps by now, as the paper's privacy meter has it: by the moments accountant."""
        steps: Counter[tuple[float, float]] = Counter()
        for number in self.rota_.tasks(learner):
            task = self.stream_.task(number)
            if task is not None and number < self.learnt:
                plan = self.plan(task)
                steps[plan.rate, plan.noise] += plan.steps
        return moments_of(steps, self.budget.delta, LEARNER_ORDER)

    def claims(self) -> tuple[Claim, ...]:
        if not self.pool_:
            return ()
        begun = self.pool_ if self.stream_.endless else range(max(self.pool_) + 1)
        spent = [self.spent(learner) for learner in begun]
        return (hassanpour(spent, self.learner_budget, self.budget.delta, LEARNER_ORDER),)

    def claimed(self) -> Claimed | None:
        said = self.claims()
        if not said:
            return None
        each = [by_moments(self.plan(task), self.budget.delta, LEARNER_ORDER) for task in self.tasks_]
        return Claimed(per_task=max(each), total=said[0].epsilon, delta=self.budget.delta)

    def tensors(self) -> State:
        """The learner that answers for the last task, whole, and the trained weights of all that are kept."""
        kept = {f"current.{name}": value for name, value in weights.released(self.model_).items()}
        for place, state in enumerate(self.pool_.values()):
            kept |= {f"learner.{place}.{name}": value.cpu() for name, value in state.items()}
        return kept | {"numbers": torch.tensor(list(self.pool_), dtype=torch.int64)}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        if "numbers" not in tensors:
            raise LearnerError("this is not the release of a pool: it does not say which learners are in it")
        weights.load(self.model_, under(tensors, "current."))
        states = weights.each(tensors, "learner", self.device)
        self.pool_ = dict(zip(tensors["numbers"].tolist(), states, strict=True))
