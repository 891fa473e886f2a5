"""From labelled recordings of a sensor to sessions: the cleaning steps of Lai et al. 2022, App. D.

Guarantee: every number here is a public constant; what is kept of a recording depends on that recording alone, and a
session lies within one recording, so within one person and one label.

Without time stamps, time is counted in samples at the nominal rate: then no two samples share a moment, no gap is ever
found, and steps 1 and 2 are void. Step 3 of the paper (leave out sessions of an unstable rate) has no place here: each
file has one nominal rate.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.data.samples import Array, Floats, Rows, Samples
from tacit.errors import DataError

GAP = 0.3
"""Seconds without a sample that end a session."""
TRIM = 10.0
"""Seconds at both ends of a labelled recording in which its maker handles the device."""
CAP = 1800.0
"""Seconds of a labelled recording after which its label is no longer believed."""
_SLACK = 1e-6
"""Sums of seconds are not exact; no sensor has two samples within a microsecond."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Recordings:
    """Samples of a sensor in rows. All rows of one recording have one label and belong to one person."""

    x: Floats
    y: Rows
    ids: Array
    recording: Array
    """The number of each row's recording; its rows need not lie together."""
    rate: float
    """Nominal samples a second."""
    time: NDArray[np.float64] | None = None
    """Seconds, on any clock; None where the file has no stamps: the rows are then in the order in which they came."""

    def __post_init__(self) -> None:
        lengths = {len(column) for column in (self.x, self.y, self.ids, self.recording)}
        if self.time is not None:
            lengths.add(len(self.time))
        if len(lengths) > 1:
            raise DataError("recordings need one value of every column a row, and their lengths differ")


def sessions(raw: Recordings, *, trim: float = TRIM, cap: float = CAP, gap: float = GAP) -> Samples:
    """The samples that are left, in order of time, with the column `session`; windows are cut within a session.

    1. Samples of one moment are merged: their mean. 2. A gap of more than `gap` seconds begins a new session.
    4. The first and last `trim` seconds of each recording are left out, then all after `cap` seconds.
    """
    if trim < 0 or cap <= 0 or gap <= 0:
        raise DataError(f"sessions need trim ≥ 0, cap > 0 and gap > 0 seconds, got {trim:g}, {cap:g} and {gap:g}")
    merged, time = _merged(raw)
    new = np.append(True, merged.recording[1:] != merged.recording[:-1])[: len(time)]
    which = np.cumsum(new) - 1
    first = time[new][which]
    last = time[np.append(new[1:], True)[: len(time)]][which]
    since = time - first - trim
    keep = (since >= -_SLACK) & (last - time >= trim - _SLACK) & (since < cap - _SLACK)
    number = np.cumsum(new | (np.diff(time, prepend=time[:1]) > gap + _SLACK))
    return Samples.of(merged.x[keep], merged.y[keep], ids=merged.ids[keep], groups={"session": number[keep]})


def _merged(raw: Recordings) -> tuple[Recordings, NDArray[np.float64]]:
    """The recordings one after the other, each in order of time, with one row a moment; and its time."""
    count = len(raw.y)
    if raw.time is None:
        order = np.argsort(raw.recording, kind="stable")
        return _rows(raw, order, raw.x[order]), np.arange(count) / raw.rate
    order = np.lexsort((raw.time, raw.recording))
    time, recording, x = raw.time[order], raw.recording[order], raw.x[order]
    begins = np.flatnonzero(np.append(True, (np.diff(time) != 0) | (recording[1:] != recording[:-1]))[:count])
    sizes = np.diff(np.append(begins, count))
    mean = np.add.reduceat(x, begins, axis=0) / sizes[:, None].astype(np.float32) if count else x
    return _rows(raw, order[begins], mean.astype(np.float32)), time[begins]


def _rows(raw: Recordings, rows: Rows, x: Floats) -> Recordings:
    return Recordings(x=x, y=raw.y[rows], ids=raw.ids[rows], recording=raw.recording[rows], rate=raw.rate)
