"""Several sets as one stream."""

from collections.abc import Callable

import numpy as np
import pytest

from tacit.data.samples import DataSet
from tacit.data.scenarios.concatenation import concatenate
from tacit.errors import DataError

Toy = Callable[..., DataSet]


def test_images_are_brought_to_one_shape(toy: Toy) -> None:
    grey, colour = toy(3, shape=(1, 4, 4), name="grey"), toy(2, shape=(3, 6, 7), name="colour")
    stream = concatenate([grey, colour])
    assert stream.info.shape == (3, 6, 7)
    x = np.asarray(stream[0].records()[0])
    plain = grey.train.x.astype(np.float32) / 255
    assert x.shape == (30, 3, 6, 7)
    for channel in range(3):
        assert np.allclose(x[:, channel, 1:5, 1:5], plain[:, 0])
    assert np.isclose(x.sum(), 3 * plain.sum())
    assert np.allclose(np.asarray(stream[1].records()[0]), colour.train.x.astype(np.float32) / 255)


def test_labels_are_prefixed_or_shared(toy: Toy) -> None:
    sets = [toy(3, name="one"), toy(4, name="two")]
    prefixed = concatenate(sets)
    assert prefixed.info.tasks[1].labels == ("two/0", "two/1", "two/2", "two/3")
    assert len(prefixed.info.labels) == 7
    assert prefixed[0].test is not None
    assert set(prefixed[0].test()[1].tolist()) == set(prefixed.info.tasks[0].labels)
    assert set(prefixed[0].records()[1].tolist()) == {"one/0", "one/1", "one/2"}
    shared = concatenate(sets, labels="shared", limit=5)
    assert shared.info.labels == (0, 1, 2, 3)
    assert [task.size for task in shared.info.tasks] == [5, 5]


def test_what_does_not_fit_is_refused(toy: Toy) -> None:
    with pytest.raises(DataError, match=r"\(1, 4, 4\).*\(1, 3, 3\)"):
        concatenate([toy()], shape=(1, 3, 3))
    with pytest.raises(DataError, match="only a single channel can be repeated"):
        concatenate([toy(shape=(2, 4, 4))], shape=(3, 4, 4))
    with pytest.raises(DataError, match="each once"):
        concatenate([toy(), toy()])
    with pytest.raises(DataError, match="cannot be in one stream"):
        concatenate([toy(), toy(shape=(16,), name="flat")])


def test_a_seed_is_a_task_order_and_all_seeds_are_all_task_orders(toy: Toy) -> None:
    sets = [toy(2, name=name) for name in "abc"]
    orders = [tuple(task.name for task in concatenate(sets, seed=seed, order="seed").info.tasks) for seed in range(6)]
    assert orders[0] == ("a", "b", "c") and len(set(orders)) == 6
    assert concatenate(sets, seed=5, order="seed").info.tasks[0].labels == (f"{orders[5][0]}/0", f"{orders[5][0]}/1")
    assert [task.name for task in concatenate(sets, seed=5).info.tasks] == ["a", "b", "c"]
    assert len({concatenate(sets, seed=seed, order="seed").info.name for seed in range(6)}) == 1
    with pytest.raises(DataError, match="3 data sets have 6 orders, and seed 6 is none of them; use 0 to 5"):
        concatenate(sets, seed=6, order="seed")


def test_a_set_may_be_several_tasks(toy: Toy) -> None:
    """As CIFAR-10 and CIFAR-100 in tens, 11 tasks."""
    sets = [toy(4, name="one"), toy(6, name="two")]
    stream = concatenate(sets, parts=[1, 3], seed=2)
    assert [task.name for task in stream.info.tasks] == ["one", "two-1", "two-2", "two-3"]
    assert [len(task.labels) for task in stream.info.tasks] == [4, 2, 2, 2] and len(stream.info.labels) == 10
    dealt = [label for task in stream.info.tasks[1:] for label in task.labels]
    assert sorted(dealt) == [f"two/{place}" for place in range(6)] and dealt != sorted(dealt)
    for task in stream:
        assert task.test is not None
        assert set(task.records()[1].tolist()) == set(task.test()[1].tolist()) == set(task.info.labels)
        assert task.info.size == 10 * len(task.info.labels)
    assert concatenate(sets, parts=[1, 3], seed=3).info != stream.info
    with pytest.raises(DataError, match="parts has 1 values for 2 data sets"):
        concatenate(sets, parts=[1])
    with pytest.raises(DataError, match="one has 4 classes, too few for 5 parts"):
        concatenate(sets, parts=[5, 1])
