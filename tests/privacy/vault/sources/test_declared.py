"""The user's own data in memory and in folders: arrays, frames, images, Datasets; lazy and declared."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
import yaml
from torch.utils.data import TensorDataset

from support.visits import FACTS, ROWS, looks_right, rows_of
from tacit.data.declared.declaration import Declaration
from tacit.errors import DataError
from tacit.privacy.vault.sources.declared import from_arrays, from_datasets, from_frame, open_declared
from tacit.privacy.vault.sources.source import open_source


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_data_frame(make: Callable[[Any], Any]) -> None:
    looks_right(from_frame(Declaration.of(FACTS), make(ROWS)))


def test_pandas_categories_and_whole_numbers_compare_as_texts() -> None:
    frame = pd.DataFrame({"v": [1, 2, 3], "site": pd.Categorical(["1", "2", "1"]), "label": [0.0, 1.0, np.nan]})
    facts = {"name": "n", "columns": {"task": "site"}, "labels": "0..1", "tasks": [{"name": 1, "size": 2}]}
    x, y = rows_of(from_frame(Declaration.of(facts), frame)[0])
    assert (x.tolist(), y.tolist()) == ([[1], [3]], [0, -1])


def test_arrays_and_npz(tmp_path: Path) -> None:
    x = np.arange(24).reshape(6, 2, 2)
    y, task, who = np.array([0, 1, 0, 1, 0, 9]), np.array([1, 1, 2, 2, 3, 1]), np.array([7, 8, 7, 8, 9, 9])
    facts = {
        "name": "n",
        "columns": {"label": "y", "task": "task", "person": "who"},
        "labels": "0..1",
        "tasks": [{"name": 1, "size": 3}, {"name": 2, "size": 3}, {"name": 4, "size": 3}],
        "unit": "person",
        "scaling": [0, 20],
        "range": [-1, 1],
    }
    np.savez(tmp_path / "n.npz", x=x, y=y, task=task, who=who)
    np.savez(tmp_path / "test.npz", x=x, y=y, task=task)
    (tmp_path / "n.yaml").write_text(yaml.safe_dump(facts | {"files": {"train": "n.npz", "test": "test.npz"}}))
    streams = [
        from_arrays(Declaration.of(facts), x, y, task=task, person=who, test=(x, y, task)),
        open_declared(tmp_path / "n.yaml"),
    ]
    for stream in streams:
        assert stream.info.shape == (2, 2)
        a, b, ids = rows_of(stream[0])
        assert np.allclose(a[:, 0, 0], [-1, -0.6, 1]) and a.dtype == np.float32
        assert (b.tolist(), ids.tolist()) == ([0, 1, 9], ["7", "8", "9"])
        assert rows_of(stream[2])[0].shape == (0, 2, 2)
        assert stream[0].test is not None and stream[0].test()[1].tolist() == [0, 1]


def test_a_record_protected_by_itself_has_no_id() -> None:
    facts = FACTS | {"unit": "record"}
    assert len(rows_of(from_frame(Declaration.of(facts), pa.table(ROWS))[0])) == 2


def test_records_without_the_person_they_need_are_left_out() -> None:
    rows = ROWS | {"patient": ["p1", None, "p3", "p1", "p4"]}
    assert rows_of(from_frame(Declaration.of(FACTS), pa.table(rows))[0])[2].tolist() == ["p1", "p4"]
    facts = {"name": "n", "labels": "0..1", "tasks": [{"name": "t", "size": 2}], "unit": "person"}
    stream = from_arrays(Declaration.of(facts), np.eye(2), [0, 1], person=np.array(["a", None], dtype=object))
    assert rows_of(stream[0])[2].tolist() == ["a"]


def test_the_ways_unicode_writes_a_name_are_one() -> None:
    composed, apart = "Jos\u00e9", "Jose\u0301"
    facts = {"name": "n", "labels": "0..1", "tasks": [{"name": apart, "size": 2}], "unit": "person"}
    person, task = np.array([composed, apart, "JOSE"]), np.array([composed, apart, apart])
    stream = from_arrays(Declaration.of(facts), np.eye(3), [0, 1, 1], task=task, person=person)
    assert rows_of(stream[0])[2].tolist() == [composed, composed, "JOSE"]


def test_a_folder_of_images(tmp_path: Path, as_png: Callable[[np.ndarray], bytes]) -> None:
    for task, label, grey in (("jan", "cat", 0), ("jan", "dog", 255), ("feb", "cat", 51), ("may", "cat", 1)):
        (tmp_path / "pets" / task / label).mkdir(parents=True)
        pixels = np.full((4, 6), grey, dtype=np.uint8)
        (tmp_path / "pets" / task / label / "a.png").write_bytes(as_png(pixels))
    (tmp_path / "shown" / "cat").mkdir(parents=True)
    (tmp_path / "shown" / "cat" / "a.png").write_bytes(as_png(np.zeros((4, 6), dtype=np.uint8)))
    (tmp_path / "pets" / "jan" / "cat" / "notes.txt").write_text("no image")
    facts = {
        "name": "pets",
        "files": {"train": "pets", "test": "shown"},
        "labels": ["cat", "dog"],
        "tasks": [{"name": "jan", "size": 2}, {"name": "feb", "size": 2}, {"name": "mar", "size": 2}],
        "shape": [3, 2, 2],
    }
    path = tmp_path / "pets.yaml"
    path.write_text(yaml.safe_dump(facts))
    stream = open_declared(path)
    x, y = rows_of(stream[0])
    assert x.shape == (2, 3, 2, 2) and y.tolist() == ["cat", "dog"]
    assert x.min() == 0 and x.max() == 1
    assert np.allclose(rows_of(stream[1])[0], 0.2)
    assert rows_of(stream[2])[0].shape == (0, 3, 2, 2)
    assert stream[0].test is not None and stream[0].test()[1].tolist() == ["cat"]
    one = facts | {"files": {"train": "pets/jan"}, "tasks": [{"name": "all", "size": 2}], "shape": [1, 4, 6]}
    path.write_text(yaml.safe_dump(one))
    assert rows_of(open_declared(path)[0])[0].shape == (2, 1, 4, 6)


def test_torch_datasets() -> None:
    x, y = torch.arange(12.0).reshape(4, 3), torch.tensor([0, 1, 0, 5])
    facts = {"name": "n", "labels": "0..1", "tasks": [{"name": "a", "size": 4}, {"name": "b", "size": 4}]}
    with pytest.raises(DataError, match="declare it"):
        from_datasets(Declaration.of(facts), {})
    declared = Declaration.of(facts | {"shape": [3]})
    data = TensorDataset(x, y)
    stream = from_datasets(declared, {"a": data}, test={"b": data})
    assert stream[0].records is data and stream[1].records == []
    assert stream[0].test is None and stream[1].test is not None
    tx, ty = stream[1].test()
    assert (tx.shape, ty.tolist()) == ((3, 3), [0, 1, 0])
    with pytest.raises(DataError, match=r"'c', which is not a declared task"):
        from_datasets(declared, {"c": data})


def test_bytes_of_pictures_are_divided_in_datasets_too() -> None:
    x, y = torch.arange(96, dtype=torch.uint8).reshape(4, 1, 4, 6), torch.tensor([0, 1, 0, 1])
    facts = {"name": "n", "labels": "0..1", "shape": [1, 4, 6], "tasks": [{"name": "a", "size": 4}]}
    stream = from_datasets(Declaration.of(facts), {"a": TensorDataset(x, y)}, test={"a": TensorDataset(x, y)})
    rows, wanted = torch.arange(4), x.float() / 255
    for source in (stream[0].records, (x, y), (x.numpy(), y)):
        assert torch.equal(open_source(source, (1, 4, 6)).fetch(rows), wanted)
    assert stream[0].test is not None and np.array_equal(stream[0].test()[0], wanted.numpy())
    flat = open_source((x.reshape(4, 24), y), None).fetch(rows)
    assert flat.dtype == torch.uint8  # no picture: numbers that a network may look up


def test_no_error_quotes_a_record() -> None:
    """Mixed kinds: in arrays one odd label is outside the set, in a frame a sentence without the value."""
    declared = Declaration.of({"name": "n", "labels": "0..1", "tasks": [{"name": "t", "size": 2}]})
    for y in (np.array([1, "secret"], dtype=object), [1, "secret"], np.array([1, None], dtype=object), [1, [2]]):
        assert rows_of(from_arrays(declared, np.eye(2), y)[0])[1].tolist() == [1, -1]
    mixed = pd.DataFrame(ROWS | {"age": [1, "secret", 2, 3, 4]})
    with pytest.raises(DataError, match="mixes types") as error:
        from_frame(Declaration.of(FACTS), mixed)
    assert "secret" not in str(error.value)


def test_wrong_kinds_of_data_are_told() -> None:
    declared = Declaration.of(FACTS)
    with pytest.raises(DataError, match="got list"):
        from_frame(declared, [1])
    with pytest.raises(DataError, match="`task` must say"):
        from_arrays(declared, np.eye(2), [0, 1])
    with pytest.raises(DataError, match="`person` must say"):
        from_arrays(declared, np.eye(2), [0, 1], task=[1, 1])
    one = Declaration.of({"name": "n", "labels": "0..1", "tasks": [{"name": "t", "size": 2}]})
    with pytest.raises(DataError, match="lengths differ"):
        from_arrays(one, np.eye(2), [0, 1, 1])
    with pytest.raises(DataError, match="features must be numbers"):
        from_arrays(one, np.array([["a"]]), [0])


def test_missing_numbers_are_filled_with_a_declared_value() -> None:
    facts = {"name": "n", "labels": "0..1", "tasks": [{"name": "t", "size": 2}], "fill": 0.5}
    table = pa.table({"v": [None, 2.0, float("inf")], "w": [True, False, None], "label": [0, 1, 0]})
    x, _ = rows_of(from_frame(Declaration.of(facts), table)[0])
    assert x.tolist() == [[0.5, 1], [2, 0], [0.5, 0.5]]
