"""`tacit data`: list, check and declare; and that they tell nothing of private values."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner, Result

from support.visits import rows_of
from tacit.cli import app
from tacit.commands import declare_command
from tacit.data.benchmarks import file_check as checking
from tacit.data.benchmarks.file_check import listing
from tacit.data.benchmarks.named import NAMED
from tacit.data.declared.declaration import Declaration
from tacit.errors import DataError
from tacit.experiment.owner.declaration_check import check
from tacit.experiment.owner.template import Answers, column_names, identifiers, suggest, write_template
from tacit.privacy.vault.sources.declared import open_declared

CSV = "age,patient,month,label\n31,p-secret,jan,0\n32,p-other,feb,1\n"


def tacit(*words: object) -> Result:
    return CliRunner().invoke(app, ["data", *map(str, words)])


def test_every_set_is_listed_with_its_place(idx_root: Path) -> None:
    rows = {row.name: row for row in listing(idx_root)}
    assert set(rows) == set(NAMED)
    assert rows["mnist"].found == str(idx_root / "mnist") and rows["mnist"].way_out is None
    assert rows["digits"].found == "scikit-learn"
    assert rows["cifar100"].found is None and "tacit data fetch cifar100" in str(rows["cifar100"].way_out)
    said = json.loads(tacit("list", "--root", idx_root, "--json").output)
    assert {row["name"]: row["found"] for row in said} == {name: row.found for name, row in rows.items()}
    shown = tacit("list", "--root", idx_root)
    assert shown.exit_code == 0 and "cifar100" in shown.output and str(idx_root) in shown.output.replace("\n", "")


def test_a_named_set_is_checked(idx_root: Path, cut_short: Path) -> None:
    assert all(finding.ok for finding in check("digits"))
    assert all(finding.ok for finding in check("cifar10", idx_root))
    damaged = check("fashion-mnist", cut_short)
    assert [finding.what for finding in damaged if not finding.ok] == ["train"]
    missing = check("hmp", idx_root)
    assert not missing[0].ok and str(idx_root / "hmp") in missing[0].says
    assert tacit("check", "hmp", "--root", idx_root).exit_code == 1


def test_a_file_that_is_not_the_published_one_is_reported(idx_root: Path) -> None:
    wrong = [finding for finding in check("mnist", idx_root) if not finding.ok]
    assert len(wrong) == 4 and all("not the published file" in finding.says for finding in wrong)


def test_real_mnist_has_the_authors_checksums(real: Callable[[str], Path]) -> None:
    found = check("mnist", real("mnist"))
    assert all(finding.ok for finding in found)
    assert {finding.what for finding in found} >= set(checking.MD5["mnist"])


def test_an_unknown_source_is_told_the_nearest() -> None:
    with pytest.raises(DataError, match="did you mean mnist"):
        check("mnits")
    said = tacit("check", "mnits")
    assert said.exit_code == 1 and "did you mean" in said.output


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    path = tmp_path / "visits.csv"
    path.write_text(CSV)
    return path


SAID = (
    "--labels",
    "0..1",
    "--tasks",
    "jan,feb",
    "--size",
    40,
    "--person",
    "patient",
    "--per-person",
    2,
    "--records",
    3,
)


def test_declare_check_and_open(visits: Path) -> None:
    made = tacit("declare", visits, "--yes", *SAID)
    place = visits.with_suffix(".yaml")
    assert made.exit_code == 0 and str(place) in made.output.replace("\n", "")
    assert tacit("check", place).exit_code == 0
    stream = open_declared(place)
    assert (stream.info.unit, stream.info.tasks_per_unit, stream.info.records_per_unit) == ("person", 2, 3)
    assert [(task.name, task.size) for task in stream.info.tasks] == [("jan", 40), ("feb", 40)]
    assert rows_of(stream[1])[0].tolist() == [[32]]


def test_nothing_of_the_data_is_shown_but_column_names(visits: Path) -> None:
    said = tacit("declare", visits, "--yes", *SAID).output
    text = visits.with_suffix(".yaml").read_text()
    checked = tacit("check", visits.with_suffix(".yaml"), "--json").output
    for private in ("p-secret", "p-other", "31", "32"):
        assert private not in text and private not in checked and private not in said.replace(str(visits.parent), "")
    assert "# Columns: age, patient, month, label" in text
    visits.write_text(CSV * 3)
    assert tacit("check", visits.with_suffix(".yaml"), "--json").output == checked


def test_what_is_not_said_is_left_open_and_refused(visits: Path) -> None:
    assert tacit("declare", visits, "--yes").exit_code == 0
    said = tacit("check", visits.with_suffix(".yaml"))
    assert said.exit_code == 1 and "'labels' is not filled in" in said.output.replace("\n", " ")


def test_a_declaration_is_never_overwritten(visits: Path) -> None:
    visits.with_suffix(".yaml").write_text("mine")
    said = tacit("declare", visits, "--yes")
    assert said.exit_code == 1 and "exists" in said.output
    assert visits.with_suffix(".yaml").read_text() == "mine"
    other = visits.parent / "sub" / "d.yaml"
    other.parent.mkdir()
    assert tacit("declare", visits, "--yes", "--out", other, *SAID).exit_code == 0
    assert len(rows_of(open_declared(other)[0])[1]) == 1


def test_a_person_is_asked_on_a_terminal(visits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declare_command, "_is_interactive", lambda: True)
    answers = ["", "", "", "y", "0..1", "jan,feb", "50", "many", "2", "4", "", ";", ","]
    said = CliRunner().invoke(app, ["data", "declare", str(visits)], input="\n".join(answers) + "\n")
    assert said.exit_code == 0, said.output
    found = Declaration.load(visits.with_suffix(".yaml"))
    assert (found.columns.label, found.columns.task, found.columns.person) == ("label", "month", "patient")
    assert (found.unit, found.tasks_per_unit, found.records_per_unit, found.tasks[1].size) == ("person", 2, 4, 50)
    assert found.files is not None and found.files.decimal == ","
    assert "p-secret" not in said.output and "next: tacit data check" in said.output


def test_what_a_person_does_not_answer_stays_open(visits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declare_command, "_is_interactive", lambda: True)
    said = CliRunner().invoke(app, ["data", "declare", str(visits)], input="\n" * 12)
    assert said.exit_code == 0 and "fill in labels, tasks, tasks_per_unit, records_per_unit, then run" in said.output


def test_names_alone_suggest_the_columns(visits: Path) -> None:
    assert suggest(("Age", "Month", "USER_ID", "Target")) == Answers(label="Target", task="Month", person="USER_ID")
    assert suggest(("a", "b")) == Answers()
    with pytest.raises(DataError, match="no column 'mont'; did you mean month"):
        write_template(visits, Answers(task="mont"))
    with pytest.raises(DataError, match=r"labels = '9\.\.0'"):
        write_template(visits, Answers(labels="9..0"))
    assert not visits.with_suffix(".yaml").exists()


def test_column_names_of_every_kind_of_file(tmp_path: Path, visits: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.eye(2), y=np.ones(2))
    assert column_names(tmp_path / "a.npz") == ("x", "y")
    assert column_names(visits) == ("age", "patient", "month", "label")
    (tmp_path / "pets" / "cat").mkdir(parents=True)
    (tmp_path / "pets" / "cat" / "1.JPG").touch()
    assert column_names(tmp_path / "pets") == ()
    with pytest.raises(DataError, match="there is no"):
        column_names(tmp_path / "none.csv")
    np.save(tmp_path / "emb.npy", np.eye(2))
    with pytest.raises(
        DataError, match=r"emb\.npy is not a CSV.*arrays go into one \.npz file, with numpy\.savez\(FILE, x="
    ):
        column_names(tmp_path / "emb.npy")


def test_a_folder_template_asks_for_a_shape(tmp_path: Path) -> None:
    (tmp_path / "pets" / "a" / "cat").mkdir(parents=True)
    (tmp_path / "pets" / "a" / "cat" / "1.png").touch()
    place = write_template(tmp_path / "pets", Answers(labels="cat,dog", tasks=("a", "b"), size=5))
    facts = yaml.safe_load(place.read_text())
    assert (facts["shape"], facts["labels"]) == ([3, 32, 32], ["cat", "dog"])
    assert rows_of(open_declared(place)[0])[0].shape == (0, 3, 32, 32)


def test_a_wrong_declaration_is_checked_part_by_part(visits: Path) -> None:
    facts = Answers(labels="0..1", tasks=("jan",), size=3, test="none.csv", public=True)
    place = write_template(visits, facts)
    found = {finding.what: finding for finding in check(place)}
    assert (found["declaration"].ok, found["train"].ok, found["test"].ok) == (True, False, False)
    assert "'month' holds texts" in found["train"].says and "there is no" in found["test"].says


def test_what_can_be_said_of_texts_without_a_look(visits: Path) -> None:
    """The names of the columns that are read as numbers, the same whatever is in them."""
    place = write_template(visits, Answers(label="label", labels="0..1", tasks=("jan",), size=3))
    before = {finding.what: finding for finding in check(place)}["features"]
    assert before.ok and "2 columns read as numbers: age, month; " in before.says
    assert "list a text column's values under `categories`" in before.says and "--look" in before.says
    visits.write_text("age,patient,month,label\n1,2,3,0\n")
    assert {finding.what: finding for finding in check(place)}["features"] == before


PUBLIC = "age,month,label\n" + "".join(f"{n},jan,{n % 2}\n" for n in range(20))


def test_public_rows_are_compared_with_the_declaration(visits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it matches, in part, or all: the check says so by name, and a run refuses what it cannot learn."""
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.chdir(visits.parent)
    visits.write_text(PUBLIC)
    place = visits.with_suffix(".yaml")
    out = ("--out", "r", "--quiet", "--set", "learner.steps=1", "--set", "learner.batch=4")

    def declared(labels: str, *tasks: str) -> Path:
        place.unlink(missing_ok=True)
        answers = Answers(label="label", task="month", labels=labels, tasks=tasks, size=20, public=True)
        return write_template(visits, answers)

    said = tacit("check", declared("well,sick", "2026-01"))
    assert said.exit_code == 1
    assert "failed labels: task 2026-01 has no rows, the rows have jan; labels well, sick have no rows" in said.output
    run = CliRunner().invoke(app, ["run", str(place), *out])
    assert run.exit_code == 1 and "task 2026-01 has no rows" in run.stderr and not Path("r").exists()
    said = tacit("check", declared("0..2", "jan"))
    assert said.exit_code == 0 and "warning labels: label 2 has no rows, the rows have 0, 1" in said.output
    run = CliRunner().invoke(app, ["run", str(place), *[word for word in out if word != "--quiet"]])
    assert run.exit_code == 0 and "in the public rows of 'visits', label 2 has no rows" in run.stderr
    said = tacit("check", declared("0..1", "jan"))
    assert said.exit_code == 0 and "ok labels: every declared task and label occurs" in said.output
    assert "next: tacit run" in said.output and "--ledger" not in said.output  # public data needs none


def test_private_rows_are_not_compared_and_it_says_so(visits: Path) -> None:
    place = write_template(visits, Answers(label="label", task="month", labels="a,b", tasks=("may",), size=3))
    said = tacit("check", place)
    assert said.exit_code == 0 and "--ledger" in said.output
    assert "not compared with the rows, which are private; --look shows the owner" in said.output.replace("\n", " ")


def test_a_column_that_looks_like_an_identifier_is_no_feature_unseen(visits: Path) -> None:
    names = (
        "id",
        "pid",
        "PatientID",
        "visit_id",
        "SSN",
        "Name",
        "subject",
        "recordId",
        "age",
        "width",
        "valid",
        "humid",
    )
    assert identifiers(names) == names[:8]
    visits.write_text("pid,age,bp,month,label\n1,31,120,jan,0\n")
    said = tacit("declare", visits, "--yes", "--labels", "0..1", "--tasks", "jan", "--size", 5)
    assert (
        "column pid looks like an identifier, so it is not among the features: name it with --person, or list the "
        in (" ".join(said.output.split()))
    )
    text = visits.with_suffix(".yaml").read_text()
    assert "Left out, as their names look like identifiers: pid." in text
    assert Declaration.load(visits.with_suffix(".yaml")).features == ("age", "bp")
    visits.with_suffix(".yaml").unlink()
    said = tacit("declare", visits, "--yes", "--labels", "0..1", "--tasks", "jan", "--size", 5, "--person", "pid")
    assert "looks like" not in said.output and "features: others" in visits.with_suffix(".yaml").read_text()


def test_a_folder_without_images_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    empty, tables, pets = (tmp_path / name for name in ("empty", "tables", "pets.v2"))
    for folder in (empty, tables, pets / "cat"):
        folder.mkdir(parents=True)
    (tables / "visits.csv").write_text(CSV)
    for folder in (empty, tables):
        said = CliRunner().invoke(app, ["data", "declare", str(folder), "--yes"])
        assert said.exit_code == 1 and f"{folder} has no images such as .png or .jpg in subfolders" in said.stderr
        assert not folder.with_suffix(".yaml").exists()
    assert f"to declare a table, give its file: {tables / 'visits.csv'}" in said.stderr
    (pets / "cat" / "1.png").touch()
    for path, made in ((pets, "pets.v2.yaml"), (pets / "cat" / "..", "pets.v2.yaml")):
        assert tacit("declare", path, "--yes").exit_code == 0
        facts = yaml.safe_load((tmp_path / made).read_text())
        assert facts["files"]["train"] == facts["name"] == "pets.v2"
        (tmp_path / made).unlink()


def test_a_public_test_file_is_compared_too(visits: Path) -> None:
    """Of private data as well; tasks to come have no test rows yet."""
    (visits.parent / "test.csv").write_text(CSV.replace("feb,1", "jan,2"))
    answers = Answers(label="label", task="month", person="patient", labels="0..1", tasks=("jan", "feb"), size=3)
    place = write_template(visits, replace(answers, test="test.csv"))
    found = {finding.what: finding for finding in check(place)}
    assert "not compared" in found["labels"].says and found["test labels"].ok and found["test labels"].warns
    assert found["test labels"].says == (
        "task feb has no rows, the rows have jan; label 1 has no rows, the rows have 0, 2"
    )
