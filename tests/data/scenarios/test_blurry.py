"""i-Blurry and Si-Blurry: each sample is in exactly one task, for any numbers."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data.samples import DataSet
from tacit.data.scenarios.blurry import Blur, iblurry, iblurry_rows, mixed, shared_out, siblurry, siblurry_rows
from tacit.data.scenarios.sharp import split
from tacit.data.stream import Stream
from tacit.errors import DataError

Toy = Callable[..., DataSet]
NUMBERS = given(
    classes=st.integers(1, 12),
    each=st.integers(0, 9),
    tasks=st.integers(1, 5),
    disjoint=st.integers(0, 100),
    blurry=st.integers(0, 100),
    seed=st.integers(0, 2**32),
)


def joined(parts: list[np.ndarray]) -> list[int]:
    return [int(value) for part in parts for value in part]


def labels_of(classes: int, each: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), each))


def common(blur: Blur, y: np.ndarray, kept: set[int], tasks: int) -> None:
    rows = joined(list(blur.rows))
    assert len(blur.rows) == tasks
    assert sorted(rows) == [row for row, label in enumerate(y.tolist()) if label in kept]
    for number in range(tasks):
        here = set(y[blur.rows[number]].tolist())
        others = {label for task, own in enumerate(blur.disjoint) if task != number for label in own.tolist()}
        assert not here & others


@settings(max_examples=80, deadline=None)
@NUMBERS
def test_iblurry_puts_each_sample_in_one_task(
    classes: int, each: int, tasks: int, disjoint: int, blurry: int, seed: int
) -> None:
    y = labels_of(classes, each, seed)
    blur = iblurry_rows(y, classes, tasks, np.random.default_rng(seed), disjoint, blurry)
    common(blur, y, set(range(classes)), tasks)
    assert len(joined(list(blur.disjoint))) == classes * disjoint // 100
    assert sorted(joined([*blur.disjoint, *blur.blurry])) == list(range(classes))
    # At most the pooled share of a class has left the task that has most of it.
    for number, mine in enumerate(blur.blurry):
        for label in mine.tolist():
            assert (y[blur.rows[number]] == label).sum() >= each - each * blurry // 100


@settings(max_examples=80, deadline=None)
@NUMBERS
def test_siblurry_puts_each_sample_in_one_task_and_returns_what_it_took(
    classes: int, each: int, tasks: int, disjoint: int, blurry: int, seed: int
) -> None:
    y = labels_of(classes, each, seed)
    blur = siblurry_rows(y, classes, tasks, np.random.default_rng(seed), disjoint, blurry)
    sharp, soft = joined(list(blur.disjoint)), joined(list(blur.blurry))
    assert len(sharp) == classes * disjoint // 100 // tasks * tasks
    assert len(soft) == (classes - len(sharp)) // tasks * tasks
    assert len(set(sharp + soft)) == len(sharp) + len(soft)
    common(blur, y, set(sharp + soft), tasks)
    for number in range(tasks):
        assert len(blur.rows[number]) == each * (len(blur.disjoint[number]) + len(blur.blurry[number]))
    moved = sum(
        int((~np.isin(y[blur.rows[number]], np.concatenate([blur.disjoint[number], blur.blurry[number]]))).sum())
        for number in range(tasks)
    )
    assert moved <= len(soft) * each * blurry // 100


def test_the_blurry_share_is_spread_over_all_tasks() -> None:
    y = np.repeat(np.arange(10), 100)
    blur = iblurry_rows(y, 10, 5, np.random.default_rng(0), disjoint=50, blurry=10)
    assert [len(rows) for rows in blur.rows] == [200] * 5
    for number, mine in enumerate(blur.blurry):
        outside = ~np.isin(y[blur.rows[number]], np.concatenate([blur.disjoint[number], mine]))
        assert 0 < outside.sum() <= 10
    calm = iblurry_rows(y, 10, 5, np.random.default_rng(0), disjoint=50, blurry=0)
    assert all(
        set(y[rows].tolist()) == {*own.tolist(), *mine.tolist()}
        for rows, own, mine in zip(calm.rows, calm.disjoint, calm.blurry, strict=True)
    )


def test_siblurry_has_random_sizes_and_empty_tasks() -> None:
    y = np.repeat(np.arange(10), 10)
    sizes = {
        tuple(len(rows) for rows in siblurry_rows(y, 10, 5, np.random.default_rng(seed)).rows) for seed in range(20)
    }
    assert len(sizes) > 10 and any(0 in size for size in sizes)


def test_a_task_declares_its_own_classes_and_all_blurry_ones(toy: Toy) -> None:
    stream = iblurry(toy(), 3)
    common_labels = set.intersection(*(set(task.labels) for task in stream.info.tasks))
    assert len(common_labels) == 3 and all(len(task.labels) == 4 for task in stream.info.tasks)
    assert stream.info.task_id == "hidden" and len(stream.info.labels) == 6


def test_a_task_without_a_class_is_there_and_empty(toy: Toy) -> None:
    for seed in range(20):
        stream = siblurry(toy(), 3, seed, disjoint=100)
        for task in stream:
            x, y = task.records()
            if not len(y):
                assert x.shape == (0, 1, 4, 4) and task.info.size == 1
                assert task.info.labels == tuple(range(6))
                return
    pytest.fail("no seed gave an empty task")


@pytest.mark.parametrize("make", [iblurry, siblurry])
def test_shares_are_percentages(make: Callable[..., object], toy: Toy) -> None:
    with pytest.raises(DataError, match="disjoint is a percentage from 0 to 100, got 120"):
        make(toy(), 3, disjoint=120)
    with pytest.raises(DataError, match="blurry is a percentage"):
        make(toy(), 3, blurry=-1)


def test_fully_mixed_tasks_share_all_classes_and_no_sample(toy: Toy) -> None:
    data = toy(4, each=30)
    stream = mixed(data, 3, seed=1)
    assert [task.size for task in stream.info.tasks] == [40, 40, 40]
    assert all(task.labels == data.labels for task in stream.info.tasks)
    rows = [row for task in stream for row in np.asarray(task.records()[0]).reshape(40, -1)[:, :2].tolist()]
    assert len({tuple(row) for row in rows}) == 120
    for task in stream:
        counts = np.bincount(task.records()[1], minlength=4)
        assert counts.min() > 0 and counts.tolist() != [10, 10, 10, 10]  # random, and not by class
    again, other = mixed(data, 3, seed=1), mixed(data, 3, seed=2)
    assert np.array_equal(again[0].records()[1], stream[0].records()[1])
    assert not np.array_equal(other[0].records()[1], stream[0].records()[1])


@settings(max_examples=60, deadline=None)
@NUMBERS
def test_each_test_sample_of_the_streams_classes_is_in_one_task(
    classes: int, each: int, tasks: int, disjoint: int, blurry: int, seed: int
) -> None:
    y, test_y = labels_of(classes, each, seed), labels_of(classes, 4, seed + 1)
    blur = siblurry_rows(y, classes, tasks, np.random.default_rng(seed), disjoint, blurry)
    tests = shared_out(y, blur.rows, test_y, np.random.default_rng(seed))
    occurs = set(y[joined(list(blur.rows))].tolist())
    assert sorted(joined(tests)) == [row for row, label in enumerate(test_y.tolist()) if label in occurs]
    for rows, tested in zip(blur.rows, tests, strict=True):
        for label in range(classes):
            share = (y[rows] == label).sum() / max(1, each)
            assert abs((test_y[tested] == label).sum() - 4 * share) <= 1  # of a row that cannot be divided


def test_test_samples_by_hand() -> None:
    # Class 0 is in task 1 only, class 1 has 3, 0 and 1 of 4 train rows, class 2 is in no task.
    y, rows = np.array([0, 1, 1, 1, 1, 2]), [np.array([0, 1, 2, 3]), np.array([], dtype=np.int64), np.array([4])]
    test_y = np.array([0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2])
    first, second, third = shared_out(y, rows, test_y, np.random.default_rng(0))
    assert np.bincount(test_y[first], minlength=3).tolist() == [2, 6, 0]
    assert len(second) == 0 and test_y[third].tolist() == [1, 1]
    assert sorted([*first, *third]) == list(range(10))


@pytest.mark.parametrize("make", [iblurry, siblurry, mixed])
def test_a_task_weighs_as_much_as_it_has_test_samples(make: Callable[..., Stream], toy: Toy) -> None:
    data = toy()
    stream = make(data, 3, seed=3)
    tests = [task.test() for task in stream if task.test is not None]
    assert [task.weight for task in stream] == [len(y) for _, y in tests]
    seen = [tuple(row) for x, _ in tests for row in np.asarray(x).reshape(len(x), -1)[:, :2].tolist()]
    assert len(set(seen)) == len(seen) and len(seen) == 18  # six classes with three samples, each once
    again = make(data, 3, seed=3)
    assert all(np.array_equal(a.test()[1], b[1]) for a, b in zip(again, tests, strict=True) if a.test is not None)
    assert all(task.weight == 1.0 for task in split(data, 3))
