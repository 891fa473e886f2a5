"""`tacit predict`: what a person types, and what comes back."""

from pathlib import Path

import pytest

from support.predicting import HEADER, NEW, learned
from support.shell import tacit


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learned(tmp_path_factory.mktemp("predict"))


@pytest.fixture
def new(tmp_path: Path) -> Path:
    (tmp_path / "new.csv").write_text(NEW)
    return tmp_path / "new.csv"


def test_a_run_predicts_with_its_last_release(run_folder: Path, new: Path, tmp_path: Path) -> None:
    printed = tacit("predict", run_folder, new, "--keep", "patient").stdout.splitlines()
    assert printed[0] == '"patient","prediction","probability","p(well)","p(sick)"' and len(printed) == 4
    said = tacit("predict", run_folder, new, "--keep", "patient", "--out", tmp_path / "out.csv").stdout
    assert "3 predictions of 03-2026-03" in said
    assert (tmp_path / "out.csv").read_text().splitlines() == printed
    release = next(run_folder.glob("seeds/seed-0/releases/01-*"))
    said = tacit("predict", release, new, "--out", tmp_path / "first.parquet", "--abstain-below", "1").stdout
    assert "3 predictions of 01-2026-01, 3 left empty below 1" in said


def test_notes_do_not_disturb_the_output(run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text(f"{HEADER}80,zoo,50,p\n90,other,101,p\n70,other,20,p\n")
    found = tacit("predict", run_folder, tmp_path / "new.csv")
    assert "zoo" in found.stderr and "zoo" not in found.stdout and len(found.stdout.splitlines()) == 4


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (NEW.replace("age", "years"), "has no column 'age' that the model reads"),
        (f"{HEADER}80,other,600,p\n", "check its unit, or accept it with --any-range"),
    ],
)
def test_a_wrong_file_is_one_sentence(run_folder: Path, tmp_path: Path, changed: str, words: str) -> None:
    (tmp_path / "wrong.csv").write_text(changed)
    found = tacit("predict", run_folder, tmp_path / "wrong.csv", "--out", tmp_path / "out.csv", code=1)
    assert found.stderr.count("\n") == 1 and words in found.stderr and not (tmp_path / "out.csv").exists()


def test_what_is_no_release(run_folder: Path, new: Path, tmp_path: Path) -> None:
    certificate = next(run_folder.glob("seeds/seed-0/releases/01-*/certificate.json"))
    (tmp_path / "alone.json").write_bytes(certificate.read_bytes())
    assert "is no release; give the folder" in tacit("predict", tmp_path / "alone.json", new, code=1).stderr
    assert "there is no file or folder" in tacit("predict", tmp_path / "nothing", new, code=1).stderr
