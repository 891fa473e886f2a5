"""User code runs on private records only after it has shown, on synthetic ones, that it treats each row by itself.

Guarantee: none in general (a program can hide anything); it catches what people do by accident: BatchNorm in train
mode, losses that average over the batch, feature maps and predictors that normalise over rows. Errors that a user's
code raises here are shown in full, because no record is involved.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tacit.data.records import Records
from tacit.errors import VaultError
from tacit.gradients import Clipper, check_independent
from tacit.privacy.declared import Loss, Read
from tacit.privacy.exits import at_a_time, filled
from tacit.privacy.still import beside, frozen, is_random

_ROWS = 4


def synthetic(records: Records, rows: int = _ROWS) -> Tensor:
    """Rows of the shape and type of the records (both public), with values that are not theirs."""
    empty = records.features(torch.zeros(0, dtype=torch.long))
    generator = torch.Generator().manual_seed(0)
    shape = (rows, *empty.shape[1:])
    if empty.dtype.is_floating_point:
        return torch.rand(shape, generator=generator).to(empty.dtype)
    return torch.randint(0, 2, shape, generator=generator).to(empty.dtype)


def check_map(records: Records, through: nn.Module | None) -> None:
    if through is not None:
        check_rows(synthetic(records), through)


def check_rows(rows: Tensor, through: nn.Module) -> None:
    """Refuse a feature map that gives a row (synthetic, of the right shape) other features alone than in a batch, or
    other ones in a batch of all these rows than among as many rows of zeros.

    Batches of one size are compared with each other: a GPU may compute those of another size a little otherwise."""
    frozen(through)
    rows = beside(through, rows)
    few = rows[:_ROWS]
    with torch.no_grad():
        pairs = [(through(few), torch.cat([through(row[None]) for row in few]))]
        if len(rows) > len(few):
            places, whole = torch.linspace(0, len(rows) - 1, _ROWS).long().tolist(), through(rows)
            pairs.append((whole[places], torch.cat([through(_only(rows, place))[place, None] for place in places])))
    if any(
        together.shape != alone.shape or not torch.allclose(together, alone, rtol=1e-3, atol=1e-4)
        for together, alone in pairs
    ):
        raise VaultError(
            "the feature map mixes rows: a row alone gives other features than in a batch; use one that does not"
        )


def _only(rows: Tensor, place: int) -> Tensor:
    """Zeros in place of all other rows."""
    among = torch.zeros_like(rows)
    among[place] = rows[place]
    return among


def check_predictor(records: Records, predict: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The predictor as a function from rows to label positions."""
    if isinstance(predict, nn.Module) and predict.training:
        raise VaultError("the predictor is in training mode; call .eval() on it first")
    if isinstance(predict, nn.Module) and is_random(predict):
        # Taken up after a crash, a query would put the same noise on other answers.
        raise VaultError("the predictor has a noise layer; ask one that gives a record the same answer every time")

    def answer(rows: Tensor) -> Tensor:
        with torch.no_grad():
            out = predict(beside(predict, rows))
        return out.argmax(1) if out.dim() > 1 else out

    rows = synthetic(records)
    together = answer(rows)
    if together.shape != (len(rows),) or not torch.equal(together, torch.cat([answer(row[None]) for row in rows])):
        raise VaultError(
            "the predictor must give one answer per row, whatever the other rows are; it does not on random rows"
        )
    return answer


def check_reads(
    reads: Sequence[Read], records: Sequence[Records], model: nn.Module, loss: Loss, clipper: Clipper
) -> None:
    """`check_training` for every read; those that look alike on synthetic rows are checked once."""
    alike: dict[Any, tuple[Read, Records]] = {}
    for read, found in zip(reads, records, strict=True):
        empty, y = found.features(torch.zeros(0, dtype=torch.long)), found.y
        looks = (empty.shape, empty.dtype, y.dtype, y.shape[1:], read.block.labels, id(read.through))
        alike.setdefault(looks, (read, found))
    for read, found in alike.values():
        check_training(read, found, model, loss, clipper)


def check_rules(reads: Sequence[Read], records: Sequence[Records]) -> None:
    """Refuse a rule of selection that fails on synthetic rows, before anything is charged."""
    for read, found in zip(reads, records, strict=True):
        if read.select is None:
            continue
        rows, y = synthetic(found), torch.arange(_ROWS) % max(1, len(read.block.labels or (0,)))
        try:
            with torch.no_grad():
                torch.func.vmap(read.select)(rows, y).bool()
        except Exception as problem:
            raise VaultError(
                f"the rule of a read fails on synthetic records: {type(problem).__name__}: "
                f"{str(problem).partition(chr(10))[0]}; it is a rule on one record, (x, y) → one truth value"
            ) from None


def check_training(read: Read, records: Records, model: nn.Module, loss: Loss, clipper: Clipper) -> None:
    check_map(records, read.through)
    rows = synthetic(records)
    if read.through is not None:
        with torch.no_grad():
            rows = read.through(beside(read.through, rows))
    labels = read.block.labels
    if labels is None and records.y.dtype.kind == "f":
        y = torch.zeros((_ROWS, *records.y.shape[1:]), dtype=torch.from_numpy(records.y[:0]).dtype)
    else:
        most = max(1, len(labels or (0,)))
        y = torch.tensor([0, most - 1, most // 2, min(1, most - 1)])  # the last label too: the model must have room
    rows, y = beside(model, rows), beside(model, y)
    parameter = next((p for p in model.parameters() if p.dtype.is_floating_point), None)
    integers = not rows.dtype.is_floating_point
    embeds = any(isinstance(module, nn.Embedding) for module in model.modules())
    if parameter is not None and rows.dtype != parameter.dtype and not (integers and embeds):
        raise VaultError(f"the records are {rows.dtype} and the model is {parameter.dtype}; convert one of them")
    check_independent(model, loss, rows, y)
    clipper.sum(rows, y)  # the clipper compares its book-keeping with autograd on the batch it sees first
    if at_a_time(model):
        _check_filling(rows, y, clipper)


def _check_filling(rows: Tensor, y: Tensor, clipper: Clipper) -> None:
    """Refuse a model or a loss to which rows of zeros at the end of a batch make a difference."""
    found = []
    for more in (1, 2):
        total = clipper.total()
        clipper.add(total, filled(rows, more), filled(y, more), filled=more)
        found.append(total.values())
    if not torch.allclose(found[0], found[1], rtol=1e-3, atol=1e-4 * clipper.sensitivity):
        raise VaultError(
            "the model asks for batches of few sizes, and rows of zeros that fill one up change what the others give; "
            "use outputs with one row for each example"
        )
