"""Streams cut from public sets: what each task holds, that it is reproducible, and that the vault takes it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tacit import Budget, Declared, Ledger, Vault
from tacit.data.benchmarks.named import load
from tacit.data.samples import DataSet
from tacit.data.scenarios.blurry import iblurry, siblurry
from tacit.data.scenarios.sharp import domains, permuted, single, split
from tacit.data.stream import Stream
from tacit.errors import DataError
from tacit.privacy.vault.intake.records import read
from tacit.privacy.vault.sources.source import open_source

Toy = Callable[..., DataSet]


def features(stream: Stream, number: int) -> np.ndarray:
    return np.asarray(stream[number].records()[0])


def test_every_task_is_permuted_the_first_too(toy: Toy) -> None:
    data = toy()
    stream = permuted(data, 4, seed=1)
    plain = data.train.x.astype(np.float32) / 255
    for number in range(4):
        x = features(stream, number)
        assert x.shape == plain.shape and x.dtype == np.float32
        assert not np.allclose(x, plain)
        assert np.allclose(np.sort(x.reshape(len(x), -1)), np.sort(plain.reshape(len(x), -1)))


def test_one_permutation_per_task_for_train_and_test(toy: Toy) -> None:
    stream = permuted(toy(), 3, seed=0)
    places = set()
    for task in stream:
        assert task.test is not None
        (x, y), (tx, ty) = task.records(), task.test()
        flat, test = np.asarray(x).reshape(len(x), -1) * 255, tx.reshape(len(tx), -1) * 255
        moved = [place for place in range(16) if np.allclose(flat[:, place], y)]
        assert len(moved) == 1 and np.allclose(test[:, moved[0]], ty)
        places.add(moved[0])
    assert len(places) > 1


def test_the_same_seed_gives_the_same_stream_and_no_global_state(toy: Toy) -> None:
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]
    for make in (permuted, split, iblurry, siblurry):
        one, two, other = (make(toy(), 3, seed=seed, limit=7) for seed in (5, 5, 6))
        assert one.info == two.info
        for a, b in zip(one, two, strict=True):
            assert (np.asarray(a.records()[0]) == np.asarray(b.records()[0])).all()
            assert (a.records()[1] == b.records()[1]).all()
        assert any(
            a.records()[1].tolist() != b.records()[1].tolist()
            or (np.asarray(a.records()[0]) != np.asarray(b.records()[0])).any()
            for a, b in zip(one, other, strict=True)
        )
    assert (torch.random.get_rng_state() == before[0]).all()
    assert (np.random.get_state()[1] == before[1]).all()  # type: ignore[index]


def test_records_takes_the_first_of_the_set_and_limit_random_ones(toy: Toy) -> None:
    stream = permuted(toy(), 2, records=30)
    assert stream.info.tasks[0].size == 30 and stream[1].records()[1].max() == 2
    small = permuted(toy(), 2, records=30, limit=8)
    assert small.info.tasks[0].size == 8
    assert len(set(small[0].records()[1].tolist())) > 1
    assert single(toy(), limit=10**6).info.tasks[0].size == 60


def test_an_image_in_every_task_can_be_declared(toy: Toy) -> None:
    plain, by_image = permuted(toy(), 3), permuted(toy(), 3, by_image=True)
    assert plain.info.tasks_per_unit == 1 and len(plain[0].records()) == 2
    assert by_image.info.tasks_per_unit == 3
    assert by_image[2].records()[2].tolist() == list(range(60))


def test_split_gives_each_task_classes_of_its_own(toy: Toy) -> None:
    stream = split(toy(), 3, seed=2)
    assert stream.info.task_id == "given" and split(toy(), 3, task_id="hidden").info.task_id == "hidden"
    labels = [label for task in stream.info.tasks for label in task.labels]
    assert sorted(labels) == list(range(6)) and labels != sorted(labels)
    for task in stream:
        assert task.test is not None
        assert set(task.records()[1].tolist()) == set(task.test()[1].tolist()) == set(task.info.labels)
        assert task.info.size == len(task.records()[1]) == 20


def test_split_refuses_more_classes_than_there_are(toy: Toy) -> None:
    with pytest.raises(DataError, match="6 classes, too few for 7 tasks"):
        split(toy(), 7)
    with pytest.raises(DataError, match="3 tasks of 4"):
        split(toy(), 3, classes_per_task=4)
    assert len(split(toy(), 2, classes_per_task=2).info.labels) == 4


def test_domains_cut_by_a_column(toy: Toy) -> None:
    stream = domains(toy(), "place")
    assert [task.name for task in stream.info.tasks] == ["home", "away"]
    assert [len(task.records()[1]) for task in stream] == [30, 30]
    assert stream.info.unit == "record" and len(stream[0].records()) == 2
    with pytest.raises(DataError, match=r"'plce'.*place"):
        domains(toy(), "plce")


def test_persons_are_protected_where_the_set_names_them(toy: Toy) -> None:
    stream = split(toy(), 3, unit="person", records_per_unit=4)
    assert (stream.info.unit, stream.info.tasks_per_unit, stream.info.records_per_unit) == ("person", 3, 4)
    assert stream.info.tasks[0].size == 5 and len(stream[0].records()) == 3
    with pytest.raises(DataError, match="does not name the person of each record"):
        single(load("digits"), unit="person")


def test_holding_tasks_back_is_a_slice(toy: Toy) -> None:
    whole = permuted(toy(), 6)
    held, rest = whole[:2], whole[2:]
    assert (len(held), len(rest)) == (2, 4)
    assert [task.number for task in rest.info.tasks] == [0, 1, 2, 3]
    assert rest.info.tasks[0].name == whole.info.tasks[2].name
    assert (features(rest, 0) == features(whole, 2)).all()
    assert rest.info.labels == whole.info.labels and rest.info.public


def test_the_desai_split_of_cifar100(real: Callable[[str], Path]) -> None:
    stream = split(load("cifar100", real("cifar100")), 20, seed=3)[3:]
    assert len(stream) == 17 and stream.info.task_id == "given"
    assert {(task.size, len(task.labels)) for task in stream.info.tasks} == {(2500, 5)}
    assert len(stream.info.labels) == 85


def test_permuted_mnist_of_the_literature(real: Callable[[str], Path]) -> None:
    stream = permuted(load("mnist", real("mnist")), 20, records=55_000)[3:]
    assert len(stream) == 17 and {task.size for task in stream.info.tasks} == {55_000}
    x, y = stream[16].records()
    assert x.shape == (55_000, 1, 28, 28) and len(y) == 55_000
    assert stream[0].test is not None and stream[0].test()[0].dtype == np.float32


@pytest.mark.parametrize("make", [permuted, split, domains, iblurry, siblurry, single])
def test_every_scenario_declares_public_facts_that_hold(make: Callable[..., Stream], toy: Toy) -> None:
    options = {domains: {"by": "place"}, single: {}}.get(make, {"tasks": 3})
    stream = make(toy(), **options)
    assert stream.info.public
    for task in stream:
        x, y = task.records()
        assert x.shape == (task.info.size, *stream.info.shape)
        assert set(y.tolist()) <= set(task.info.labels)
        assert task.test is not None
        tx, ty = task.test()
        assert isinstance(tx, np.ndarray) and tx.dtype == np.float32 and tx.shape == (len(ty), *stream.info.shape)
        assert tx.min() >= 0 and tx.max() <= 1
        # A blurry class is tested once: its few test rows are shared out over the tasks that hold it.
        assert set(ty.tolist()) <= set(task.info.labels)
        assert make in (iblurry, siblurry) or set(ty.tolist()) == set(task.info.labels)


def test_features_are_made_when_they_are_sampled(toy: Toy) -> None:
    x, y = permuted(toy(), 2)[1].records()
    source = open_source((x, y), None)
    rows = torch.tensor([5, 3, 3])
    assert torch.equal(source.fetch(rows), torch.from_numpy(np.asarray(x))[rows])
    assert source.fetch(torch.zeros(0, dtype=torch.int64)).shape == (0, 1, 4, 4)
    held, plain = read((x, y), b"key", 1), read((np.asarray(x), y), b"key", 1)
    assert held.fingerprint == plain.fingerprint


def test_the_vault_admits_a_scenario(toy: Toy) -> None:
    stream = split(toy(), 2, unit="person", records_per_unit=20)
    budget = Budget(epsilon=1.0, delta=1e-5, unit=stream.info.unit)
    with Ledger.throwaway() as ledger:
        vault = Vault(ledger)
        for task in stream:
            declared = Declared(
                stream=stream.info.name,
                task=task.info.name,
                budget=budget,
                size=task.info.size,
                labels=task.info.labels,
                tasks_per_unit=stream.info.tasks_per_unit,
                records_per_unit=stream.info.records_per_unit,
                public=True,
            )
            assert vault.admit(task.records(), declared).labels == task.info.labels


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "3"])
def test_counts_are_whole_numbers(wrong: object, toy: Toy) -> None:
    with pytest.raises(DataError, match="whole number ≥ 1"):
        permuted(toy(), wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="limit must be"):
        single(toy(), limit=wrong)  # type: ignore[arg-type]


def test_tasks_of_very_different_size(toy: Toy) -> None:
    stream = permuted(toy(), 3, limit=[50, 2, 11])
    assert [task.size for task in stream.info.tasks] == [50, 2, 11]
    assert [len(task.records()[1]) for task in stream] == [50, 2, 11]
    with pytest.raises(DataError, match="limit has 2 values and none for task 3; give one for each task"):
        permuted(toy(), 3, limit=[50, 2])


def test_the_same_tasks_in_another_order(toy: Toy) -> None:
    stream = permuted(toy(), 3, limit=[50, 2, 11])
    other = stream.in_order([2, 0, 1])
    assert [(task.name, task.number, task.size) for task in other.info.tasks] == [
        ("permutation-3", 0, 11), ("permutation-1", 1, 50), ("permutation-2", 2, 2)
    ]  # fmt: skip
    assert np.array_equal(features(other, 0), features(stream, 2))
    for wrong in ([0, 1], [0, 0, 1], [1, 2, 3]):
        with pytest.raises(DataError, match="an order of 3 tasks must name each position once"):
            stream.in_order(wrong)


def test_colours_are_permuted_with_the_pixels(toy: Toy) -> None:
    """Lai et al. 2022: the input pixels and the three colour channels."""
    data = toy(shape=(3, 4, 4))  # label and number lie in its first channel, everything else is 200
    places = set()
    for seed in range(5):
        x = features(permuted(data, 1, seed=seed), 0) * 255
        places |= {int(channel) for channel in np.nonzero(x.min(axis=(0, 2, 3)) < 199)[0]}
    assert places == {0, 1, 2}
