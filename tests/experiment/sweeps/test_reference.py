"""A paper's own numbers: as printed, beside the right runs, and never mixed with ours."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from support.blobs import make_config
from tacit.cli import app
from tacit.errors import ConfigError
from tacit.experiment.config.config import Config, Sweep
from tacit.experiment.config.loading import load, preset_names
from tacit.experiment.config.validation import validated
from tacit.experiment.runs import run_summary
from tacit.experiment.sweeps import comparison, table
from tacit.experiment.sweeps.comparison import show
from tacit.experiment.sweeps.reference import printed, reference, shortened
from tacit.experiment.sweeps.sweep import cells_of, sweep


def config(method: str, epsilon: float = 1.0, network: Any = None, delta: float = 1e-5, **data: Any) -> Config:
    """A run as the presets have them."""
    return make_config(
        learner={"method": method},
        model=network or {"network": "linear"},
        budget={"epsilon": epsilon, "delta": delta},
        data={"source": "digits", "scenario": "split", "tasks": 2} | data,
    )


@pytest.mark.parametrize(("number", "rows", "total"), [("A3", 18, 1277.64), ("A4", 18, 765.01), ("A5", 9, 458.1)])
def test_the_tables_are_whole(number: str, rows: int, total: float) -> None:
    """Every row and the sum of its accuracies, added up from the printed tables."""
    known = reference(f"tobaben2025/{number}")
    assert len(known.rows) == rows and sum(row.aa[0] for row in known.rows) == pytest.approx(total, abs=0.005)
    for learner in {row.learner for row in known.rows}:
        adapters = {row.adapter for row in known.rows if row.learner == learner}
        for adapter in adapters:
            own = [row.epsilon for row in known.rows if (row.learner, row.adapter) == (learner, adapter)]
            assert own == [1, 8, None]


def test_known_cells() -> None:
    known = reference("tobaben2025/A3")
    cosine = known.beside(config("CosineClassifier"))
    assert cosine is not None and cosine.aa == [72.78, 0.51] and cosine.af == [9.92, 0.51]
    free = known.beside(config("CosineClassifier", 1e4))
    assert free is not None and free.epsilon is None and free.aa == [79.02, 0.0]
    film = known.beside(config("PEFTEnsemble", 8, {"network": "pretrained", "adapter": "film"}))
    last = known.beside(config("PEFTEnsemble", 8))
    assert film is not None and film.aa == [85.26, 0.633] and last is not None and last.aa == [82.48, 0.31]
    assert last.af is None and printed(last.af) == "–" and printed(last.aa) == "82.48% ± 0.31%"
    joint = known.beside(config("Joint"))
    assert joint is not None and printed(joint.aa) == "85.1%"
    assert reference("tobaben2025/A4").beside(config("CosineClassifier", 8)).aa == [46.17, 0.21]  # type: ignore[union-attr]
    assert reference("tobaben2025/A5").beside(config("NaiveDPSGD", 8)).af == [90.0, 2.0]  # type: ignore[union-attr]


def test_no_row_is_borrowed() -> None:
    known = reference("tobaben2025/A3")
    assert known.beside(config("CosineClassifier", 2)) is None
    assert known.beside(config("CosineClassifier", delta=1e-4)) is None
    assert known.beside(config("DPCL")) is None
    assert known.beside(config("PEFTEnsemble", network={"network": "mlp"})) is None
    assert reference("tobaben2025/A5").beside(config("PEFTEnsemble")) is None  # the paper has FiLM there only


def test_what_differs_is_said() -> None:
    known = reference("tobaben2025/A3")
    assert known.differences(config("CosineClassifier", features="efficientnet-lite0"), 10) == [
        "backbone efficientnet-lite0"
    ]
    assert known.differences(config("CosineClassifier", features="vit-b16"), 10) == []
    assert known.differences(config("CosineClassifier"), 4) == ["backbone none", "4 tasks in place of 10"]
    assert "Table A3" in known.source and "ViT-B/16" in known.title


def test_wrong_names_are_one_sentence(tmp_path: Path) -> None:
    for name, words in (
        ("tobaben2025/A9", "did you mean|there are"),
        ("nobody/A1", "is not a table of a paper"),
        ("A3", "is not a table"),
    ):
        with pytest.raises(ConfigError, match=words):
            reference(name)
    plan = validated(Sweep, {"kind": "sweep", "name": "s", "base": make_config().plain(), "reference": "x/y"})
    with pytest.raises(ConfigError, match="is not a table of a paper"):
        sweep(plan, tmp_path / "s")
    assert not (tmp_path / "s").exists()
    assert not any(name.endswith("reference") for name in preset_names())


def test_the_sweeps_table_has_the_papers_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    base = make_config(
        learner={"method": "NaiveDPSGD", "steps": 2, "batch": 20},
        model={"network": "linear"},
        data={"source": "digits", "scenario": "split", "tasks": 2, "limit": 60, "task_id": "hidden"},
        budget={"epsilon": 1.0, "delta": 1e-5},
        lca=1,
    ).plain()
    values = {
        "kind": "sweep", "name": "s", "base": base, "reference": "tobaben2025/A3", "grid": {"budget.epsilon": [1, 2]}
    }  # fmt: skip
    Path("s.yaml").write_text(json.dumps(values))
    plan = validated(Sweep, values)
    cells = sweep(plan, tmp_path / "s", processes=1)
    out = io.StringIO()
    show(cells, Console(file=out, width=200), reference("tobaben2025/A3"))
    shown = out.getvalue()
    assert "paper (ViT-B/16): average accuracy" in shown and "9.35% ± 0.14%" in shown
    assert "not measured here; here: backbone none, data.limit = 60, 2 tasks in place of" in shown
    many = io.StringIO()
    show([*cells, *cells, *cells], Console(file=many, width=200), reference("tobaben2025/A3"))
    line = next(line for line in many.getvalue().splitlines() if line.startswith("epsilon=2"))
    assert line.count("–") == 3  # no accuracy, no forgetting of the paper at ε = 2, and no claim
    found = CliRunner().invoke(app, ["run", "s.yaml", "--out", "s", "--json", "--processes", "1", "--quiet"])
    rows = json.loads(found.stdout)
    assert rows[0]["paper"]["aa"] == [9.35, 0.14] and "paper" not in rows[1]


def test_what_has_to_be_said_of_the_data_is_said_beside_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.experiment.runs.planning.caveats", lambda _: ["digits are here as a copy"])
    base = make_config(learner={"method": "NaiveDPSGD", "steps": 2, "batch": 20}, lca=1, budget={"epsilon": 1.0})
    data = {"data.limit": 60, "data.tasks": 2}
    plan = validated(Sweep, {"kind": "sweep", "name": "s", "base": base.plain(), "cells": [data]})
    cells = sweep(plan, tmp_path / "s", processes=1)
    assert json.loads(cells[0].folder.metrics.read_text())["caveats"] == ["digits are here as a copy"]
    for print_it in (
        lambda console: show(cells, console),
        lambda console: table.show(run_summary.read(cells[0].config, cells[0].folder), console),
    ):
        out = io.StringIO()
        print_it(Console(file=out, width=200))
        assert out.getvalue().count("digits are here as a copy") == 1


def test_a_shortened_run_is_remarked_on() -> None:
    known = reference("tobaben2025/A3")
    data = {"source": "cifar100", "scenario": "split", "tasks": 10}
    whole = make_config(name="tobaben2025/split-cifar100", data=data, learner="cosine")
    short = make_config(name="tobaben2025/split-cifar100", data=data | {"limit": 50}, learner="cosine")
    assert [one for one in known.differences(short, 10) if one not in known.differences(whole, 10)] == [
        "data.limit = 50"
    ]
    permuted = {"source": "mnist", "scenario": "permuted", "tasks": 2, "records": 55000}
    own = make_config(name="lai2022/permuted-mnist", data=permuted)
    assert shortened(own) == [] and shortened(make_config(name="mine", data=permuted)) == ["data.records = 55000"]
    fewer = make_config(name="lai2022/permuted-mnist", data=permuted | {"records": 100, "limit": [9, 9]})
    assert shortened(fewer) == ["data.limit = [9, 9]", "data.records = 100"]


def test_desai_prints_worst_forgetting_and_the_learning_curve_area() -> None:
    """As in its Tables 1 and 2, beside our own columns."""
    rows = reference("desai2021/table-1").rows
    assert [row.worst[0] for row in rows if row.worst] == [27.2, 58.6, 80.9, 84, 85.1, 86.3, 86.4]
    assert [row.lca[0] for row in rows if row.lca] == [0.481, 0.146, 0.123, 0.12, 0.119, 0.124, 0.121]
    assert [row.worst[0] for row in reference("desai2021/table-2").rows if row.worst][1:] == [
        31.4, 33.5, 37.7, 42.8, 43.5, 45.5
    ]  # fmt: skip
    asked = load("desai2021/table-1")
    assert isinstance(asked, Sweep)
    cells = cells_of(asked, Path("runs"))[:2]
    measured = {
        "lca": {"paper": {"mean": 0.5, "std": None}}, "worst_forgetting": {"mean": 0.25, "std": 0.01}
    }  # fmt: skip
    table = comparison.worst_forgetting(["AGEM", "DPCL"], cells, [measured, None], reference("desai2021/table-1"))
    assert table is not None and table.row_count == 1
    assert [list(column.cells) for column in table.columns] == [
        ["AGEM"], ["25.0% ± 1.0%"], ["27.2% ± 0.86%"], ["0.500"], ["0.481 ± 0.005"]
    ]  # fmt: skip
