"""`tacit run`, `tacit sweep` and `tacit presets`, as a person calls them."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner, Result

from support.blobs import make_config
from tacit.cli import app

FAST = ["--set", "data.limit=60", "--set", "data.tasks=2", "--set", "learner.steps=5", "--set", "learner.batch=20",
        "--set", "threads=1", "--seeds", "1", "--processes", "1"]  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TACIT_LEDGER", raising=False)
    monkeypatch.setenv("COLUMNS", "200")


def tacit(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_quickstart_prints_the_table(tmp_path: Path) -> None:
    found = tacit("run", "quickstart", "--method", "NaiveDPSGD", *FAST)
    assert found.exit_code == 0, found.output
    for words in ("permutation-1", "average accuracy", "forgetting", "worst forgetting", "learning curve area",
                  "ε claimed", "ε certified", "per record", "certificate.json"):  # fmt: skip
        assert words in found.output
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("quickstart-") and (folder / "metrics.json").exists()
    again = tacit("run", str(folder), "--resume", "--json", "--quiet")
    assert json.loads(again.stdout)["method"] == "NaiveDPSGD"


def test_a_learner_without_privacy_says_so(tmp_path: Path) -> None:
    found = tacit("run", "quickstart", "--method", "AGEM", *FAST, "--out", "r")
    assert found.exit_code == 0 and "no finite epsilon is certified: raw records were released" in found.output


def test_wrong_calls_are_one_sentence() -> None:
    for arguments, words in (
        (["run", "quikstart"], "did you mean quickstart?"),
        (["run", "quickstart", "--set", "learner.stepz=1"], "did you mean steps?"),
        (["run", "quickstart", "--resume"], "--resume needs the folder of the run"),
        (["sweep", "quickstart", "--grid", "learner.steps"], "--grid takes key=value,value"),
    ):
        found = tacit(*arguments)
        assert found.exit_code == 1 and words in found.stderr, found.output
        assert len(found.stderr.strip().splitlines()) == 1
    assert tacit("run").exit_code == 2
    assert not Path("runs").exists()


def test_missing_data_names_the_command_and_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "nothing"))
    for call in (["run", "desai2021/permuted-mnist", "--processes", "1"], ["sweep", "tobaben2025/split-cifar100"]):
        found = tacit(*call)
        assert found.exit_code == 1 and "`tacit data fetch " in found.stderr and "nothing" in found.stderr
        assert len(found.stderr.strip().splitlines()) == 1 and not Path("runs").exists()
    none = tacit("run", "quickstart", "--method", "cosine", "--set", "data.features=none.npy", "--out", "a/b")
    assert none.exit_code == 1 and "there is no such file" in none.stderr and not Path("a").exists()


def test_a_start_that_is_refused_leaves_no_folder(tmp_path: Path) -> None:
    for processes in ("1", "2"):
        call = ["run", "quickstart", *FAST, "--method", "naive-dp", "--set", "learner.batch=900", "--seeds", "2"]
        found = tacit(*call, "--processes", processes, "--out", "new/r")
        assert found.exit_code == 1 and "an expected batch of 900 cannot be drawn" in found.stderr
        assert not Path("new").exists()
    Path("mine").mkdir()
    assert tacit(*call, "--out", "mine").exit_code == 1 and list(Path("mine").iterdir()) == []
    Path("mine/thesis.txt").write_text("years of work")
    assert tacit(*call, "--out", "mine").exit_code == 1 and Path("mine/thesis.txt").exists()


def test_presets_are_listed() -> None:
    listed = {one["name"]: one for one in json.loads(tacit("presets", "--json").stdout)}
    assert {"quickstart", "compare", "desai2021/permuted-mnist", "desai2021/split-cifar100"} <= set(listed)
    assert listed["quickstart"]["needs"] == ["digits"] and "quickstart" in tacit("presets").output
    lines = tacit("presets").output.splitlines()
    assert all(lines[lines.index(f"  {one['description']}") - 1].startswith(one["name"]) for one in listed.values())
    missing = {name for one in listed.values() for name in one["missing"]}
    assert len(lines) == 2 * len(listed) + len(missing) + 1  # two lines each; how data is got, once; how to know more


def test_a_sweep_leaves_one_table(tmp_path: Path) -> None:
    Path("base.yaml").write_text(
        yaml.safe_dump(
            make_config(
                data={"source": "digits", "scenario": "permuted", "tasks": 2, "limit": 60},
                learner={"method": "NaiveDPSGD", "steps": 5, "batch": 20},
            ).plain()
        )
    )
    found = tacit("sweep", "base.yaml", "--grid", "budget.epsilon=1,2", "--out", "s", "--processes", "1", "--quiet")
    assert found.exit_code == 0, found.output
    with Path("s/cells.csv").open() as file:
        assert [(row["budget.epsilon"], row["status"]) for row in csv.DictReader(file)] == [
            ("1", "done"),
            ("2", "done"),
        ]


DECLARED = """
name: visits
files: {train: visits.csv}
columns: {label: diagnosis, task: month, person: patient}
features: [age, pulse]
scaling: {age: [0, 100], pulse: [30, 200]}
labels: [well, sick]
tasks: [{name: jan, size: 100}, {name: feb, size: 100}]
unit: person
tasks_per_unit: 2
"""


def test_a_table_of_ones_own_trains_by_one_command(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = ["patient,month,age,pulse,diagnosis"]
    for month in ("jan", "feb"):
        lines += [
            f"{p},{month},{rng.uniform(20, 90):.1f},{rng.uniform(50, 120):.1f},{('well', 'sick')[p % 2]}"
            for p in range(100)
        ]
    Path("visits.csv").write_text("\n".join(lines))
    Path("visits.yaml").write_text(DECLARED)
    refused = tacit("run", "visits.yaml", "--out", "r")
    assert refused.exit_code == 1 and "the stream 'visits' is private" in refused.stderr
    short = ["--set", "learner.steps=5", "--set", "threads=1", "--out", "r", "--json"]
    found = tacit("run", "visits.yaml", "--ledger", "visits.ledger", "--epsilon", "2", *short)
    assert found.exit_code == 0, found.output
    metrics = json.loads(found.stdout)
    assert metrics["accuracy"] == "charged query" and metrics["epsilon_certified"]["unit"] == "person"
    assert metrics["epsilon_certified"]["per_record"] <= 2
    again = tacit("run", "visits.yaml", "--ledger", "visits.ledger", "--epsilon", "2", *short[:-3], "--out", "s")
    assert again.exit_code == 1 and "has already been learned" in again.stderr  # nobody is charged twice unseen


@pytest.mark.slow
def test_a_sweep_is_run_and_compared(tmp_path: Path) -> None:
    base = make_config(
        data={"source": "digits", "scenario": "permuted", "tasks": 2, "limit": 60},
        learner={"method": "NaiveDPSGD", "steps": 5, "batch": 20},
    ).plain()
    cells = [{"learner.method": "NaiveDPSGD"}, {"learner.method": "AGEM", "learner.steps": 5}]
    Path("both.yaml").write_text(yaml.safe_dump({"kind": "sweep", "name": "both", "base": base, "cells": cells}))
    found = tacit("run", "both.yaml", "--out", str(tmp_path / "r"), "--processes", "1", "--quiet")
    assert found.exit_code == 0, found.output
    for words in ("NaiveDPSGD", "AGEM", "permutation-2", "average accuracy", "ε certified", "no finite epsilon"):
        assert words in found.stdout
    alone = tacit("run", "both.yaml", "--method", "NaiveDPSGD", "--out", str(tmp_path / "one"), "--quiet", "--json")
    assert json.loads(alone.stdout)["method"] == "NaiveDPSGD"
    wrong = tacit("run", "both.yaml", "--set", "learner.stepz=3")
    assert wrong.exit_code == 1 and "did you mean steps?" in wrong.stderr
    longer = tacit("sweep", "both.yaml", "--set", "learner.steps=6", "--out", str(tmp_path / "s"), "--json", "--quiet")
    assert [cell["status"] for cell in json.loads(longer.stdout)] == ["done", "done"]


def test_labels_of_cells_say_what_differs() -> None:
    from tacit.experiment.sweeps.comparison import labels

    changes = [{"learner.method": m, "budget.epsilon": e, "lr": 1} for m in ("A", "B") for e in (1, 2)]
    assert labels(changes) == ["A epsilon=1", "A epsilon=2", "B epsilon=1", "B epsilon=2"]
    assert labels([{"learner.steps": 3}, {"learner.steps": 4}]) == ["steps=3", "steps=4"] and labels([{}]) == ["base"]
