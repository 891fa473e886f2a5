"""Sensor sets: public scaling, people held out, windows, derived rates."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tacit.data.benchmarks.named import load
from tacit.data.benchmarks.sensors import windows
from tacit.data.samples import DataSet, Samples
from tacit.data.scenarios.sharp import domains, rates
from tacit.errors import DataError


@pytest.fixture
def wisdm_root(tmp_path: Path) -> Path:
    """Two rows per subject, device and sensor; a wild value in each."""
    rows = [
        (device, sensor, subject, activity)
        for device in ("phone", "watch")
        for sensor in ("accel", "gyro")
        for subject in (1600, 1604)
        for activity in ("A", "S")
    ]
    names = [f"{axis}{n}" for axis in "xyz" for n in range(10)]
    names += [axis + kind for kind in ("avg", "peak", "absoldev", "standdev", "var") for axis in "xyz"]
    names += [f"{axis}mfcc{n}" for axis in "xyz" for n in range(13)]
    names += ["xycos", "xzcos", "yzcos", "xycor", "xzcor", "yzcor", "resultant"]
    columns: dict[str, object] = dict(
        zip(("device", "sensor", "subject", "activity"), zip(*rows, strict=True), strict=True)
    )
    columns |= {name: np.full(len(rows), 0.5, dtype=np.float32) for name in names}
    columns["xavg"] = np.full(len(rows), 10.0, dtype=np.float32)
    columns["zpeak"] = np.full(len(rows), 1e6, dtype=np.float32)
    (tmp_path / "wisdm").mkdir()
    parquet.write_table(pa.table(columns), tmp_path / "wisdm" / "features.parquet")
    return tmp_path


def test_wisdm_is_scaled_by_public_constants_and_clipped(wisdm_root: Path) -> None:
    data = load("wisdm", wisdm_root)
    x, sensor = data.train.x, data.train.groups["sensor"]
    assert x.shape[1:] == data.shape and x.dtype == np.float32
    assert set(x[sensor == "accel", 30].tolist()) == {0.5}
    assert set(x[sensor == "gyro", 30].tolist()) == {1.0}
    assert set(x[:, 35].tolist()) == {1.0}
    assert set(data.train.y.tolist()) == {0, 17}


def apart(data: DataSet) -> bool:
    assert data.test is not None and data.test.ids is not None and data.train.ids is not None
    return len(data.test) > 0 and not set(data.train.ids.tolist()) & set(data.test.ids.tolist())


def test_people_of_the_test_set_are_in_no_training_set(wisdm_root: Path) -> None:
    assert apart(load("wisdm", wisdm_root))


@pytest.mark.parametrize("name", ["wisdm", "wisdm-raw"])
def test_real_people_of_the_test_set_are_in_no_training_set(name: str, real: Callable[[str], Path]) -> None:
    assert apart(load(name, real(name)))


def test_domains_are_the_product_of_columns(wisdm_root: Path) -> None:
    stream = domains(load("wisdm", wisdm_root), ("device", "sensor"), unit="person", records_per_unit=7)
    assert [task.name for task in stream.info.tasks] == ["phone-accel", "phone-gyro", "watch-accel", "watch-gyro"]
    assert (stream.info.unit, stream.info.tasks_per_unit, stream.info.records_per_unit) == ("person", 4, 7)
    x, y, ids = stream[0].records()
    assert (x.shape, y.tolist(), ids.tolist(), stream[0].info.size) == ((2, 91), [0, 17], [1600, 1600], 1)


def raw(lengths: dict[tuple[int, int], int]) -> DataSet:
    """Recordings of (person, activity) with so many samples; the first axis counts them."""
    pairs = np.concatenate([np.tile(pair, (count, 1)) for pair, count in lengths.items()])
    x = np.stack([np.concatenate([np.arange(count) for count in lengths.values()])] * 3, axis=1).astype(np.float32)
    samples = Samples.of(x, pairs[:, 1], ids=pairs[:, 0])
    return DataSet(
        name="raw",
        about="",
        labels=(0, 1),
        shape=(3,),
        rate=20.0,
        read_train=lambda: samples,
        read_test=lambda: samples,
    )


def test_a_window_never_spans_two_people_or_activities() -> None:
    cut = windows(raw({(1, 0): 25, (1, 1): 9, (2, 1): 30}), length=10)
    assert cut.shape == (10, 3)
    assert cut.train.x.shape == (5, 10, 3)
    assert cut.train.x[:, 0, 0].tolist() == [0, 10, 0, 10, 20]
    assert (np.diff(cut.train.x[:, :, 0], axis=1) == 1).all()
    assert cut.train.ids is not None
    assert list(zip(cut.train.ids.tolist(), cut.train.y.tolist(), strict=True)) == [(1, 0)] * 2 + [(2, 1)] * 3


def test_windows_overlap_by_a_share() -> None:
    cut = windows(raw({(1, 0): 25}), length=10, overlap=0.5)
    assert cut.train.x[:, 0, 0].tolist() == [0, 5, 10, 15]


def test_rates_are_derived_by_decimation_and_say_so() -> None:
    stream = rates(raw({(1, 0): 85, (2, 1): 45}), (1, 2, 4), length=10, unit="person")
    assert [task.name for task in stream.info.tasks] == ["20hz", "10hz-derived", "5hz-derived"]
    assert [len(task.records()[1]) for task in stream] == [12, 6, 3]
    x, _, ids = stream[2].records()
    assert np.asarray(x)[0, :, 0].tolist() == list(range(0, 40, 4))
    assert ids.tolist() == [1, 1, 2]
    assert stream.info.shape == x.shape[1:] == (10, 3)
    assert stream[1].test is not None and stream[1].test()[0].shape == (6, 10, 3)


def test_windows_need_raw_sensors(toy: Callable[..., DataSet]) -> None:
    with pytest.raises(DataError, match="raw sensors"):
        windows(toy())
    with pytest.raises(DataError, match="overlap"):
        windows(raw({(1, 0): 25}), overlap=1.0)


def test_too_short_recordings_give_no_window() -> None:
    assert windows(raw({(1, 0): 5})).train.x.shape == (0, 100, 3)


def test_real_watch_windows(real: Callable[[str], Path]) -> None:
    stream = rates(load("wisdm-raw", real("wisdm-raw")))
    assert [task.size for task in stream.info.tasks] == [24_824, 12_405, 6_198]
    assert stream[2].records()[0].shape == (6_198, 100, 3)
    hmp = windows(load("hmp", real("hmp")), length=100)
    assert hmp.name == "hmp-32hz" and hmp.train.x.shape[1:] == (100, 3)
