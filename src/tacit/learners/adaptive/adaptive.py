"""DP-SGD with noise adapted to the accuracy: lower while a target accuracy is missed, higher once it is reached.

A task is learned in segments, one grant each. The noise of a segment depends on earlier outputs, so composition with
fixed parameters does not apply: the task's block is open, with a Rényi filter fixed at its admission, and every segment
is charged to that filter. The accuracy is public too: it is measured on public records, or by a charged query on units
that are held out from training. A segment starts only if it fits the remaining budget; otherwise its noise is raised
until it fits, or the task ends before it and `stopped_` has the reason.

Reference: Hassanpour et al. 2022, IV.A.3, which names the rule and no mechanism. Claim: none. Certified: the ε of the
filter, however much of it was spent.
"""

from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.data.tensors import model_input
from tacit.errors import LearnerError, PlanError
from tacit.learners.adaptive.limits import Room
from tacit.learners.base.callbacks import Step
from tacit.learners.base.estimator import as_rows
from tacit.learners.base.gradient import at
from tacit.learners.base.inference import answer, share_right
from tacit.learners.baselines.naive import NaiveDPSGD
from tacit.privacy.accounting.budget import Adjacency
from tacit.privacy.accounting.events import gaussian, repeat
from tacit.privacy.accounting.filters import RenyiFilter
from tacit.privacy.vault import Block, GradientPlan, Grant, SumPlan, Vault
from tacit.privacy.vault.intake.fingerprint import fingerprint
from tacit.privacy.vault.intake.isolation import is_random
from tacit.words import rounded_up

PARTS = ("train", "watch")


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Steps taken with one noise multiplier, and the accuracy measured after them. All of it is public."""

    steps: int
    noise: float
    accuracy: float | None
    """None if it was not measured, because no decision depended on it."""


@dataclass(kw_only=True, eq=False)
class AdaptiveDPSGD(NaiveDPSGD):
    """DP-SGD, task after task, with noise that is chosen during the task.

    After every `check` steps the accuracy is measured (`watch_on`: on public records, or on a charged share
    `watch_share` of the task). The noise is divided by `factor` where `target` is missed from `by_step` on, and
    multiplied by it once it is met, between `least` and `most`. `by_size` gives larger tasks a smaller budget. The rest
    is as in `NaiveDPSGD`; `segments_` and `stopped_` report what was done.

    Reference: Hassanpour et al. 2022, IV.A.3, which names the rule and no mechanism.
    Claim: none.
    Certified: the ε of the task's Rényi filter, however much of it was spent.
    Sharp edges: a filter is priced by Rényi curves, which takes more noise than a plan that is fixed in advance,
    and falling noise ends a task early; fixed noise has learned a task better wherever we compared them. With
    `watch_on="public"` the records that are watched must really be public.
    """

    target: float = 0.8
    """Target accuracy of a task."""
    by_step: int = 20
    """First step from which the noise is lowered if the target is missed."""
    check: int = 10
    """Number of steps in a segment; after each the accuracy is measured and the noise chosen."""
    factor: float = 1.25
    """Factor by which the noise is divided if the target is missed, and multiplied once it is reached."""
    least: float = 0.25
    """Smallest noise, as a multiple of the initial noise: `noise`, or the least that allows all steps."""
    most: float = 4.0
    """Largest noise, as a multiple of the initial noise; a segment that does not fit with it is not started."""
    watch_on: Literal["public", "charged"] = "charged"
    """Where accuracy is measured: on public records (`receive_public_records`), or on held-out units that are
    charged for the queries."""
    watch_share: float = 0.1
    """charged: share of the task's units that are held out for the accuracy and never trained on."""
    by_size: bool = False
    """Larger tasks get a smaller budget: a task of n units spends ε · min(1, (usual_size / n)^power) at most, all from
    nominal sizes. The rest is not spent; the certificate still states ε."""
    usual_size: int | None = None
    """by_size: largest task size that gets all of ε. If None, the size of the stream's smallest task."""
    power: float = 1.0
    """by_size: exponent of the size ratio; with 1, n · ε is the same for all larger tasks."""

    reference: ClassVar[str] = "Hassanpour et al. 2022, IV.A.3, behind a Rényi filter"
    certifies: ClassVar[str] = "a record: the Rényi filter of its own task, whatever was spent of it"

    @property
    def needs_public_records(self) -> bool:
        return self.watch_on == "public"

    def start(self, stream: StreamInfo) -> None:
        self._check_settings()
        super().start(stream)
        if self.watch_on == "charged" and is_random(self.model_):
            raise LearnerError(
                "a network with a noise layer makes random predictions, so a charged query could not be repeated "
                "identically after a crash; use watch_on = 'public'"
            )
        self.segments_: list[Segment] = []
        self.stopped_: str | None = None
        for task in stream.tasks:  # refuse a budget that is too small before the first task
            self._first(task, self._room(task, self._filter(task)))

    def receive_public_records(self, X: Any, y: Any) -> None:
        """Set public records like those of the next tasks; accuracy on them has no privacy cost."""
        self.shown_ = model_input(as_rows(X, self.stream_, self.model_)), self.positions(y)

    def representative_plan(self, task: TaskInfo) -> GradientPlan:
        """The filter has the shape of all steps with one noise. Where units recur it is the same for all tasks, or
        their filters would not add up to one."""
        times = self.stream_.tasks_per_unit
        one = task if times == 1 else self.stream_.tasks[0]
        return GradientPlan.for_budget(
            self.budget, rate=self.rate_in(one), steps=self.steps_in(one), tasks_per_unit=times, open=True
        )

    def plan(self, task: TaskInfo) -> GradientPlan:
        """The initial plan: all steps at the first noise. The segments taken may differ."""
        return self._plan(task, self.steps_in(task), self._first(task, self._room(task, self._filter(task))))

    def charges(self) -> list[Any]:
        """Empty: adaptively chosen plans are limited by the filters, which fit the budget together."""
        return []

    def train_size(self, task: TaskInfo) -> int:
        return task.size if self.watch_on == "public" else max(1, round((1 - self.watch_share) * task.size))

    def epsilon_in(self, task: TaskInfo) -> float:
        """Largest ε of a task's units by the public rule of `by_size`; never above the budget."""
        usual = self.usual_size or min(other.size for other in self.stream_.tasks)
        return self.budget.epsilon * (min(1.0, (usual / task.size) ** self.power) if self.by_size else 1.0)

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        if self.watch_on == "public" and not hasattr(self, "shown_"):
            raise LearnerError(
                "watch_on = 'public' needs public records like the task's: call receive_public_records(X, y) first, or "
                "use 'charged'"
            )
        vault.remaining_budget(block)  # a committed block is refused before it is cut
        train, watch = (block, None) if self.watch_on == "public" else self._cut(block, vault)
        room = self._room(task, vault.remaining_budget(train))
        query = None if watch is None else self._query(task, vault.remaining_budget(watch))
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
        self.report(Step(task=task, step=done, of=total))
        for part in (train, watch):
            if part is not None:
                vault.drop(part)

    def next_noise(self, noise: float, accuracy: float, step: int, first: float) -> float:
        """Raise the noise once the target is reached; lower it if it is missed from `by_step` on; keep it in bounds."""
        if accuracy >= self.target:
            return min(noise * self.factor, self.most * first)
        return max(noise / self.factor, self.least * first) if step >= self.by_step else noise

    def on_saved(self, block: Block, vault: Vault) -> None:
        if self.watch_on == "public":
            super().on_saved(block, vault)
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
        """Take the steps of one grant and return the mean of the weights over them."""
        trained = [p for p in self.model_.parameters() if p.requires_grad]
        sums = [torch.zeros_like(p) for p in trained]
        for step in grant:
            self.report(Step(task=task, step=done + step, of=total))
            self.set_rate(optimizer, task, step=done + step, of=total)
            self.update(optimizer, grant.gradient())
            torch._foreach_add_(sums, [p.detach() for p in trained])
        return [value / grant.plan.steps for value in sums]

    def _average(self, ends: deque[list[Tensor]]) -> None:
        """Average the weights over the last segments, as `average` says."""
        trained = [p for p in self.model_.parameters() if p.requires_grad]
        with torch.no_grad():
            for parameter, means in zip(trained if ends else (), zip(*ends, strict=True), strict=True):
                parameter.copy_(torch.stack(means).mean(0))

    def _accuracy(self, task: TaskInfo, done: int, watch: Block | None, query: SumPlan | None, vault: Vault) -> float:
        asked = task if self.stream_.task_id == "given" else None
        if watch is None or query is None:
            with self.seeded_randomness(task.number, done):  # a resumed task measures the same accuracy
                return share_right(self, *self.shown_, asked)
        version = fingerprint(tensors=self.tensors(), settings=self.settings(), step=done)
        return vault.accuracy(watch, partial(answer, self.scores, asked, version), query)

    def _query(self, task: TaskInfo, left: RenyiFilter) -> SumPlan:
        """The accuracy query with the least noise for which all checks of the task fit the held-out units' budget."""
        checks = max(1, ceil(self.steps_in(task) / self.check) - 1)
        return SumPlan(noise=self._room(task, left).least(lambda noise: repeat(gaussian(noise), checks)))

    def _filter(self, task: TaskInfo, epsilon: float | None = None) -> RenyiFilter:
        """The filter that the ledger makes for the task's block; with another ε, one that the learner keeps to."""
        budget = replace(self.budget, epsilon=epsilon or self.budget.epsilon)
        return RenyiFilter.for_budget(budget, like=self.representative_plan(task).event).share(
            self.stream_.tasks_per_unit
        )

    def _room(self, task: TaskInfo, left: RenyiFilter) -> Room:
        """The remaining budget for a task's plans, given the remainder of its filter."""
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
        """The least noise with which this number of steps fits."""
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
                "noise that is chosen adaptively cannot be accounted for under replace-one (its filter needs a Rényi "
                "bound, and Poisson sampling has no Rényi bound under replace-one); use budget.adjacency = "
                "'add-or-remove', or NaiveDPSGD, whose plan is fixed"
            )
