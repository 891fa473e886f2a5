"""Commands as a newcomer types them: each mistake is one sentence, and what can be meant is done."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tacit import Ledger
from tacit.audit import reconstruction
from tacit.cli import app
from tacit.commands.arguments import load_config, load_sweep
from tacit.errors import ConfigError, PlanError
from tacit.experiment.sweeps import comparison
from tacit.experiment.sweeps.sweep import cells_of


def tacit(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


def test_a_policy_is_adopted_before_there_is_a_ledger(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('may_raise = ["officer"]\n')
    ledger = tmp_path / "new.ledger"
    words = ("policy", "adopt", tmp_path / "policy.toml", "--ledger", ledger, "--by", "officer", "--why", "start")
    output = tacit(*words, code=1).output
    assert output.count("\n") == 1 and "add --new to create one" in output and not ledger.exists()
    tacit(*words, "--new")
    with Ledger(ledger) as book:
        assert book.policy.may_raise == ("officer",) and book.verify()
    assert "omit --new" in tacit(*words, "--new", code=1).output


def test_a_wrong_policy_makes_no_ledger(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("may_rais = []\n")
    words = (
        "policy",
        "adopt",
        tmp_path / "policy.toml",
        "--ledger",
        tmp_path / "l",
        "--by",
        "o",
        "--why",
        "w",
        "--new",
    )
    assert "may_raise" in tacit(*words, code=1).output and not (tmp_path / "l").exists()


def test_a_learner_that_is_a_number() -> None:
    with pytest.raises(ConfigError, match="learner must be the name of a method, such as DPCL, or its settings, got 5"):
        load_config("quickstart", ["learner=5"])
    with pytest.raises(ConfigError) as error:
        load_config("quickstart", ["budget=5"])
    assert str(error.value) == "budget must be a section with keys such as epsilon, delta, unit, got 5"


@pytest.mark.parametrize("epsilon", [10.5, 50.0, 1000.0])
def test_the_reconstruction_says_how_far_it_reaches(epsilon: float) -> None:
    with pytest.raises(PlanError, match=f"epsilon must be at most 10, .* got {epsilon:g}"):
        reconstruction.audit(epsilon=epsilon)


def test_a_setting_of_some_cells_is_set_in_those(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    before = {cell.name: cell.config for cell in cells_of(load_sweep("lai2022/split-mnist", [], []), tmp_path)}
    made = cells_of(load_sweep("lai2022/split-mnist", [], ["learner.batch=100"]), tmp_path)
    assert len(made) == len(before)
    for cell in made:
        options = cell.config.learner.options
        assert options.get("batch", 100) == 100 and ("batch" in options) == (cell.config.learner.method != "LifelongDP")
    assert {cell.config.learner.method for cell in made} == {"LifelongDP", "L2DPML", "NaiveGaussian", "AGEM"}
    assert "learner.batch is set for AGEM, L2DPML, NaiveGaussian" in capsys.readouterr().err


def test_a_setting_of_no_cell_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"learner\.batchh = 100 is not a setting of LifelongDP"):
        load_sweep("lai2022/split-mnist", [], ["learner.batchh=100"])


@pytest.mark.parametrize(("seeds", "shown"), [((0,), "one seed"), ((0, 1), "± is the standard deviation over seeds")])
def test_the_spread_is_explained_where_there_is_one(seeds: tuple[int, ...], shown: str) -> None:
    assert shown in comparison.protocol({"given"}, [len(seeds)])
    assert ("±" in comparison.protocol({"given"}, [len(seeds)])) == (len(seeds) > 1)
