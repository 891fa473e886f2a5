"""A month whose training failed after its charge is not lost: corrected settings go on with what is left of it."""

from pathlib import Path

import pytest

from support.months import MONTHS, charged, config_of, declare, grow
from tacit.errors import ConfigError, TacitError
from tacit.experiment.runs.runner import run
from tacit.privacy.vault import Grant


class Failure(Exception):
    """What nobody foresaw."""


def failing(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """The real gradients (a rehearsal's come first, four of them) fail at the `at`th step."""
    real, taken = Grant.gradient, [0]

    def gradient(self: Grant) -> object:
        if "rehearsal" not in self._bill.ticket.grant:
            taken[0] += 1
            if taken[0] == at:
                raise Failure
        return real(self)

    monkeypatch.setattr(Grant, "gradient", gradient)


@pytest.mark.parametrize("method", ["NaiveDPSGD", "RoutedExperts"])
def test_corrected_settings_go_on_with_the_month(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared, ledger = declare(tmp_path), tmp_path / "visits.ledger"
    grow(declared, *MONTHS)
    config, folder = config_of(declared, method, repeatable_noise=False), tmp_path / "r"
    with monkeypatch.context() as patched:
        failing(patched, at=4)  # of the first month, three steps of six are drawn
        with pytest.raises(Failure):
            run(config, folder, ledger=ledger)
    before = charged(ledger)
    assert [state for _, kind, state, _ in before if kind == "gradient"] == ["CHARGED"]
    other = config.learner.model_copy(update={"lr": 0.05})
    better = config_of(declared, method, repeatable_noise=False).model_copy(update={"learner": other})
    found = run(better, folder, resume=True)
    assert found.left == ()
    after = charged(ledger)
    assert [grant[0] for grant in after[: len(before)]] == [grant[0] for grant in before]
    assert {state for _, _, state, _ in after} == {"RELEASED"}
    assert sum(kind == "gradient" for _, kind, _, _ in after) == len(MONTHS)  # none was charged again
    assert "lr: 0.05" in (folder / "config.yaml").read_text()
    assert "lr: 0.5" in (folder / "config.before-1.yaml").read_text()


def test_what_was_charged_stays_as_it_was_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared, ledger = declare(tmp_path), tmp_path / "visits.ledger"
    grow(declared, *MONTHS)
    config, folder = config_of(declared, "NaiveDPSGD", repeatable_noise=False), tmp_path / "r"
    with monkeypatch.context() as patched:
        failing(patched, at=4)
        with pytest.raises(Failure):
            run(config, folder, ledger=ledger)
    kept = (folder / "config.yaml").read_text()
    for wrong, match in (
        ({"steps": 12}, r"begun, and charged, with learner.steps = 6; 12 changes the charged plan"),
        ({"lr": -1}, "lr must be a finite number with 0 < lr ≤ 1000"),
        ({"method": "DPER"}, "was begun with learner.method"),
    ):
        other = config.learner.model_copy(update=wrong)
        with pytest.raises(ConfigError if "lr" not in wrong else TacitError, match=match):
            run(config.model_copy(update={"learner": other}), folder, resume=True)
    assert (folder / "config.yaml").read_text() == kept
    assert run(config, folder, resume=True).left == ()  # the first settings redo it, and are charged once
    assert sum(kind == "gradient" for _, kind, _, _ in charged(ledger)) == len(MONTHS)


def test_the_settings_of_a_finished_run_do_not_change(tmp_path: Path) -> None:
    declared, ledger = declare(tmp_path), tmp_path / "visits.ledger"
    grow(declared, *MONTHS)
    config, folder = config_of(declared, "NaiveDPSGD", repeatable_noise=False), tmp_path / "r"
    done = run(config, folder, ledger=ledger)
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    before = charged(ledger)
    other = config.learner.model_copy(update={"lr": 0.05})
    with pytest.raises(ConfigError, match=r"is finished, so its settings can no longer change \(learner.lr = 0.05\)"):
        run(config.model_copy(update={"learner": other}), folder, resume=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == files
    assert charged(ledger) == before
    assert run(config, folder, resume=True).metrics == done.metrics  # the same settings just show the results


def test_a_wrong_setting_of_a_new_run_costs_nothing(tmp_path: Path) -> None:
    """The finding: `--set learner.lr=-1` charged a month in full, then a traceback, and the month was lost."""
    from typer.testing import CliRunner

    from tacit.cli import app

    declared, ledger = declare(tmp_path), tmp_path / "visits.ledger"
    grow(declared, *MONTHS)
    call = ["run", str(declared), "--ledger", str(ledger), "--out", str(tmp_path / "r"), "--quiet"]
    call += ["--set", "learner.steps=5", "--set", "learner.batch=20", "--set", "threads=1"]
    for wrong in ("lr=-1", "lr='0.1x'", "momentum=-2", "lr=.nan", "momentum=5", "average=3"):
        for method in ("NaiveDPSGD", "RoutedExperts"):
            found = CliRunner().invoke(app, [*call, "--method", method, "--set", f"learner.{wrong}"])
            assert found.exit_code == 1 and wrong.partition("=")[0] in found.output, found.output
            assert "Traceback" not in found.output and not (tmp_path / "r").exists()
    assert not ledger.exists() or charged_nothing(ledger)
    fine = CliRunner().invoke(app, [*call, "--method", "NaiveDPSGD"])
    assert fine.exit_code == 0, fine.output


def charged_nothing(ledger: Path) -> bool:
    from tacit.privacy.ledger import Ledger

    with Ledger(ledger) as book:
        return book.streams() == []
