"""Divides labelled recordings of a sensor into sessions by the cleaning steps of Lai et al. 2022, App. D.

All constants are public. What is kept of a recording depends on that recording alone, and a session is within one
recording, hence within one person and one label.

Without time stamps, time is counted in samples at the nominal rate: no two samples then have the same time, there are
no gaps, and steps 1 and 2 do nothing. Step 3 of the paper (drop sessions of an unstable rate) does not apply: each file
has one nominal rate.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.data.samples import Array, Floats, Rows, Samples
from tacit.errors import DataError

GAP = 0.3
"""Seconds without a sample that end a session."""
TRIM = 10.0
"""Seconds at both ends of a labelled recording in which the device is handled."""
CAP = 1800.0
"""Seconds of a labelled recording after which its label is not trusted."""
_SLACK = 1e-6
"""Tolerance for rounding in sums of seconds; no sensor has two samples within a microsecond."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Recordings:
    """Samples of a sensor, one per row. All rows of a recording have one label and belong to one person."""

    x: Floats
    y: Rows
    ids: Array
    recording: Array
    """The recording of each row; the rows of a recording need not be adjacent."""
    rate: float
    """Nominal samples per second."""
    time: NDArray[np.float64] | None = None
    """Seconds on any clock; None where the file has no time stamps: the rows are then in order of time."""

    def __post_init__(self) -> None:
        lengths = {len(column) for column in (self.x, self.y, self.ids, self.recording)}
        if self.time is not None:
            lengths.add(len(self.time))
        if len(lengths) > 1:
            raise DataError("recordings need one value of every column per row, and their lengths differ")


def sessions(raw: Recordings, *, trim: float = TRIM, cap: float = CAP, gap: float = GAP) -> Samples:
    """The remaining samples in order of time, with the column `session`; windows are cut within a session.

    1. Samples with the same time are replaced by their mean. 2. A gap of more than `gap` seconds starts a new session.
    4. The first and last `trim` seconds of each recording are dropped, then everything after `cap` seconds.
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
    """The recordings one after the other, each in order of time with one row per time; and these times."""
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
