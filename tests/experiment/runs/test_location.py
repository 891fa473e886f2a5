"""A run folder at another place: nothing is charged or read in silence, and there are ways to go on."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from support.blobs import make_blobs, make_config
from support.months import MONTHS, config_of, declare, grow
from tacit.cli import app
from tacit.errors import ConfigError
from tacit.experiment.config.config import Config
from tacit.experiment.runs.runner import run
from tacit.privacy.ledger import Head, Ledger, LedgerView


def begin(tmp_path: Path, **changes: Any) -> tuple[Config, Path, Path]:
    """A run of which one month is learned: its configuration, folder and ledger."""
    declared = declare(tmp_path / "data", **changes)
    grow(declared, *MONTHS)
    config = config_of(declared, "DPER", repeatable_noise=False, seeds=[0])
    run(config, tmp_path / "r", ledger=tmp_path / "visits.ledger", until=MONTHS[0])
    return config, tmp_path / "r", tmp_path / "visits.ledger"


def head(ledger: Path) -> Head:
    with LedgerView(ledger) as book:
        return book.head


def test_a_copy_charges_and_reads_nothing_in_silence(tmp_path: Path) -> None:
    _, folder, ledger = begin(tmp_path)
    before = head(ledger)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    shutil.rmtree(tmp_path / "data")  # had it been opened, that would be the answer
    found = CliRunner().invoke(app, ["run", str(copy), "--resume"])
    assert found.exit_code == 1 and found.output.count("\n") == 1
    for words in (f"was made as {folder}", f"charges {ledger}", "reads ", "visits.yaml", "--moved", "--ledger FILE"):
        assert words in found.output
    found = CliRunner().invoke(app, ["run", str(copy), "--resume", "--moved"])
    assert found.exit_code == 1 and "is a copy of the run at" in found.output
    assert head(ledger) == before
    assert json.loads((copy / "environment.json").read_text())["folder"] == str(folder)


def test_a_folder_that_was_moved_goes_on_when_that_is_said(tmp_path: Path) -> None:
    config, folder, ledger = begin(tmp_path)
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="if it was moved and these are still right, add --moved"):
        run(config, tmp_path / "elsewhere", resume=True)
    before = head(ledger)
    assert (
        run(config, tmp_path / "elsewhere", resume=True, moved=True, until=MONTHS[1], arrived=MONTHS[1:2]).left
        == MONTHS[2:]
    )
    assert head(ledger).seq > before.seq
    run(config, tmp_path / "elsewhere", resume=True, arrived=MONTHS[2:])  # it belongs there now


def test_ledger_and_data_may_have_new_places(tmp_path: Path) -> None:
    """All moved to another machine: the new places are used, and the old ones are not needed."""
    _, folder, ledger = begin(tmp_path)
    new = tmp_path / "new"
    new.mkdir()
    for source in (folder, tmp_path / "data"):
        shutil.copytree(source, new / source.name)
        shutil.rmtree(source)
    for end in ("", ".keys", ".anchor"):
        shutil.copy(f"{ledger}{end}", new / f"visits.ledger{end}")
        Path(f"{ledger}{end}").unlink()
    Ledger.reanchor(new / "visits.ledger", by="engineer", why="new server")
    words = ["run", str(new / "r"), "--resume", "--quiet"]
    words += ["--ledger", str(new / "visits.ledger"), "--data", str(new / "data" / "visits.yaml")]
    words += [word for month in MONTHS[1:] for word in ("--arrived", month)]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 0, found.output
    kept = yaml.safe_load((new / "r" / "config.yaml").read_text())
    assert kept["data"]["source"] == str(new / "data" / "visits.yaml")
    assert json.loads((new / "r" / "ledger.json").read_text())["path"] == str(new / "visits.ledger")
    assert not (tmp_path / "data").exists() and not ledger.exists()


def test_other_data_than_the_run_began_with_is_refused(tmp_path: Path) -> None:
    config, folder, ledger = begin(tmp_path)
    other = declare(tmp_path / "other", features=["pulse", "age"])
    grow(other, *MONTHS)
    before = head(ledger)
    with pytest.raises(ConfigError, match="are not those that '2026-01' was learned with"):
        run(config, folder, resume=True, data=other, arrived=MONTHS[1:])
    assert head(ledger).seq == before.seq


@pytest.mark.parametrize("words", [["--data", "none.yaml"], ["--moved"]])
def test_options_that_make_no_sense_are_one_sentence(tmp_path: Path, words: list[str]) -> None:
    found = CliRunner().invoke(app, ["run", "quickstart", "--out", str(tmp_path / "r"), *words])
    assert found.exit_code == 1 and "are for a single run" in found.output and not (tmp_path / "r").exists()
    with pytest.raises(ConfigError, match="has none"):
        run(make_config(), tmp_path / "r", stream=make_blobs, moved=True)


def test_public_data_of_ones_own_is_asked_about_too(tmp_path: Path) -> None:
    config, folder, _ = begin(tmp_path, public=True)
    shutil.copytree(folder, tmp_path / "copy")
    with pytest.raises(ConfigError, match="was made as"):
        run(config, tmp_path / "copy", resume=True)
    assert run(config, tmp_path / "copy", resume=True, moved=True).left == ()


def test_a_run_that_names_nothing_outside_itself_goes_on_anywhere(tmp_path: Path) -> None:
    config = make_config()
    run(config, tmp_path / "r", stream=make_blobs, until="task-1")
    (tmp_path / "r").rename(tmp_path / "moved")
    assert run(config, tmp_path / "moved", stream=make_blobs, resume=True).left == ()


def test_a_folder_of_an_older_version_goes_on(tmp_path: Path) -> None:
    config, folder, _ = begin(tmp_path)
    environment = json.loads((folder / "environment.json").read_text())
    del environment["folder"]
    (folder / "environment.json").write_text(json.dumps(environment))
    run(config, folder, resume=True, until=MONTHS[1], arrived=MONTHS[1:2])
    assert json.loads((folder / "environment.json").read_text())["folder"] == str(folder)
