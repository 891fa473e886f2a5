"""The activity presets of Lai et al. 2022: they load, hold what the paper compares, and run on small data."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tacit.data.benchmarks import har
from tacit.data.benchmarks.classes import HMP
from tacit.experiment.config.config import Sweep
from tacit.experiment.config.loading import load, presets
from tacit.experiment.sweeps.cell import Cell
from tacit.experiment.sweeps.reference import reference
from tacit.experiment.sweeps.significance import baselines
from tacit.experiment.sweeps.sweep import cells_of, sweep

UP = ["5hz-derived", "10hz-derived", "20hz", "32hz"]
ORDERS = [UP, UP[::-1], ["20hz", "32hz", *UP[:2]], ["20hz", *UP[:2], "32hz"]]
NAMES = ("har", "har-orders", "har-baselines", "har-people")


def cells(name: str) -> list[Cell]:
    plan = load(f"lai2022/{name}")
    assert isinstance(plan, Sweep)
    return cells_of(plan, Path("nowhere"))


def of(found: list[Cell], method: str) -> list[Cell]:
    return [cell for cell in found if cell.config.learner.method == method]


@pytest.mark.parametrize("name", NAMES)
def test_they_say_what_data_they_need(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    listed = {one.name: one for one in presets()}[f"lai2022/{name}"]
    assert listed.missing == listed.needs and {*listed.needs} <= {"har", "har-people"}


def test_the_methods_and_their_budgets() -> None:
    found = cells("har")
    assert {cell.config.budget.delta for cell in found} == {1e-5} and {len(cell.config.seeds) for cell in found} == {5}
    assert all(cell.config.data.options["order"] == UP for cell in found)
    for method, count in {"LifelongDP": 3, "NaiveGaussian": 3, "L2DPML": 14, "AGEM": 2}.items():
        mine = of(found, method)
        assert len(mine) == count
        if method != "AGEM":
            assert {cell.config.budget.epsilon for cell in mine} == {0.2, 0.5, 1.0}
    small = [cell.config for cell in of(found, "L2DPML") if cell.config.budget.epsilon == 0.2]
    for variant in ("code", "text"):
        options = [config.learner.options for config in small if config.learner.options["variant"] == variant]
        trained = [(one["epochs"], one["steps"]) for one in options]
        assert trained == [(1, None), (2, None), (5, None), (None, 13), ([5, 5, 5, 1], None)]
    assert {config.learner.options["low"] for config in small} == {-1.0}  # windows are in [−1, 1]


def test_the_four_orders() -> None:
    found = cells("har-orders")
    assert [list(one) for one in dict.fromkeys(tuple(cell.config.data.options["order"]) for cell in found)] == ORDERS
    assert set(Counter(str(cell.config.data.options["order"]) for cell in found).values()) == {9}
    for cell in of(found, "L2DPML"):
        epochs = cell.config.learner.options["epochs"]
        if isinstance(epochs, list):  # one pass over the 32 Hz task, wherever it comes
            order = cell.config.data.options["order"]
            assert epochs == [1 if name == "32hz" else 5 for name in order]


def test_the_baselines() -> None:
    found = cells("har-baselines")
    assert {cell.config.learner.method for cell in found} == {"Centralised"}
    for source in ("har", "har-people"):
        mine = [cell.config for cell in found if cell.config.data.source == source]
        features = [config.model.options["features"] for config in mine if config.learner.options["scope"] == "all"]
        assert features == [[32] * 3, [64] * 3, [128] * 3, 64, 196, 196]
        assert [one.model.options.get("statistics") for one in mine[4:6]] == [True, False]
        assert [config.learner.options["scope"] for config in mine].count("task") == 2


def write(root: Path) -> None:
    """Five people of each third, a test person among them; HMP's fourteen activities of two volunteers."""
    rng = np.random.default_rng(0)
    rows = [(subject, place, code) for subject in range(1600, 1615) for place, code in enumerate("ACGKHJ")]
    n = 20 * 45
    wisdm: dict[str, Any] = {
        "subject": np.repeat([subject for subject, _, _ in rows], n).astype(np.int16),
        "activity": np.repeat([code for _, _, code in rows], n),
    }
    level = np.repeat([place for _, place, _ in rows], n) * 300 - 750
    wisdm |= {axis: (level + rng.normal(size=len(level)) * 100).astype(np.int32) for axis in "xyz"}
    moves = [(place, name, person) for place, name in enumerate(HMP) for person in ("f1", "m2")]
    hmp: dict[str, Any] = {
        "recording": np.repeat(np.arange(len(moves)), 400).astype(np.int32),
        "volunteer": np.repeat([person for _, _, person in moves], 400),
        "activity": np.repeat([name for _, name, _ in moves], 400),
    }
    near = np.repeat([place for place, _, _ in moves], 400) * 4
    hmp |= {axis: (near + rng.integers(0, 8, len(near))).astype(np.int16) for axis in "xyz"}
    for file, table in zip(har.FILES, (wisdm, hmp), strict=True):
        (root / file).parent.mkdir()
        parquet.write_table(pa.table(table), root / file)


def shortened(plan: Sweep) -> Sweep:
    """One seed, one thread, and of the cells the first of each method, scope and unit, with small batches."""
    keys = ("learner.method", "learner.scope", "data.unit")
    firsts = {tuple(cell.get(key) for key in keys): cell for cell in plan.cells[::-1]}
    quick = tuple({**cell, **({"learner.batch": 20} if "learner.batch" in cell else {})} for cell in firsts.values())
    assert isinstance(plan.base, dict)
    learner = plan.base["learner"] | ({"epochs": 1} if "epochs" in plan.base["learner"] else {})
    base = {**plan.base, "seeds": 1, "threads": 1, "learner": learner}
    return plan.model_copy(update={"base": base, "cells": quick})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["har", "har-baselines", "har-people"])
def test_one_cell_of_every_method_runs(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(tmp_path)
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    plan = load(f"lai2022/{name}")
    assert isinstance(plan, Sweep)
    for cell in sweep(shortened(plan), tmp_path / "s", processes=1):
        assert cell.status == "done", cell.status
        certified = cell.metrics["epsilon_certified"]
        if cell.config.learner.method in ("LifelongDP", "NaiveGaussian"):
            assert certified["per_record"] <= cell.config.budget.epsilon
        else:
            assert certified is None
        assert cell.metrics["tasks"] == 4 and 0 <= cell.metrics["average_accuracy"]["mean"] <= 1


@pytest.mark.parametrize(("name", "compared"), [("har", 18), ("har-orders", 33)])
def test_every_cell_is_compared_with_the_first_of_its_method(name: str, compared: int) -> None:
    plan, found = load(f"lai2022/{name}"), cells(name)
    assert isinstance(plan, Sweep) and plan.baseline is not None
    places = baselines([cell.config for cell in found], plan.baseline)
    methods = [cell.config.learner.method for cell in found]
    assert sum(place is not None for place in places) == compared
    assert all(place is None or place == methods.index(methods[at]) for at, place in enumerate(places))


@pytest.mark.parametrize("name", ["har", "har-orders"])
def test_the_papers_rows_stand_beside_theirs(name: str) -> None:
    plan, found = load(f"lai2022/{name}"), cells(name)
    assert isinstance(plan, Sweep) and plan.reference is not None
    rows = [reference(plan.reference).beside(cell.config) for cell in found]
    methods = [cell.config.learner.method for cell in found]
    assert [row is not None for row in rows] == [method in ("L2DPML", "AGEM") for method in methods]
    assert len({id(row) for row in rows if row is not None}) == methods.count("L2DPML") + methods.count("AGEM")


def test_table_4_stands_beside_the_baselines() -> None:
    table = reference("lai2022/har-baselines")
    beside = [table.beside(cell.config) for cell in cells("har-baselines")]
    assert all(beside.count(row) == 2 for row in table.rows)  # on windows, and on other people
    assert [row.aa[0] for row in table.rows if row.aa] == [81.86, 82.49, 82.62, 78.68, 76.39, 77.08]
    assert beside.count(None) == 4  # each rate alone
