"""A month at a time: a file that grows between calls, one ledger, and the releases of a run in one go."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.blobs import killed_at, make_config
from support.months import (
    HEADER,
    MONTHS,
    begun,
    charged,
    config_of,
    declare,
    ends,
    everything,
    grow,
    in_one_go,
    tacit,
)
from tacit.certificate.certificate import Certificate
from tacit.cli import app
from tacit.errors import ConfigError, LedgerError
from tacit.experiment.progress import Event
from tacit.experiment.runs.run_summary import RunSummary
from tacit.experiment.runs.runner import run
from tacit.privacy.ledger import Ledger
from tacit.privacy.vault import Grant


@pytest.mark.parametrize(("method", "keeps"), [("DPCL", True), ("DPER", False), ("RoutedExperts", False)])
def test_months_give_the_releases_of_one_run(method: str, keeps: bool, tmp_path: Path) -> None:
    """Also where the table has forgotten earlier months by then: memory and test records come from the store."""
    declared = declare(tmp_path / "monthly", public=True)
    config, folder = config_of(declared, method), tmp_path / "r"
    for number, month in enumerate(MONTHS):
        if not keeps:
            declared.with_name("visits.csv").write_text(HEADER)
        grow(declared, month)
        found = run(config, folder, until=month, resume=number > 0)
        assert (found.tasks, found.left) == (MONTHS[: number + 1], MONTHS[number + 1 :])
        assert found.metrics["tasks"] == len(found.last_row) == number + 1
        assert (folder / "metrics.json").exists() == (month == MONTHS[-1])
        after = {line.split(",")[1] for line in (folder / "accuracy.csv").read_text().splitlines()[1:]}
        assert after == {str(done + 1) for done in range(number + 1)}
    assert ends(folder) == in_one_go(tmp_path / "whole", method)
    assert not list(folder.rglob("private"))


def test_a_kill_in_a_later_month_changes_nothing(tmp_path: Path) -> None:
    declared = declare(tmp_path / "monthly", public=True)
    config, folder = config_of(declared, "DPER"), tmp_path / "r"
    grow(declared, *MONTHS[:2])
    run(config, folder, until=MONTHS[0])
    work = lambda: run(config, folder, until=MONTHS[1], resume=True)  # noqa: E731
    killed_at(Grant, "gradient", 3, before=False, work=work)
    work()
    grow(declared, MONTHS[2])
    assert run(config, folder, resume=True).left == ()
    assert ends(folder) == in_one_go(tmp_path / "whole", "DPER")


def test_every_month_is_charged_once_and_certified(tmp_path: Path) -> None:
    declared, ledger = declare(tmp_path), tmp_path / "visits.ledger"
    config, folder = config_of(declared, "DPER", repeatable_noise=False), tmp_path / "r"
    before: list[Any] = []
    for number, month in enumerate(MONTHS):
        grow(declared, month)
        more = {"resume": True, "arrived": [month]} if number else {"ledger": ledger}
        found = run(config, folder, until=month, **more)  # type: ignore[arg-type]
        now = charged(ledger)
        assert now[: len(before)] == before  # what was charged is left alone
        fresh, before = now[len(before) :], now
        gradients = [months for _, kind, _, months in fresh if kind == "gradient"]
        assert gradients == [MONTHS[: number + 1]]  # the month, and the memory of all earlier ones in the same draw
        assert {state for _, _, state, _ in fresh} == {"RELEASED"}
        release = folder / "seeds" / "seed-0" / "releases" / f"{number + 1:02d}-{month}"
        assert found.certificate == release / "certificate.json"
        certificate = Certificate.load(found.certificate)
        assert certificate.epsilon is not None and certificate.epsilon <= 2.0
        assert certificate.epsilon == found.metrics["epsilon_certified"]["per_record"]
    for release in sorted((folder / "seeds" / "seed-0" / "releases").iterdir()):  # the ledger has gone on since
        done = CliRunner().invoke(app, ["certificate", "verify", str(release), "--ledger", str(ledger)])
        assert done.exit_code == 0 and "3 files match the certificate" in done.output, done.output
    assert json.loads((folder / "metrics.json").read_text())["tasks"] == 3


def test_what_is_learned_already_is_said_and_nothing_changes(tmp_path: Path) -> None:
    config, folder = begun(tmp_path)
    before = everything(tmp_path)
    for month in MONTHS[:2]:
        heard: list[Event] = []
        found: RunSummary = run(config, folder, until=month, resume=True, progress=heard.append)
        assert [said.name for said in heard] == [f"{month} is learned already; nothing was read, learned or charged"]
        assert found.tasks == MONTHS[:2] and found.left == MONTHS[2:]
    assert everything(tmp_path) == before


def test_wrong_calls_are_one_sentence_and_change_nothing(tmp_path: Path) -> None:
    config, folder = begun(tmp_path)
    before = everything(tmp_path)
    with pytest.raises(ConfigError, match=r"'visits' has no task '2026-3' to learn up to; did you mean 2026-03"):
        run(config, folder, until="2026-3", resume=True)
    with pytest.raises(ConfigError, match="already has a run; continue it with --resume"):
        run(config, folder, until=MONTHS[2], ledger=tmp_path / "visits.ledger")
    with pytest.raises(
        ConfigError, match=r"the ledger of .* is not at .*other.ledger; pass its new path with --ledger"
    ):
        run(config, folder, until=MONTHS[2], arrived=MONTHS[2:], ledger=tmp_path / "other.ledger", resume=True)
    assert everything(tmp_path) == before
    with Ledger(tmp_path / "other.ledger"):
        pass
    with pytest.raises(ConfigError, match=r"other.ledger is not the ledger that .* was begun with"):
        run(config, folder, until=MONTHS[2], arrived=MONTHS[2:], ledger=tmp_path / "other.ledger", resume=True)
    with pytest.raises(ConfigError, match="has no task 'may' to learn up to"):
        run(config, tmp_path / "new", until="may", ledger=tmp_path / "visits.ledger")
    assert not (tmp_path / "new").exists()


def test_an_older_copy_of_the_ledger_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back with its keys and its anchor, so that only the user's own notes know what is missing; and for another
    user, only the run."""
    declared = declare(tmp_path)
    config, ledger = config_of(declared, "RoutedExperts", repeatable_noise=False), tmp_path / "visits.ledger"
    grow(declared, *MONTHS)
    run(config, tmp_path / "run", ledger=ledger, until=MONTHS[0])
    saved = {file: file.read_bytes() for file in tmp_path.glob("visits.ledger*")}
    run(config, tmp_path / "run", until=MONTHS[1], arrived=[MONTHS[1]], resume=True)
    for file in set(tmp_path.glob("visits.ledger*")) - set(saved):
        file.unlink()
    for file, content in saved.items():
        file.write_bytes(content)
    with pytest.raises(LedgerError, match="two copies in use are two budgets"):
        run(config, tmp_path / "run", until=MONTHS[2], arrived=[MONTHS[2]], resume=True)
    monkeypatch.setenv("TACIT_STATE", str(tmp_path / "another-user"))
    with pytest.raises(ConfigError, match=r"visits.ledger is older than .*: it lacks charges that this run made"):
        run(config, tmp_path / "run", until=MONTHS[2], arrived=[MONTHS[2]], resume=True)


@pytest.mark.parametrize(
    "change",
    [
        {"tasks": [{"name": month, "size": 90} for month in MONTHS]},
        {"columns": {"label": "diagnosis", "task": "month", "person": "visit"}},
        {"files": {"train": "visits.csv", "decimal": ","}},
        {"features": ["pulse", "age"]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_facts_that_were_planned_with_stay(change: dict[str, Any], tmp_path: Path) -> None:
    """Also those that are in no plan: another person column would make other people of the same ones."""
    config, folder = begun(tmp_path)
    grow(declare(tmp_path, **change), *MONTHS)
    with pytest.raises(
        ConfigError, match=r"declared facts of 'visits' .* are not those that '2026-02' was learned with"
    ):
        run(config, folder, arrived=MONTHS[2:], resume=True)


def test_files_may_move_between_months(tmp_path: Path) -> None:
    config, folder = begun(tmp_path)
    grow(declare(tmp_path, files={"train": "moved.csv"}), *MONTHS)
    (tmp_path / "visits.csv").rename(tmp_path / "moved.csv")
    assert run(config, folder, arrived=MONTHS[2:], resume=True).left == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "sizes", "recurs"),
    [("DPER", (80, 80, 80), 3), ("NaiveDPSGD", (80, 70, 60), 3), ("DPCL", (80, 70, 60), 2)],
)
def test_what_a_patient_may_meet_in_several_months_fits(
    method: str, sizes: tuple[int, ...], recurs: int, tmp_path: Path
) -> None:
    """Trained on in one month, remembered or asked about in another: too many mixtures to price each."""
    declared = declare(
        tmp_path, tasks_per_unit=recurs,
        tasks=[{"name": month, "size": size} for month, size in zip(MONTHS, sizes, strict=True)],
    )  # fmt: skip
    grow(declared, *MONTHS)
    config = config_of(declared, method, repeatable_noise=False, evaluation={"test": "charged"})
    found = run(config, tmp_path / "r", ledger=tmp_path / "visits.ledger")
    assert 1.5 < found.metrics["epsilon_certified"]["per_record"] <= 2.0


def test_private_data_that_cannot_be_deleted_is_said(tmp_path: Path) -> None:
    config, folder = begun(tmp_path)
    private = folder / "seeds" / "seed-0" / "private"
    private.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "note").write_text("x")
    private.symlink_to(tmp_path / "elsewhere")
    grow(declare(tmp_path), *MONTHS)
    with pytest.raises(ConfigError, match="still holds private data, since it is a link or cannot be written to"):
        run(config, folder, arrived=MONTHS[2:], resume=True)
    private.unlink()
    assert run(config, folder, arrived=MONTHS[2:], resume=True).left == ()


def test_the_command_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TACIT_LEDGER", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    declared = declare(tmp_path)
    grow(declared, MONTHS[0])
    short = ["--set", "learner.steps=5", "--set", "threads=1", "--out", "r"]
    found = tacit("run", "visits.yaml", "--ledger", "visits.ledger", *short, "--until", MONTHS[0])
    assert found.exit_code == 0, found.output
    assert "1 of 3 tasks" in found.stdout and "ε certified" in found.stdout
    *_, hint, page = found.stdout.splitlines()
    assert page == "report       r/report.html"
    assert hint == "learned up to 2026-01; when the data of 2026-02 are there: tacit run r --resume --arrived 2026-02"
    grow(declared, MONTHS[1])
    again = tacit("run", "r", "--resume", "--arrived", MONTHS[1], "--json", "--quiet")
    assert again.exit_code == 0 and json.loads(again.stdout)["left"] == [MONTHS[2]]
    grow(declared, MONTHS[2])
    whole = tacit("run", "r", "--resume", "--arrived", MONTHS[2])
    assert whole.exit_code == 0 and "3 tasks" in whole.stdout and "learned up to" not in whole.stdout
    wrong = tacit("run", "quickstart", "--until", "permutation-2")
    assert wrong.exit_code == 1 and "--until permutation-2 is for a single run" in wrong.stderr


@pytest.mark.slow
def test_seeds_in_processes_of_their_own_and_benchmarks(tmp_path: Path) -> None:
    config = make_config(
        data={"source": "digits", "scenario": "permuted", "tasks": 3, "limit": 100},
        learner={"method": "NaiveDPSGD", "steps": 6, "batch": 20}, seeds=2,
    )  # fmt: skip
    heard: list[Event] = []
    found = run(config, tmp_path / "r", processes=2, until="permutation-2", progress=heard.append)
    assert found.left == ("permutation-3",) and found.metrics["average_accuracy"]["std"] is not None
    assert {(said.seed, said.task, said.tasks) for said in heard if said.kind == "task"} == {
        (seed, task, 2) for seed in (0, 1) for task in (0, 1)
    }
    assert not (tmp_path / "r" / "metrics.json").exists()
    run(config, tmp_path / "r", processes=1, resume=True)
    run(config, tmp_path / "whole", processes=1)
    assert ends(tmp_path / "r") == ends(tmp_path / "whole")
    with pytest.raises(ConfigError, match="has no task 'permutation-4' to learn up to; did you mean permutation-3"):
        run(config, tmp_path / "new", until="permutation-4")
