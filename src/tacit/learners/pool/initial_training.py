"""How a network of a pool begins: from its own initial weights and, where set, by passes over held-out tasks.

Charges: what a new network starts from follows from public seeds, public records or billed gradients alone, and is the
same when a task is learned again after a crash.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.base import passes
from tacit.learners.base.callbacks import Step
from tacit.learners.base.gradient import at, rate_of
from tacit.learners.base.weights import put, trained
from tacit.learners.pool.held_out_tasks import HeldTasks
from tacit.learners.pool.member import Member
from tacit.privacy.vault import Block, GradientPlan, Vault


@dataclass(kw_only=True)
class InitialTraining:
    """What a pool does for a network before its first task; `fine_tune`, `epochs` and `lr` are settings of `Pool`."""

    fine_tune: Literal["public", "charged"] | None
    epochs: float
    lr: float | None
    member: Member
    held: HeldTasks | None = None
    """The held-out tasks, once they are given."""

    @property
    def learners(self) -> int | None:
        """How many networks there will be. None: there is no last one."""
        return self.member.learner_schedule_.learners

    def check(self, stream: StreamInfo) -> None:
        """Refuses passes over held-out tasks that could not be committed before the first one."""
        if self.fine_tune == "charged" and self.learners is None:
            raise LearnerError(
                f"the stream {stream.name!r} is endless, so the passes of all learners over the held-out tasks cannot "
                "be committed; give learners, the largest number of them, or use fine_tune='public'"
            )

    def take(self, blocks: Sequence[Block], vault: Vault, stream: StreamInfo) -> None:
        """Takes the held-out tasks, a stream of their own. Where they are charged, all passes are committed here."""
        if self.fine_tune is None:
            raise LearnerError("this pool does not begin on held-out tasks; set fine_tune to 'public' or 'charged'")
        private = next((block for block in blocks if not block.public), None)
        if self.fine_tune == "public" and private is not None:
            raise LearnerError(
                f"fine_tune='public' reads held-out tasks without noise, and {private} is not declared public; use "
                "fine_tune='charged'"
            )
        self.held = HeldTasks.of(blocks, vault, stream)
        if self.fine_tune == "charged":
            vault.commit({block: [self.plan()] * (self.learners or 1) for block in self.held.blocks})

    def plan(self) -> GradientPlan:
        """One network's passes over the held-out tasks, with the batch (and the noise, if given) of the stream's first
        task. The passes of all networks together fit the budget."""
        member, first = self.member, self.member.stream_.tasks[0]
        rate = rate_of(at(member.batch, first, "batch"), self._held().size)
        steps = max(1, round(self.epochs / rate))
        return member.plan_for(first, member.budget, self.learners or 1, rate=rate, steps=steps)

    def begin(self, learner: int, task: TaskInfo, vault: Vault) -> None:
        """Makes the member's model a new network: weights from the seed and its number, then the held-out tasks."""
        member = self.member
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(member.seed + learner)
            put(member.model_, trained(member.network_for(member.stream_)))
        if self.fine_tune is None:
            return
        optimizer = member.optimizer(task)
        for group in optimizer.param_groups if self.lr is not None else ():
            group["lr"] = self.lr
        passed = self._charged_passes if self.fine_tune == "charged" else self._public_passes
        passed(learner, task, vault, optimizer)

    def _charged_passes(self, learner: int, task: TaskInfo, vault: Vault, optimizer: torch.optim.Optimizer) -> None:
        member, held = self.member, self._held()
        loss, work = held.loss(member.loss_, member.device), member.settings() | {"held": True}
        reader = f"learner {learner + 1}"
        grant = vault.grant(held.blocks, self.plan(), member.model_, loss, work=work, reader=reader)
        for step in grant:
            member.report(Step(task=task, step=step, of=grant.plan.steps, before=True))
            member.update(optimizer, grant.gradient())

    def _public_passes(self, learner: int, task: TaskInfo, vault: Vault, optimizer: torch.optim.Optimizer) -> None:
        member, held = self.member, self._held()
        loss, model = held.loss(member.loss_, member.device), member.model_
        records, batch = held.raw(vault), max(1, round(at(member.batch, member.stream_.tasks[0], "batch")))
        coins = torch.Generator().manual_seed(member.seed * 1009 + learner)
        steps = passes.steps_in(task, -(-len(records) // batch), steps=None, epochs=self.epochs)
        own = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        with member.seeded_randomness(learner):
            for step, rows in zip(range(steps), passes.fresh(len(records), batch, coins), strict=False):
                member.report(Step(task=task, step=step, of=steps, before=True))
                x, y = (part.to(member.device) for part in records[rows])
                gradients = torch.autograd.grad(loss(model(x), y).mean(), list(own.values()))
                member.update(optimizer, dict(zip(own, gradients, strict=True)))

    def _held(self) -> HeldTasks:
        if self.held is None:
            raise LearnerError(
                "new learners of this pool begin on held-out tasks, which are missing; give them by "
                "receive_held_out(blocks, vault) before a task is learned, or set fine_tune=None"
            )
        return self.held
