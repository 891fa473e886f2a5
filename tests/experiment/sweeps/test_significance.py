"""A sweep's cells against their baseline: the right pairs, the right tests, nothing new where none is asked for."""

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from support.blobs import make_config
from tacit.errors import ConfigError
from tacit.experiment.config.config import Config, Sweep
from tacit.experiment.config.validation import validated
from tacit.experiment.runs import run_summary
from tacit.experiment.sweeps.cell import Cell
from tacit.experiment.sweeps.comparison import show
from tacit.experiment.sweeps.significance import baselines, compare
from tacit.experiment.sweeps.sweep import columns_of, sweep


def config(method: str, epsilon: float, **learner: Any) -> Config:
    return make_config(learner={"method": method, **learner}, budget={"epsilon": epsilon})


def test_a_cell_is_compared_with_that_of_its_own_method() -> None:
    runs = [
        config("NaiveGaussian", 0.5), config("NaiveGaussian", 1.0), config("NaiveGaussian", 0.5, epochs=2),
        config("MomentsClassifier", 1.0), config("MomentsClassifier", 0.5), config("AGEM", 1.0),
    ]  # fmt: skip
    found = baselines(runs, {"budget.epsilon": 0.5, "learner.epochs": 1})
    assert found == [None, 0, 0, 4, None, None]  # moments have no epochs; A-GEM has no run at 0.5
    balanced = [config("AGEM", 1.0), config("AGEM", 1.0, steps=9), config("AGEM", 1.0, epochs=2)]
    assert baselines(balanced, {"learner.epochs": 1, "learner.steps": None}) == [None, 0, 0]
    one = baselines(runs, {"budget.epsilon": 0.5, "learner.method": "MomentsClassifier"})
    assert one == [4, 4, 4, 4, None, 4]


def test_a_baseline_that_cannot_be_is_a_sentence() -> None:
    runs = [config("NaiveGaussian", 0.5), config("NaiveGaussian", 0.5, epochs=2)]
    with pytest.raises(ConfigError, match=r"2 cells of NaiveGaussian match .*add a key"):
        baselines(runs, {"budget.epsilon": 0.5})
    with pytest.raises(ConfigError, match=r"baseline: no cell has the key budget.epsilom \(= 1\)"):
        baselines(runs, {"budget.epsilom": 1})


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Cell], Path]:
    base = make_config(
        learner={"method": "NaiveDPSGD", "steps": 4, "batch": 20, "lr": 0.5},
        data={"source": "digits", "scenario": "permuted", "tasks": 3, "limit": 80},
        lca=1, seeds=3,
    ).plain()  # fmt: skip
    values = {"kind": "sweep", "name": "s", "base": base, "grid": {"budget.epsilon": [1, 1000]}}
    plan = validated(Sweep, values | {"baseline": {"budget.epsilon": 1}})
    folder = tmp_path_factory.mktemp("s")
    return sweep(plan, folder, processes=1), folder


def test_it_is_the_tests_of_scipy(found: tuple[list[Cell], Path]) -> None:
    (origin, other), _ = found
    assert origin.baseline is None and other.baseline is origin and origin.compared is None
    mine, theirs = (np.array(run_summary.average_curves(one.config, one.folder)) for one in (other, origin))
    assert mine.shape == (3, 3) and mine[:, -1].mean() == pytest.approx(other.metrics["average_accuracy"]["mean"])
    compared = other.compared
    assert compared is not None and len(compared.tasks) == 2
    assert compared.tasks[-1] == pytest.approx(stats.ttest_rel(mine.mean(0), theirs.mean(0)).pvalue)
    assert compared.seeds == pytest.approx(stats.ttest_rel(mine[:, -1], theirs[:, -1]).pvalue)


def test_it_is_in_the_file_and_in_the_table(found: tuple[list[Cell], Path]) -> None:
    cells, folder = found
    with (folder / "cells.csv").open() as file:
        origin, other = csv.DictReader(file)
    assert origin["p_tasks"] == origin["baseline"] == "" and other["baseline"] == "epsilon=1"
    assert len(json.loads(other["p_curve"])) == 2 and float(other["p_seeds"]) == columns_of(cells[1])["p_seeds"]
    for few in (cells, [*cells, *cells, *cells]):
        out = io.StringIO()
        show(few, Console(file=out, width=250))
        assert "p over tasks / seeds" in out.getvalue() and "baseline" in out.getvalue()
        assert out.getvalue().count("tasks are not independent samples, seeds are") == 1


def test_without_a_baseline_nothing_is_new(found: tuple[list[Cell], Path]) -> None:
    plain = [
        Cell(changes=one.changes, config=one.config, folder=one.folder, status=one.status, metrics=one.metrics)
        for one in found[0]
    ]
    out = io.StringIO()
    show(plain, Console(file=out, width=250))
    assert "p over" not in out.getvalue() and "independent" not in out.getvalue()
    assert not {"p_tasks", "baseline"} & set(columns_of(plain[1]))


def test_runs_that_cannot_be_paired_are_not(found: tuple[list[Cell], Path]) -> None:
    origin, other = found[0]
    fewer = other.config.model_copy(update={"seeds": (0, 1)})
    result = compare((fewer, other.folder), (origin.config, origin.folder))
    assert result is not None and math.isnan(result.seeds) and result.row()["p_seeds"] is None
