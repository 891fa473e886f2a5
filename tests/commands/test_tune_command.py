"""`tacit tune`, as a person calls it."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner, Result

from support.blobs import make_config
from tacit.cli import app
from tacit.experiment.tuning import tuner
from tacit.privacy.vault.exits.repeat_and_select import TuningExit

FAST = ["--method", "NaiveDPSGD", "--seeds", "1", "--quiet", "--set", "data.limit=60", "--set", "data.tasks=2",
        "--set", "learner.steps=4", "--set", "learner.batch=20", "--set", "threads=1"]  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TACIT_LEDGER", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    Path("space.yaml").write_text("learner.lr: {low: 0.01, high: 1, log: true}")


def tacit(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_settings_are_chosen_and_used_by_file_or_by_set() -> None:
    found = tacit("tune", "quickstart", *FAST, "--space", "space.yaml", "--trials", "2", "--out", "t")
    assert found.exit_code == 0, found.output
    assert "learner.lr: " in found.output and "tuned.how: public-proxy" in found.output
    assert "tacit run t/tuned.yaml" in found.output and "--set @t/settings.yaml" in found.output
    best = yaml.safe_load(Path("t/settings.yaml").read_text())
    ran = tacit("run", "quickstart", *FAST, "--set", "@t/settings.yaml", "--out", "r", "--json")
    assert json.loads(ran.stdout)["tuned"]["about"] == best["tuned.about"]
    config = yaml.safe_load(Path("r/config.yaml").read_text())
    assert config["learner"]["lr"] == best["learner.lr"] and config["tuned"]["how"] == "public-proxy"
    again = tacit("tune", "quickstart", *FAST, "--space", "space.yaml", "--trials", "1", "--out", "t")
    assert again.exit_code == 1 and "t is not empty" in again.stderr


DECLARED = """
name: visits
files: {train: visits.csv}
columns: {label: diagnosis, task: month}
features: [age, pulse]
scaling: {age: [0, 100], pulse: [30, 200]}
labels: [well, sick]
tasks: [{name: jan, size: 100}, {name: feb, size: 100}]
"""


def test_ones_own_data_privately(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = ["month,age,pulse,diagnosis"]
    for month in ("jan", "feb"):
        lines += [
            f"{month},{rng.uniform(20, 90):.1f},{rng.uniform(50, 120):.1f},{('well', 'sick')[p % 2]}"
            for p in range(100)
        ]
    Path("visits.csv").write_text("\n".join(lines))
    Path("visits.yaml").write_text(DECLARED)
    short = ["--method", "NaiveDPSGD", "--epsilon", "2", "--set", "learner.steps=5", "--set", "threads=1"]
    refused = tacit("tune", "visits.yaml", *short, "--space", "space.yaml", "--out", "t")
    assert refused.exit_code == 1 and "'visits' is private, and this way of tuning reads it" in refused.stderr
    private = [*short, "--space", "space.yaml", "--how", "private", "--trials", "3", "--out", "t"]
    assert "pass the ledger of the data with --ledger" in tacit("tune", "visits.yaml", *private).stderr
    assert not Path("t").exists()
    found = tacit("tune", "visits.yaml", *private, "--ledger", "visits.ledger")
    assert found.exit_code == 0, found.output
    assert "tuned.charged: True" in found.output and "tacit run t --resume" in found.output
    assert "trial 1" not in found.output  # how many there were is a secret
    more = tacit("run", "t", "--resume", "--json", "--quiet")
    metrics = json.loads(more.stdout)
    assert metrics["tasks"] == 2 and metrics["tuned"]["charged"] and metrics["epsilon_certified"]["per_record"] <= 2.0
    shown = tacit("ledger", "show", "--ledger", "visits.ledger")
    assert shown.exit_code == 0
    again = tacit("tune", "visits.yaml", *private[:-1], "u", "--ledger", "visits.ledger")
    assert again.exit_code == 1 and "has already been learned" in again.stderr


def test_the_name_of_a_private_folder_says_the_day_only() -> None:
    """When it began, beside when it ended, would tell how many trials there were."""
    call = ["tune", "quickstart", *FAST, "--space", "space.yaml", "--trials", "2"]
    assert tacit(*call, "--how", "private").exit_code == 0 and tacit(*call).exit_code == 0
    names = sorted((path.name for path in Path("runs").iterdir()), key=len)
    assert [re.sub(r"\d", "0", name) for name in names] == [
        "quickstart-tuned-00000000", "quickstart-tuned-00000000-000000"
    ]  # fmt: skip


def test_ctrl_c_says_what_goes_on_and_what_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    call = ["tune", "quickstart", *FAST, "--space", "space.yaml", "--trials", "3", "--out", "t"]
    real, asked = tuner.accuracy, list[int]()

    def second(*given: Any) -> float:
        asked.append(1)
        if len(asked) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return real(*given)

    monkeypatch.setattr(tuner, "accuracy", second)
    stopped = tacit(*call)
    words = "stopped; 1 finished trials are kept in t; repeat the command with --out t to continue"
    assert stopped.exit_code == 130 and words in stopped.stderr
    assert tacit(*call).exit_code == 0 and len(asked) == 4  # the second again, and the third

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(TuningExit, "__call__", interrupted)
    never = tacit(*call[:-1], "u", "--how", "private")
    assert never.exit_code == 130 and "private tuning cannot be resumed, and what was charged" in never.stderr


def test_wrong_calls_are_one_sentence() -> None:
    Path("base.yaml").write_text(yaml.safe_dump(make_config().plain()))
    for arguments, words in (
        (["tune", "base.yaml", "--out", "t"], "tuning needs a search space"),
        (["tune", "base.yaml", "--space", "none.yaml", "--out", "t"], "cannot read none.yaml"),
        (["tune", "base.yaml", "--space", "space.yaml", "--how", "held-tasks", "--out", "t"], "set data.held"),
        (["tune", "desai2021/accumulation", "--space", "space.yaml"], "only runs are tuned"),
        (["tune", "base.yaml", "--space", "space.yaml", "--protocol", "tobaben2025"], "brings its own space"),
    ):
        found = tacit(*arguments)
        assert found.exit_code == 1 and words in found.stderr, found.output
        assert len(found.stderr.strip().splitlines()) == 1
    assert tacit("tune").exit_code == 2 and not Path("t").exists() and not Path("runs").exists()
