"""Activities at four sampling rates: the stream of Lai et al. 2022 (HARW), on sets that anyone can have.

HARW itself was not published. In its place: WISDM's watch accelerometer at 20 Hz, the same at 10 and 5 Hz (derived: one
sample in two, one in four, without a filter), and HMP's wrist accelerometer at 32 Hz in place of 50 Hz.

**Classes** are what both sets have, five as in the paper (`CLASSES`). Sitting, standing and jogging are in WISDM only
(HMP's Sitdown_chair is the moment of sitting down), cycling and driving in neither.

**Steps** are those of App. D (`sessions`). Neither file has time stamps, so merging and gaps are void here; a file with
a column `time` (seconds) has them done. Ten seconds at both ends are left out of WISDM's three-minute recordings. HMP's
are single movements of 4 to 290 seconds that its authors cut to the activity, so nothing is trimmed from them: twenty
seconds less would leave one recording of stairs in 144.

**Scale.** Lai's clip of z-scores at ±2, brought to [−1, 1], needs mean and deviation of private data. The replacement:
mean 0 and deviation 10 m/s² (about 1 g) are declared, so a value is clipped at ±20 m/s² and divided by 20. That is the
range of the watch (±2 g); HMP's is ±1.5 g.

**Who is where.** A person of WISDM is in one rate only, by their number modulo 3, and HMP has other people: no moment
and no person is in two tasks, so a unit is in one task at record level and at person level. A record is a window, as in
the paper; windows overlap, so one moment is in up to ten records, and only the unit "person" bounds what it loses.

**Test sets.** `har`: 15 % of the windows, each by a coin from its own content, as in the paper; train and test windows
overlap and share people, so accuracy is flattered. `har-people`: people who are in no training set (WISDM's as in
`sensors`; HMP's volunteers with numbers 2 and 7). In HMP one volunteer alone was recorded eating, and is in training.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.data.benchmarks.formats import read_table
from tacit.data.benchmarks.sensors import WATCH, WRIST, axes, codes, column, cut, held_out_people, stride
from tacit.data.benchmarks.sessions import TRIM, Recordings, sessions
from tacit.data.samples import Array, DataSet, Samples, present

FILES = (f"wisdm/{WATCH}", f"hmp/{WRIST}")
LENGTH = 100
TEST_SHARE = 0.15
RANGE = 20.0
"""m/s²: two declared standard deviations of 10."""
GRAVITY = 9.80665
CLASSES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "walking": (("A",), ("Walk",)),
    "stairs": (("C",), ("Climb_stairs", "Descend_stairs")),
    "brushing teeth": (("G",), ("Brush_teeth",)),
    "drinking": (("K",), ("Drink_glass",)),
    "eating with cutlery": (("H", "J"), ("Eat_soup", "Eat_meat")),
}
"""The n-th entry is label n: its name, its activities in WISDM (soup and pasta count as eating) and in HMP."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """One task: its samples, and the overlap of its windows."""

    wisdm: bool
    every: int = 1
    """Every `every`-th sample is kept."""
    third: int | None = None
    """Only WISDM people whose number has this remainder modulo 3; None: all."""
    overlap: tuple[float, ...]
    """Of each class: 25 % for classes with many samples, up to 90 % for those with few."""

    @property
    def people(self) -> str:
        """How the names of its people begin."""
        return "wisdm-" if self.wisdm else "hmp-"


RATES: Mapping[str, Rate] = {
    "5hz-derived": Rate(wisdm=True, every=4, third=2, overlap=(0.9, 0.9, 0.9, 0.9, 0.8)),
    "10hz-derived": Rate(wisdm=True, every=2, third=1, overlap=(0.8, 0.8, 0.8, 0.8, 0.6)),
    "20hz": Rate(wisdm=True, third=0, overlap=(0.6, 0.6, 0.6, 0.6, 0.25)),
    "32hz": Rate(wisdm=False, overlap=(0.5, 0.75, 0.75, 0.75, 0.75)),
}
"""The overlaps follow from what the sets' authors publish: in WISDM everybody did each activity for three minutes; in
HMP there are 100 recordings of walking, 144 of stairs, 100 of drinking, 12 of teeth, 8 of eating. No count of the
files decides one."""


def har(folder: Path) -> DataSet:
    """15 % of the windows are the test set."""
    return _set("har", folder, "windows")


def har_people(folder: Path) -> DataSet:
    """The people of the test set are in no training set."""
    return _set("har-people", folder, "people")


def _set(name: str, folder: Path, split: Literal["windows", "people"]) -> DataSet:
    kept = cache(lambda: _all(folder))

    def part(test: bool) -> Samples:
        found, by_window, by_person = kept()
        rows = np.flatnonzero((by_window if split == "windows" else by_person) == test)
        groups = {key: values[rows] for key, values in found.groups.items()}
        return Samples(read=lambda: found.x[rows], y=found.y[rows], ids=present(found.ids)[rows], groups=groups)

    activities = "; ".join(f"{label}: {'+'.join((*wisdm, *hmp))}" for label, (wisdm, hmp) in CLASSES.items())
    about = f"activities in windows of 100 at 5 and 10 Hz (derived), 20 Hz (WISDM) and 32 Hz (HMP); {activities}"
    data = DataSet.of_parts(name, about, tuple(CLASSES), (LENGTH, 3), part)
    return replace(data, groups={"rate": tuple(RATES)}, personal=frozenset({"rate"}))


def _all(folder: Path) -> tuple[Samples, NDArray[np.bool_], NDArray[np.bool_]]:
    """All windows; whether each is a test window, and whether it is of a test person."""
    wisdm, hmp = (read(read_table(folder / file)) for read, file in zip((_wisdm, _hmp), FILES, strict=True))
    parts = {name: _windows(rate, wisdm if rate.wisdm else hmp) for name, rate in RATES.items()}
    x = np.concatenate([one.x for one in parts.values()])
    ids = np.concatenate([np.char.add(RATES[name].people, present(one.ids).astype(str)) for name, one in parts.items()])
    rate = np.repeat(list(parts), [len(one) for one in parts.values()])
    found = Samples.of(x, np.concatenate([one.y for one in parts.values()]), ids=ids, groups={"rate": rate})
    return found, np.asarray([_coin(window) for window in x], dtype=np.bool_), _test_person(ids)


def _windows(rate: Rate, raw: Samples) -> Samples:
    """A rate's windows, from the sessions of its people."""
    mine = raw
    if rate.third is not None:
        ids = present(raw.ids)
        here = ids % 3 == rate.third
        mine = Samples.of(raw.x[here], raw.y[here], ids=ids[here], groups={"session": raw.groups["session"][here]})
    return cut(mine, LENGTH, [stride(LENGTH, overlap) for overlap in rate.overlap], rate.every)


def _wisdm(table: Any) -> Samples:
    """A recording is what one person did of one activity, in a row."""
    y = _labels(table, 0)
    subject, activity = column(table, "subject"), codes(table, _names(0))
    recording = np.cumsum(np.append(0, (np.diff(subject) != 0) | (np.diff(activity) != 0)))[: len(y)]
    x = axes(table, y >= 0) / np.float32(100 * RANGE)
    return _sessions(table, x, y, recording, subject, 20.0, TRIM)


def _hmp(table: Any) -> Samples:
    """Codes 0 to 63 are −1.5 g to 1.5 g."""
    y = _labels(table, 1)
    x = (axes(table, y >= 0) / np.float32(31.5) - np.float32(1)) * np.float32(1.5 * GRAVITY / RANGE)
    return _sessions(table, x, y, column(table, "recording"), column(table, "volunteer"), 32.0, 0.0)


def _sessions(table: Any, x: Array, y: Array, recording: Array, ids: Array, rate: float, trim: float) -> Samples:
    """Of the activities that are kept; `x` has their rows already."""
    keep = y >= 0
    time = column(table, "time")[keep].astype(np.float64) if "time" in table.column_names else None
    inside = np.clip(x, -1, 1).astype(np.float32)
    raw = Recordings(x=inside, y=y[keep], ids=ids[keep], recording=recording[keep], rate=rate, time=time)
    return sessions(raw, trim=trim)


def _names(source: int) -> list[str]:
    """The activities of a source, class after class."""
    return [name for both in CLASSES.values() for name in both[source]]


def _labels(table: Any, source: int) -> NDArray[np.int64]:
    """The class of each row; −1 for an activity that is not kept."""
    classes = [label for label, both in enumerate(CLASSES.values()) for _ in both[source]]
    found: NDArray[np.int64] = np.asarray([*classes, -1])[codes(table, _names(source))]
    return found


def _test_person(ids: Array) -> NDArray[np.bool_]:
    """By the number in a name: `wisdm-1604` and `hmp-m2` are test people."""
    people, places = np.unique(ids, return_inverse=True)
    number = np.asarray([int("".join(filter(str.isdigit, one))) for one in people.tolist()], dtype=np.int64)
    apart: NDArray[np.bool_] = np.where(np.char.startswith(people, "wisdm-"), held_out_people(number), number % 5 == 2)
    return apart[places]


def _coin(window: Array) -> bool:
    """Assigns a window to train or test by a hash of its content."""
    drawn = hashlib.blake2b(np.ascontiguousarray(window, dtype="<f4").tobytes(), digest_size=8).digest()
    return int.from_bytes(drawn, "big") < TEST_SHARE * 2**64
