"""The user's own files: read a task at a time, as declared, and silent about what they hold."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import yaml

from support.visits import CSV, ROWS, declare, looks_right, rows_of
from tacit import Budget, Declared, Ledger, Vault
from tacit.errors import DataError
from tacit.experiment.owner.declaration_check import check
from tacit.experiment.owner.preview import preview
from tacit.privacy.vault.sources.declared import open_declared


def test_a_csv_file(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text(CSV)
    looks_right(open_declared(declare(tmp_path, files={"train": "visits.csv"})), feb=2)


def test_a_csv_file_with_another_delimiter_and_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text(CSV.replace(",", ";"), encoding="utf-8-sig")
    looks_right(open_declared(declare(tmp_path, files={"train": "visits.csv", "delimiter": ";"})), feb=2)


def test_a_parquet_file(tmp_path: Path) -> None:
    parquet.write_table(pa.table(ROWS), tmp_path / "visits.parquet")
    looks_right(open_declared(declare(tmp_path, files={"train": "visits.parquet"})))


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
        rows_of(stream[0])


WRONG = [
    ({"columns": {"label": "lable", "task": "month", "person": "patient"}}, r"no column 'lable'; did you mean label"),
    ({"categories": {}, "public": True}, r"column 'ward' holds texts; list its public values under categories\.ward"),
    ({"features": ["age", "wards"], "categories": {}}, r"no column 'wards'; did you mean ward"),
    ({"features": ["age", "label"], "categories": {}}, "'label' is the label, task or person"),
    ({"scaling": {"agee": [0, 1]}}, "'agee' is scaled but is not a feature; did you mean age"),
    ({"columns": {"label": "label", "person": "patient"}}, r"columns\.task must name"),
    ({"shape": [2, 2]}, r"3 features do not fill the declared shape \[2, 2\]"),
]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(("change", "sentence"), WRONG)
def test_a_table_that_is_not_as_declared(kind: str, change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text(CSV)
    parquet.write_table(pa.table(ROWS), tmp_path / "visits.parquet")
    with pytest.raises(DataError, match=sentence):
        rows_of(open_declared(declare(tmp_path, files={"train": f"visits.{kind}"}, **change))[0])


def test_public_facts_do_not_depend_on_the_records(tmp_path: Path) -> None:
    """The same declaration over other records gives the same facts, byte for byte."""
    infos = []
    for content in (CSV, "age,ward,patient,month,label\n", CSV + "9,north,p9,jun,new\n"):
        (tmp_path / "visits.csv").write_text(content)
        stream = open_declared(declare(tmp_path, files={"train": "visits.csv"}))
        for task in stream:
            rows_of(task)
        infos.append(repr(stream.info))
    assert len(set(infos)) == 1


@pytest.mark.parametrize(("file", "sentence"), [("none.csv", "there is no"), ("data.doc", "no known kind")])
def test_files_that_cannot_be_opened(file: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "data.doc").write_text("")
    with pytest.raises(DataError, match=sentence):
        open_declared(declare(tmp_path, files={"train": file}))
    with pytest.raises(DataError, match="'files' is missing"):
        open_declared(declare(tmp_path))


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
    x, y = rows_of(open_declared(os.fspath(tmp_path / "big.yaml"))[1])
    assert len(x) == count // 2 and set(y.tolist()) == {1}


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
            assert vault.admit(task.records, declared).size == 3


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float32(), 3), pa.large_list(pa.float64())])
def test_embeddings_as_a_column_of_lists(kind: pa.DataType, tmp_path: Path) -> None:
    """One list a record. One of another length, or a missing one, is filled in silence; nothing depends on it."""
    rows = [[1.0, 2.0, 3.0], [0.5, None, 7.0], None, [4.0, 5.0, 6.0]]
    if not pa.types.is_fixed_size_list(kind):
        rows.append([1.0])
    else:
        rows.append(None)
    table = pa.table({"embedding": pa.array(rows, kind), "label": [0, 1, 0, 1, 0]})
    parquet.write_table(table, tmp_path / "e.parquet")
    facts = {"name": "e", "files": {"train": "e.parquet"}, "labels": [0, 1], "tasks": [{"name": "all", "size": 5}]}
    place = tmp_path / "e.yaml"
    if not pa.types.is_fixed_size_list(kind):
        place.write_text(yaml.safe_dump(facts))
        with pytest.raises(DataError, match=r"'embedding' holds lists; declare how many numbers each has"):
            open_declared(place)
    place.write_text(yaml.safe_dump({**facts, "shape": [3], "scaling": [0, 10]}))
    x, y = rows_of(open_declared(place)[0])
    assert np.allclose(x, [[0.1, 0.2, 0.3], [0.05, 0, 0.7], [0] * 3, [0.4, 0.5, 0.6], [0] * 3])
    assert y.tolist() == [0, 1, 0, 1, 0]
    parquet.write_table(table.append_column("age", pa.array([1] * 5)), tmp_path / "e.parquet")
    with pytest.raises(
        DataError, match=r"'embedding' holds lists, and must then be the only feature; write features: \["
    ):
        open_declared(place)


def test_lists_of_another_length(tmp_path: Path) -> None:
    """Of a public file it is said; of a private one the owner sees it, and nobody else."""
    table = pa.table({"embedding": [[1.0, 2.0], None, [3.0, 4.0]], "label": [0, 1, 0]})
    parquet.write_table(table, tmp_path / "e.parquet")
    facts = {"name": "e", "files": {"train": "e.parquet"}, "labels": [0, 1], "tasks": [{"name": "all", "size": 5}]}
    place = tmp_path / "e.yaml"
    place.write_text(yaml.safe_dump({**facts, "shape": [3], "public": True}))
    said = {one.what: one for one in check(place)}["train"]
    assert not said.ok and "'embedding' has lists that are not of 3 numbers; correct shape" in said.says
    with pytest.raises(DataError, match="has lists that are not of 3 numbers"):
        rows_of(open_declared(place)[0])
    place.write_text(yaml.safe_dump({**facts, "shape": [3]}))
    said = {one.what: one for one in check(place)}["train"]
    assert said.ok and "the lengths of the lists of 'embedding' are private, and --look shows them" in said.says
    assert preview(place)[0].says == "none are lists of 3 numbers; compare shape with the length of the lists"
    place.write_text(yaml.safe_dump({**facts, "shape": [2], "public": True}))
    assert {one.what: one for one in check(place)}["train"].ok and preview(place)[0].says.startswith(
        "most are lists of 2"
    )
