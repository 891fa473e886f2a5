"""The exit `vault.grant`: charges noisy clipped gradients of a model, and returns a `Grant` that computes them.

Mechanism: see `grant.py`. This file checks what is asked for, charges all blocks in one transaction, and evaluates the
selection rules.

Formal guarantees
  * Each block that is read at rate q costs each of its units the event of `plan.event_at(q, shared)`: Poisson-sampled
    Gaussian, once for each step that can read the unit.
  * If a unit may be in several tasks, and the grant reads several tasks, these share one noise draw. The charge takes
    this into account (`shared`).
  * A selection rule is applied to each record by itself (vmap), after the charge is durable.
  * Nothing is charged for a grant that is refused, or given up before its first step.

Conditions: model, loss, feature maps and rules treat each row by itself. They are tested on synthetic rows before the
charge.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import VaultError
from tacit.gradients import Automatic, Clipper, ClipRule, Flat, PerLayer
from tacit.privacy.accounting.budget import Adjacency
from tacit.privacy.ledger import Ticket
from tacit.privacy.randomness.keys import SAMPLER, KeyRing
from tacit.privacy.vault.exits.access import Exit
from tacit.privacy.vault.exits.grant import Grant, SampledRead
from tacit.privacy.vault.exits.plans import GradientPlan
from tacit.privacy.vault.intake import row_checks
from tacit.privacy.vault.intake.batches import batch_limits, batches, targets
from tacit.privacy.vault.intake.blocks import Block, Loss, Read, as_list
from tacit.privacy.vault.intake.fingerprint import described_map, fingerprint, with_reads
from tacit.privacy.vault.intake.isolation import guarded, unchanged
from tacit.privacy.vault.intake.records import Records


class GradientExit(Exit):
    """`vault.grant(blocks, plan, model, loss)`."""

    def __call__(
        self,
        blocks: Sequence[Read | Block] | Read | Block,
        plan: GradientPlan,
        model: nn.Module,
        loss: Loss,
        *,
        work: Mapping[str, Any] | None = None,
        reader: str | None = None,
    ) -> Grant:
        """Reserves `plan.steps` noisy gradients of a model, in one transaction over all blocks.

        The charge becomes durable before the first record is read. Units (records or persons, as the budget says) are
        sampled, clipped and summed as wholes.

        Args:
            blocks: Blocks or `Read`s of one stream, each block once.
            plan: Sampling rate, steps, clipping norm and noise multiplier.
            model: The model; its trainable parameters get gradients.
            loss: A function of the model's output and the targets that returns one loss per row.
            work: The public configuration of the training (learning rate, optimizer). With a store, the same call
                after a crash resumes the same grant without a second charge; another configuration, model or store
                needs a new grant.
            reader: A public name of the learner that reads, for the ledger's statement. It does not change the charge.

        Returns:
            The grant, at its first step.

        Raises:
            VaultError: If the arguments do not fit together, or the model or loss mixes rows.
            BudgetExceeded: If the charge does not fit in the budget of one of the blocks.
        """
        if not isinstance(plan, GradientPlan) or not isinstance(model, nn.Module):
            raise VaultError(f"grant takes (blocks, GradientPlan, module, loss), got {type(plan).__name__} as the plan")
        reads = [read if isinstance(read, Read) else Read(read) for read in as_list(blocks)]
        if not reads or len({read.block.id for read in reads}) != len(reads):
            raise VaultError("a grant reads one or more blocks, each of them once; merge the reads of one block")
        if len({read.block.stream_id for read in reads}) > 1:
            raise VaultError("a grant reads blocks of one stream; ask for one grant per stream and add the gradients")
        check_classes(plan, [read.block for read in reads])
        access, keys = self._access, self._access.ledger.keys
        shared = min(reads[0].block.tasks_per_unit, len({read.block.root for read in reads}))
        rates = [plan.rate if read.rate is None else read.rate for read in reads]
        records = [access.records(read.block) for read in reads]
        clipper = Clipper(model, loss, clip_rule(plan, model))
        row_checks.check_reads(reads, records, model, loss, clipper)
        row_checks.check_rules(reads, records)
        described = plan.describe() | ({} if reader is None else {"reader": reader})
        for read, held in zip(reads, records, strict=True):
            described |= held.mapping | described_map(read.through)
        name = fingerprint(
            plan=described,
            reads=[
                [read.block.id, read.block.labels, held.digest, rate, read.select, read.through]
                for read, held, rate in zip(reads, records, rates, strict=True)
            ],
            model=model,
            loss=loss,
            work=dict(work or {}),
        )
        if plan.classes:  # a unit is priced for the steps of its one label, so no correction may change labels
            name = with_reads(
                name, [[read.block.labels, held.digest] for read, held in zip(reads, records, strict=True)]
            )
        charges = [(read.block, plan.event_at(rate, shared)) for read, rate in zip(reads, rates, strict=True)]
        bill = access.biller.reserve("gradient", charges, described, name)
        try:
            if any(read.select is not None for read in reads):
                bill.charge()  # a rule is evaluated on private records, so it is charged first, whatever follows
            sampled = [
                prepare(read, rate, held, keys, bill.ticket, access.max_batch)
                for read, rate, held in zip(reads, rates, records, strict=True)
            ]
            noise_key = access.noise_key(bill.ticket)
        except BaseException:
            if not bill.charged:
                bill.void()
            raise
        return Grant(
            plan=plan,
            model=model,
            clipper=clipper,
            reads=sampled,
            bill=bill,
            noise_key=noise_key,
            max_batch=access.max_batch,
            code=(model, loss, *(code for read in reads for code in (read.through, read.select))),
            require_live=access.ledger.require_live,
        )


def prepare(read: Read, rate: float, records: Records, keys: KeyRing, ticket: Ticket, max_batch: int) -> SampledRead:
    """Binds a read to its records and to the key of its secret coins, and evaluates its selection rule."""
    y = targets(read.block, records)
    selected = None
    if read.select is not None:
        rule = torch.func.vmap(read.select)  # one record at a time: a rule cannot look at the others
        limit = min([max_batch, *(batch_limits(read.select) if isinstance(read.select, nn.Module) else [])])
        with unchanged(read.select):
            parts = [
                guarded(partial(_selected, rule, records, y, index))
                for index, _ in batches(records, torch.arange(records.units), limit)
            ]
        selected = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.bool)
    key = keys.derive(SAMPLER, ticket.generation, ticket.grant, str(read.block.id), "rank 0")
    return SampledRead(read=read, rate=rate, records=records, y=y, key=key, selected=selected)


def _selected(rule: Callable[..., Tensor], records: Records, y: Tensor, index: Tensor) -> Tensor:
    with torch.no_grad():
        return rule(records.features(index), y[index]).bool().cpu()


def check_classes(plan: GradientPlan, blocks: list[Block]) -> None:
    """Refuses a plan with classes where a unit could be read in the steps of two labels."""
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
    """The clipping rule of a plan. Its sensitivity is `plan.clip` in every case."""
    if plan.clipping == "flat":
        return Flat(norm=plan.clip)
    if plan.clipping == "automatic":
        return Automatic(norm=plan.clip)
    layers = sum(parameter.requires_grad for parameter in model.parameters())
    return PerLayer(norms=plan.clip / max(1, layers) ** 0.5)
