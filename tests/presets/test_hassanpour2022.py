"""The presets of Hassanpour et al. 2022 on learners in turn and on data: what they hold, and that they run in short."""

import csv
import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from support.preset_cells import cells
from tacit.data.benchmarks.named import find
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.experiment.config.changes import override
from tacit.experiment.config.config import Config, Sweep
from tacit.experiment.config.validation import validated
from tacit.experiment.runs.resolver import make_budget, make_learner
from tacit.experiment.runs.runner import run
from tacit.experiment.sweeps import comparison
from tacit.experiment.sweeps.reference import reference
from tacit.experiment.sweeps.sweep import sweep
from tacit.learners.pool.pool import Pool
from tacit.learners.published.published_robust_dpcl import PublishedRobustDPCL
from tacit.memory import stay_for
from tacit.privacy.accounting.epsilon import epsilon
from tacit.privacy.accounting.events import compose

LEARNERS = ("hassanpour2022/learners", "hassanpour2022/learners-cifar")
ATTACKS = ("hassanpour2022/attacks", "hassanpour2022/attacks-cifar")
CONSUMPTION = "hassanpour2022/consumption"
FAST = [(LEARNERS[0], 1), (LEARNERS[1], 1), (ATTACKS[0], 0)]
REAL = os.environ.get("TACIT_DATA")


def planned(config: Config, size: int, tasks: int = 17) -> Pool:
    """The learner of a cell, with all its reads planned for tasks of so many records; no data."""
    info = StreamInfo.uniform("s", labels=range(2), shape=(2,), size=size, tasks=tasks, task_id="given")
    linear = config.model_copy(update={"model": type(config.model)(network="linear")})
    made = make_learner(linear, make_budget(config.budget, "record"), 0)
    assert isinstance(made, Pool)
    made.start(info)
    return made


def pools(name: str) -> list[dict[str, Any]]:
    return [cell.config.learner.options for cell in cells(name) if cell.config.learner.method == "Pool"]


@pytest.mark.parametrize("name", LEARNERS)
def test_what_the_paper_compares(name: str) -> None:
    found = {
        (one["noise"], one["tasks_per_learner"], one["fine_tune"], one["early_start"])
        for one in pools(name)
        if one["noise"] == one["memory_noise"] and (one["batch"], one["epochs"], one["steps"]) == (10, 1.0, None)
    }
    shapes = {(None, None, False), (None, "public", False)}
    shapes |= {(each, *how) for each in (9, 6) for how in ((None, False), ("public", False), ("public", True))}
    assert found == {(noise, *shape) for noise in (2.0, 4.0, 8.0) for shape in shapes}
    for cell in cells(name):
        assert len(cell.config.seeds) == 5 and cell.config.data.held == 3 and cell.config.data.options["tasks"] == 20
    methods = [cell.config.learner.method for cell in cells(name)]
    assert methods.count("AGEM") == 1 and methods.count("LifelongDP") == 3


@pytest.mark.parametrize(("name", "size"), list(zip(LEARNERS, (60_000, 2_500), strict=True)))
def test_learners_halt_as_printed_and_the_successor_is_given_what_they_cost(name: str, size: int) -> None:
    given = [cell.config.budget.epsilon for cell in cells(name) if cell.config.learner.method == "LifelongDP"]
    for noise, same in zip((2.0, 4.0, 8.0), given, strict=True):
        config = next(one.config for one in cells(name) if one.config.learner.options.get("noise") == noise)
        one = planned(config, size)
        lost = max(epsilon(compose(events), 1e-5) for events in (one.charges()[0], one.memory_.schedule.events(0)))
        assert 0.98 * lost <= same <= lost
    two, three = (
        next(one.config for one in cells(name) if one.config.learner.options.get("tasks_per_learner") == each)
        for each in (9, 6)
    )
    assert planned(two, size).learner_schedule_.spans == (9, 8) and planned(three, size).learner_schedule_.spans == (
        6,
        6,
        5,
    )


def test_stays_are_what_the_budget_allows() -> None:
    """And the more noise, the longer a record may stay: that is what makes less noise consume more records."""
    stays: dict[bool, list[int]] = {True: [], False: []}
    for cell in cells(CONSUMPTION):
        learner = planned(cell.config, cell.config.data.options["records"])
        own = cell.config.learner.options["stay"]
        assert own == stay_for(learner.budget, learner.memory_.schedule)
        stays[cell.config.learner.options["early_start"]].append(own)
    assert stays == {False: [2, 9, 16], True: [1, 8, 16]}


def test_the_short_form_of_the_preset_has_stays_that_fit() -> None:
    for cell in cells(CONSUMPTION):
        config = Config.of(override(cell.config.plain(), [("data.records", 1000), ("learner.memory_share", 0.16)]))
        learner = planned(config, 1000)  # refused if they did not
        assert learner.memory_.schedule.stay == cell.config.learner.options["stay"]


def small(config: Config, changes: dict[str, Any] | None = None) -> Config:
    sets: dict[str, Any] = {
        "seeds": [0], "lca": 1, "threads": 1, "data.source": "digits", "data.tasks": 5, "data.held": 1,
        "data.limit": 100, "budget.epsilon": 200.0,
    }  # fmt: skip
    if config.data.scenario == "split":
        sets |= {"data.classes_per_task": 2, "model.network": "mlp"}
    else:
        sets |= {"data.records": None, "model.hidden": [8]}
    options = config.learner.options
    if "memory_per_class" in options:
        sets |= {"learner.memory_batch": 8}
    if options.get("tasks_per_learner") is not None:
        sets |= {"learner.tasks_per_learner": 2}
    return Config.of(override(config.plain(), list((sets | (changes or {})).items())))


KINDS = [
    pytest.param(name, place, id=f"{name}-{cell.name}", marks=[] if place in (0, 5, 25) else [pytest.mark.slow])
    for name in LEARNERS
    for place, cell in enumerate(cells(name))
    if place < 9 or cell.config.learner.method == "LifelongDP"
]


@pytest.mark.parametrize(("name", "place"), KINDS)
def test_every_kind_of_cell_runs(name: str, place: int, tmp_path: Path) -> None:
    config = small(cells(name)[place].config)
    found = run(config, tmp_path / "r", processes=1)
    assert found.metrics["tasks"] == 4 and found.metrics["average_accuracy"] is not None
    certified = found.metrics["epsilon_certified"]
    assert (certified is None) == (config.learner.method == "AGEM")
    if config.learner.options.get("tasks_per_learner"):
        first, second = found.metrics["learners"]
        assert first["drop"] is None and second["drop"]["mean"] is not None and second["tasks"] == [3, 4]


def published(name: str) -> list[Config]:
    return [cell.config for cell in cells(name) if cell.config.learner.method == "PublishedRobustDPCL"]


@pytest.mark.parametrize("name", [*LEARNERS, *ATTACKS])
def test_the_published_rule_has_its_noise_layer_and_replaces_spent_records(name: str) -> None:
    found = published(name)
    assert len(found) == {LEARNERS[0]: 9, LEARNERS[1]: 3}.get(name, 1)
    for config in found:
        options, bias = config.learner.options, config.model.network == "mlp"
        assert (options["layer_noise"] > 0) == bias  # the first convolution of a ResNet has none
        assert options["efficient_memory"] and options["by_class"]
        assert options["batch"] == options["memory_batch"] == 10 and (options["epochs"], options["steps"]) == (
            1.0,
            None,
        )
        learner = make_learner(config, make_budget(config.budget, "record"), 0)
        assert isinstance(learner, PublishedRobustDPCL)
        size = 60_000 if "cifar" not in name else 2_500
        task = StreamInfo.uniform("s", labels=range(2), shape=(2,), size=size, tasks=1).tasks[0]
        steps = size // 10
        assert 1 <= learner.reads_allowed(task) < 4 * steps  # not so many that none is ever spent
    each = {options["tasks_per_learner"] for options in (config.learner.options for config in found)}
    assert each == ({None, 9, 6} if name in LEARNERS else {None})


PRINTED = [
    pytest.param(name, place, id=f"{name}-{place}", marks=[] if (name, place) in FAST else [pytest.mark.slow])
    for name in (*LEARNERS, *ATTACKS)
    for place in range(len(published(name)))
]


@pytest.mark.parametrize(("name", "place"), PRINTED)
def test_published_cells_run_in_short(name: str, place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all records tried, two or three a label, of which two reads spend one."""
    config = published(name)[place]
    changes: dict[str, Any] = {"learner.efficient_memory": False, "learner.charged_rate": 1.0}
    changes |= {"learner.record_budget": 8.0 if config.learner.options["noise"] < 4 else 2.0}
    honest, replaced, layer = PublishedRobustDPCL._replace_spent, [], set()

    def watched(self: PublishedRobustDPCL, task: TaskInfo, coins: torch.Generator) -> None:
        before = sum(len(y) for _, y in self.spare_)
        honest(self, task, coins)
        replaced.append(before - sum(len(y) for _, y in self.spare_))
        layer.add(self.layer_noise)

    monkeypatch.setattr(PublishedRobustDPCL, "_replace_spent", watched)
    found = run(small(config, changes | {"learner.memory_per_class": 3}), tmp_path / "r", processes=1)
    assert found.metrics["tasks"] == 4 and found.metrics["epsilon_certified"] is None
    assert sum(replaced) > 0 and layer == {config.learner.options["layer_noise"]}


def test_what_the_paper_says_is_printed_beside(tmp_path: Path) -> None:
    known = reference("hassanpour2022/learners")
    beside = [cell.config for cell in cells(LEARNERS[0]) if known.beside(cell.config) is not None]
    assert len(beside) == 1 and beside[0].learner.options["noise"] == 4.0
    assert any("35 to 45 %" in trend for trend in known.trends)
    made = small(cells(CONSUMPTION)[0].config, {"learner.memory_share": 0.3, "data.held": 0}).plain()
    short = [{"learner.stay": 1}, {"learner.stay": 2, "learner.tasks_per_learner": 2}]
    values = {"kind": "sweep", "name": "s", "base": made, "cells": short, "reference": CONSUMPTION}
    done = sweep(validated(Sweep, values), tmp_path / "s", processes=1)
    out = io.StringIO()
    comparison.show(done, Console(file=out, width=200), reference(CONSUMPTION))
    shown = out.getvalue()
    assert "paper: the more noise, the less data" in shown and "drop where the next begins" in shown
    assert "records, expected" in shown and "retired" in shown
    narrow = io.StringIO()
    four = [replace(cell, changes={"learner.watch_on": f"charged-{n}"}) for n, cell in enumerate(done * 2)]
    comparison.show(four, Console(file=narrow, width=80))
    assert "watch_on=charged-3" in narrow.getvalue() and "…" not in narrow.getvalue()
    with (tmp_path / "s" / "cells.csv").open() as handle:
        retired = [float(row["records_retired"]) for row in csv.DictReader(handle)]
    assert retired == [4 * 30, 3 * 30]  # of 5 tasks with 30 remembered records each


def test_a_run_writes_what_it_consumes(tmp_path: Path) -> None:
    made = small(cells(CONSUMPTION)[0].config, {"learner.memory_share": 0.3, "learner.stay": 2, "seeds": [0, 1]})
    found = run(made, tmp_path / "r", processes=1)
    with (tmp_path / "r" / "consumption.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [(row["seed"], row["task"]) for row in rows] == [(str(s), str(t)) for s in (0, 1) for t in (1, 2, 3, 4)]
    column = {name: [float(row[f"expected_{name}"]) for row in rows[:4]] for name in ("trained", "held", "retired")}
    assert column["trained"] == pytest.approx([70.0] * 4)  # one pass over 70 of 100 records
    assert column["held"] == [0, 30, 60, 60] and column["retired"] == [0, 0, 30, 30]
    totals = found.metrics["consumption"]
    assert totals["trained"] == 280 and totals["admitted"] == 90 and totals["retired"] == 60 and totals["held"] == 60


@pytest.mark.slow
@pytest.mark.skipif(not REAL or find("mnist", REAL) is None, reason="real data: TACIT_DATA must hold mnist")
def test_real_digits_in_short(tmp_path: Path) -> None:
    config = cells(LEARNERS[0])[8].config
    sets = [("data.records", 1000), ("data.tasks", 5), ("learner.tasks_per_learner", 1), ("seeds", [0]), ("lca", 1)]
    found = run(Config.of(override(config.plain(), sets)), tmp_path / "r", processes=1)
    assert found.metrics["tasks"] == 2 and len(found.metrics["learners"]) == 2
    assert found.metrics["epsilon_certified"]["per_record"] < config.budget.epsilon
