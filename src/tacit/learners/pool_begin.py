"""How a learner of a pool begins: from weights of its own, and by passes over held tasks where there are any.

Guarantee: what a new learner starts from follows from public numbers, public records or billed gradients alone, and
comes out the same when a task is learnt again after a crash.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners import passes
from tacit.learners.core import Step
from tacit.learners.gradient import affordable, at, rate_of
from tacit.learners.pool_held import HeldTasks
from tacit.learners.projected import Projected
from tacit.learners.weights import put, trained
from tacit.privacy.certificate import Certificate
from tacit.privacy.declared import Block
from tacit.privacy.plan import GradientPlan
from tacit.privacy.vault import Vault


@dataclass(kw_only=True, eq=False)
class Beginner(Projected):
    """What a pool does for a learner before its first task."""

    fine_tune: Literal["public", "charged"] | None = None
    """New learners begin by passes over the held tasks. public: their records are public, and read without noise.
    charged: by noisy gradients; the passes of all learners are committed before the first. None: no such passes."""
    fine_tune_epochs: float = 1.0
    """How many passes over the held tasks a new learner makes."""
    fine_tune_lr: float | None = None
    """Of these passes. None: as in tasks; gradients that are neither clipped nor noisy may need less."""

    def start(self, stream: StreamInfo) -> None:
        if self.fine_tune not in (None, "public", "charged"):
            raise LearnerError(f"fine_tune must be 'public', 'charged' or None, got {self.fine_tune!r}")
        for name in ("fine_tune_epochs", "fine_tune_lr"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise LearnerError(f"{name} must be a number > 0, got {value}")
        if self.fine_tune == "charged" and (stream.tasks_per_unit > 1 or stream.unit == "person"):
            raise LearnerError(
                f"a {stream.unit} of {stream.name!r} may be in a held task and in one that is learnt, and would pay in "
                "both streams for the same model; use fine_tune='public' on other data, or None"
            )
        self.held_: HeldTasks | None = None
        super().start(stream)
        if self.fine_tune == "charged" and self.planned_learners() is None:
            raise LearnerError(
                f"{stream.name!r} has no last task, so the passes of all learners over the held tasks cannot be "
                "committed; give learners (at most so many), or use fine_tune='public'"
            )

    @abstractmethod
    def planned_learners(self) -> int | None:
        """How many learners there will be. None: there is no last one."""

    @property
    def wants_held(self) -> Literal["public", "charged"] | None:
        return self.fine_tune

    def held(self, blocks: Sequence[Block], vault: Vault) -> None:
        """Take the held tasks, which are a stream of their own, each under its own labels. Where they are charged, all
        passes over them are committed here."""
        if self.fine_tune is None:
            raise LearnerError("this pool does not begin on held tasks; set fine_tune to 'public' or 'charged'")
        private = next((block for block in blocks if not block.public), None)
        if self.fine_tune == "public" and private is not None:
            raise LearnerError(
                f"fine_tune='public' reads held tasks without noise, and {private} is not declared public; use "
                "fine_tune='charged'"
            )
        self.held_ = HeldTasks.of(blocks, vault, self.stream_)
        if self.fine_tune == "charged":
            vault.commit({block: [self.held_plan()] * (self.planned_learners() or 1) for block in self.held_.blocks})

    def held_plan(self) -> GradientPlan:
        """One learner's passes over the held tasks, as a plan: with the batch (and the noise, if it is given) of the
        stream's first task. All learners' together fit the budget."""
        held, first, learners = self._held(), self.stream_.tasks[0], self.planned_learners() or 1
        rate = rate_of(at(self.batch, first, "batch"), held.size, first)
        steps = max(1, round(self.fine_tune_epochs / rate))
        if self.noise is None:
            return GradientPlan.for_budget(
                self.budget, rate=rate, steps=steps, clip=self.clip, clipping=self.clipping, tasks_per_unit=learners
            )
        noise = at(self.noise, first, "noise")
        plan = GradientPlan(rate=rate, steps=steps, noise=noise, clip=self.clip, clipping=self.clipping)
        return affordable(plan, self.budget, learners)

    def begin(self, learner: int, task: TaskInfo, vault: Vault) -> None:
        """Make `model_` a new learner: its weights follow from the seed and its number, then come the held tasks."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed + learner)
            put(self.model_, trained(self.network_for(self.stream_)))
        if self.fine_tune is None:
            return
        held = self._held()
        loss = held.loss(self.loss_, self.device)
        optimizer = self.optimizer(task)
        for group in optimizer.param_groups if self.fine_tune_lr is not None else ():
            group["lr"] = self.fine_tune_lr
        if self.fine_tune == "charged":
            reader, work = f"learner {learner + 1}", self.settings() | {"held": True}
            grant = vault.grant(held.blocks, self.held_plan(), self.model_, loss, work=work, reader=reader)
            for step in grant:
                self.watch(Step(task=task, step=step, of=grant.plan.steps, before=True))
                self.update(optimizer, grant.gradient())
            return
        records, batch = held.raw(vault), max(1, round(at(self.batch, self.stream_.tasks[0], "batch")))
        coins = torch.Generator().manual_seed(self.seed * 1009 + learner)
        steps = passes.steps_in(task, -(-len(records) // batch), steps=None, epochs=self.fine_tune_epochs)
        own = {name: parameter for name, parameter in self.model_.named_parameters() if parameter.requires_grad}
        with self.public_dice(learner):
            for step, rows in zip(range(steps), passes.fresh(len(records), batch, coins), strict=False):
                self.watch(Step(task=task, step=step, of=steps, before=True))
                x, y = (part.to(self.device) for part in records[rows])
                found = torch.autograd.grad(loss(self.model_(x), y).mean(), list(own.values()))
                self.update(optimizer, dict(zip(own, found, strict=True)))

    def certify(self, block: Block, vault: Vault, *, beside: Sequence[str] = ()) -> Certificate:
        """It names the held tasks too: the learners that are released begin on them."""
        if self.fine_tune is None:
            return super().certify(block, vault, beside=beside)
        if self.held_ is not None:
            return super().certify(block, vault, beside=(*beside, self.held_.said(vault)))
        before: Certificate | None = getattr(self, "certificate_", None)  # no learner has begun since
        return super().certify(block, vault, beside=(*beside, *(() if before is None else before.beside)))

    def _held(self) -> HeldTasks:
        if self.held_ is None:
            raise LearnerError(
                "new learners of this pool begin on held tasks, which are not here; give them by held(blocks, vault) "
                "before a task is learnt, or set fine_tune=None"
            )
        return self.held_
