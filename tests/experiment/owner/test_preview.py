"""How a CSV file is written is declared; and the owner, and nobody else, can look at how it is read."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from support.visits import rows_of
from tacit.cli import app
from tacit.errors import DataError
from tacit.experiment.owner.preview import WARNING, preview
from tacit.experiment.owner.template import column_names
from tacit.privacy.vault.sources.declared import open_declared

FACTS: dict[str, Any] = {
    "name": "s",
    "columns": {"label": "label", "task": "month"},
    "categories": {"ward": ["A", "B"]},
    "labels": ["sick", "well"],
    "tasks": [{"name": "jan", "size": 4}],
}
GERMAN = "a;b;ward;month;label\n1,5;-,5;A;jan;sick\n1.5;1.000,5;B;jan;well\n2;1e1;secret;jan;odd\n"


def tacit(*words: object) -> Result:
    return CliRunner().invoke(app, ["data", *map(str, words)])


def world(folder: Path, content: str, written: str = "utf-8", **files: str) -> Path:
    (folder / "t.csv").write_bytes(content.encode(written))
    (folder / "t.yaml").write_text(yaml.safe_dump(FACTS | {"files": {"train": "t.csv"} | files}))
    return folder / "t.yaml"


def test_decimal_commas_are_declared(tmp_path: Path) -> None:
    x, _ = rows_of(open_declared(world(tmp_path, GERMAN, delimiter=";", decimal=","))[0])
    assert x[:, :2].tolist() == [[1.5, -0.5], [0, 0], [2, 10]]
    x, _ = rows_of(open_declared(world(tmp_path, GERMAN, delimiter=";"))[0])
    assert x[:, :2].tolist() == [[0, 0], [1.5, 0], [2, 10]]
    quoted = 'a,ward,month,label\n"0,25",A,jan,sick\n'
    assert rows_of(open_declared(world(tmp_path, quoted, decimal=","))[0])[0].tolist() == [[0.25, 1, 0]]


def test_whole_labels_are_read_with_the_declared_mark(tmp_path: Path) -> None:
    path = world(tmp_path, "a;ward;month;label\n1;A;jan;1,0\n1;A;jan;1.0\n", delimiter=";", decimal=",")
    path.write_text(path.read_text().replace("- sick\n- well", "- 0\n- 1"))
    assert rows_of(open_declared(path)[0])[1].tolist() == [1, -1]


def test_latin_1_is_declared(tmp_path: Path) -> None:
    content = "größe,ward,month,label\n1,Ä,jan,sick\n2,A,jan,well\n"
    with pytest.raises(DataError, match=r"not UTF-8; .*files\.encoding: latin-1"):
        open_declared(world(tmp_path, content, "latin-1"))
    path = world(tmp_path, content, "latin-1", encoding="latin-1")
    path.write_text(path.read_text().replace("- A\n", "- Ä\n"), encoding="utf-8")
    assert rows_of(open_declared(path)[0])[0].tolist() == [[1, 1, 0], [2, 0, 0]]
    made = tacit("declare", tmp_path / "t.csv", "--yes", "--encoding", "latin-1", "--out", tmp_path / "new.yaml")
    assert made.exit_code == 0
    assert yaml.safe_load((tmp_path / "new.yaml").read_text(encoding="utf-8"))["files"]["encoding"] == "latin-1"


def test_cp1252_is_declared_and_a_byte_that_it_has_not_is_left_out(tmp_path: Path) -> None:
    content = "größe,ward,month,label\n1,„A“,jan,sick\n2,€,jan,well\n3,A,jan,well\n"
    path = world(tmp_path, content, "cp1252", encoding="cp1252")
    path.write_text(path.read_text().replace("- A\n", "- €\n").replace("- B\n", "- „A“\n"), encoding="utf-8")
    assert rows_of(open_declared(path)[0])[0].tolist() == [[1, 0, 1], [2, 1, 0], [3, 0, 0]]
    table = tmp_path / "t.csv"
    # In cp1252 0x81 is nothing; as UTF-8 the cell would be a letter.
    table.write_bytes(table.read_bytes().replace(b"\n3,A", b"\n3,\xc2\x81"))
    assert rows_of(open_declared(path)[0])[0].tolist() == [[1, 0, 1], [2, 1, 0]]
    made = tacit("declare", table, "--yes", "--encoding", "cp1252", "--out", tmp_path / "new.yaml")
    assert made.exit_code == 0
    assert yaml.safe_load((tmp_path / "new.yaml").read_text(encoding="utf-8"))["files"]["encoding"] == "cp1252"
    table.write_bytes(b"gr\x81,ward,month,label\n")
    with pytest.raises(DataError, match=r"the first line of .* is not CP1252"):
        open_declared(path)


@pytest.mark.parametrize(("mark", "said"), [(";", "';'"), ("\t", "tab"), ("|", "'|'")])
def test_a_header_of_one_name_suggests_a_delimiter(mark: str, said: str, tmp_path: Path) -> None:
    path = world(tmp_path, GERMAN.replace(";", mark))
    for ask in (lambda: column_names(tmp_path / "t.csv"), lambda: open_declared(path)):
        with pytest.raises(DataError) as error:
            ask()
        assert f"files.delimiter: {said} (in `tacit data declare`: --delimiter {said})" in str(error.value)
    # What is suggested works, on the command line and in the file.
    place = tmp_path / "new.yaml"
    words = ("--yes", "--out", place, "--delimiter", said.strip("'"), "--decimal", ",", "--labels", "sick,well")
    assert tacit("declare", tmp_path / "t.csv", *words, "--tasks", "jan", "--size", 3).exit_code == 0
    assert rows_of(open_declared(place)[0])[0][:, :2].tolist() == [[1.5, -0.5], [0, 0], [2, 10]]
    assert open_declared(world(tmp_path, GERMAN.replace(";", mark), delimiter=said.strip("'"))).info.shape == (4,)


def test_a_wrong_delimiter_option_is_told(tmp_path: Path) -> None:
    world(tmp_path, GERMAN)
    said = tacit("declare", tmp_path / "t.csv", "--yes", "--delimiter", ";;")
    assert said.exit_code == 2 and "one ASCII" in said.output


def test_the_owner_looks(tmp_path: Path) -> None:
    content = GERMAN + "broken line\n"
    found = {line.what: line.says for line in preview(world(tmp_path, content, delimiter=";"))}
    assert found["lines"].startswith("most are whole records; ")
    assert found["a"].startswith("most are numbers; see files.decimal")
    assert found["b"].startswith("few are numbers; see files.decimal, or list")
    assert found["ward"].startswith("most are declared categories; ")
    assert found["label"] == "most are declared labels"
    assert found["month"] == "most are declared tasks"
    found = {line.what: line.says for line in preview(world(tmp_path, "a,ward,month,label\nx,C,may,?\n"))}
    assert found["lines"] == "all are whole records"
    assert [found[name].split(";")[0] for name in ("a", "ward", "label", "month")] == [
        "none are numbers",
        "none are declared categories",
        "none are declared labels",
        "none are declared tasks",
    ]
    found = {line.what: line.says for line in preview(world(tmp_path, "a,ward,month,label\n"))}
    assert set(found.values()) == {"there are none"}


def test_only_who_asks_sees_it_and_the_exit_code_never_tells(tmp_path: Path) -> None:
    path = world(tmp_path, GERMAN, delimiter=";")
    plain, looked = tacit("check", path), tacit("check", path, "--look")
    assert (plain.exit_code, looked.exit_code) == (0, 0)
    assert WARNING in looked.output and "few are numbers" in looked.output
    assert WARNING not in plain.output and "are numbers;" not in plain.output
    for private in ("secret", "odd", "1.000,5"):
        assert private not in looked.output
    assert tacit("check", world(tmp_path, "a,ward,month,label\nx,C,may,?\n"), "--look").exit_code == 0
    assert tacit("check", world(tmp_path, GERMAN, decimal=";"), "--look").exit_code == 0
    for wrong in (("check", path, "--look", "--json"), ("check", "digits", "--look")):
        said = tacit(*wrong)
        assert said.exit_code == 1 and "on a screen" in said.output


def test_a_person_column_protects_persons(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("age,patient,label\n1,p,0\n")
    said = tacit("declare", tmp_path / "v.csv", "--yes", "--labels", "0..1", "--size", 5).output.replace("\n", "")
    assert "; fill in tasks_per_unit, records_per_unit, then run: tacit data check " in said
    facts = yaml.safe_load((tmp_path / "v.yaml").read_text())
    assert (facts["unit"], facts["tasks_per_unit"], facts["records_per_unit"]) == ("person", None, None)
    checked = tacit("check", tmp_path / "v.yaml")
    assert checked.exit_code == 1 and "'tasks_per_unit' is not filled in" in checked.output
    assert "tacit run" not in checked.output
    (tmp_path / "v.yaml").unlink()
    said = tacit("declare", tmp_path / "v.csv", "--yes", "--labels", "0..1", "--size", 5, "--unit", "record").output
    assert "fill in" not in said and "; next: tacit data check" in said
    checked = tacit("check", tmp_path / "v.yaml")
    place = tmp_path / "v"
    assert checked.exit_code == 0 and f"next: tacit run {place}.yaml --ledger {place}.ledger" in checked.output


def test_a_label_column_that_no_name_suggests_is_open(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("age,result\n1,0\n")
    said = tacit("declare", tmp_path / "v.csv", "--yes", "--labels", "0..1", "--size", 5)
    assert "fill in columns.label, then run" in said.output
    assert "'columns.label' is not filled in" in tacit("check", tmp_path / "v.yaml").output


def test_help_keeps_the_name_of_the_extra() -> None:
    assert ".[hub]" in tacit("fetch", "--help").output
    assert "cells contain no line breaks" in tacit("declare", "--help").output
