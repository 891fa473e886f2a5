"""Private records in batches: whole units, a bounded number of records at a time, with their features and targets.

Formal guarantees
  * A unit never straddles two batches.
  * How units are cut into batches depends on the declared bound of records per unit (`Records.single`), on the sampled
    units and on public limits.
  * A feature map runs in evaluation mode, without gradients, and leaves no state behind.
"""

import math
import sys
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from tacit.data.label_positions import positions
from tacit.errors import VaultError
from tacit.privacy.vault.intake.blocks import Block
from tacit.privacy.vault.intake.fingerprint import fingerprint
from tacit.privacy.vault.intake.isolation import beside, frozen, guarded, unchanged
from tacit.privacy.vault.intake.records import Records

KEPT_BYTES = 2**28
"""Mapped features of a block are kept in memory up to this size."""


def batches(records: Records, units: Tensor, limit: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields the record numbers of some units, and the position of each record's unit within the batch.

    Args:
        records: The records of one block.
        units: Positions of the units to read.
        limit: The largest number of records in a batch. A single unit with more records is a batch of its own.
    """
    if records.single:
        starts = torch.from_numpy(records.starts)
        index = starts[units][starts[units] < starts[units + 1]]  # a unit whose record was dropped is skipped
        for start in range(0, len(index), limit):
            part = index[start : start + limit]
            yield part, torch.arange(len(part))
        return
    # A unit without records counts as one: the sums reserve room for `limit` units.
    counts = np.diff(records.starts)[units.numpy()].clip(min=1)
    first, room = 0, limit
    for position, count in enumerate(counts):
        if count > room and position > first:
            yield records.expand(units[first:position])
            first, room = position, limit
        room -= int(count)
    if first < len(units):
        yield records.expand(units[first:])


def features(records: Records, index: Tensor, through: nn.Module | None) -> Tensor:
    """Features of the records at `index`, mapped by the frozen feature map `through` if there is one."""
    x = guarded(lambda: records.features(index), "the source failed while its records were read")
    if through is None:
        return x
    frozen(through)  # at every pass: the caller may have put it back in training mode
    with torch.no_grad(), unchanged(through):
        mapped: Tensor = guarded(lambda: through(beside(through, x)))
        return mapped


def kept_features(records: Records, index: Tensor, through: nn.Module | None) -> Tensor:
    """`features` of a batch of all records, kept in memory for the next exit that reads them by the same map."""
    if through is None or next(through.parameters(), None) is None:  # as fast as looking it up
        return features(records, index, through)
    version = fingerprint(map=through)
    if version not in records.mapped:
        records.mapped.clear()
    kept = records.mapped.setdefault(version, {})
    place = (int(index[0]), len(index)) if len(index) else (0, 0)
    if place not in kept:
        mapped = features(records, index, through)
        if sum(map(_bytes, kept.values())) + _bytes(mapped) > KEPT_BYTES:
            return mapped
        kept[place] = mapped
    return kept[place]


def feature_count(records: Records, through: nn.Module | None) -> int:
    """Number of features of one record, from its public shape."""
    shape = records.features(torch.zeros(0, dtype=torch.long)).shape[1:]
    row = torch.zeros(1, *shape)
    if through is not None:
        with torch.no_grad():
            row = through(beside(through, row))
    return row[0].numel()


def targets(block: Block, records: Records) -> Tensor:
    """Positions of the labels in the block's public label set. Without a set, the labels as real-valued targets: an
    array of floats as it is, and each value of a list by itself, NaN where it is no number."""
    if block.labels is not None:
        return torch.from_numpy(positions(records.y, block.labels))
    if records.y.dtype.kind == "O":
        return torch.tensor([_real(value) for value in records.y.tolist()], dtype=torch.float64)
    if records.y.dtype.kind != "f":
        raise VaultError(
            f"{block} has no public label set; name its labels with with_labels, or learn them with label_set"
        )
    return torch.from_numpy(records.y)


def _real(value: int | float | str) -> float:
    return math.nan if isinstance(value, str) or abs(value) > sys.float_info.max else float(value)


def _bytes(x: Tensor) -> int:
    return x.numel() * x.element_size()


def batch_limits(model: nn.Module) -> list[int]:
    """The largest batches that parts of the model ask for, by their attribute `at_a_time`."""
    return [limit for part in model.modules() if isinstance(limit := getattr(part, "at_a_time", None), int)]


def padding(rows: int, limit: int) -> int:
    """Number of zero rows to append so that few batch sizes occur.

    A GPU plans the convolutions of a deep network anew for each batch size, which takes seconds.
    """
    return min(limit, max(16, 1 << (rows - 1).bit_length())) - rows


def padded(rows: Tensor, more: int) -> Tensor:
    """The rows, followed by `more` rows of zeros."""
    return torch.cat([rows, rows.new_zeros(more, *rows.shape[1:])]) if more else rows
