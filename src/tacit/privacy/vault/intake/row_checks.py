"""Tests of user code on synthetic rows, before it runs on private records: each row must be treated by itself.

Formal guarantees: none. That rows are treated separately is a condition of every exit's bound, and these tests catch
its accidental violation, not hostile programs: BatchNorm in training mode, losses that average over the batch, feature
maps and predictors that normalise over rows. Errors that user code raises here are shown in full, because no record is
involved.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import VaultError
from tacit.gradients import Clipper, check_independent
from tacit.privacy.vault.intake.batches import batch_limits, padded
from tacit.privacy.vault.intake.blocks import Loss, Read
from tacit.privacy.vault.intake.isolation import beside, frozen, is_random, unchanged
from tacit.privacy.vault.intake.records import Records

_ROWS = 4


def synthetic(records: Records, rows: int = _ROWS) -> Tensor:
    """Synthetic rows of the records' public shape and type."""
    empty = records.features(torch.zeros(0, dtype=torch.long))
    generator = torch.Generator().manual_seed(0)
    shape = (rows, *empty.shape[1:])
    if empty.dtype.is_floating_point:
        return torch.rand(shape, generator=generator).to(empty.dtype)
    return torch.randint(0, 2, shape, generator=generator).to(empty.dtype)


def check_map(records: Records, through: nn.Module | None) -> None:
    """Refuses a feature map that mixes rows of the records' shape."""
    if through is not None:
        check_rows(synthetic(records), through)


def check_rows(rows: Tensor, through: nn.Module) -> None:
    """Refuses a feature map that mixes rows.

    A row must have the same features alone and in a small batch, and the same features in a batch of all rows and among
    as many rows of zeros. Large batches are compared with batches of the same size, because a GPU may compute other
    sizes slightly differently.
    """
    frozen(through)
    rows = beside(through, rows)
    few = rows[:_ROWS]
    with torch.no_grad(), unchanged(through):
        pairs = [(through(few), torch.cat([through(row[None]) for row in few]))]
        if len(rows) > len(few):
            places, whole = torch.linspace(0, len(rows) - 1, _ROWS).long().tolist(), through(rows)
            pairs.append((whole[places], torch.cat([through(_only(rows, place))[place, None] for place in places])))
    for together, alone in pairs:
        scale = float(alone.abs().max()) if alone.numel() else 0.0
        if together.shape != alone.shape or not torch.allclose(together, alone, rtol=1e-3, atol=1e-4 * scale):
            raise VaultError(
                "the feature map mixes rows: a row alone gives other features than in a batch; use one that does not"
            )


def _only(rows: Tensor, place: int) -> Tensor:
    """A batch in which all rows but one are zeros."""
    among = torch.zeros_like(rows)
    among[place] = rows[place]
    return among


def check_predictor(records: Records, predict: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The predictor as a function from rows to label positions; refused if it mixes rows or is random."""
    if isinstance(predict, nn.Module) and predict.training:
        raise VaultError("the predictor is in training mode; call .eval() on it first")
    if isinstance(predict, nn.Module) and is_random(predict):
        # Repeated after a crash, the query would add the same noise to other answers.
        raise VaultError("the predictor has a noise layer; use one that gives a record the same answer every time")

    def answer(rows: Tensor) -> Tensor:
        with torch.no_grad():
            out = predict(beside(predict, rows))
        return out.argmax(1) if out.dim() > 1 else out

    rows = synthetic(records)
    with unchanged(predict):
        together, alone = answer(rows), [answer(row[None]) for row in rows]
    if together.shape != (len(rows),) or not torch.equal(together, torch.cat(alone)):
        raise VaultError(
            "the predictor must give one answer per row, whatever the other rows are; it does not on random rows"
        )
    return answer


def check_reads(
    reads: Sequence[Read], records: Sequence[Records], model: nn.Module, loss: Loss, clipper: Clipper
) -> None:
    """Runs `check_training` for every read; reads with the same shapes, types, labels and map are tested once."""
    alike: dict[Any, tuple[Read, Records]] = {}
    for read, found in zip(reads, records, strict=True):
        empty, y = found.features(torch.zeros(0, dtype=torch.long)), found.y
        looks = (empty.shape, empty.dtype, y.dtype, y.shape[1:], read.block.labels, id(read.through))
        alike.setdefault(looks, (read, found))
    for read, found in alike.values():
        check_training(read, found, model, loss, clipper)


def check_rules(reads: Sequence[Read], records: Sequence[Records]) -> None:
    """Refuses a selection rule that fails on synthetic rows."""
    for read, found in zip(reads, records, strict=True):
        if read.select is None:
            continue
        rows, y = synthetic(found), torch.arange(_ROWS) % max(1, len(read.block.labels or (0,)))
        try:
            with torch.no_grad(), unchanged(read.select):
                torch.func.vmap(read.select)(rows, y).bool()
        except VaultError:
            raise
        except Exception as problem:
            raise VaultError(
                f"the rule of a read fails on synthetic records: {type(problem).__name__}: "
                f"{str(problem).partition(chr(10))[0]}; it is a rule on one record, (x, y) → one truth value"
            ) from None


def check_training(read: Read, records: Records, model: nn.Module, loss: Loss, clipper: Clipper) -> None:
    """Refuses a model or loss that mixes rows, or whose types do not fit the records."""
    check_map(records, read.through)
    rows = synthetic(records)
    if read.through is not None:
        with torch.no_grad():
            rows = read.through(beside(read.through, rows))
    labels = read.block.labels
    if labels is None and records.y.dtype.kind in "fO":
        real = torch.float64 if records.y.dtype.kind == "O" else torch.from_numpy(records.y[:0]).dtype
        y = torch.zeros(_ROWS, dtype=real)
    else:
        most = max(1, len(labels or (0,)))
        # The last label too: the model must have an output for it.
        y = torch.tensor([0, most - 1, most // 2, min(1, most - 1)])
    rows, y = beside(model, rows), beside(model, y)
    parameter = next((p for p in model.parameters() if p.dtype.is_floating_point), None)
    integers = not rows.dtype.is_floating_point
    embeds = any(isinstance(module, nn.Embedding) for module in model.modules())
    if parameter is not None and rows.dtype != parameter.dtype and not (integers and embeds):
        raise VaultError(f"the records are {rows.dtype} and the model is {parameter.dtype}; convert one of them")
    with unchanged(model, loss):
        check_independent(model, loss, rows, y)
        clipper.verify(rows, y)  # here, and never on private records, whose gradients would decide what is raised
        clipper.sum(rows, y)
        if batch_limits(model):
            _check_padding(rows, y, clipper)


def _check_padding(rows: Tensor, y: Tensor, clipper: Clipper) -> None:
    """Refuses a model or loss for which rows of zeros at the end of a batch change the other gradients."""
    sums = []
    for more in (1, 2):
        total = clipper.total()
        clipper.add(total, padded(rows, more), padded(y, more), filled=more)
        sums.append(total.values())
    if not torch.allclose(sums[0], sums[1], rtol=1e-3, atol=1e-4 * clipper.sensitivity):
        raise VaultError(
            "the model asks for batches of few sizes, and the rows of zeros that pad a batch change the gradients of "
            "the other rows; use outputs with one row for each example"
        )
