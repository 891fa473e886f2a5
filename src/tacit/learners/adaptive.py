"""DP-SGD whose noise follows the accuracy: less of it while a target is missed, more of it once it is met.

A task is learnt in segments, one grant each. Before a segment the noise is chosen from what came out before it, which
plain accounting forbids: the task's block is open, so a Rényi filter was fixed when it was made and every segment is
charged to it. The accuracy is public too: of public records that were shown, or of a charged query on units that are
kept apart and never trained on. A segment is begun only if it fits what is left (the halt is predicted); if it does
not, its noise is raised to what fits, or the task ends before it, as `stopped_` says.

Reference: Hassanpour et al. 2022, IV.A.3, which names the rule and no mechanism. Claim: none. Certified: the ε of the
filter, however much of it was spent: an odometer is not a filter.
"""

from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from tacit.data.sources import as_read
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError, PlanError
from tacit.learners.asking import answer, share_right
from tacit.learners.core import Step
from tacit.learners.gradient import at, rounded_up
from tacit.learners.naive import NaiveDPSGD
from tacit.learners.rooms import Room
from tacit.privacy.budget import Adjacency
from tacit.privacy.declared import Block
from tacit.privacy.events import gaussian, repeat
from tacit.privacy.filters import RenyiFilter
from tacit.privacy.grant import Grant
from tacit.privacy.pin import pin
from tacit.privacy.plan import GradientPlan, SumPlan
from tacit.privacy.still import is_random
from tacit.privacy.vault import Vault

PARTS = ("train", "watch")


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Steps that were taken with one noise, and the accuracy that was then found. All of it is public."""

    steps: int
    noise: float
    accuracy: float | None
    """None: nothing hung on it, and nothing was asked."""


@dataclass(kw_only=True, eq=False)
class AdaptiveDPSGD(NaiveDPSGD):
    """Fine-tuning, task after task, with noise that is chosen as one goes: after every `check` steps the accuracy is
    found (`watch_on`: of public records, or of a charged share `watch_share` of the task), and the noise is divided by
    `factor` where `target` is missed from `by_step` on, multiplied by it once it is met, between `least` and `most`.

    `by_size` gives larger tasks a smaller budget. The rest is as in `NaiveDPSGD` (`steps`, `batch`, `lr`, `clip`,
    `noise` to begin with). Each field says what it does; `segments_` and `stopped_` say what was done."""

    target: float = 0.8
    """The accuracy that a task is meant to reach."""
    by_step: int = 20
    """Until then a miss changes nothing."""
    check: int = 10
    """Steps of a segment: so often the accuracy is asked for and the noise chosen."""
    factor: float = 1.25
    """The noise is divided by it after a miss, multiplied by it once the target is met."""
    least: float = 0.25
    """The least noise, as a multiple of what it begins with: `noise`, or the least that allows all steps."""
    most: float = 4.0
    """The most noise, as such a multiple; a segment that does not fit with it is not begun."""
    watch_on: Literal["public", "charged"] = "charged"
    """Whose accuracy it is: of public records (`show`), or of a part of the task's units, who pay for the queries."""
    watch_share: float = 0.1
    """charged: the share of units that are asked and never learnt from."""
    by_size: bool = False
    """Larger tasks get a smaller budget: a task of n units spends ε · min(1, (usual_size / n)^power) at most, all from
    nominal sizes. The rest is not spent; the certificate still says ε."""
    usual_size: int | None = None
    """by_size: the largest size that gets all of ε. None: the size of the stream's smallest task."""
    power: float = 1.0
    """by_size: with 1, n · ε is the same for all larger tasks, and about as much can be learnt of each."""

    reference: ClassVar[str] = "Hassanpour et al. 2022, IV.A.3, behind a Rényi filter"
    certifies: ClassVar[str] = "a record: the Rényi filter of its own task, whatever was spent of it"

    @property
    def wants_shown(self) -> bool:
        return self.watch_on == "public"

    def start(self, stream: StreamInfo) -> None:
        self._check_settings()
        super().start(stream)
        if self.watch_on == "charged" and is_random(self.model_):
            raise LearnerError(
                "a network with a noise layer answers otherwise every time, and a charged query has to be the same "
                "when it is taken up after a crash; use watch_on = 'public'"
            )
        self.segments_: list[Segment] = []
        self.stopped_: str | None = None
        for task in stream.tasks:  # a budget that is too small is said before the first
            self._first(task, self._room(task, self._filter(task)))

    def show(self, X: Any, y: Any) -> None:
        """Public records like those of the tasks that come next; accuracy on them costs nothing."""
        self.shown_ = as_read(self._rows(X)), self.positions(y)

    def like(self, task: TaskInfo) -> GradientPlan:
        """The filter has the shape of all steps with one noise. Where units recur it is the same for all tasks, or
        their filters would not add up to one."""
        times = self.stream_.tasks_per_unit
        one = task if times == 1 else self.stream_.tasks[0]
        return GradientPlan.for_budget(
            self.budget, rate=self.rate_in(one), steps=self.steps_in(one), tasks_per_unit=times, open=True
        )

    def plan(self, task: TaskInfo) -> GradientPlan:
        """What is begun with: all steps at the first noise. The segments are what is done."""
        return self._plan(task, self.steps_in(task), self._first(task, self._room(task, self._filter(task))))

    def charges(self) -> list[Any]:
        """None: what is chosen as one goes is gated by the filters, which are made to fit together."""
        return []

    def train_size(self, task: TaskInfo) -> int:
        return task.size if self.watch_on == "public" else max(1, round((1 - self.watch_share) * task.size))

    def epsilon_in(self, task: TaskInfo) -> float:
        """What a task's units may lose, by the public rule of `by_size`; never above the budget."""
        usual = self.usual_size or min(one.size for one in self.stream_.tasks)
        return self.budget.epsilon * (min(1.0, (usual / task.size) ** self.power) if self.by_size else 1.0)

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        if self.watch_on == "public" and not hasattr(self, "shown_"):
            raise LearnerError(
                "watch_on = 'public' needs public records like the task's: show(X, y) them first, or use 'charged'"
            )
        vault.left(block)  # a committed block is refused before it is cut
        train, watch = (block, None) if self.watch_on == "public" else self._cut(block, vault)
        room = self._room(task, vault.left(train))
        query = None if watch is None else self._query(task, vault.left(watch))
        first = noise = self._first(task, room)
        optimizer, total, done = self.optimizer(task), self.steps_in(task), 0
        ends: deque[list[Tensor]] = deque(maxlen=ceil(round(self.average * total) / self.check))
        self.segments_, self.stopped_ = [], None
        while done < total:
            steps = min(self.check, total - done)
            if done:
                if not room.fits(self._plan(task, steps, self.most * first).event):
                    self.stopped_ = (
                        f"{task.name!r} ended after {done} of {total} steps: what is left of its budget (its filter) "
                        f"does not allow {steps} more with noise up to {self.most * first:.4g}"
                    )
                    break
                accuracy = self._accuracy(task, done, watch, query, vault)
                self.segments_[-1] = replace(self.segments_[-1], accuracy=accuracy)
                noise = self.next_noise(noise, accuracy, done, first)
            plan = self._plan(task, steps, noise)
            if not room.fits(plan.event):
                plan = self._plan(task, steps, self._least(task, room, steps))
            noise, room = plan.noise, room.less(plan.event)
            work = self.settings() | {"segment": done}
            grant = vault.grant(train, plan, self.model_, self.loss_, work=work)
            ends.append(self._segment(grant, task, done, total, optimizer))
            self.segments_.append(Segment(steps=steps, noise=noise, accuracy=None))
            done += steps
        self._average(ends)
        self.watch(Step(task=task, step=done, of=total))
        for part in (train, watch):
            if part is not None:
                vault.drop(part)

    def next_noise(self, noise: float, accuracy: float, step: int, first: float) -> float:
        """The rule: more once the target is met, less where it is missed from `by_step` on, within the bounds."""
        if accuracy >= self.target:
            return min(noise * self.factor, self.most * first)
        return max(noise / self.factor, self.least * first) if step >= self.by_step else noise

    def saved(self, block: Block, vault: Vault) -> None:
        if self.watch_on == "public":
            super().saved(block, vault)
        elif self.stream_.endless:
            prefix = "" if block.part == "all" else f"{block.part}/"
            for part in PARTS:
                vault.retire(vault.find(block.stream, block.task, prefix + part))

    def _cut(self, block: Block, vault: Vault) -> tuple[Block, Block]:
        train, watch = vault.split(block, dict(zip(PARTS, (1 - self.watch_share, self.watch_share), strict=True)))
        return train, watch

    def _segment(
        self, grant: Grant, task: TaskInfo, done: int, total: int, optimizer: torch.optim.Optimizer
    ) -> list[Tensor]:
        """Take the steps of one grant; the mean of the weights after each."""
        trained = [p for p in self.model_.parameters() if p.requires_grad]
        sums = [torch.zeros_like(p) for p in trained]
        for step in grant:
            self.watch(Step(task=task, step=done + step, of=total))
            self.update(optimizer, grant.gradient())
            torch._foreach_add_(sums, [p.detach() for p in trained])
        return [one / grant.plan.steps for one in sums]

    def _average(self, ends: deque[list[Tensor]]) -> None:
        """`average`, in whole segments: the task may end at any of them."""
        trained = [p for p in self.model_.parameters() if p.requires_grad]
        with torch.no_grad():
            for parameter, means in zip(trained if ends else (), zip(*ends, strict=True), strict=True):
                parameter.copy_(torch.stack(means).mean(0))

    def _accuracy(self, task: TaskInfo, done: int, watch: Block | None, query: SumPlan | None, vault: Vault) -> float:
        asked = task if self.stream_.task_id == "given" else None
        if watch is None or query is None:
            with self.public_dice(task.number, done):  # a task that is taken up again finds the same
                return share_right(self, *self.shown_, asked)
        version = pin(tensors=self.tensors(), settings=self.settings(), step=done)
        return vault.accuracy(watch, partial(answer, self.scores, asked, version), query)

    def _query(self, task: TaskInfo, left: RenyiFilter) -> SumPlan:
        """The least noise with which every check of the task can be paid for by the part that is asked."""
        checks = max(1, ceil(self.steps_in(task) / self.check) - 1)
        return SumPlan(noise=self._room(task, left).least(lambda noise: repeat(gaussian(noise), checks)))

    def _filter(self, task: TaskInfo, epsilon: float | None = None) -> RenyiFilter:
        """The filter that the ledger makes for the task's block; with another ε, one that the learner keeps to."""
        budget = replace(self.budget, epsilon=epsilon or self.budget.epsilon)
        return RenyiFilter.for_budget(budget, like=self.like(task).event).share(self.stream_.tasks_per_unit)

    def _room(self, task: TaskInfo, left: RenyiFilter) -> Room:
        """What a task's plans have to fit, given what is left of its filter."""
        own = (self._filter(task, self.epsilon_in(task)),) if self.by_size else ()
        return Room(filters=(left, *own), adjacency=self.budget.adjacency)

    def _plan(self, task: TaskInfo, steps: int, noise: float) -> GradientPlan:
        return GradientPlan(rate=self.rate_in(task), steps=steps, noise=noise, clip=self.clip, clipping=self.clipping)

    def _first(self, task: TaskInfo, room: Room) -> float:
        """The noise of the first segment: as given, or the least that allows all steps with one noise."""
        if self.noise is None:
            return self._least(task, room, self.steps_in(task))
        noise, steps = at(self.noise, task, "noise"), min(self.check, self.steps_in(task))
        if not room.fits(self._plan(task, steps, noise).event):
            raise PlanError(
                f"the first {steps} steps of task {task.name!r} with noise {noise:g} do not fit "
                f"{replace(self.budget, epsilon=self.epsilon_in(task))}; it takes noise ≥ "
                f"{rounded_up(self._least(task, room, steps))}, a shorter segment or a smaller batch"
            )
        return noise

    def _least(self, task: TaskInfo, room: Room, steps: int) -> float:
        """The least noise with which so many steps still fit."""
        return room.least(lambda noise: self._plan(task, steps, noise).event)

    def _check_settings(self) -> None:
        if self.watch_on not in ("public", "charged"):
            raise LearnerError(f"watch_on must be 'public' or 'charged', got {self.watch_on!r}")
        for name in ("target", "watch_share"):
            if not 0 < (value := getattr(self, name)) < 1:
                raise LearnerError(f"{name} must be between 0 and 1, got {value}")
        if not self.factor > 1:
            raise LearnerError(f"factor must be > 1, got {self.factor}; the noise is divided or multiplied by it")
        if not 0 < self.least <= 1 <= self.most:
            raise LearnerError(
                "least and most are multiples of the first noise, with 0 < least ≤ 1 ≤ most, got "
                f"{self.least} and {self.most}"
            )
        for name in ("check", "by_step"):
            if isinstance(value := getattr(self, name), bool) or not isinstance(value, int) or value < 1:
                raise LearnerError(f"{name} must be a whole number of steps ≥ 1, got {value!r}")
        if not self.power > 0 or (self.usual_size is not None and self.usual_size < 1):
            raise LearnerError(f"power must be > 0 and usual_size ≥ 1, got {self.power} and {self.usual_size}")
        if self.budget.adjacency is Adjacency.REPLACE_ONE:
            raise LearnerError(
                "noise that is chosen as one goes cannot be accounted for under replace-one (its filter needs a Rényi "
                "bound, and Poisson sampling has no Rényi bound under replace-one); use budget.adjacency = "
                "'add-or-remove', or NaiveDPSGD, whose plan is fixed"
            )
