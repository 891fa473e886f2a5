"""What the exits compute before noise: bounded sums over units. Pure functions of private records.

Guarantee: adding or removing one unit changes each result by at most its stated bound in Euclidean norm, whatever the
records are, after every rounding: each unit adds whole multiples of a public power of two, and they are added exactly.
A record with a non-finite feature counts as nothing. No result leaves this module's callers without noise.
"""

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from tacit.data.places import positions
from tacit.data.records import Records
from tacit.data.stream import Label
from tacit.errors import TacitError, VaultError
from tacit.gradients.exact import BITS, FACTOR_BITS, ROOM, SLACK, ExactSum
from tacit.gradients.rows import AT_A_TIME, squares
from tacit.privacy.grid import ExactNumbers
from tacit.privacy.still import beside, frozen, unchanged

T = TypeVar("T")


def guarded(work: Callable[[], T], what: str = "the model, loss, rule or feature map failed on private records") -> T:
    """Run user code, or a data source, on private records: what it raises may quote them, so it leaves as a generic
    sentence, without the error that caused it and without its frames. tacit's own errors leave as they are, alone."""
    own: BaseException | None = None
    try:
        return work()
    except KeyboardInterrupt:
        own = KeyboardInterrupt()
    except TacitError as error:
        own = error if _is_ours(error) else None
    except (Exception, SystemExit):
        pass
    # Out here nothing is being handled any more, so that no message is kept as the context of what is raised.
    if own is None:
        own = VaultError(
            f"{what}, and its message is withheld because it may quote them; try it on public data of the same shape"
        )
    own.__cause__ = own.__context__ = None
    raise own.with_traceback(None)


def _is_ours(error: TacitError) -> bool:
    """Whether tacit's own code raised it, and not a source or a module that uses tacit's errors."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and str(frame.tb_frame.f_globals.get("__name__", "")).partition(".")[0] == "tacit"


def chunks(records: Records, units: Tensor, most: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Record numbers and their groups, at most `most` records at a time; a unit never straddles two chunks."""
    if records.single:
        starts = torch.from_numpy(records.starts)
        index = starts[units][starts[units] < starts[units + 1]]  # a unit may have lost its record, and is skipped
        for start in range(0, len(index), most):
            part = index[start : start + most]
            yield part, torch.arange(len(part))
        return
    counts = np.diff(records.starts)[units.numpy()].clip(min=1)  # those without records too: sums have room for `most`
    first, room = 0, most
    for place, count in enumerate(counts):
        if count > room and place > first:
            yield records.expand(units[first:place])
            first, room = place, most
        room -= int(count)
    if first < len(units):
        yield records.expand(units[first:])


def featurise(records: Records, index: Tensor, through: nn.Module | None) -> Tensor:
    """Features of some records, as float rows; through the frozen map, which is run in eval mode without gradients."""
    x = guarded(lambda: records.features(index), "the source failed while its records were read")
    if through is None:
        return x
    frozen(through)  # at every pass: it may have been put back in training mode since the grant
    with torch.no_grad(), unchanged(through):
        features: Tensor = guarded(lambda: through(beside(through, x)))
        return features


def width(records: Records, through: nn.Module | None) -> int:
    """Length of a feature row, from the shape of one record (public), not from its values."""
    shape = records.features(torch.zeros(0, dtype=torch.long)).shape[1:]
    row = torch.zeros(1, *shape)
    if through is not None:
        with torch.no_grad():
            row = through(beside(through, row))
    return row[0].numel()


def label_sums(
    records: Records, labels: tuple[Label, ...], through: nn.Module | None, clip: float, most: int
) -> ExactSum:
    """Σ over units of the unit's (label × feature) matrix, scaled down to Frobenius norm ≤ clip; without labels, one
    row for all records."""
    kinds = max(1, len(labels))
    size = width(records, through)
    total = ExactSum(kinds * size, clip)
    view = total.flat.view(kinds, size)
    place = torch.from_numpy(positions(records.y, labels) if labels else np.zeros(len(records.y), dtype=np.int64))
    for index, group in chunks(records, torch.arange(records.units), min(most, ROOM)):
        rows = _clean(featurise(records, index, through))
        label = place[index]
        inside = label >= 0  # labels outside the set are skipped, and nobody learns how many
        rows, label, unit = rows[inside], label[inside], group[inside]
        if len(rows) == 0:
            continue
        found, inverse = np.unique((unit * kinds + label).numpy(), return_inverse=True)
        cells, cell = torch.from_numpy(found), torch.from_numpy(inverse)
        sums = torch.zeros(len(cells), size, dtype=torch.float64).index_add_(0, cell, rows)
        owner = cells // kinds
        each = torch.zeros(int(group.max()) + 1, dtype=torch.float64).index_add_(0, owner, squares(sums))
        weight = _weight(each.sqrt(), clip)[owner, None] / total.step
        total.reserve(len(each))
        # Finite rows may add up to infinity: such a unit has weight 0, and 0 · ∞ would be NaN.
        view.index_add_(0, cells % kinds, torch.where(weight > 0, sums * weight, 0.0).round_())
    return total


def second_moment(records: Records, through: nn.Module | None, clip: float, most: int) -> ExactSum:
    """Σ over units of the unit's Σφφᵀ, scaled down to Frobenius norm ≤ clip²: the diagonal, then what is above it.

    Scaled rows √w·φ are cut to multiples of a power of two, towards zero, and their products are added exactly. A cut
    row is shorter, so a unit of one record keeps its bound. With several records cross terms may cancel less after the
    cut than before, by at most 2·√d·cut·Σ√w‖φ‖ + m·d·cut² in the Frobenius norm: such a unit is scaled down for it.
    """
    size = width(records, through)
    total = ExactSum(size * size, clip * clip)
    cut = math.ldexp(1.0, math.ceil(math.log2(clip)) - FACTOR_BITS)
    view = total.flat.view(size, size)
    for index, group in chunks(records, torch.arange(records.units), min(most, ROOM)):
        rows = _clean(featurise(records, index, through))
        if len(group) == 0:
            continue
        norms = squares(rows)
        if not records.single:
            norms = _several(rows, norms, group, clip, cut)
        weight = _weight(norms, clip * clip).unsqueeze(1)
        scaled = torch.where(weight > 0, rows * weight.sqrt() / cut, 0.0)
        for whole in torch.split(scaled.to(torch.int64).double(), AT_A_TIME):  # towards zero
            total.reserve(len(whole))
            torch.addmm(view, whole.t(), whole * (cut * cut / total.step), out=view)
    total.rearrange(_triangle(size))
    return total


def _several(rows: Tensor, lengths: Tensor, group: Tensor, clip: float, cut: float) -> Tensor:
    """For each record the norm by which its unit is scaled: ‖Σφφᵀ‖² = Σ (φᵢ·φⱼ)², and room for the cut."""
    norms = torch.empty_like(lengths)
    size = rows.shape[1]
    for unit in range(int(group[-1]) + 1):
        mine = group == unit
        some, squared = rows[mine], lengths[mine]
        if len(some) == 0:
            continue
        rounding = (size + len(some) + 8) * 2.0**-51 * float(squared.sum())
        norm = float((some @ some.T).square().sum().sqrt()) + rounding
        if not math.isfinite(norm):
            norms[mine] = math.inf
            continue
        shrunk = min(1.0, clip / math.sqrt(norm)) if norm > 0 else 1.0
        moved = 2 * math.sqrt(size) * cut * shrunk * float(squared.sqrt().sum()) + 2 * len(some) * size * cut * cut
        share = 1 / (1 + moved / clip**2)
        norms[mine] = clip**2 / (shrunk * share) ** 2 if share >= 0.5 else math.inf
    return norms


def _triangle(size: int) -> Tensor:
    """Where the diagonal of a square matrix and what is above it lie in the flat matrix."""
    row, column = torch.triu_indices(size, size, 1)
    return torch.cat([torch.arange(size) * (size + 1), row * size + column])


def unit_means(records: Records, value: Callable[[Tensor], Tensor], most: int) -> ExactNumbers:
    """Σ over units of the mean over the unit's records of a value in [0, 1]: one unit changes it by at most 1."""
    total, step = 0, 2.0**-BITS
    for index, group in chunks(records, torch.arange(records.units), min(most, ROOM)):
        values = torch.nan_to_num(value(index).double(), 0.0, 0.0, 0.0).clamp(0, 1)
        counts = torch.bincount(group).clamp(min=1).double()
        means = torch.zeros_like(counts).index_add_(0, group, values) / counts
        total += int((means.clamp_(max=1.0) / step).floor().sum())
    return ExactNumbers([total], step)


def label_counts(records: Records, labels_per_unit: int, key: bytes) -> dict[Label, int]:
    """For each label that occurs, Σ over units of 1/√m in multiples of 2⁻³⁸, rounded down; m = how many labels the unit
    has (at most the bound).

    Which labels of a unit beyond the bound are skipped depends on the unit and the key alone.
    """
    import hashlib

    counts: dict[Label, int] = {}
    for unit in range(records.units):
        own = records.y[records.starts[unit] : records.starts[unit + 1]]
        mine = sorted(
            {label.item() if isinstance(label, np.generic) else label for label in own},
            key=lambda label: hashlib.blake2b(
                repr(label).encode(), key=key, salt=records.names[unit].tobytes()
            ).digest(),
        )[:labels_per_unit]
        for label in mine:
            counts[label] = counts.get(label, 0) + math.isqrt(2 ** (2 * BITS) // len(mine))
    return counts


def _clean(rows: Tensor) -> Tensor:
    flat = rows.detach().to("cpu", torch.float64).flatten(1)
    finite = torch.isfinite(flat).all(1, keepdim=True)
    return torch.where(finite, flat, torch.zeros_like(flat))


def _weight(norms: Tensor, clip: float) -> Tensor:
    finite = torch.isfinite(norms)
    weight = torch.where(norms > clip, clip / norms, 1.0) * (1 - SLACK)
    return torch.where(finite, weight, torch.zeros_like(norms))


def filled(rows: Tensor, more: int) -> Tensor:
    """The rows, and so many of zeros after them."""
    return torch.cat([rows, rows.new_zeros(more, *rows.shape[1:])]) if more else rows


def at_a_time(model: nn.Module) -> list[int]:
    """How many records at a time its parts want."""
    return [rows for one in model.modules() if isinstance(rows := getattr(one, "at_a_time", None), int)]
