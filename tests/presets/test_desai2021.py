"""Tables 1 and 2 of Desai et al. 2021: what is compared, what the paper prints, and its trends on small runs."""

from pathlib import Path
from typing import Any

import pytest

from support.preset_cells import cells, plan
from tacit.certificate.claims import moments_accountant
from tacit.experiment.config.changes import override
from tacit.experiment.config.config import Config
from tacit.experiment.runs.runner import run
from tacit.experiment.sweeps.reference import reference

TABLES = ("desai2021/table-1", "desai2021/table-2")
EPSILONS = {TABLES[0]: (0.85, 0.90, 0.95, 1.00, 1.15, 1.30), TABLES[1]: (0.95, 0.96, 0.97, 0.98, 0.99, 1.00)}


def published(name: str, noise_std: str = "squared") -> list[Config]:
    found = (cell.config for cell in cells(name))
    return [one for one in found if one.learner.options.get("noise_std") == noise_std]


@pytest.mark.parametrize("name", TABLES)
def test_every_row_of_the_paper_stands_beside_a_cell(name: str) -> None:
    table = reference(plan(name).reference or "")
    beside = [table.beside(cell.config) for cell in cells(name)]
    assert all(row in beside for row in table.rows) and len(table.rows) == 7
    assert table.beside(published(name, "linear")[0]) is None  # the corrected code made no table
    assert all(table.beside(one.config) is None for one in cells(name) if one.config.learner.method == "DPCL")
    forgotten = [row.af[0] for row in table.rows if row.af and row.learner == "PublishedDPCL"]
    assert forgotten == sorted(forgotten)  # the paper: the larger ε_i, the more is forgotten


def test_the_tables_are_whole() -> None:
    """The sums of the printed columns."""
    sums = {name: sum(row.af[0] for row in reference(name).rows if row.af) for name in TABLES}
    assert sums == pytest.approx({TABLES[0]: 426.5, TABLES[1]: 136.5})


@pytest.mark.parametrize(("name", "size"), list(zip(TABLES, (55_000, 2_500), strict=True)))
def test_the_steps_are_those_that_give_the_papers_epsilons(name: str, size: int) -> None:
    for config, epsilon in zip(published(name), EPSILONS[name], strict=True):
        options = config.learner.options
        found = moments_accountant(options["batch"] / size, options["noise"], options["steps"], config.budget.delta)
        assert found == pytest.approx(epsilon, abs=1e-3 if name == TABLES[0] else 0.02)
        assert len(config.seeds) == 5 and config.data.held == 3 and config.data.options["tasks"] == 20


def small(config: Config, changes: dict[str, Any] | None = None) -> Config:
    sets: dict[str, Any] = {
        "seeds": [0], "lca": 1, "threads": 1, "data.source": "digits", "data.records": None, "data.tasks": 3,
        "data.held": 0, "model.hidden": [32], "learner.batch": 50, "learner.steps": 60,
    }  # fmt: skip
    return Config.of(override(config.plain(), list((sets | (changes or {})).items())))


def test_trends_of_table_1_on_digits(tmp_path: Path) -> None:
    """More steps learn more and forget more; with the corrected noise next to nothing is learned."""
    base = published(TABLES[0])[0]
    changed = {
        "short": {}, "long": {"learner.steps": 600}, "corrected": {"learner.noise_std": "linear"},
    }  # fmt: skip
    found = {name: run(small(base, one), tmp_path / name, processes=1).metrics for name, one in changed.items()}
    for one in found.values():
        assert one["epsilon_certified"] is None and one["epsilon_claimed"]["per_task"] > 1.47
    forgetting = {name: one["forgetting"]["mean"] for name, one in found.items()}
    accuracy = {name: one["average_accuracy"]["mean"] for name, one in found.items()}
    print(forgetting, accuracy)
    assert forgetting["long"] > forgetting["short"] + 0.05
    assert accuracy["corrected"] < accuracy["short"] - 0.1
