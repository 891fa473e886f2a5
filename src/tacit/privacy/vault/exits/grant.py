"""A grant: the charged right to a number of noisy gradients of one model on named blocks.

Mechanism of one step: sample every unit of every read by secret Poisson coins at the charged rate; clip each sampled
unit's gradient; add the gradients exactly; add Gaussian noise of standard deviation noise · clip once; round to the
public grid; divide by the public expected batch size.

Formal guarantees
  * Each step is a Poisson-sampled Gaussian mechanism for each read, with the charged rate and noise multiplier. A plan
    with classes drops all records but those of the step's label, which the plan alone determines.
  * No code runs on records and no noise is drawn before the charge is durable.
  * A step without sampled units still releases noise.
  * A step beyond `plan.steps` is refused, and a step never releases two different results. It is repeated only with the
    parameters, buffers and attributes that it had, which is found out before a record is read.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import VaultError
from tacit.gradients import Clipper, ExactSum
from tacit.privacy.randomness.cipher import words
from tacit.privacy.randomness.grid import GridNoise
from tacit.privacy.randomness.keys import KeyRing
from tacit.privacy.randomness.prefetch import Ahead
from tacit.privacy.randomness.sampling import poisson
from tacit.privacy.vault.exits.billing import Bill
from tacit.privacy.vault.exits.plans import GradientPlan
from tacit.privacy.vault.intake.batches import batch_limits, batches, features, padded, padding
from tacit.privacy.vault.intake.blocks import Read
from tacit.privacy.vault.intake.fingerprint import checksum, keyed_hash, tensor_hash
from tacit.privacy.vault.intake.isolation import dice, guarded
from tacit.privacy.vault.intake.reached import Reached
from tacit.privacy.vault.intake.records import Records


@dataclass(frozen=True, kw_only=True)
class SampledRead:
    """One read of a grant, with its records. Private.

    Attributes:
        read: The read, as the caller described it.
        rate: The sampling rate.
        records: The records of the block.
        y: The target of each record.
        key: The key of the secret sampling coins.
        selected: Which records the selection rule keeps; None if there is no rule.
    """

    read: Read
    rate: float
    records: Records
    y: Tensor
    key: bytes = field(repr=False)
    selected: Tensor | None

    def label_positions(self, units: Tensor) -> Tensor:
        """The label position of the single record of each unit; −1 for a unit without records."""
        starts = torch.from_numpy(self.records.starts)
        padded = torch.cat([self.y, self.y.new_tensor([-1])])
        return torch.where(starts[units] < starts[units + 1], padded[starts[units]], -1)


class Grant:
    """Computes the noisy gradients that a charge covers. Made by `vault.grant`.

    Use `for step in grant: grant.backward(); optimizer.step()`, or call `gradient()`.

    Attributes:
        plan: The plan that was charged.
        step: The number of the next step.
    """

    def __init__(
        self,
        *,
        plan: GradientPlan,
        model: nn.Module,
        clipper: Clipper,
        reads: list[SampledRead],
        bill: Bill,
        noise_key: bytes,
        max_batch: int,
        code: tuple[Any, ...],
        require_live: Callable[[int], None],
    ) -> None:
        self.plan = plan
        self.step = bill.first
        self._model, self._clipper, self._reads = model, clipper, reads
        self._dice = KeyRing.subkey(reads[0].key, "dice")
        limits = batch_limits(model)
        self._bill, self._max_batch = bill, min([max_batch, *limits])
        # With K classes a step is expected to read 1/K of the records, whatever the true number of each label.
        self._expected = sum(sampled.rate * sampled.read.block.size for sampled in reads) / max(1, plan.classes)
        self._parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        total = sum(p.numel() for p in self._parameters.values())
        like = next(iter(self._parameters.values()))
        self._fill = bool(limits) and like.is_cuda
        self._total = clipper.total()
        self._noise = GridNoise(total, noise_key, plan.std, like.device)
        wide = 2 if like.dtype == torch.float64 else 1
        secret = words(KeyRing.subkey(reads[0].key, "parameters"), 0, 2 * wide * total)
        self._secret = secret.view(torch.int64).to(like.device)
        self._require_live = require_live
        self._code, self._state_key = code, KeyRing.subkey(reads[0].key, "state")
        self._state: tuple[tuple[Any, ...], int] | None = None
        self._draws = Ahead(self._draw)
        self._done, self._process = False, os.getpid()

    def __repr__(self) -> str:
        blocks = ", ".join(str(sampled.read.block) for sampled in self._reads)
        return f"Grant([{blocks}], step {self.step} of {self.plan.steps})"

    @property
    def expected_batch(self) -> float:
        """The public divisor: Σ rate · nominal size, divided by the number of classes if the plan has classes."""
        return self._expected

    def __iter__(self) -> Iterator[int]:
        while self.step < self.plan.steps:
            before = self.step
            yield before
            if self.step == before:
                if not self._bill.charged:
                    self.close()
                raise VaultError(f"step {before} took no gradient; call gradient() or backward() once in each turn")

    def gradient(self) -> dict[str, Tensor]:
        """Releases the next noisy gradient, by parameter name: (Σ clipped gradients + noise) / expected batch.

        Raises:
            LedgerError: If a block was retired.
            VaultError: If all steps are taken, the process is not the one that made the grant, or the model or loss
                fails on private records (its message is withheld).
        """
        return self._clipper.views(self._next())

    def backward(self) -> None:
        """Writes the next noisy gradient to `.grad` of the model's parameters, for any torch optimizer."""
        for name, value in self.gradient().items():
            self._parameters[name].grad = value

    def seek(self, step: int) -> None:
        """Continues at `step` after a crash. The model must have the parameters that it had before that step.

        Raises:
            VaultError: If the grant did not get that far.
        """
        first, begun = self._bill.first, len(self._bill.journal)
        if not first <= step <= begun:
            raise VaultError(
                f"cannot continue at step {step}; steps {first} to {begun} can be repeated from their checkpoints"
            )
        self.step = step

    def close(self) -> None:
        """Ends the grant. If it drew no noise, nothing is charged; otherwise the whole charge stands."""
        if self._done:
            return
        self._done = True
        if self._bill.charged:
            self._bill.release()
        else:
            self._bill.void()

    def _next(self) -> Tensor:
        if self._done or self.step >= self.plan.steps:
            raise VaultError(
                f"this grant was billed for {self.plan.steps} steps and they are taken; ask the vault for a new grant"
            )
        if os.getpid() != self._process:
            raise VaultError("a grant belongs to the process that asked for it; ask for a new one in this process")
        for sampled in self._reads:
            self._require_live(sampled.read.block.id)
        self._bill.charge()  # durable before any record is read or noise drawn
        reached = Reached(*self._code)
        state = keyed_hash(self._parameters.values(), self._secret) | self._state_hash(reached) << 32
        self._bill.journal.check_again(self.step, state)
        last = self.step + 1 == self.plan.steps
        drawn, total = self._draws.take(self.step, last=last), self._total.clear()
        with dice(self._model, self._dice, self.step), reached.restored():
            self._add_gradients(total, drawn)
        out = self._noise.released(total, self.step, over=self._expected, dtype=self._clipper.layout.dtype, last=last)
        self._bill.journal.leave(self.step, (checksum(out)[0], state))
        self.step += 1
        if self.step == self.plan.steps:
            self._finish(out)
        return out

    def _state_hash(self, reached: Reached) -> int:
        """A hash of what decides a step beside the trainable parameters: buffers, frozen weights, attributes."""
        marks = reached.marks()
        again = self.step < len(self._bill.journal)  # then nothing is taken to be as it was
        if again or self._state is None or self._state[0] != marks:
            self._state = marks, reached.keyed_hash(self._state_key)
        return self._state[1]

    def _draw(self, step: int) -> list[Tensor]:
        """The sampled units of a step, for every read; with classes, those of the step's label."""
        drawn = [poisson(read.key, step, read.records.units, read.rate) for read in self._reads]
        position = self.plan.place(step)
        if position is None:
            return drawn
        return [units[read.label_positions(units) == position] for read, units in zip(self._reads, drawn, strict=True)]

    def _add_gradients(self, total: ExactSum, drawn: list[Tensor]) -> None:
        """Adds the clipped gradient of every sampled unit of every read."""
        public = all(sampled.read.block.public for sampled in self._reads)
        for sampled, units in zip(self._reads, drawn, strict=True):
            for index, group in batches(sampled.records, units, self._max_batch):
                guarded(partial(self._add, total, sampled, index, group), public=public)

    def _add(self, total: ExactSum, sampled: SampledRead, index: Tensor, group: Tensor) -> None:
        if sampled.selected is not None:
            keep = sampled.selected[index]
            index, group = index[keep], group[keep]
        if len(index):
            device = total.flat.device
            x = features(sampled.records, index, sampled.read.through).to(device)
            groups = None if sampled.records.single else group.to(device)
            y = sampled.y[index].to(device)
            missing = padding(len(x), self._max_batch) if self._fill and groups is None else 0
            self._clipper.add(total, padded(x, missing), padded(y, missing), groups, filled=missing)

    def _finish(self, out: Tensor) -> None:
        self._done = True
        self._bill.release(tensor_hash(out))
