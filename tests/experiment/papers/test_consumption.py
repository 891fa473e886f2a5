"""Fig. 11 of Hassanpour 2022: counts from plans alone are those that a run of the same settings writes."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.preset_cells import cells
from tacit.cli import app
from tacit.data.stream import StreamInfo
from tacit.errors import ConfigError, PlanError
from tacit.experiment.papers.consumption import ConsumptionSetting, counts, run, totals
from tacit.experiment.runs.resolver import make_budget, make_learner

PMNIST = ConsumptionSetting(name="PMNIST", records=60_000, memory_share=0.02, epsilon=2.0)


@pytest.mark.parametrize(("place", "each", "tasks"), [(0, None, 6), (3, 9, 17)])
def test_counts_are_those_of_a_run_of_the_preset(place: int, each: int | None, tasks: int) -> None:
    config = cells("hassanpour2022/consumption")[place].config
    linear = config.model_copy(update={"model": type(config.model)(network="linear")})
    learner = make_learner(linear, make_budget(config.budget, "record"), 0)
    learner.start(StreamInfo.uniform("s", labels=range(2), shape=(2,), size=60_000, tasks=tasks, task_id="given"))
    wanted = [learner.consumption(task) for task in learner.stream_.tasks]
    found = counts(PMNIST, 2.0, tasks, 10, each, 1e-5)
    assert {point.stay for point in found} == {config.learner.options["stay"]}
    gone = 0.0
    for point, one in zip(found, wanted, strict=True):
        assert one is not None
        gone += one.retired
        assert (point.admitted, point.held, point.retired) == (one.admitted, one.held, gone)
        assert point.read == pytest.approx(one.read)


def test_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    # 30 of 100 records are remembered, and each is read for two tasks. The fourth block outlives the stream's end.
    monkeypatch.setattr("tacit.experiment.papers.consumption.stay_for", lambda budget, schedule: 2)
    setting = ConsumptionSetting(name="toy", records=100, memory_share=0.3, epsilon=200.0)
    found = counts(setting, 2.0, 5, 10, None, 1e-4)
    assert [point.admitted for point in found] == [30, 30, 30, 30, 0]
    assert [point.held for point in found] == [0, 30, 60, 60, 60]
    assert [point.retired for point in found] == [0, 0, 30, 60, 90]
    assert totals(found)[0] | {"read": 0} == {
        "data": "toy", "learners": 1, "noise": 2.0, "stay": 2, "admitted": 120, "retired": 90, "held": 60, "read": 0
    }  # fmt: skip


def test_a_budget_that_allows_no_read_is_one_sentence() -> None:
    tight = ConsumptionSetting(name="toy", records=100, memory_share=0.3, epsilon=0.1)
    with pytest.raises(PlanError, match=r"do not fit ε = 0\.1"):
        counts(tight, 2.0, 5, 10, None, 1e-4)


def test_the_command_prints_a_line_for_each_plan(tmp_path: Path) -> None:
    words = ["run", "hassanpour2022/consumption-counts", "--set", "tasks=3", "--set", "noises=[8.0]"]
    words += ["--set", "tasks_per_learner=2", "--out", str(tmp_path / "r"), "--quiet"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert "PMNIST" in shown.output and "SCIFAR" in shown.output and "nothing was trained" in shown.output
    with (tmp_path / "r" / "consumption.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 3 and {row["learners"] for row in rows} == {"1", "2"}
    assert (tmp_path / "r" / "consumption.png").read_bytes().startswith(b"\x89PNG")
    plain = CliRunner().invoke(app, [*words[:-3], "--out", str(tmp_path / "j"), "--quiet", "--json"])
    assert len(json.loads(plain.stdout)["totals"]) == 4
    with pytest.raises(ConfigError, match="at least one noise"):
        run(tmp_path / "n", noises=())
