"""A sweep runs every cell once, goes on where it was, and says of each how it stands."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from typer.testing import CliRunner

from support.blobs import make_config
from support.preset_cells import cells
from tacit.cli import app
from tacit.errors import OUT_OF_MEMORY, ConfigError
from tacit.experiment.config.config import Config, Sweep
from tacit.experiment.config.validation import validated
from tacit.experiment.progress import Stop, Stopped
from tacit.experiment.runs import worker
from tacit.experiment.sweeps import comparison
from tacit.experiment.sweeps import sweep as module
from tacit.experiment.sweeps.sweep import cell_name, cells_of, fitting, sweep

BASE = make_config(learner={"method": "NaiveDPSGD", "steps": 3, "batch": 20}).plain()


def plan(**values: Any) -> Sweep:
    return validated(Sweep, {"kind": "sweep", "name": "s", "base": BASE, **values})


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "cells.csv").open() as file:
        return list(csv.DictReader(file))


class Runs:
    """In place of a run: notes what was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fail: set[str] = set()

    def __call__(self, config: Config, folder: Path, *, stop: Stop, **_: Any) -> Any:
        self.asked.append(folder.name)
        if folder.name in self.fail:
            raise ConfigError("it cannot be")
        if len(self.asked) == 3:
            stop.request()
            raise Stopped("stopped")
        folder.mkdir(parents=True)
        found = {"average_accuracy": {"mean": 0.5, "std": None, "per_seed": [0.5]}, "seeds": [0]}
        (folder / "metrics.json").write_text('{"average_accuracy": {"mean": 0.5, "std": null}, "seeds": [0]}')
        return type("Found", (), {"metrics": found})()


def test_a_grid_is_every_combination_and_cells_are_what_they_say(tmp_path: Path) -> None:
    grid = {"learner.steps": [2, 3], "budget.epsilon": [0.5, 1]}
    cells = cells_of(plan(grid=grid), tmp_path)
    assert [cell.name for cell in cells] == [
        "steps=2_epsilon=0.5", "steps=2_epsilon=1", "steps=3_epsilon=0.5", "steps=3_epsilon=1"
    ]  # fmt: skip
    assert cells[1].config.learner.options["steps"] == 2 and cells[1].config.budget.epsilon == 1.0
    listed = cells_of(
        plan(cells=[{"learner.method": "DPCL"}, {"learner.method": "AGEM"}], grid={"seeds": [1]}), tmp_path
    )
    assert [cell.config.learner.method for cell in listed] == ["DPCL", "AGEM"]
    assert len(cells_of(plan(), tmp_path)) == 1


def test_a_wrong_cell_is_found_before_any_is_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"learner.stepz = 3 is not a setting of NaiveDPSGD; did you mean steps"):
        sweep(plan(grid={"learner.stepz": [3]}), tmp_path / "s")
    with pytest.raises(ConfigError, match="two cells of the sweep make the same changes"):
        sweep(plan(cells=[{"learner.steps": 2}, {"learner.steps": 2}]), tmp_path / "s")
    with pytest.raises(ConfigError, match="this one has kind 'accumulation'"):
        sweep(plan(base="desai2021/accumulation"), tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_names_do_not_depend_on_the_other_cells_and_are_safe() -> None:
    assert cell_name({}) == "base"
    odd = cell_name({"learner.steps": [1, 2], "data.source": "a/b"})
    assert "/" not in odd and odd == cell_name({"learner.steps": [1, 2], "data.source": "a/b"})
    assert odd != cell_name({"learner.steps": [1, 2], "data.source": "a b"})
    assert len(cell_name({"learner.steps": list(range(300))})) < 100


def test_it_goes_on_and_tries_failed_cells_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs()
    monkeypatch.setattr(module, "run", runs)
    runs.fail = {"steps=2"}
    four = plan(grid={"learner.steps": [1, 2, 3, 4]})
    with pytest.raises(Stopped):
        sweep(four, tmp_path, processes=1)
    assert runs.asked == ["steps=1", "steps=2", "steps=3"]
    assert [row["status"] for row in table(tmp_path)] == ["done", "failed: it cannot be", "not run", "not run"]
    assert table(tmp_path)[0]["average_accuracy_mean"] == "0.5" and table(tmp_path)[2]["average_accuracy_mean"] == ""
    runs.fail = set()
    assert {cell.status for cell in sweep(four, tmp_path, processes=1)} == {"done"}
    assert runs.asked[3:] == ["steps=2", "steps=3", "steps=4"]


@pytest.mark.parametrize("processes", [1, 2])
def test_cells_without_gpu_memory_do_not_stop_the_others(
    processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside others, they are resumed alone; alone, they are tried again by the next call."""
    asked: list[str] = []

    class Full(Runs):
        def __call__(self, config: Config, folder: Path, *, stop: Stop, **named: Any) -> Any:
            asked.append(folder.name)
            if folder.name == "steps=1" and asked.count(folder.name) == 1:
                raise torch.OutOfMemoryError("CUDA out of memory")
            self.asked = []
            return super().__call__(config, folder, stop=stop, **named)

    monkeypatch.setattr(module, "run", Full())
    two = plan(grid={"learner.steps": [1, 2]})
    cells = sweep(two, tmp_path, processes=processes)
    if processes == 1:
        assert [cell.status for cell in cells] == [f"failed: {OUT_OF_MEMORY}", "done"]
        cells = sweep(two, tmp_path, processes=1)
    assert {cell.status for cell in cells} == {"done"}
    assert sorted(asked) == ["steps=1", "steps=1", "steps=2"]


def test_a_worker_without_gpu_memory_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("tacit.experiment.runs.runner.run_seed", full)
    monkeypatch.setattr(worker, "_until_input_ends", lambda stop: None)
    monkeypatch.setattr(worker.signal, "signal", lambda *_: None)
    assert worker.main(str(tmp_path), "0", "", "") == 1
    assert json.loads(capsys.readouterr().out) == {"error": OUT_OF_MEMORY}


def test_the_folder_alone_is_enough_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs()
    monkeypatch.setattr(module, "run", runs)
    file, out = tmp_path / "four.yaml", tmp_path / "a folder"
    file.write_text(yaml.safe_dump(plan(grid={"learner.steps": [1, 2, 3, 4]}).model_dump(mode="json")))
    stopped = CliRunner().invoke(app, ["run", str(file), "--out", str(out), "--processes", "1", "--quiet"])
    assert stopped.exit_code == 130
    assert f"resume with: tacit run '{out}' --resume" in " ".join(stopped.stderr.split())
    file.unlink()
    monkeypatch.setattr(comparison, "show", lambda *_: None)
    for command in ("run", "sweep"):
        found = CliRunner().invoke(app, [command, str(out), "--resume", "--processes", "1", "--quiet"])
        assert found.exit_code == 0, found.output
    assert runs.asked == ["steps=1", "steps=2", "steps=3", "steps=3", "steps=4"]
    assert [row["status"] for row in table(out)] == ["done"] * 4
    wrong = CliRunner().invoke(app, ["sweep", "quickstart", "--resume"])
    assert wrong.exit_code == 1 and "--resume needs the folder of the sweep" in wrong.stderr


def test_after_its_time_it_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "run", Runs())
    cells = sweep(plan(grid={"learner.steps": [1, 2]}), tmp_path, processes=1, limit_minutes=-1)
    assert {cell.status for cell in cells} == {"not run"}


def test_real_cells_in_this_process(tmp_path: Path) -> None:
    base = BASE | {"data": {"source": "digits", "scenario": "permuted", "tasks": 2, "limit": 60}, "lca": 1}
    cells = sweep(plan(base=base, grid={"budget.epsilon": [1, 4]}), tmp_path, processes=1)
    assert {cell.status for cell in cells} == {"done"}
    row = table(tmp_path)[1]
    assert row["budget.epsilon"] == "4" and 0 <= float(row["average_accuracy_mean"]) <= 1 and row["lca_paper_mean"]


def test_only_the_cells_that_fit_are_run(tmp_path: Path) -> None:
    base = make_config(learner={"method": "NaiveDPSGD", "steps": 2, "batch": 20}).plain()
    plan = validated(Sweep, {"kind": "sweep", "name": "s", "base": base, "grid": {"budget.epsilon": [0.5, 1.0, 2.0]}})
    found = sweep(plan, tmp_path / "s", only=["*=0.5", "*=2*"], processes=1)
    assert [(cell.name, cell.status) for cell in found] == [("epsilon=0.5", "done"), ("epsilon=2.0", "done")]
    with (tmp_path / "s" / "cells.csv").open() as handle:
        states = {row["folder"]: row["status"] for row in csv.DictReader(handle)}
    assert states == {"epsilon=0.5": "done", "epsilon=1.0": "not run", "epsilon=2.0": "done"}
    with pytest.raises(ConfigError, match=r"no cell fits --cells '9\*'; the cells .*:\n  epsilon=0.5\n  epsilon=1.0"):
        sweep(plan, tmp_path / "t", only=["*", "9*"], processes=1)
    assert not (tmp_path / "t").exists()
    assert len(sweep(plan, tmp_path / "s", processes=1)) == 3  # the folder goes on with all of them


def test_patterns_fit_names_that_are_too_long_for_a_folder() -> None:
    found = cells("lai2022/har")
    chosen = fitting(found, ["*variant=code*epsilon=0.5"])
    assert [(c.config.learner.options["variant"], c.config.budget.epsilon) for c in chosen] == [("code", 0.5)]
    assert fitting(found, [chosen[0].name]) == chosen and len(chosen[0].name) < 100


def test_the_command_takes_patterns(tmp_path: Path) -> None:
    base = make_config(learner={"method": "NaiveDPSGD", "steps": 2, "batch": 20}).plain()
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump({"kind": "sweep", "name": "s", "base": base, "grid": {"budget.epsilon": [0.5, 1]}}))
    call = ["sweep", str(file), "--quiet", "--processes", "1", "--out", str(tmp_path / "s"), "--json", "--cells"]
    rows = json.loads(CliRunner().invoke(app, [*call, "*0.5"]).output)
    assert [row["folder"] for row in rows] == ["epsilon=0.5"]
    wrong = CliRunner().invoke(app, [*call, "*0.7"])
    assert wrong.exit_code == 1 and "no cell fits" in wrong.output and "epsilon=0.5" in wrong.output
