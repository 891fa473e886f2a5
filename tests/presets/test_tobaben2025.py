"""The presets of Tobaben et al. 2025: they load, hold what the paper says, and run on small data."""

import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from tacit.data.benchmarks.named import find
from tacit.experiment.config.changes import override, parsed
from tacit.experiment.config.config import Sweep
from tacit.experiment.config.loading import load, presets
from tacit.experiment.sweeps.cell import Cell
from tacit.experiment.sweeps.comparison import show
from tacit.experiment.sweeps.reference import reference
from tacit.experiment.sweeps.sweep import cells_of, sweep

NAMES = ("split-cifar100", "blurry", "aggregation", "5-datasets", "imagenet-r")
SEEDS = {"split-cifar100": 5, "blurry": 5, "aggregation": 5, "5-datasets": 24, "imagenet-r": 3}


def cells(name: str, sets: tuple[str, ...] = ()) -> list[Cell]:
    plan = load(f"tobaben2025/{name}")
    assert isinstance(plan, Sweep) and isinstance(plan.base, dict)
    return cells_of(plan.model_copy(update={"base": override(plan.base, parsed(sets))}), Path("nowhere"))


@pytest.mark.parametrize("name", NAMES)
def test_they_load_and_say_the_protocol(name: str) -> None:
    for cell in cells(name):
        config = cell.config
        assert config.budget.delta == 1e-5 and len(config.seeds) == SEEDS[name]
        assert config.data.features == "efficientnet-lite0" and config.data.label_space == "constant"
        assert config.data.options.get("task_id", "hidden") == "hidden"
        head = (config.model.network, config.model.options.get("zero"))
        assert not config.learner.has_network or head == ("linear", True)


def test_every_learner_at_every_epsilon() -> None:
    found = [(cell.config.learner.method, cell.config.budget.epsilon) for cell in cells("split-cifar100")]
    methods = ("CosineClassifier", "PEFTEnsemble", "MomentsClassifier", "DPFC", "NaiveDPSGD", "Joint")
    assert found == [(method, epsilon) for method in methods for epsilon in (0.5, 1.0, 2.0, 8.0, 1e4)]
    for cell in cells("split-cifar100"):
        options = cell.config.learner.options
        assert "epochs" not in options or (options["epochs"], options["rule"]) == (40, "adam")


def test_borders_and_aggregations() -> None:
    assert {cell.config.data.scenario for cell in cells("blurry")} == {"split", "iblurry", "siblurry", "mixed"}
    assert {cell.config.learner.options["aggregate"] for cell in cells("aggregation")} == {
        "argmax", "median", "entropy"
    }  # fmt: skip


def test_a_vit_is_one_option() -> None:
    for name in NAMES:
        assert {one.config.data.features for one in cells(name, ("data.features=vit-b16",))} == {"vit-b16"}


@pytest.mark.parametrize("name", ["split-cifar100", "5-datasets", "imagenet-r"])
def test_the_papers_rows_stand_beside_theirs(name: str) -> None:
    plan = load(f"tobaben2025/{name}")
    assert isinstance(plan, Sweep) and plan.reference is not None
    table = reference(plan.reference)
    beside = {cell.config.learner.method for cell in cells(name) if table.beside(cell.config) is not None}
    known = {row.learner for row in table.rows if row.adapter != "film"}
    assert beside == known & {cell.config.learner.method for cell in cells(name)}


def test_settings_that_were_tuned_say_so() -> None:
    for name in NAMES:
        for cell in cells(name):
            if cell.config.learner.method in ("PEFTEnsemble", "DPFC", "NaiveDPSGD", "Joint"):
                own = "paper-protocol" if cell.config.data.source == "cifar100" else "public-proxy"
                about = cell.config.tuned.about
                assert cell.config.tuned.how == own and about.endswith("not charged") == (own == "paper-protocol")
                assert "split-cifar100" in about or about.startswith("lr and clip as tuned for the ensemble, after lr")


def test_they_are_listed_with_their_data() -> None:
    listed = {one.name: one for one in presets()}
    assert listed["tobaben2025/5-datasets"].needs == ("mnist", "cifar10", "notmnist", "fashion-mnist")
    assert listed["tobaben2025/imagenet-r"].needs == ("imagenet-r",)
    assert "tobaben2025/reference" not in listed


REAL = os.environ.get("TACIT_DATA")


@pytest.mark.slow
@pytest.mark.skipif(not REAL or find("cifar100", REAL) is None, reason="real data: TACIT_DATA must hold cifar100")
def test_the_cosine_classifier_on_real_features_beside_the_paper(tmp_path: Path) -> None:
    plan = load("tobaben2025/split-cifar100", ["base.seeds=1", "base.threads=1"])
    assert isinstance(plan, Sweep)
    one = {"cells": ({"learner.method": "CosineClassifier"},), "grid": {"budget.epsilon": (1.0,)}}
    (cell,) = sweep(plan.model_copy(update=one), tmp_path / "s", processes=1)
    assert cell.status == "done", cell.status
    assert 0.36 < cell.metrics["average_accuracy"]["mean"] < 0.44  # 40 % over seeds at ε = 1
    assert cell.metrics["epsilon_certified"]["per_record"] <= 1.0
    out = io.StringIO()
    show([cell], Console(file=out, width=200), reference("tobaben2025/A3"))
    assert "72.78% ± 0.51%" in out.getvalue() and "here: backbone efficientnet-lite0" in out.getvalue()
