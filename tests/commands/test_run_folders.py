"""Run folders as people give them to `tacit run`: begun, damaged, misspelled, and with a ledger that was moved."""

import shutil
from pathlib import Path

import pytest

from support.months import declare, everything, grow
from support.shell import tacit

SHORT = ("--set", "learner.steps=1", "--set", "threads=1", "--quiet")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TACIT_LEDGER", raising=False)
    monkeypatch.setenv("COLUMNS", "400")


def begin(folder: Path) -> None:
    """A private run "r" that has learned one month of three."""
    grow(declare(folder), "2026-01")
    tacit("run", "visits.yaml", "--ledger", "visits.ledger", "--until", "2026-01", "--out", "r", *SHORT)


def refused(*words: str) -> str:
    before = everything(Path())
    stderr = tacit(*words, code=1).stderr
    assert everything(Path()) == before and stderr.count("\n") == 1
    return stderr


def test_a_folder_that_has_a_run_is_continued_by_resume(tmp_path: Path) -> None:
    begin(tmp_path)
    assert "r has a run; continue it with `tacit run r --resume`\n" in refused("run", "r")
    said = refused("run", "visits.yaml", "--ledger", "visits.ledger", "--out", "r")
    assert "continue it with `tacit run r --resume`, or pass another folder with --out" in said
    (tmp_path / "elsewhere").mkdir()
    for file in tmp_path.glob("visits.ledger*"):
        shutil.move(file, tmp_path / "elsewhere")
    said = refused("run", "r", "--resume")  # the next month has not come either
    assert f"the ledger of r is not at {tmp_path / 'visits.ledger'}; pass its new path with --ledger" in said


@pytest.mark.parametrize("content", ["learner: {method: [", "", "name: visits\n", "- 1\n"])
def test_a_damaged_configuration_of_a_run_is_called_damaged(content: str, tmp_path: Path) -> None:
    Path("r").mkdir()
    Path("r/config.yaml").write_text(content)
    said = "r/config.yaml was changed or is damaged; restore it from a backup of the folder"
    assert said in refused("run", "r", "--resume")


def test_a_name_that_is_none(tmp_path: Path) -> None:
    for name in ("nosuch.yaml", "some/where", "some/where.yaml"):
        assert f"there is no file {name}; check the path" in refused("run", name)
    assert "there is no file or run folder nosuch to resume; check the path" in refused("run", "nosuch", "--resume")
    assert "did you mean quickstart?" in refused("run", "quikstart.yaml")
    assert "did you mean desai2021/permuted-mnist" in refused("run", "desai2021/permuted-mnits")


def test_options_that_a_finite_stream_does_not_have() -> None:
    assert "this stream is finite: use --until TASK" in refused("run", "quickstart", "--method", "DPCL", "--tasks", "3")
    text = " ".join(tacit("run", "--help").output.replace("│", " ").split())
    for words in ("For a stream with a last task", "With --resume, for private data", "which has no last task"):
        assert words in text
