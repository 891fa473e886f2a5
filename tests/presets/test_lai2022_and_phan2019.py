"""The presets of Lai et al. 2022 and Phan et al. 2019: they hold what the papers say, and run on small data."""

import os
from pathlib import Path
from typing import Any

import pytest

from support.preset_cells import cells, plan
from tacit.data.benchmarks.named import find
from tacit.experiment.config.changes import override
from tacit.experiment.config.config import Config
from tacit.experiment.runs.resolver import open_stream
from tacit.experiment.runs.runner import run
from tacit.experiment.sweeps.reference import reference

NAMES = (
    "lai2022/permuted-mnist", "lai2022/permuted-cifar10", "lai2022/split-mnist", "lai2022/split-cifar10-100",
    "lai2022/naive-grid", "lai2022/unequal-tasks", "phan2019/permuted-mnist", "phan2019/permuted-cifar10",
)  # fmt: skip
REAL = os.environ.get("TACIT_DATA")


def privacy(name: str, method: str) -> set[float]:
    return {cell.config.budget.epsilon for cell in cells(name) if cell.config.learner.method == method}


def test_what_the_papers_compare() -> None:
    for method in ("L2DPML", "NaiveGaussian", "LifelongDP"):
        assert privacy("lai2022/permuted-mnist", method) == {0.5, 1.0, 2.0}
        assert privacy("lai2022/permuted-cifar10", method) == {4.0, 7.0, 10.0}
    assert privacy("lai2022/split-mnist", "L2DPML") == {0.5, 1.0}
    assert privacy("phan2019/permuted-mnist", "DPL2M") == {0.5, 1.0, 2.0}
    assert privacy("phan2019/permuted-cifar10", "DPL2M") == {4.0, 10.0}
    epochs = {
        (one.config.budget.epsilon, one.config.learner.options["epochs"])
        for one in cells("lai2022/split-cifar10-100")
        if one.config.learner.method == "L2DPML"
    }
    assert epochs == {(4.0, 1.0), (4.0, 2.0), (4.0, 3.0), (7.0, 1.0), (10.0, 1.0)}
    for name in NAMES:
        assert all(len(cell.config.seeds) == (1 if name == "lai2022/naive-grid" else 5) for cell in cells(name))


@pytest.mark.parametrize("name", ["phan2019/permuted-mnist", "phan2019/permuted-cifar10"])
def test_batch_and_rate_of_phan(name: str) -> None:
    """The rate is A-GEM's only: with it DPL2M, normalised, learns nothing, so that it has its own default."""
    batch, lr = (2500, 0.1) if "mnist" in name else (500, 0.2)
    for cell in cells(name):
        method, options = cell.config.learner.method, cell.config.learner.options
        assert method == "LifelongDP" or options["batch"] == batch
        assert method == "LifelongDP" or options["lr"] == (lr if method == "AGEM" else None)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "lai2022/unequal-tasks"])
def test_every_row_of_the_paper_stands_beside_a_cell(name: str) -> None:
    table = reference(plan(name).reference or "")
    beside = [table.beside(cell.config) for cell in cells(name)]
    assert all(row in beside for row in table.rows)
    assert table.title == "paper" and table.paper in ("Lai et al. 2022", "Phan et al. 2019")


def test_known_numbers() -> None:
    """And the sums of whole tables, added up from the paper's text."""
    mnist = reference("lai2022/permuted-mnist")
    found = {
        (cell.config.learner.method, cell.config.budget.epsilon): mnist.beside(cell.config)
        for cell in cells("lai2022/permuted-mnist")
        if cell.config.learner.options.get("epochs") in (None, 1.0)
    }
    assert found["L2DPML", 0.5].aa == [47.73, None] and found["L2DPML", 0.5].af == [30.5, 0.886]  # type: ignore[union-attr]
    assert found["NaiveGaussian", 0.5].aa == [10.43, None] and found["AGEM", 0.5].aa == [71.03, None]  # type: ignore[union-attr]
    assert found["LifelongDP", 0.5] is None
    grid = reference("lai2022/naive-grid")
    assert len(grid.rows) == 45 and sum(row.aa[0] for row in grid.rows if row.aa) == pytest.approx(550.29)
    har = reference("lai2022/har")
    assert len(har.rows) == 36 and sum(row.af[0] for row in har.rows if row.af) == pytest.approx(431.58)


def test_larger_budgets_and_more_epochs_are_held_against_the_smallest() -> None:
    for name in NAMES:
        if name == "lai2022/naive-grid":
            continue
        of = {cell.name: cell.baseline for cell in cells(name)}
        for cell in cells(name):
            origin = of[cell.name]
            options = cell.config.learner.options
            if origin is None:
                assert options.get("epochs") in (None, 1.0)
            else:
                assert origin.config.learner.method == cell.config.learner.method
                assert origin.config.budget.epsilon <= cell.config.budget.epsilon


def test_tasks_of_unequal_size_in_random_orders() -> None:
    sizes = plan("lai2022/unequal-tasks").base["data"]["limit"]  # type: ignore[index]
    base = small(cells("lai2022/unequal-tasks")[0].config, {"data.tasks": 4, "data.limit": [40, 10, 20, 90]})
    assert max(sizes) > 90 * min(sizes)
    orders = set()
    for seed in range(4):
        (given, shuffled) = (
            [task.size for task in open_stream(base.data.model_copy(update={"shuffled": on}), seed).info.tasks]
            for on in (False, True)
        )
        assert given == [40, 10, 20, 90] and sorted(shuffled) == [10, 20, 40, 90]
        orders.add(tuple(shuffled))
    assert len(orders) > 1
    again = open_stream(base.data.model_copy(update={"shuffled": True}), 3).info
    assert again == open_stream(base.data.model_copy(update={"shuffled": True}), 3).info


def small(config: Config, changes: dict[str, Any] | None = None, source: str = "digits") -> Config:
    """The same run on two tasks of a few records."""
    sets: dict[str, Any] = {"seeds": [0], "lca": 1, "threads": 1, "data.source": source, "data.limit": 40}
    scenario = config.data.scenario
    if scenario == "concatenate":
        sets |= {"data.source": [source], "data.parts": [2]}
    else:
        sets |= {"data.tasks": 2}
    if scenario == "permuted":
        sets |= {"data.records": None}
    for key, value in {"batch": 10, "memory_batch": 4, "memory_per_class": 2}.items():
        if key in config.learner.options:
            sets[f"learner.{key}"] = value
    if config.learner.options.get("variant") == "code" and config.model.network == "resnet18_lai":
        sets["model.network"] = "cnn_patches"  # half of 8 pixels is too small for the other
    if isinstance(config.learner.options.get("epochs"), list):
        sets["learner.epochs"] = 1
    if config.learner.options.get("steps") is not None:
        sets["learner.steps"] = 2
    if config.learner.options.get("noise") is not None:
        sets["learner.noise"] = 20.0
    return Config.of(override(config.plain(), list((sets | (changes or {})).items())))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "lai2022/naive-grid" else []) for name in NAMES]
)
def test_its_first_cell_runs(name: str, tmp_path: Path) -> None:
    found = run(small(cells(name)[0].config), tmp_path / "r", processes=1)
    assert found.metrics["average_accuracy"] is not None and found.metrics["tasks"] == 2


KINDS = [
    pytest.param(name, method, variant, id=f"{name}-{method}-{variant}")
    for name in NAMES
    for method, variant in dict.fromkeys(
        (cell.config.learner.method, cell.config.learner.options.get("variant")) for cell in cells(name)
    )
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "method", "variant"), KINDS)
def test_every_kind_of_cell_runs(name: str, method: str, variant: str | None, tmp_path: Path) -> None:
    config = next(
        cell.config
        for cell in cells(name)
        if (cell.config.learner.method, cell.config.learner.options.get("variant")) == (method, variant)
    )
    found = run(small(config), tmp_path / "r", processes=1)
    certified = found.metrics["epsilon_certified"]
    if method in ("AGEM", "L2DPML", "DPL2M"):
        assert certified is None
    else:
        assert certified["per_record"] <= config.budget.epsilon


@pytest.mark.slow
@pytest.mark.skipif(not REAL or find("mnist", REAL) is None, reason="real data: TACIT_DATA must hold mnist")
def test_real_digits_in_short(tmp_path: Path) -> None:
    config = next(
        cell.config for cell in cells("lai2022/permuted-mnist") if cell.config.learner.method == "NaiveGaussian"
    )
    short = small(config, {"data.limit": 400, "learner.batch": 50}, "mnist")
    found = run(short, tmp_path / "r", processes=1)
    claimed = found.metrics["epsilon_claimed"]
    assert claimed["total"] <= 0.5 and found.metrics["epsilon_certified"]["per_record"] < claimed["total"]
