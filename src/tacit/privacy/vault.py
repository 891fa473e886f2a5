"""The vault: private records live here, and a learner sees only what it lets out.

Guarantee: every exit charges the ledger, durably, before it reads a record or draws noise; what it returns is one of a
handful of mechanisms (clipped noisy gradients, noisy sums, a noisy second moment, count or accuracy, a private label
set). A learner that holds a vault, blocks and released values is therefore post-processing.
Conditions: the declarations are true (`Declared`), the store and the key file are secret, the process is trusted.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from dp_accounting import dp_event
from torch import Tensor, nn

from tacit.data.places import positions
from tacit.data.stream import Label
from tacit.errors import VaultError
from tacit.gradients import Clipper
from tacit.gradients.exact import BITS, ROOM
from tacit.privacy import exits, grid, rowwise
from tacit.privacy.certificate import Certificate
from tacit.privacy.declared import Block, Loss, Read, label_space, several
from tacit.privacy.grant import Grant, check_classes, clip_rule, prepare, targets
from tacit.privacy.grid import ExactNumbers
from tacit.privacy.issue import issue
from tacit.privacy.keys import NOISE, SAMPLER
from tacit.privacy.ledger import Ledger
from tacit.privacy.meter import Meter, MeterPlan, foretell
from tacit.privacy.once import Once
from tacit.privacy.pin import checksum, pin
from tacit.privacy.plan import GradientPlan, LabelPlan, Plan, SumPlan
from tacit.privacy.still import unchanged
from tacit.privacy.store import Store, Tally
from tacit.privacy.tuning import TuningPlan, Winner, draw_trials


class Vault(Once):
    """`Vault(ledger)` keeps records in memory; `Vault(ledger, store=folder)` also resumes and keeps memory on disk."""

    def __init__(self, ledger: Ledger, store: str | Path | None = None, *, max_batch: int = 4096) -> None:
        if not isinstance(ledger, Ledger):
            raise VaultError(f"a vault is opened with a ledger: Vault(Ledger(path)), got {type(ledger).__name__}")
        if max_batch < 1:
            raise VaultError(f"max_batch must be ≥ 1, got {max_batch}; it is how many records fit in memory at a time")
        super().__init__(ledger, None if store is None else Store(store))
        self._most = min(max_batch, ROOM)
        self._meters: dict[int, Meter] = {}

    def __enter__(self) -> "Vault":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of work that is under way. With a store it can be taken up again, in this process or another; what is
        charged stays charged."""
        if self._store is not None:
            self._store.close()

    def commit(self, reads: Mapping[Block, Sequence[Plan | MeterPlan | dp_event.DpEvent]]) -> None:
        """Bill all that will ever be read of these blocks, in one transaction. The exits then take their entries."""
        self.ledger.commit(
            {
                block.id: [plan if isinstance(plan, dp_event.DpEvent) else plan.event for plan in plans]
                for block, plans in reads.items()
            }
        )

    def grant(
        self,
        blocks: Sequence[Read | Block] | Read | Block,
        plan: GradientPlan,
        model: nn.Module,
        loss: Loss,
        *,
        work: Mapping[str, Any] | None = None,
        reader: str | None = None,
    ) -> Grant:
        """Reserve `plan.steps` noisy gradients of `model` on the reads, in one transaction over all their blocks.

        Units (records or persons, as the budget says) are drawn, clipped and summed as wholes. `work` is the public
        configuration (learning rate, optimizer): with a store, the same call after a crash resumes the same grant
        and is billed once; another configuration, model or folder needs a new grant. `reader`: a public name of who
        reads ("learner 2"), for the ledger's view of each reader; it changes nothing of the charge.
        """
        if not isinstance(plan, GradientPlan) or not isinstance(model, nn.Module):
            raise VaultError(f"grant takes (blocks, GradientPlan, module, loss), got {type(plan).__name__} as the plan")
        reads = [one if isinstance(one, Read) else Read(one) for one in several(blocks)]
        if not reads or len({read.block.id for read in reads}) != len(reads):
            raise VaultError("a grant reads one or more blocks, each of them once; merge the reads of one block")
        if len({read.block.stream_id for read in reads}) > 1:
            raise VaultError("a grant reads blocks of one stream; ask for one grant per stream and add the gradients")
        check_classes(plan, [read.block for read in reads])
        shared = min(reads[0].block.tasks_per_unit, len({read.block.root for read in reads}))
        rates = [plan.rate if read.rate is None else read.rate for read in reads]
        records = [self._of(read.block) for read in reads]
        clipper = Clipper(model, loss, clip_rule(plan, model))
        rowwise.check_reads(reads, records, model, loss, clipper)
        rowwise.check_rules(reads, records)
        described = plan.describe() | ({} if reader is None else {"reader": reader})
        name = pin(
            plan=described,
            reads=[
                [read.block.id, read.block.labels, found.digest, rate, read.select, read.through]
                for read, found, rate in zip(reads, records, rates, strict=True)
            ],
            model=model,
            loss=loss,
            work=dict(work or {}),
        )
        charges = [(read.block, plan.event_at(rate, shared)) for read, rate in zip(reads, rates, strict=True)]
        bill = self._billing.reserve("gradient", charges, described, name)
        keys, ticket = self.ledger.keys, bill.ticket
        try:
            if any(read.select is not None for read in reads):
                bill.charge()  # the rule is asked about private records: whatever comes of it is paid for
            sampled = [
                prepare(read, rate, found, keys, ticket, self._most)
                for read, rate, found in zip(reads, rates, records, strict=True)
            ]
            noise_key = keys.derive(NOISE, ticket.generation, ticket.grant)
        except BaseException:
            if not bill.charged:
                bill.void()
            raise
        made = Grant(
            plan=plan, model=model, clipper=clipper, reads=sampled, bill=bill, noise_key=noise_key, most=self._most
        )
        made.step = bill.first
        return made

    def meter(self, block: Block, plan: MeterPlan) -> Meter:
        """One charge for all that `Meter.gradient` will ever read of the block: noise is chosen as one goes, and each
        unit is used until its own losses reach the plan's ρ. With a store, a later process takes the meter up again.
        """
        if not isinstance(plan, MeterPlan):
            raise VaultError(f"meter takes (block, MeterPlan), got {type(plan).__name__} as the plan")
        if self._billing.in_trial:
            raise VaultError("a trial of private tuning cannot use a meter; use grants in trials")
        records = self._of(block)
        y = targets(block, records)
        if (before := self._meters.pop(block.id, None)) is not None:
            before.pause()
        name = pin(kind="meter", plan=plan.describe(), block=block.id, records=records.digest)
        if self._store is not None:
            foretell(self.ledger, self._store, block, name)
        bill = self._billing.reserve("meter", [(block, plan.event)], plan.describe(), name)
        keys, ticket = self.ledger.keys, bill.ticket
        # The ledger raises the token whenever a meter is taken up: whatever became of the store, no noise comes twice.
        own = (ticket.generation, ticket.grant, str(ticket.token))
        try:
            self._meters[block.id] = Meter(
                plan=plan,
                block=block,
                records=records,
                y=y,
                bill=bill,
                tally=Tally(None) if self._store is None else self._store.tally(block.name, name, ticket.grant),
                keys=(keys.derive(NOISE, *own), keys.derive(SAMPLER, *own)),
                most=self._most,
                held=partial(self._of, block),
                live=partial(self.ledger.require_live, block.id),
                count=partial(self._counted, block),
            )
        except BaseException:
            if bill.charged:
                bill.journal.close()
            else:
                bill.void()
            raise
        return self._meters[block.id]

    def _end(self, block: Block) -> None:
        """End the block's meter, also one that an earlier process asked for: its keys need not be kept any longer."""
        if (meter := self._meters.pop(block.id, None)) is not None:
            meter.close()
        for name in () if self._store is None else self._store.metered(block.name):
            self._billing.end(name)

    def sums(
        self,
        block: Block,
        plan: SumPlan,
        *,
        labels: Sequence[Label] | None = None,
        by_label: bool = True,
        through: nn.Module | None = None,
    ) -> Tensor:
        """Noisy Σ of features per label (each gets noise, also an absent one), or of all: (labels or 1, features)."""
        records, space = self._of(block), label_space(block, labels) if by_label else ()
        rowwise.check_map(records, through)
        return self._release(
            "sums",
            block,
            plan,
            lambda: exits.label_sums(records, space, through, plan.clip, self._most),
            shape=(max(1, len(space)), exits.width(records, through)),
            bound=plan.clip,
            detail={"labels": list(space), "through": pin(map=through)},
        )

    def check_map(self, block: Block, through: nn.Module) -> None:
        """Refuse a feature map that the exits would refuse, on synthetic rows, before anything is charged."""
        rowwise.check_map(self._of(block), through)

    def second_moment(self, block: Block, plan: SumPlan, *, through: nn.Module | None = None) -> Tensor:
        """Noisy Σφφᵀ, symmetric: standard deviation s on the diagonal and s/√2 off it, s = plan.std · clip²."""
        records = self._of(block)
        rowwise.check_map(records, through)
        size = exits.width(records, through)
        above = size * (size - 1) // 2
        noisy = self._release(
            "second moment",
            block,
            plan,
            lambda: exits.second_moment(records, through, plan.clip, self._most),
            # An entry above the diagonal stands for two of the matrix, so in its Frobenius norm it counts double.
            shape=(size + above,),
            bound=plan.clip**2,
            detail={"through": pin(map=through)},
            quieter=above,
        )
        row, column = torch.triu_indices(size, size, 1)
        out = torch.diag(noisy[:size])
        out[row, column] = noisy[size:]
        out[column, row] = noisy[size:]
        return out

    def count(self, block: Block, plan: SumPlan) -> float:
        """Noisy number of units."""
        units = float(self._of(block).units)
        return self._counted(block, plan, lambda: units)

    def accuracy(self, block: Block, predict: Callable[[Tensor], Tensor], plan: SumPlan) -> float:
        """Noisy accuracy: Σ over units of their share of right answers, over the public nominal size.

        `predict`: a released model, from a batch of features to label positions (a module's logits are ranked).
        """
        records = self._of(block)
        answer = rowwise.check_predictor(records, predict)
        y = torch.from_numpy(positions(records.y, label_space(block)))

        def right(index: Tensor) -> Tensor:
            with unchanged(predict if isinstance(predict, nn.Module) else None):
                return exits.guarded(lambda: answer(records.features(index)).cpu() == y[index])

        total = self._release(
            "accuracy",
            block,
            plan,
            lambda: exits.unit_means(records, right, self._most),
            shape=(1,),
            bound=1.0,
            detail={"predict": pin(predict=predict)},
        )
        return float(total) / block.size

    def label_set(self, block: Block, plan: LabelPlan) -> tuple[Label, ...]:
        """The labels whose noisy count reaches the plan's threshold. Then use `with_labels`."""
        records, keys = self._of(block), self.ledger.keys
        bill = self._bill("label set", block, plan.event, plan.describe())
        counts = exits.guarded(lambda: exits.label_counts(records, plan.labels_per_unit, keys.identity_key))
        # Without candidates the names are sorted: the order of the records must not show.
        names = sorted(counts, key=repr) if plan.candidates is None else plan.candidates
        total = ExactNumbers([counts.get(name, 0) for name in names], 2.0**-BITS)
        key = keys.derive(NOISE, bill.ticket.generation, bill.ticket.grant)
        noisy = grid.noisy(total, slice(0, len(names)), [(1.0, key)], plan.std)
        bill.journal.leave(0, checksum(noisy))
        kept = tuple(name for name, count in zip(names, noisy.tolist(), strict=True) if count >= plan.cut)
        bill.release()
        return kept

    def umbrella(
        self,
        blocks: Sequence[Block],
        plan: TuningPlan,
        trial: Callable[[np.random.Generator], tuple[float, Any]],
    ) -> Winner:
        """Private tuning under one charge: runs `trial` a secret random number of times, returns the best result only.

        Each trial draws its hyper-parameters from the generator it gets, may use each read of the plan once on each
        block, and returns (score, result); the score comes from these reads or from public data.
        """
        blocks = several(blocks)
        if not callable(trial):
            raise VaultError(f"trial must be a function of a generator, got {type(trial).__name__}")
        fresh = int(np.random.SeedSequence().generate_state(1)[0])  # a study is never resumed: its trials are secret
        name = pin(plan=plan.describe(), blocks=[block.id for block in blocks], fresh=fresh)
        bill = self._billing.bill("tuning", [(block, plan.event) for block in blocks], plan.describe(), name)
        allowance = {block.id: plan.events for block in blocks}
        best = Winner(score=None, result=None)
        for number in range(draw_trials(plan, self.ledger.keys, bill.ticket)):
            with self._billing.trial(bill.ticket, number, allowance):
                score, result = trial(np.random.default_rng())
            score = float(score) if score == score else -math.inf  # NaN never wins
            if best.score is None or score > best.score:
                best = Winner(score=score, result=result)
        bill.release()
        return best

    def certificate(self, block: Block, *, method: str, **said: Any) -> Certificate:
        """What the ledger supports for the block's stream, as of now; see `issue` for what else can be said."""
        return issue(self.ledger, block.stream_id, method=method, **said)
