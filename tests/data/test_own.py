"""The user's own data: arrays, frames, files, Datasets; lazy, declared, and silent about what it holds."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch
import yaml
from torch.utils.data import TensorDataset

from tacit import Budget, Declared, Ledger, Vault
from tacit.data.declaration import Declaration
from tacit.data.own import from_arrays, from_datasets, from_frame, open_declared
from tacit.data.stream import Stream
from tacit.errors import DataError

FACTS: dict[str, Any] = {
    "name": "visits",
    "columns": {"label": "label", "task": "month", "person": "patient"},
    "categories": {"ward": ["north", "south"]},
    "scaling": {"age": [0, 100]},
    "labels": ["sick", "well"],
    "tasks": [{"name": "jan", "size": 3}, {"name": "feb", "size": 3}, {"name": "mar", "size": 3}],
    "unit": "person",
    "tasks_per_unit": 2,
}
ROWS = {
    "age": [50.0, 200.0, None, 25.0, 75.0],
    "ward": ["north", "south", "east", "north", None],
    "patient": ["p1", "p2", "p3", "p1", "p4"],
    "month": ["jan", "jan", "feb", "may", "jan"],
    "label": ["sick", "well", "sick", "well", "unheard"],
}
CSV = """age,ward,patient,month,label
50,north,p1,jan,sick
200,south,p2,jan,well
,east,p3,feb,sick
25,north,p1,may,well
75,,p4,jan,unheard
secret-cell,north,p5,feb,well
1,2,3
"""


def declare(folder: Path, **changes: Any) -> Path:
    path = folder / "visits.yaml"
    path.write_text(yaml.safe_dump(FACTS | changes))
    return path


def looks_right(stream: Stream, feb: int = 1) -> None:
    assert stream.info.shape == (3,) and not stream.info.public
    x, y, ids = stream[0].records()
    assert x.dtype == np.float32
    assert x.tolist() == [[0.5, 1, 0], [1, 0, 1], [0.75, 0, 0]]
    assert y.tolist() == ["sick", "well", "unheard"] and ids.tolist() == ["p1", "p2", "p4"]
    assert stream[1].records()[0].tolist()[0] == [0, 0, 0] and len(stream[1].records()[1]) == feb
    x, y, ids = stream[2].records()
    assert (x.shape, y.shape, ids.shape) == ((0, 3), (0,), (0,))
    assert stream[0].test is None


def test_a_csv_file(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text(CSV)
    looks_right(open_declared(declare(tmp_path, files={"train": "visits.csv"})), feb=2)


def test_a_csv_file_with_another_delimiter_and_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text(CSV.replace(",", ";"), encoding="utf-8-sig")
    looks_right(open_declared(declare(tmp_path, files={"train": "visits.csv", "delimiter": ";"})), feb=2)


def test_a_parquet_file(tmp_path: Path) -> None:
    parquet.write_table(pa.table(ROWS), tmp_path / "visits.parquet")
    looks_right(open_declared(declare(tmp_path, files={"train": "visits.parquet"})))


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_data_frame(make: Callable[[Any], Any]) -> None:
    looks_right(from_frame(Declaration.of(FACTS), make(ROWS)))


def test_pandas_categories_and_whole_numbers_compare_as_texts() -> None:
    frame = pd.DataFrame({"v": [1, 2, 3], "site": pd.Categorical(["1", "2", "1"]), "label": [0.0, 1.0, np.nan]})
    facts = {"name": "n", "columns": {"task": "site"}, "labels": "0..1", "tasks": [{"name": 1, "size": 2}]}
    x, y = from_frame(Declaration.of(facts), frame)[0].records()
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
    (tmp_path / "n.yaml").write_text(yaml.safe_dump(facts | {"files": {"train": "n.npz", "test": "n.npz"}}))
    streams = [
        from_arrays(Declaration.of(facts), x, y, task=task, person=who, test=(x, y, task)),
        open_declared(tmp_path / "n.yaml"),
    ]
    for stream in streams:
        assert stream.info.shape == (2, 2)
        a, b, ids = stream[0].records()
        assert np.allclose(a[:, 0, 0], [-1, -0.6, 1]) and a.dtype == np.float32
        assert (b.tolist(), ids.tolist()) == ([0, 1, 9], ["7", "8", "9"])
        assert stream[2].records()[0].shape == (0, 2, 2)
        assert stream[0].test is not None and stream[0].test()[1].tolist() == [0, 1]


def test_a_record_protected_by_itself_has_no_id() -> None:
    facts = FACTS | {"unit": "record"}
    assert len(from_frame(Declaration.of(facts), pa.table(ROWS))[0].records()) == 2


def test_records_without_the_person_they_need_are_left_out() -> None:
    rows = ROWS | {"patient": ["p1", None, "p3", "p1", "p4"]}
    assert from_frame(Declaration.of(FACTS), pa.table(rows))[0].records()[2].tolist() == ["p1", "p4"]
    facts = {"name": "n", "labels": "0..1", "tasks": [{"name": "t", "size": 2}], "unit": "person"}
    stream = from_arrays(Declaration.of(facts), np.eye(2), [0, 1], person=np.array(["a", None], dtype=object))
    assert stream[0].records()[2].tolist() == ["a"]


def test_a_public_test_file_with_or_without_tasks(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text(CSV)
    (tmp_path / "test.csv").write_text("age,ward,label\n100,north,sick\n0,south,well\n5,north,strange\n")
    files = {"train": "visits.csv", "test": "test.csv"}
    only_sick = [{"name": "jan", "size": 3}, {"name": "feb", "size": 3, "labels": ["sick"]}]
    stream = open_declared(declare(tmp_path, files=files, tasks=only_sick))
    assert stream[0].test is not None and stream[1].test is not None
    x, y = stream[0].test()
    assert (x.tolist(), y.tolist()) == ([[1, 1, 0], [0, 0, 1]], ["sick", "well"])
    assert stream[1].test()[1].tolist() == ["sick"]
    (tmp_path / "test.csv").write_text("age,ward,month,label\n100,north,feb,sick\n0,south,jan,well\n")
    stream = open_declared(declare(tmp_path, files=files))
    assert stream[0].test is not None and stream[0].test()[1].tolist() == ["well"]


def test_rows_are_read_when_a_task_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "visits.parquet"
    parquet.write_table(pa.table(ROWS), path)
    stream = open_declared(declare(tmp_path, files={"train": "visits.parquet"}))
    path.unlink()
    assert len(stream) == 3
    with pytest.raises(DataError, match="cannot be read to its end"):
        stream[0].records()


def test_a_folder_of_images(tmp_path: Path, as_png: Callable[[np.ndarray], bytes]) -> None:
    for task, label, grey in (("jan", "cat", 0), ("jan", "dog", 255), ("feb", "cat", 51), ("may", "cat", 1)):
        (tmp_path / "pets" / task / label).mkdir(parents=True)
        pixels = np.full((4, 6), grey, dtype=np.uint8)
        (tmp_path / "pets" / task / label / "a.png").write_bytes(as_png(pixels))
    (tmp_path / "pets" / "jan" / "cat" / "notes.txt").write_text("no image")
    facts = {
        "name": "pets",
        "files": {"train": "pets", "test": "pets/feb"},
        "labels": ["cat", "dog"],
        "tasks": [{"name": "jan", "size": 2}, {"name": "feb", "size": 2}, {"name": "mar", "size": 2}],
        "shape": [3, 2, 2],
    }
    path = tmp_path / "pets.yaml"
    path.write_text(yaml.safe_dump(facts))
    stream = open_declared(path)
    x, y = stream[0].records()
    assert x.shape == (2, 3, 2, 2) and y.tolist() == ["cat", "dog"]
    assert x.min() == 0 and x.max() == 1
    assert np.allclose(stream[1].records()[0], 0.2)
    assert stream[2].records()[0].shape == (0, 3, 2, 2)
    assert stream[0].test is not None and stream[0].test()[1].tolist() == ["cat"]
    one = facts | {"files": {"train": "pets/jan"}, "tasks": [{"name": "all", "size": 2}], "shape": [1, 4, 6]}
    path.write_text(yaml.safe_dump(one))
    assert open_declared(path)[0].records()[0].shape == (2, 1, 4, 6)


def test_torch_datasets() -> None:
    x, y = torch.arange(12.0).reshape(4, 3), torch.tensor([0, 1, 0, 5])
    facts = {"name": "n", "labels": "0..1", "tasks": [{"name": "a", "size": 4}, {"name": "b", "size": 4}]}
    with pytest.raises(DataError, match="declare it"):
        from_datasets(Declaration.of(facts), {})
    declared = Declaration.of(facts | {"shape": [3]})
    data = TensorDataset(x, y)
    stream = from_datasets(declared, {"a": data}, test={"b": data})
    assert stream[0].records() is data and stream[1].records() == []
    assert stream[0].test is None and stream[1].test is not None
    tx, ty = stream[1].test()
    assert (tx.shape, ty.tolist()) == ((3, 3), [0, 1, 0])
    with pytest.raises(DataError, match=r"'c', which is no declared task"):
        from_datasets(declared, {"c": data})


def test_the_vault_admits_every_task_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text(CSV)
    stream = open_declared(declare(tmp_path, files={"train": "visits.csv"}))
    with Ledger.throwaway() as ledger:
        vault = Vault(ledger)
        for task in stream:
            declared = Declared(
                stream="visits",
                task=task.info.name,
                budget=Budget(epsilon=1.0, delta=1e-5, unit="person"),
                size=task.info.size,
                labels=task.info.labels,
                shape=stream.info.shape,
                tasks_per_unit=stream.info.tasks_per_unit,
                public=True,
            )
            assert vault.admit(task.records(), declared).size == 3


WRONG = [
    ({"columns": {"label": "lable", "task": "month", "person": "patient"}}, r"no column 'lable'; did you mean label"),
    ({"categories": {}}, r"column 'ward' holds texts; list its public values under categories\.ward"),
    ({"features": ["age", "wards"], "categories": {}}, r"no column 'wards'; did you mean ward"),
    ({"features": ["age", "label"], "categories": {}}, "'label' is the label, task or person"),
    ({"scaling": {"agee": [0, 1]}}, "'agee' is scaled and is no feature; did you mean age"),
    ({"columns": {"label": "label", "person": "patient"}}, r"columns\.task must name"),
    ({"shape": [2, 2]}, r"3 features do not fill the declared shape \[2, 2\]"),
]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(("change", "sentence"), WRONG)
def test_a_table_that_is_not_as_declared(kind: str, change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text(CSV)
    parquet.write_table(pa.table(ROWS), tmp_path / "visits.parquet")
    with pytest.raises(DataError, match=sentence):
        open_declared(declare(tmp_path, files={"train": f"visits.{kind}"}, **change))[0].records()


def test_no_error_quotes_a_record(tmp_path: Path) -> None:
    """Malformed cells, rows and files: either silence, or a sentence without the value."""
    (tmp_path / "visits.csv").write_bytes(CSV.encode() + b"\xff\xfe secret-bytes,north,p1,jan,sick\n")
    stream = open_declared(declare(tmp_path, files={"train": "visits.csv"}))
    with pytest.raises(DataError) as error:
        stream[0].records()
    assert "secret" not in str(error.value) and error.value.__cause__ is None
    (tmp_path / "visits.csv").write_text("age,ward,patient,month,label\nsecret,north,p1,jan,sick\n")
    with pytest.raises(DataError, match="'age' holds texts") as error:
        open_declared(declare(tmp_path, files={"train": "visits.csv"}))[0].records()
    assert "secret" not in str(error.value)
    declared = Declaration.of({"name": "n", "labels": "0..1", "tasks": [{"name": "t", "size": 2}]})
    with pytest.raises(DataError, match="mixes kinds") as error:
        from_arrays(declared, np.eye(2), np.array([1, "secret"], dtype=object))[0].records()
    assert "secret" not in str(error.value)
    mixed = pd.DataFrame(ROWS | {"age": [1, "secret", 2, 3, 4]})
    with pytest.raises(DataError, match="mixes kinds") as error:
        from_frame(Declaration.of(FACTS), mixed)
    assert "secret" not in str(error.value)


def test_public_facts_do_not_depend_on_the_records(tmp_path: Path) -> None:
    """The same declaration over other records gives the same facts, byte for byte."""
    infos = []
    for content in (CSV, "age,ward,patient,month,label\n", CSV + "9,north,p9,jun,new\n"):
        (tmp_path / "visits.csv").write_text(content)
        stream = open_declared(declare(tmp_path, files={"train": "visits.csv"}))
        for task in stream:
            task.records()
        infos.append(repr(stream.info))
    assert len(set(infos)) == 1


@pytest.mark.parametrize(("file", "sentence"), [("none.csv", "there is no"), ("data.doc", "no known kind")])
def test_files_that_cannot_be_opened(file: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "data.doc").write_text("")
    with pytest.raises(DataError, match=sentence):
        open_declared(declare(tmp_path, files={"train": file}))
    with pytest.raises(DataError, match="'files' is missing"):
        open_declared(declare(tmp_path))


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
    x, _ = from_frame(Declaration.of(facts), table)[0].records()
    assert x.tolist() == [[0.5, 1], [2, 0], [0.5, 0.5]]


def test_large_files_are_read_in_parts(tmp_path: Path) -> None:
    count = 200_000
    table = pa.table({"v": np.arange(count) % 100, "month": np.arange(count) % 2, "label": np.arange(count) % 2})
    parquet.write_table(table, tmp_path / "big.parquet", row_group_size=10_000)
    facts = {
        "name": "n",
        "files": {"train": "big.parquet"},
        "columns": {"task": "month"},
        "labels": "0..1",
        "tasks": [{"name": 0, "size": 10}, {"name": 1, "size": 10}],
    }
    (tmp_path / "big.yaml").write_text(yaml.safe_dump(facts))
    x, y = open_declared(os.fspath(tmp_path / "big.yaml"))[1].records()
    assert len(x) == count // 2 and set(y.tolist()) == {1}
