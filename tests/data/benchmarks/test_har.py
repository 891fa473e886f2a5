"""The activity stream at four rates: on small files made by hand, and on the real ones."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tacit.data.benchmarks import har
from tacit.data.benchmarks.classes import HMP, WISDM
from tacit.data.benchmarks.named import caveat, load
from tacit.data.samples import DataSet
from tacit.data.scenarios.sharp import domains
from tacit.errors import DataError

NAMES = ("5hz-derived", "10hz-derived", "20hz", "32hz")
SETS = ("har", "har-people")


def write(root: Path, *, subjects: Any = range(1600, 1615), scale: float = 1.0, stamped: bool = False) -> Path:
    """Fifty seconds each of seven activities of fifteen people, and HMP's fourteen of four; stamps have a gap."""
    rng = np.random.default_rng(0)
    seconds = 50
    rows = [(subject, code) for subject in subjects for code in "ACGKHJB"]
    n = 20 * seconds
    wisdm: dict[str, Any] = {
        "subject": np.repeat([subject for subject, _ in rows], n).astype(np.int16),
        "activity": np.repeat([code for _, code in rows], n),
    }
    wisdm |= {axis: (rng.normal(size=n * len(rows)) * 800 * scale).astype(np.int32) for axis in "xyz"}
    if stamped:
        wisdm["time"] = np.tile(np.arange(n) / 20 + np.where(np.arange(n) >= n // 2, 60.0, 0.0), len(rows))
    moves = [(name, person) for name in HMP for person in ("f1", "m2", "f7", "m10")]
    hmp: dict[str, Any] = {
        "recording": np.repeat(np.arange(len(moves)), 200).astype(np.int32),
        "volunteer": np.repeat([person for _, person in moves], 200),
        "activity": np.repeat([name for name, _ in moves], 200),
    }
    hmp |= {axis: rng.integers(0, 64, 200 * len(moves)).astype(np.int16) for axis in "xyz"}
    for file, table in zip(har.FILES, (wisdm, hmp), strict=True):
        (root / file).parent.mkdir(exist_ok=True)
        parquet.write_table(pa.table(table), root / file)
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path)


def both(data: DataSet) -> dict[str, Any]:
    """Train and test together."""
    assert data.test is not None
    parts = (data.train, data.test)
    found = {"x": [one.x for one in parts], "y": [one.y for one in parts]}
    found |= {"ids": [one.ids for one in parts], "rate": [one.groups["rate"] for one in parts]}
    return {name: np.concatenate(values) for name, values in found.items()}


@pytest.mark.parametrize("name", SETS)
def test_windows_are_within_one_and_of_the_public_shape(name: str, root: Path) -> None:
    data = load(name, root)
    x = both(data)["x"]
    assert x.shape[1:] == data.shape == (100, 3) and x.dtype == np.float32
    assert np.abs(x).max() <= 1


def test_values_are_scaled_by_public_constants(tmp_path: Path) -> None:
    """Quiet signals are not stretched, loud ones are clipped; a code of HMP is always the same acceleration."""
    seen = {}
    for name, scale in (("quiet", 0.1), ("loud", 50.0)):
        (tmp_path / name).mkdir()
        data = load("har", write(tmp_path / name, scale=scale))
        watch = data.train.groups["rate"] != "32hz"
        seen[name] = (np.abs(data.train.x[watch]).max(), np.abs(data.train.x[~watch]).max())
    assert seen["quiet"][0] == pytest.approx(0.2, abs=0.05) and seen["loud"][0] == 1
    assert seen["quiet"][1] == seen["loud"][1] == pytest.approx(1.5 * 9.80665 / 20)


def test_the_numbers_of_windows_follow_from_the_table(root: Path) -> None:
    """50 s less 20 s: 600 samples at 20 Hz, 300 at 10 Hz, 150 at 5 Hz; HMP's 200 samples are not trimmed."""
    found = both(load("har", root))
    left = {"5hz-derived": 150, "10hz-derived": 300, "20hz": 600, "32hz": 200}
    people, recordings = 5, {"wisdm": (1, 1, 1, 1, 2), "hmp": (1, 2, 1, 1, 2)}
    for rate, label in product(NAMES, range(5)):
        overlap = har.RATES[rate].overlap[label]
        each = (left[rate] - 100) // round(100 * (1 - overlap)) + 1
        many = 4 * recordings["hmp"][label] if rate == "32hz" else people * recordings["wisdm"][label]
        assert np.sum((found["rate"] == rate) & (found["y"] == label)) == many * each, (rate, label)


def test_a_gap_cuts_the_windows_where_the_file_has_stamps(tmp_path: Path) -> None:
    """Two sessions of 15 s are left of each recording: 300 samples at 20 Hz, 150 at 10 Hz, too few at 5 Hz."""
    found = both(load("har", write(tmp_path, stamped=True)))
    walking = {rate: int(np.sum((found["rate"] == rate) & (found["y"] == 0))) for rate in NAMES}
    assert walking["20hz"] == 5 * 2 * (200 // 40 + 1) and walking["10hz-derived"] == 5 * 2 * (50 // 20 + 1)
    assert walking["5hz-derived"] == 0


@pytest.mark.parametrize("name", SETS)
def test_every_window_is_in_one_part_and_the_same_in_every_reading(name: str, root: Path) -> None:
    one, again = load(name, root), har.har(root) if name == "har" else har.har_people(root)
    assert one.test is not None and again.test is not None
    assert np.array_equal(one.train.x, again.train.x) and np.array_equal(one.test.x, again.test.x)
    windows = both(one)["x"].reshape(-1, 300)
    assert len(np.unique(windows, axis=0)) == len(windows)


def test_a_share_of_the_windows_is_for_testing(root: Path) -> None:
    data = load("har", root)
    assert data.test is not None
    share = len(data.test) / (len(data.test) + len(data.train))
    assert 0.12 < share < 0.18
    assert "overlap" in str(caveat("har", root)) and caveat("har-people", root) is None


def test_people_of_the_test_set_are_in_no_training_set(root: Path) -> None:
    data = load("har-people", root)
    assert data.test is not None and data.test.ids is not None and data.train.ids is not None
    tested = set(data.test.ids.tolist())
    assert tested == {"wisdm-1604", "wisdm-1609", "wisdm-1614", "hmp-m2", "hmp-f7"}
    assert not tested & set(data.train.ids.tolist())


@pytest.mark.parametrize("name", SETS)
def test_nobody_is_in_two_rates(name: str, root: Path) -> None:
    found = both(load(name, root))
    rates = {(person, rate) for person, rate in zip(found["ids"].tolist(), found["rate"].tolist(), strict=True)}
    assert len(rates) == len(set(found["ids"].tolist())) == 15 + 4
    assert {("wisdm-1602", "20hz"), ("wisdm-1600", "10hz-derived"), ("wisdm-1601", "5hz-derived")} <= rates
    assert {rate for person, rate in rates if person.startswith("hmp")} == {"32hz"}


@pytest.mark.parametrize("name", SETS)
def test_nothing_in_the_files_decides_labels_shapes_or_overlaps(name: str, root: Path, tmp_path: Path) -> None:
    """One person less, and other values: what is public stays, and everybody else's windows too."""
    full = load(name, root)
    before = both(full)
    (tmp_path / "fewer").mkdir()
    fewer = load(name, write(tmp_path / "fewer", subjects=range(1600, 1614)))
    after = both(fewer)
    for one in (full, fewer):
        assert one.labels == tuple(range(5)) and one.shape == (100, 3) and one.groups == {"rate": NAMES}
    assert one.classes == ("walking", "stairs", "brushing teeth", "drinking", "eating with cutlery")
    for person in ("wisdm-1600", "wisdm-1601", "wisdm-1602", "hmp-f1"):
        assert np.sum(before["ids"] == person) == np.sum(after["ids"] == person)


def test_the_window_of_one_person_is_where_it_was_when_another_leaves(root: Path, tmp_path: Path) -> None:
    """The coin of a window is its own."""
    (tmp_path / "fewer").mkdir()
    table = parquet.read_table(root / har.FILES[0])
    (tmp_path / "fewer" / "wisdm").mkdir()
    (tmp_path / "fewer" / "hmp").mkdir()
    parquet.write_table(table.filter(pa.compute.not_equal(table["subject"], 1601)), tmp_path / "fewer" / har.FILES[0])
    parquet.write_table(parquet.read_table(root / har.FILES[1]), tmp_path / "fewer" / har.FILES[1])
    full, fewer = load("har", root).train, load("har", tmp_path / "fewer").train
    assert full.ids is not None
    stays = full.ids != "wisdm-1601"
    assert np.array_equal(full.x[stays], fewer.x) and np.array_equal(full.y[stays], fewer.y)


def test_the_classes_are_activities_of_both_sets() -> None:
    for wisdm, hmp in har.CLASSES.values():
        assert wisdm and set(wisdm) <= set(WISDM) and hmp and set(hmp) <= set(HMP)
    for rate in har.RATES.values():
        assert len(rate.overlap) == len(har.CLASSES) and all(0.25 <= one <= 0.9 for one in rate.overlap)


def test_rates_come_in_the_order_that_is_asked_for(root: Path) -> None:
    data = load("har", root)
    assert [task.name for task in domains(data, "rate").info.tasks] == list(NAMES)
    turned = domains(data, "rate", order=["20hz", "32hz", "5hz-derived"])
    assert [(task.name, task.number) for task in turned.info.tasks] == [("20hz", 0), ("32hz", 1), ("5hz-derived", 2)]
    for task in turned:
        assert task.test is not None
        x, y = task.records()
        assert len(y) == task.info.size == np.sum(data.train.groups["rate"] == task.info.name)
        assert np.array_equal(np.asarray(x), data.train.x[data.train.groups["rate"] == task.info.name])


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        (["20hz", "5hz"], "har has no task '5hz'; did you mean 5hz-derived"),
        (["20hz", "20hz"], "each once, got"),
        ([], "one or more tasks"),
    ],
)
def test_a_wrong_order_is_one_sentence(order: list[str], sentence: str, root: Path) -> None:
    with pytest.raises(DataError, match=sentence):
        domains(load("har", root), "rate", order=order)


def test_a_person_is_declared_to_be_in_one_task(root: Path) -> None:
    stream = domains(load("har", root), "rate", unit="person", records_per_unit=50)
    assert (stream.info.unit, stream.info.tasks_per_unit, stream.info.records_per_unit) == ("person", 1, 50)
    people = [set(task.records()[2].tolist()) for task in stream]
    assert [len(one) for one in people] == [task.size for task in stream.info.tasks] == [5, 5, 5, 4]
    assert len(set().union(*people)) == sum(map(len, people))


def test_the_real_files_have_all_classes_at_every_rate(real: Callable[[str], Path]) -> None:
    data = load("har", real("har"))
    assert data.test is not None
    found = both(data)
    sizes = {name: int(np.sum(data.train.groups["rate"] == name)) for name in NAMES}
    assert sizes == {"5hz-derived": 4515, "10hz-derived": 5222, "20hz": 5193, "32hz": 6332}
    for name in NAMES:
        assert np.bincount(found["y"][found["rate"] == name], minlength=5).min() > 500
    assert len({person for person in found["ids"].tolist() if person.startswith("wisdm")}) == 46


def test_real_people_are_apart(real: Callable[[str], Path]) -> None:
    data = load("har-people", real("har-people"))
    assert data.test is not None and data.test.ids is not None and data.train.ids is not None
    assert not set(data.test.ids.tolist()) & set(data.train.ids.tolist())
    wrist = data.test.y[data.test.groups["rate"] == "32hz"]
    assert np.bincount(wrist, minlength=5).tolist()[-1] == 0  # one volunteer alone was recorded eating
