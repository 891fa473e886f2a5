"""Sensor sets: WISDM (phones and watches) and HMP (wrist). Features are scaled by public constants only.

The test set of WISDM consists of people: subjects whose number ends in 4 or 9 are in no training set, so that a
person-level bound and the accuracy beside it concern different people. In HMP one volunteer made nearly half of the
recordings, so there one recording in five is held out, by a fixed rule.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.benchmarks import classes
from tacit.data.benchmarks.formats import held_out, read_table
from tacit.data.samples import Array, DataSet, Floats, Samples, present
from tacit.errors import DataError

FEATURES = "features.parquet"
WATCH = "watch_accel_20hz.parquet"
WRIST = "wrist_accel_32hz.parquet"
HMP_RECORDINGS = 839

SCALES = {
    "accel": {"avg": 20.0, "peak": 200.0, "absoldev": 10.0, "resultant": 20.0},
    "gyro": {"avg": 1.0, "peak": 200.0, "absoldev": 5.0, "resultant": 10.0},
}
"""Fixed divisors for four kinds of WISDM features; every other kind (shares of a histogram, deviations, variances,
cepstral coefficients, cosines, correlations) is divided by 1. They are round numbers near the ranges seen in this
public set, not limits that its authors document: do not carry them over to private data of the same kind."""


def wisdm(folder: Path) -> DataSet:
    """Ten-second windows, 91 features: each is divided by its constant in `SCALES` and clipped to [−1, 1]."""
    about = "activities of 50 people, ten-second windows of phone and watch sensors, 91 features"
    read = partial(_wisdm, folder / FEATURES)
    data = DataSet.of_parts("wisdm", about, tuple(classes.WISDM.values()), (91,), read)
    return replace(data, groups={"device": ("phone", "watch"), "sensor": ("accel", "gyro")})


def wisdm_raw(folder: Path) -> DataSet:
    """The watch's accelerometer at 20 Hz, one sample a row; x, y, z in units of 20 m/s², clipped to [−1, 1]."""

    def read(test: bool) -> Samples:
        table = read_table(folder / WATCH)
        keep = held_out_people(column(table, "subject")) == test
        x = np.clip(axes(table, keep) / np.float32(2000), -1, 1)
        return Samples.of(x, codes(table, tuple(classes.WISDM))[keep], ids=column(table, "subject")[keep])

    about = "activities of 46 people, raw watch accelerometer at 20 Hz"
    return DataSet.of_parts("wisdm-raw", about, tuple(classes.WISDM.values()), (3,), read, rate=20.0)


def hmp(folder: Path) -> DataSet:
    """A wrist accelerometer at 32 Hz, one sample a row; the codes 0 to 63 (−1.5 g to 1.5 g) become [−1, 1]."""

    def read(test: bool) -> Samples:
        table = read_table(folder / WRIST)
        recording = column(table, "recording")
        keep = held_out("hmp", HMP_RECORDINGS, HMP_RECORDINGS // 5)[recording] == test
        x = axes(table, keep) / np.float32(31.5) - np.float32(1)
        groups = {"recording": recording[keep]}
        return Samples.of(x, codes(table, classes.HMP)[keep], ids=column(table, "volunteer")[keep], groups=groups)

    about = "activities of 16 people, raw wrist accelerometer at 32 Hz"
    return DataSet.of_parts("hmp", about, classes.HMP, (3,), read, rate=32.0)


def windows(data: DataSet, *, length: int = 100, overlap: float = 0.0, every: int = 1) -> DataSet:
    """A raw sensor set as windows of (length, axes); a window never spans two people, activities or recordings.

    Args:
        data: A data set of raw sensors.
        length: Samples per window.
        overlap: The share of a window that the next one repeats.
        every: Keep every n-th sample (decimation without a filter); the name of the set then says that its rate is
            derived.

    Raises:
        DataError: The set has no raw sensor, or a value is out of range.
    """
    if data.rate is None:
        raise DataError(f"windows are cut from raw sensors such as wisdm-raw or hmp, and {data.name} is not one")
    if length < 1 or every < 1 or not 0 <= overlap < 1:
        raise DataError(
            f"windows need length ≥ 1, every ≥ 1 and an overlap in [0, 1), got {length}, {every} and {overlap}"
        )
    step = (stride(length, overlap),) * len(data.labels)
    rate = data.rate / every
    return DataSet(
        name=f"{data.name}-{rate:g}hz" + ("-derived" if every > 1 else ""),
        about=f"{data.about}, in windows of {length} at {rate:g} Hz" + (" (derived)" if every > 1 else ""),
        labels=data.labels,
        classes=data.classes,
        shape=(length, *data.shape),
        read_train=lambda: cut(data.train, length, step, every),
        read_test=None if data.read_test is None else lambda: cut(present(data.test), length, step, every),
    )


def stride(length: int, overlap: float) -> int:
    """The distance between the starts of two windows of which a share `overlap` is common."""
    return max(1, round(length * (1 - overlap)))


def cut(samples: Samples, length: int, strides: Sequence[int], every: int) -> Samples:
    """Windows of every `every`-th sample, each within one label, person and group.

    `strides`: the distance between windows for each label, in kept samples."""
    columns = [samples.y, *([] if samples.ids is None else [samples.ids]), *samples.groups.values()]
    changes = np.any([one[1:] != one[:-1] for one in columns], axis=0)
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), len(samples)]
    starts = [
        np.arange(first, last - (length - 1) * every, strides[samples.y[first]] * every)
        for first, last in pairwise(edges)
        if first < last
    ]
    start = np.concatenate([np.zeros(0, dtype=np.int64), *starts])
    inside = np.arange(length) * every
    return Samples(
        read=lambda: samples.x[start[:, None] + inside],
        y=samples.y[start],
        ids=None if samples.ids is None else samples.ids[start],
        groups={name: values[start] for name, values in samples.groups.items()},
    )


def _wisdm(path: Path, test: bool) -> Samples:
    table = read_table(path)
    keep = held_out_people(column(table, "subject")) == test
    sensor = column(table, "sensor")[keep]
    names = [name for name in table.column_names if name not in ("device", "sensor", "subject", "activity")]
    x = np.stack([column(table, name)[keep] for name in names], axis=1).astype(np.float32)
    for kind, scales in SCALES.items():
        x[sensor == kind] /= np.asarray([_scale(name, scales) for name in names], dtype=np.float32)
    groups = {"device": column(table, "device")[keep], "sensor": sensor}
    y = codes(table, tuple(classes.WISDM))[keep]
    return Samples.of(np.clip(x, -1, 1), y, ids=column(table, "subject")[keep], groups=groups)


def _scale(name: str, scales: dict[str, float]) -> float:
    """`xavg` is the average of the x axis: its kind is `avg`."""
    return scales.get(name, scales.get(name[1:], 1.0))


def held_out_people(subject: Array) -> NDArray[np.bool_]:
    """Whether a subject of WISDM, by number, is a test person."""
    found: NDArray[np.bool_] = subject % 5 == 4
    return found


def axes(table: Any, keep: NDArray[np.bool_]) -> Floats:
    """The three axes, as the file has them."""
    return np.stack([column(table, axis)[keep] for axis in "xyz"], axis=1).astype(np.float32)


def column(table: Any, name: str) -> Array:
    """A column as numbers or texts."""
    if name not in table.column_names:
        raise DataError(f"the sensor file has no column {name!r}; delete it, and `tacit data list` says how to get it")
    values: Array = table.column(name).to_numpy()
    return values.astype(str) if values.dtype.kind == "O" else values


def codes(table: Any, names: Sequence[str]) -> NDArray[np.int64]:
    """The position of each activity among the public ones; −1 for another activity."""
    positions = {name: position for position, name in enumerate(names)}
    names_of = table.column("activity").combine_chunks()
    encoded = names_of if hasattr(names_of, "indices") else names_of.dictionary_encode()
    table_of = np.asarray([positions.get(name, -1) for name in encoded.dictionary.to_pylist()], dtype=np.int64)
    found: NDArray[np.int64] = table_of[encoded.indices.to_numpy()]
    return found
