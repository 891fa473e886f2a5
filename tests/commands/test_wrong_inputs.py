"""Wrong inputs of commands: one sentence that says what to do, a documented exit code, and nothing left behind."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from support.shell import tacit
from tacit.cli import app
from tacit.commands import console
from tacit.commands.arguments import settings_from_options
from tacit.errors import ConfigError, LearnerError
from tacit.experiment.config.changes import parsed
from tacit.experiment.runs import folder as folders
from tacit.privacy.ledger import Ledger

FACTS: dict[str, Any] = {
    "name": "visits", "files": {"train": "visits.csv"},
    "columns": {"label": "diagnosis", "task": "month", "person": "patient"}, "features": ["age"],
    "labels": ["well", "sick"], "tasks": [{"name": "jan", "size": 20}], "unit": "person",
}  # fmt: skip
SETTINGS = ("--set", "learner.steps=1", "--set", "learner.batch=4", "--quiet")


@pytest.fixture(autouse=True)
def visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Private visits in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TACIT_LEDGER", raising=False)
    rows = [f"{n},jan,{n % 9},{('well', 'sick')[n % 2]}\n" for n in range(20)]
    (tmp_path / "visits.csv").write_text("patient,month,age,diagnosis\n" + "".join(rows))
    (tmp_path / "visits.yaml").write_text(yaml.safe_dump(FACTS))
    return tmp_path


RUN = "run visits.yaml --ledger new.ledger --out made --quiet --set learner.steps=1 --set learner.batch=4"
SENTENCES = {
    f"{RUN} --resume": "to resume; check the path, or omit --resume to start a run",
    f"{RUN} --set learner.noise=nan": "learner.noise must be a finite number, got 'nan'",
    f"{RUN} --set learner.clip=inf": "learner.clip must be a finite number, got 'inf'",
    f"{RUN} --set learner.batch=0": "batch must be a finite number > 0, got 0",
    f"{RUN} --set learner.lr=1e9": "learner.lr must be a finite number with 0 < learner.lr ≤ 1000, got 1000000000.0",
    f"{RUN} --epsilon 1 --set budget.epsilon=2": "--epsilon 1 and --set budget.epsilon=2 contradict each other",
    f"{RUN} --method DPER --set learner=DPCL": "--method DPER and --set learner=DPCL contradict each other",
    f"{RUN} --seeds 1 --set seeds=[3]": "--seeds 1 and --set seeds=[3] contradict each other; omit one of them",
    f"{RUN} --accept-large-delta --set budget.accept_large_delta=false": "--accept-large-delta and --set",
    "tune visits.yaml --epsilon 1 --set budget.epsilon=2": "--epsilon 1 and --set budget.epsilon=2 contradict",
    "sweep quickstart --out made --grid learner.lr=1,2 --set learner.lr=3": "--grid learner.lr and --set learner.lr=3",
    f"{RUN} --set kind=[]": "kind = [] is not a kind of configuration",
    f"{RUN} --set model.network=[]": "model.network must be a text, got []",
    f"{RUN} --set learner.method=null": "learner.method must be a text, got None",
    f"{RUN} --set data.source=[]": "data.source must be the path of one declaration",
    f"{RUN} --set data.source=digits": "data.source = 'digits' is a public data set",
    f"{RUN} --set seeds=0": "seeds must be a list, or how many there are, from 1 to 10,000, got 0",
    f"{RUN} --set seeds=1000000000000": "from 1 to 10,000, got 1000000000000",
    f"{RUN} --set seeds=[true]": "seeds must be different whole numbers",
    f"{RUN} --set seeds=[99999999999999999999]": "seeds must be below 2^63",
    f"{RUN} --set threads=100000000": "threads = 100000000 is out of range",
    f"{RUN} --set model.hidden=[1000000000000]": "not enough memory",
    "run visits.yaml --ledger new.ledger --out visits.csv": "visits.csv is a file, and a run needs a folder",
    "run visits.yaml --ledger new.ledger --out visits.csv/x": "cannot read or write visits.csv/x: Not a directory",
    "run visits.csv": "visits.csv is a data file, not a configuration; declare it first with `tacit data "
    "declare visits.csv`, then run the declaration: tacit run visits.yaml",
    "sweep visits.csv": "declare it first with `tacit data declare visits.csv`",
    "tune visits.csv": "declare it first with `tacit data declare visits.csv`",
    "run a.parquet": "declare it first with `tacit data declare a.parquet`",
    "run pictures": "the folder pictures has no run; if it has images, declare them first with `tacit data declare "
    "pictures`, then run the declaration",
    "sweep quickstart --out visits.csv": "visits.csv is a file, and a sweep needs a folder",
    "sweep quickstart --out made --grid learner.lr=": "--grid learner.lr= has no values",
    "sweep hassanpour2022/endless --out made": "this one has kind 'endless'",
    "tune hassanpour2022/endless --space nowhere": "only runs are tuned",
    "budget epsilon --rate 0.1 --noise 1 --steps 10 --delta 1": "delta must be between 0 and 1, got 1.0",
    "budget epsilon --rate 0.1 --noise 1e300 --steps 10": "noise must be at most 1e+12, got 1e+300",
    "budget epsilon --rate 0.1 --noise 1 --steps 10000000000000000": "steps must be at most",
    "budget noise --rate 0.1 --epsilon nan --steps 10": "epsilon must be a finite number > 0, got nan; 1 is a common",
    "budget stream --tasks 99999999999999999999 --per-person 1 --epsilon 1": "tasks must be a whole number from 1 to",
    "budget stream --tasks 12 --per-person 40 --epsilon 1": "--per-person must be between 1 and the 12 tasks",
    f"{RUN} --set learner.lr=-1": "learner.lr must be a finite number with 0 < learner.lr ≤ 1000, got -1",
    f"{RUN} --set learner.lr=abc": "learner.lr must be a number",
    f"{RUN} --epsilon nan": "budget.epsilon must be a finite number > 0, got nan; 1 is a common choice",
    f"{RUN} --epsilon inf": "budget.epsilon must be a finite number > 0, got inf; 1 is a common choice",
    f"{RUN} --set model.netwrk=mlp": "model.netwrk = 'mlp' is not a setting of tabular_mlp; did you mean network?",
    f"{RUN} --set model.backbone=scattering": "did you mean data.features?",
    "certificate verify visits.csv": "visits.csv is not a certificate (not JSON)",
    f"{RUN} --method AGEM": "use a learner that is private (such as DPCL, DPER or NaiveDPSGD), or public data",
    "audit label-space --epsilon 1e10": "ε = 1e+10 allows an advantage near 1",
    "audit label-space --seed -1": "seed must be a whole number ≥ 0, got -1",
    "audit replacement-cascade --runs 100000000000000": "runs must be from 100 to 10,000,000",
    "audit replacement-cascade --seed -1": "seed must be a whole number ≥ 0, got -1",
    "audit lifelong-reconstruction --out visits.csv/x.png": "cannot create the folder of visits.csv/x.png",
    "data check visits.csv": "visits.csv is not a declaration (.yaml); write one for a file or folder of data with "
    "`tacit data declare visits.csv`",
    "data declare visits.csv --yes --out new.yaml --delimiter ;": "declare files.delimiter: ','",
    "data declare visits.csv --yes --out new.txt": "give it a name that ends in .yaml",
    "data declare visits.csv --yes --out new.yaml --labels 0..99999999999": "a range of labels has at most 100,000",
    "data declare visits.csv --yes --out new.yaml --labels a,a": "a label is named twice",
    "data declare visits.csv --yes --out new.yaml --labels ,": "labels are a list such as [sick, well]",
    "data declare visits.csv --yes --out new.yaml --tasks a,a": "two tasks have the same name",
    "data declare visits.csv --yes --out new.yaml --tasks a..b": "tasks = 'a..b' is not a range",
    "data declare visits.csv --yes --out new.yaml --tasks 9..1": "are 0 tasks; declare from 1 to 10,000",
    "data declare visits.csv --yes --out new.yaml --tasks a,b --per-person 5": "where 2 tasks are declared",
    "data declare visits.csv --yes --out new.yaml --label age --person age": "the label, the task and the person are",
    "data declare visits.csv --yes --out new.yaml --test visits.csv": "visits.csv is the private file itself",
    "ledger show --ledger empty": "empty is an empty file and no ledger",
}


@pytest.mark.parametrize("line", SENTENCES)
def test_one_sentence_and_nothing_left_behind(line: str, visits: Path) -> None:
    (visits / "empty").touch()
    (visits / "a.parquet").touch()
    (visits / "pictures").mkdir()
    before = {path.name for path in visits.iterdir()}
    result = tacit(*line.split(" "), code=1)
    wrong = [said for said in result.output.splitlines() if said.startswith("error: ")]
    assert len(wrong) == 1 and SENTENCES[line] in wrong[0]
    assert not (visits / "made").exists() and not (visits / "new.yaml").exists()
    assert {path.name for path in visits.iterdir()} == before  # and no new ledger


@pytest.mark.parametrize("error", [LearnerError("this learner fails"), KeyboardInterrupt(), ValueError("a surprise")])
def test_a_run_that_ends_in_its_rehearsal_leaves_no_ledger(
    error: BaseException, visits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        assert not (visits / "new.ledger").exists()
        raise error

    monkeypatch.setattr("tacit.experiment.runs.planning.rehearse", fails)
    before = {path.name for path in visits.iterdir()}
    assert CliRunner().invoke(app, RUN.split(" ")).exit_code != 0
    assert {path.name for path in visits.iterdir()} == before


def test_what_is_said_twice_in_the_same_way_is_no_contradiction(visits: Path) -> None:
    (visits / "settings.yaml").write_text("budget.epsilon: 3\n")
    sets = ["budget.epsilon=1.0", "learner=DPER", "seeds=[0, 1]", "@settings.yaml"]
    given = settings_from_options(sets, "dper", 1.0, 2)
    assert parsed(given)[-3:] == [("learner.method", "dper"), ("budget.epsilon", 1.0), ("seeds", 2)]
    with pytest.raises(ConfigError, match=r"--epsilon 1 and --set budget=\{epsilon: 2\} contradict each other"):
        settings_from_options(["budget={epsilon: 2}"], None, 1.0, None)


def test_ranges_of_tasks_are_all_of_them(visits: Path) -> None:
    words = ("data", "declare", "visits.csv", "--yes", "--labels", "well,sick", "--size", 20, "--tasks")
    tacit(*words, "2026-11..2027-02", "--out", "a.yaml")
    tacit(*words, "8..10", "--out", "b.yaml")
    found = [
        [task["name"] for task in yaml.safe_load((visits / name).read_text())["tasks"]] for name in ("a.yaml", "b.yaml")
    ]
    assert found == [["2026-11", "2026-12", "2027-01", "2027-02"], ["8", "9", "10"]]


def test_a_full_disk_is_one_sentence_and_a_second_try_works(visits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it fills up, also a second time while the run is taken up."""
    words = ("run", "visits.yaml", "--ledger", "new.ledger", "--out", "made", *SETTINGS)
    real, calls = os.fsync, [0]

    def full_after(number: int) -> None:
        calls[0] = 0

        def fsync(descriptor: int) -> None:
            calls[0] += 1
            if calls[0] > number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(descriptor)

        monkeypatch.setattr(folders.os, "fsync", fsync)

    def again() -> tuple[str, ...]:
        return ("run", "made", "--resume", "--quiet") if (visits / "made" / "config.yaml").exists() else words

    taken_up, failed = 0, []
    for number in (0, 1, 3, 3, 4, 5, 6, 7, 8, 8):
        full_after(number)
        taken_up += "--resume" in again()
        failed.append(tacit(*again(), code=1))  # with the traceback, which holds on to what the failed run had opened
        assert "No space left on device" in failed[-1].output
    assert taken_up > 1
    monkeypatch.setattr(folders.os, "fsync", real)
    tacit(*again())
    with Ledger(visits / "new.ledger") as book:
        book.verify()


def test_what_tacit_did_not_foresee_shows_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A traceback may quote records, so the owner has to ask for it."""

    def fails() -> None:
        raise ZeroDivisionError("patient 7")

    monkeypatch.setattr("tacit.data.benchmarks.file_check.listing", lambda root: fails())
    monkeypatch.delenv(console.TRACEBACK, raising=False)
    result = tacit("data", "list", code=console.UNEXPECTED)
    assert "ZeroDivisionError" in result.output and "patient 7" not in result.output
    monkeypatch.setenv(console.TRACEBACK, "1")
    assert "patient 7" in tacit("data", "list", code=console.UNEXPECTED).output


def test_what_no_text_can_hold_is_printed_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file name may have bytes that are no UTF-8, and what is printed next is not affected."""
    monkeypatch.chdir(tmp_path)
    assert r"wrote \udcff (secret)" in tacit("keys", "signing", "\udcff").output
    assert "presets" in tacit("--help").output


@pytest.mark.parametrize("name", ["learner", "learner.method"])
def test_a_grid_over_learners_leaves_the_settings_of_others_out(name: str, visits: Path) -> None:
    tacit("sweep", "quickstart", "--grid", f"{name}=DPCL,DPER", "--limit-minutes", 0, "--out", "grid")
    rows = json.loads(tacit("sweep", "grid", "--resume", "--limit-minutes", 0, "--json").output)
    assert [row["learner.method"] for row in rows] == ["DPCL", "DPER"]
    assert not any(key.startswith("learner.") and key != "learner.method" for row in rows for key in row)


def test_a_sweep_goes_on_as_it_was_begun(visits: Path) -> None:
    tacit("sweep", "quickstart", "--limit-minutes", 0, "--out", "all")
    result = tacit("sweep", "all", "--resume", "--limit-minutes", 0, "--grid", "learner.lr=1", code=1)
    assert "all is resumed with its original settings" in result.output


def test_the_examples_of_sweep_are_valid(visits: Path) -> None:
    shown = [line.strip() for line in tacit("sweep", "--help").output.splitlines() if "--grid learner" in line]
    words = " ".join(shown).strip("│ ").split()
    assert words[:2] == ["tacit", "sweep"]
    tacit("sweep", "quickstart", "--grid", words[words.index("--grid") + 1], "--limit-minutes", 0, "--out", "grid")


def test_the_certificate_of_a_folder_of_runs(visits: Path) -> None:
    """Also of the folder that a sweep prints: it names the runs to choose from."""
    tacit("run", "visits.yaml", "--ledger", "new.ledger", "--out", "all/one", *SETTINGS)
    assert "all has 1 run; give one of them: all/one" in tacit("certificate", "show", "all", code=1).output
    shown = {tacit("certificate", "show", f"all/one{part}").output for part in ("", "/seeds", "/seeds/seed-0/releases")}
    assert len(shown) == 1


def test_the_words_that_stopped_readers() -> None:
    told = "".join(
        tacit(*words, "--help").output for words in ((), ("tune",), ("data", "declare"), ("features", "clear"))
    )
    for words in ("Say which", "says whose", "Of the tuner", "In their place"):
        assert words not in told
    assert "--look always exits with 0, so that the exit code reveals nothing" in " ".join(
        tacit("data", "check", "--help").output.replace("│", " ").split()
    )
    assert "1 task declared" in tacit("data", "check", "visits.yaml").output
