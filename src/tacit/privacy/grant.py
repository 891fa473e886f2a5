"""A grant: a billed right to n noisy gradients of one plan on named blocks, pinned to the work it was billed for.

Guarantee: each call of `gradient` draws every unit of every read by secret Poisson coins at the billed rate, clips each
unit's gradient to the plan's bound, adds them up exactly, adds one draw of Gaussian noise of standard deviation
noise · clip, rounds to the public grid and divides by the public expected batch. By class, a step leaves out every
record but those of the label whose turn it is, which the plan alone says. Nothing is computed before the charge is
durable; an empty draw still adds noise; step n + 1 is refused; a step never releases two results.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from tacit.data.places import positions
from tacit.data.records import Records
from tacit.errors import VaultError
from tacit.gradients import Automatic, Clipper, ClipRule, ExactSum, Flat, PerLayer
from tacit.privacy.ahead import Ahead
from tacit.privacy.billing import Bill
from tacit.privacy.budget import Adjacency
from tacit.privacy.cipher import words
from tacit.privacy.declared import Block, Read
from tacit.privacy.exits import at_a_time, chunks, featurise, filled, guarded
from tacit.privacy.grid import GridNoise
from tacit.privacy.keys import SAMPLER, KeyRing
from tacit.privacy.ledger import Ticket
from tacit.privacy.pin import checksum, keyed_hash, tensor_hash
from tacit.privacy.plan import GradientPlan
from tacit.privacy.sampling import poisson
from tacit.privacy.still import dice, unchanged


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """One read of a grant as the vault sees it (private)."""

    read: Read
    rate: float
    records: Records
    y: Tensor
    key: bytes = field(repr=False)
    selected: Tensor | None
    """Which records the public rule keeps."""

    def of(self, units: Tensor) -> Tensor:
        """The label's place of the one record of each unit; −1 for a unit that has none."""
        starts = torch.from_numpy(self.records.starts)
        padded = torch.cat([self.y, self.y.new_tensor([-1])])
        return torch.where(starts[units] < starts[units + 1], padded[starts[units]], -1)


class Grant:
    """Made by `Vault.grant`. `for step in grant: grant.backward(); optimizer.step()`, or use `gradient()`."""

    def __init__(
        self,
        *,
        plan: GradientPlan,
        model: nn.Module,
        clipper: Clipper,
        reads: list[Sampled],
        bill: Bill,
        noise_key: bytes,
        most: int,
    ) -> None:
        self.plan = plan
        self.step = 0
        self._model, self._clipper, self._reads = model, clipper, reads
        self._dice = KeyRing.subkey(reads[0].key, "dice")
        said = at_a_time(model)
        self._bill, self._most = bill, min([most, *said])
        # By class a K-th of the records is expected in a step, however many a label really has.
        self._expected = sum(sampled.rate * sampled.read.block.size for sampled in reads) / max(1, plan.classes)
        self._parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        total = sum(p.numel() for p in self._parameters.values())
        like = next(iter(self._parameters.values()))
        self._fill = bool(said) and like.is_cuda
        self._total = clipper.total()
        self._noise = GridNoise(total, noise_key, plan.std, like.device)
        wide = 2 if like.dtype == torch.float64 else 1
        secret = words(KeyRing.subkey(reads[0].key, "parameters"), 0, 2 * wide * total)
        self._secret = secret.view(torch.int64).to(like.device)
        self._draws = Ahead(self._draw)
        self._done, self._process = False, os.getpid()

    @property
    def expected_batch(self) -> float:
        """The public divisor: Σ rate · nominal size; by class, over the number of classes."""
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
        """The next noisy gradient, by parameter name: (Σ clipped + noise) / expected batch."""
        return self._clipper.views(self._next())

    def backward(self) -> None:
        """The next noisy gradient, written to `.grad` of the model's parameters for any torch optimizer."""
        for name, value in self.gradient().items():
            self._parameters[name].grad = value

    def seek(self, step: int) -> None:
        """Go on at `step` with the parameters of a checkpoint taken there (after a crash)."""
        if not 0 <= step <= len(self._bill.journal):
            begun = len(self._bill.journal)
            raise VaultError(f"cannot go on at step {step}; steps 0 to {begun} can be redone from their checkpoints")
        self.step = step

    def close(self) -> None:
        """Give up what is left. A grant that drew no noise is voided and costs nothing; else the charge stands."""
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
        self._bill.charge()  # durable before any record is read or noise drawn
        parameters = keyed_hash(self._parameters.values(), self._secret)
        self._bill.journal.check_again(self.step, parameters)
        last = self.step + 1 == self.plan.steps
        drawn, total = self._draws.take(self.step, last=last), self._total.clear()
        with dice(self._model, self._dice, self.step), unchanged(self._model):
            self._add_gradients(total, drawn)
        out = self._noise.released(total, self.step, over=self._expected, dtype=self._clipper.layout.dtype, last=last)
        self._bill.journal.leave(self.step, (checksum(out)[0], parameters))
        self.step += 1
        if self.step == self.plan.steps:
            self._finish(out)
        return out

    def _draw(self, step: int) -> list[Tensor]:
        """Who takes part in a step, for every read; by class, of those whose turn it is."""
        drawn = [poisson(read.key, step, read.records.units, read.rate) for read in self._reads]
        place = self.plan.place(step)
        if place is None:
            return drawn
        return [units[read.of(units) == place] for read, units in zip(self._reads, drawn, strict=True)]

    def _add_gradients(self, total: ExactSum, drawn: list[Tensor]) -> None:
        """Add the clipped gradient of every drawn unit of every read."""
        for sampled, units in zip(self._reads, drawn, strict=True):
            for index, group in chunks(sampled.records, units, self._most):
                guarded(partial(self._add, total, sampled, index, group))

    def _add(self, total: ExactSum, sampled: Sampled, index: Tensor, group: Tensor) -> None:
        if sampled.selected is not None:
            keep = sampled.selected[index]
            index, group = index[keep], group[keep]
        if len(index):
            device = total.flat.device
            x = featurise(sampled.records, index, sampled.read.through).to(device)
            groups = None if sampled.records.single else group.to(device)
            y = sampled.y[index].to(device)
            missing = filling(len(x), self._most) if self._fill and groups is None else 0
            self._clipper.add(total, filled(x, missing), filled(y, missing), groups, filled=missing)

    def _finish(self, out: Tensor) -> None:
        self._done = True
        self._bill.release(tensor_hash(out))


def filling(rows: int, most: int) -> int:
    """How many rows to add, so that batches have one of few sizes: a GPU plans the convolutions of a deep network anew
    for each size that it has not met, which takes seconds."""
    return min(most, max(16, 1 << (rows - 1).bit_length())) - rows


def prepare(read: Read, rate: float, records: Records, keys: KeyRing, ticket: Ticket, most: int) -> Sampled:
    """Bind a read to its records and secret coins; evaluate its selection rule, record by record."""
    y = targets(read.block, records)
    selected = None
    if read.select is not None:
        rule = torch.func.vmap(read.select)  # one record at a time: a rule cannot look at the others
        rows = min([most, *(at_a_time(read.select) if isinstance(read.select, nn.Module) else [])])
        parts = [
            guarded(partial(_selected, rule, records, y, index))
            for index, _ in chunks(records, torch.arange(records.units), rows)
        ]
        selected = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.bool)
    key = keys.derive(SAMPLER, ticket.generation, ticket.grant, str(read.block.id), "rank 0")
    return Sampled(read=read, rate=rate, records=records, y=y, key=key, selected=selected)


def targets(block: Block, records: Records) -> Tensor:
    """Positions in the public label set; numbers as they are where there is none."""
    if block.labels is None and records.y.dtype.kind != "f":
        raise VaultError(
            f"{block} has no public label set; name its labels with with_labels, or learn them with label_set"
        )
    return torch.from_numpy(records.y if block.labels is None else positions(records.y, block.labels))


def _selected(rule: Callable[..., Tensor], records: Records, y: Tensor, index: Tensor) -> Tensor:
    with torch.no_grad():
        return rule(records.features(index), y[index]).bool().cpu()


def check_classes(plan: GradientPlan, blocks: list[Block]) -> None:
    """Refuse to go through the labels in turn where a unit could be read in the turns of two of them."""
    for block in blocks if plan.classes else ():
        if block.records_per_unit > 1:
            raise VaultError(
                f"a plan with classes={plan.classes} prices a unit as if it had one label, and a unit of "
                f"{block.stream!r} may have {block.records_per_unit} records in a task, with as many labels; use "
                "classes=0, or declare records_per_unit=1"
            )
        if block.budget.adjacency is not Adjacency.ADD_OR_REMOVE:
            raise VaultError(
                f"a plan with classes={plan.classes} prices a record that is added or removed, and {block.stream!r} "
                f"protects neighbours by {block.budget.adjacency}, where a record may take two labels; use classes=0, "
                "or a budget with adjacency='add-or-remove'"
            )
        labels = len(block.labels or ())
        if plan.classes != labels if not plan.places else not all(0 <= place < labels for place in plan.places):
            named = f"places {plan.places}" if plan.places else f"classes={plan.classes}"
            raise VaultError(
                f"a plan with {named} goes through the labels of a block in turn, and {block} has {labels} of them; "
                "set classes to their number, or name the places of some of them"
            )


def clip_rule(plan: GradientPlan, model: nn.Module) -> ClipRule:
    """The clip of a plan, whose sensitivity is `plan.clip` in every case."""
    if plan.clipping == "flat":
        return Flat(norm=plan.clip)
    if plan.clipping == "automatic":
        return Automatic(norm=plan.clip)
    layers = sum(parameter.requires_grad for parameter in model.parameters())
    return PerLayer(norms=plan.clip / max(1, layers) ** 0.5)
