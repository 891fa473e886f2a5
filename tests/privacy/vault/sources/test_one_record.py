"""One record of a private file changes at most itself: no other record, no message, no exit code, no warning."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from support.visits import rows_of
from tacit.cli import app
from tacit.errors import DataError
from tacit.experiment.owner.declaration_check import check
from tacit.experiment.owner.template import column_names
from tacit.privacy.vault.sources import csv_file
from tacit.privacy.vault.sources.declared import open_declared

FACTS: dict[str, Any] = {
    "name": "s",
    "files": {"train": "t.csv"},
    "columns": {"label": "label", "task": "task", "person": "person"},
    "features": ["a", "b"],
    "labels": [0, 1],
    "tasks": [{"name": "m1", "size": 4}, {"name": "m2", "size": 4}],
    "unit": "person",
    "fill": 0.5,
}
HEADER = b"a,b,label,task,person\n"
LINES = [f"{i}.5,{i},{i % 2},m{1 + i % 2},p{i}".encode() for i in range(6)]


def world(folder: Path, content: bytes, **changes: Any) -> Path:
    (folder / "t.csv").write_bytes(content)
    (folder / "t.yaml").write_text(yaml.safe_dump(FACTS | changes))
    return folder / "t.yaml"


def people(path: Path) -> list[tuple[Any, ...]]:
    """Every record of every task: its features, its label and whose it is."""
    found = []
    for task in open_declared(path):
        x, y, ids = rows_of(task)
        found += [
            (task.info.name, *row, label, who)
            for row, label, who in zip(x.tolist(), y.tolist(), ids.tolist(), strict=True)
        ]
    return found


def checked(path: Path) -> tuple[int, str]:
    said = CliRunner().invoke(app, ["data", "check", str(path), "--json"])
    return said.exit_code, said.output


STRANGE = {
    "open quote": b'"4,1,0,m1,x',
    "open quote at the end": b'4,1,0,m1,"x',
    "two quotes, one open": b'4"4,1,0,m1,"x',
    "quotes in a cell": b'4,1,0,m1,x "y" z',
    "not UTF-8": b"\xff\xfe4,1,0,m1,x",
    "NUL": b"4\0,1,0,m1,x",
    "carriage returns": b"4,1,0,m1,x\r4,1,0,m1,y\r4,1,0,m2,z",
    "too few": b"1,2",
    "too many": b"1,2,3,4,5,6,7",
    "longer than a block": b"1," + b"1" * 5000 + b",0,m1,x",
    "a byte order mark": b"\xef\xbb\xbf1,2,0,m1,x",
    "quoted": b'"1","2",0,m1,"x,""y"',
}


@pytest.mark.parametrize("place", [0, 3, 6])
@pytest.mark.parametrize("line", STRANGE.values(), ids=STRANGE.keys())
def test_a_strange_line_takes_nobody_with_it(
    line: bytes, place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_file, "BLOCK", 60)
    without = people(world(tmp_path, HEADER + b"\n".join(LINES)))
    assert len(without) == len(LINES)
    path = world(tmp_path, HEADER + b"\n".join([*LINES[:place], line, *LINES[place:]]))
    found = people(path)
    assert [record for record in found if record in without] == without and len(found) <= len(without) + 1


pieces = st.lists(st.sampled_from([b'"', b",", b"\r", b"\xff", b"\0", b"1", b"m1", b"0", b" "]), max_size=14)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(strange=pieces.map(b"".join), place=st.integers(0, 6))
def test_any_line_takes_nobody_with_it(strange: bytes, place: int, tmp_path: Path) -> None:
    without = people(world(tmp_path, HEADER + b"\n".join(LINES) + b"\n"))
    found = people(world(tmp_path, HEADER + b"\n".join([*LINES[:place], strange, *LINES[place:]]) + b"\n"))
    assert [record for record in found if record in without] == without and len(found) <= len(without) + 1


def test_a_quoted_line_is_read_and_windows_ends_are_lines(tmp_path: Path) -> None:
    lines = [b'"1","2",0,m1,"x,""y"', b"3,4,1,m1,z"]
    assert people(world(tmp_path, HEADER.replace(b"\n", b"\r\n") + b"\r\n".join(lines) + b"\r\n")) == [
        ("m1", 1.0, 2.0, 0, 'x,"y'),
        ("m1", 3.0, 4.0, 1, "z"),
    ]


def test_a_line_beyond_the_limit_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "LONGEST_LINE", 64)
    content = HEADER + b"\n".join([LINES[0], b"1" * 200 + b",1,0,m1,x", LINES[2]])
    assert [record[-1] for record in people(world(tmp_path, content))] == ["p0", "p2"]


CELLS = {"text": b"hiv", "empty": b"", "number": b"7", "huge": b"1e300", "more": b"1e999", "bytes": b"\xff"}


@pytest.mark.parametrize("rest", [b"n/k", b"", b"1"])
def test_no_cell_decides_what_is_said_of_a_private_file(rest: bytes, tmp_path: Path) -> None:
    lines = [rest + b",1,0,m1,p%d" % i for i in range(4)]
    expected = None
    for cell in CELLS.values():
        path = world(tmp_path, HEADER + b"\n".join([*lines, cell + b",1,0,m1,x"]))
        said = checked(path)
        expected = expected or said
        assert said == expected and said[0] == 0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert [record[-1] for record in people(path)][:4] == ["p0", "p1", "p2", "p3"]


def test_a_column_without_a_number_is_filled_where_private_and_refused_where_public(tmp_path: Path) -> None:
    content = HEADER + b"n/k,1,0,m1,x\n"
    assert people(world(tmp_path, content)) == [("m1", 0.5, 1.0, 0, "x")]
    path = world(tmp_path, content, public=True)
    assert checked(path)[0] == 1
    with pytest.raises(DataError, match="'a' holds texts"):
        people(path)
    (tmp_path / "test.csv").write_bytes(content)
    found = {
        finding.what: finding
        for finding in check(world(tmp_path, content, files={"train": "t.csv", "test": "test.csv"}))
    }
    assert found["train"].ok and not found["test"].ok


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["4", "hiv"]), [4.0, 0.5]),
        (pa.nulls(2), [0.5, 0.5]),
        (pa.array([4, None], pa.timestamp("s")), [0.5, 0.5]),
        (pa.array(["4", "4"]).dictionary_encode(), [4.0, 4.0]),
    ],
)
def test_kinds_of_a_private_parquet_file_are_declared(column: Any, expected: list[float], tmp_path: Path) -> None:
    rest = {"b": [1, 1], "label": [0, 0], "task": ["m1", "m1"], "person": ["x", "y"]}
    parquet.write_table(pa.table({"a": column} | rest), tmp_path / "t.parquet")
    path = world(tmp_path, b"", files={"train": "t.parquet"})
    assert checked(path)[0] == 0
    assert [record[1] for record in people(path)] == expected


def test_bytes_that_are_no_text_in_a_parquet_file_are_missing(tmp_path: Path) -> None:
    def texts(*values: bytes) -> Any:
        return pa.array(values, pa.binary()).view(pa.string())

    table = {
        "a": texts(b"1", b"\xff", b"2"),
        "b": [1, 2, 3],
        "label": texts(b"0", b"1", b"\xff"),
        "task": ["m1"] * 3,
        "person": texts(b"x", b"y", b"z"),
    }
    parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    path = world(tmp_path, b"", files={"train": "t.parquet"})
    assert people(path) == [("m1", 1, 1, 0, "x"), ("m1", 0.5, 2, 1, "y"), ("m1", 2, 3, -1, "z")]
    parquet.write_table(pa.table(table | {"person": texts(b"x", b"\xff", b"z")}), tmp_path / "t.parquet")
    assert [record[-1] for record in people(path)] == ["x", "z"]


def test_numbers_beyond_float32_become_its_ends_in_silence(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = people(world(tmp_path, HEADER + b"1e300,-1e300,0,m1,x\n"))
    end = float(np.finfo(np.float32).max)
    assert found == [("m1", end, -end, 0, "x")]


def test_a_person_a_task_and_a_label_have_one_name(tmp_path: Path) -> None:
    lines = [b"1,1,1,7,7", b"1,1, 1 , 7, 7", b"1,1,1.0,7.0,7.0", b"1,1,1,8,07", b"1,1,1,7,  "]
    path = world(tmp_path, HEADER + b"\n".join(lines), tasks=[{"name": 7, "size": 4}, {"name": "8.0", "size": 4}])
    assert [record[3:] for record in people(path)] == [(1, "7"), (1, "7"), (1, "7"), (1, "07")]
    texts = world(tmp_path, HEADER + b"1,1, sick,m1, x\n1,1,well ,m1,x \n", labels=["sick", " well"])
    assert [record[3:] for record in people(texts)] == [("sick", "x"), ("well", "x")]
    table = {"a": [1.0], "b": [1], "label": [1.0], "task": [7.0], "person": [12345678901.0]}
    parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    path = world(tmp_path, b"", files={"train": "t.parquet"}, tasks=[{"name": 7, "size": 4}])
    assert people(path) == [("7", 1, 1, 1, "12345678901")]


def test_two_tasks_cannot_share_records_by_their_names(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="two tasks have the same name"):
        people(world(tmp_path, HEADER, tasks=[{"name": 7, "size": 4}, {"name": "7.0", "size": 4}]))


@pytest.mark.parametrize("test", ["t.csv", "./t.csv", "linked.csv", "hard.csv"])
def test_a_private_file_is_no_test_file(test: str, tmp_path: Path) -> None:
    content = HEADER + b"secret,1,0,m1,x\n"
    path = world(tmp_path, content, files={"train": "t.csv", "test": test})
    (tmp_path / "linked.csv").symlink_to(tmp_path / "t.csv")
    (tmp_path / "hard.csv").hardlink_to(tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"is the private data of files\.train"):
        open_declared(path)
    code, said = checked(path)
    assert code == 1 and "is the private data" in said and "holds texts" not in said
    public = world(tmp_path, HEADER + LINES[0], files={"train": "t.csv", "test": test}, public=True)
    assert open_declared(public)[0].test is not None and "is the private data" not in checked(public)[1]


@pytest.mark.parametrize(("train", "test"), [("pets", "pets/feb"), ("pets/feb", "pets"), ("pets", "other/../pets")])
def test_a_folder_in_a_private_one_is_no_test_folder(train: str, test: str, tmp_path: Path) -> None:
    (tmp_path / "pets" / "feb").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    folders = {"files": {"train": train, "test": test}, "unit": "record", "shape": [1, 2, 2]}
    with pytest.raises(DataError, match=r"is the private data of files\.train"):
        open_declared(world(tmp_path, b"", **folders))
    open_declared(world(tmp_path, b"", **folders, public=True))


FIRST = [
    "31,p-secret,jan,0",
    "x,,p-secret",
    "p-secret,x,p-secret",
    "p-secret;31;jan",
    'p-secret,"jan',
    "p-secret,1e5,nan",
    "",
    "p-secret\rx\ry",
]


@pytest.mark.parametrize("first", FIRST)
def test_a_first_line_that_may_be_a_record_is_not_shown(first: str, tmp_path: Path) -> None:
    path = world(tmp_path, f"{first}\n".encode())
    for ask in (lambda: column_names(tmp_path / "t.csv"), lambda: open_declared(path)):
        with pytest.raises(DataError, match="does not look like column names; add a header line") as error:
            ask()
        assert "secret" not in str(error.value)
    said = CliRunner().invoke(
        app, ["data", "declare", str(tmp_path / "t.csv"), "--yes", "--out", str(tmp_path / "new.yaml")]
    )
    assert said.exit_code == 1 and "secret" not in said.output and not (tmp_path / "new.yaml").exists()


def test_names_of_columns_are_trimmed(tmp_path: Path) -> None:
    assert people(world(tmp_path, b"a , b, label,task, person\n1,2,0,m1,x\n")) == [("m1", 1, 2, 0, "x")]


@pytest.mark.parametrize("mark", ["", ";;", '"', "\n", "·"])
def test_a_delimiter_is_one_plain_character(mark: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"files\.delimiter = .*one ASCII character"):
        open_declared(world(tmp_path, HEADER, files={"train": "t.csv", "delimiter": mark}))
