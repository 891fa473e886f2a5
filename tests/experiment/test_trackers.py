"""A tracker that fails is one warning: the run goes on, and nothing that was charged is lost."""

from pathlib import Path

import pytest

from support.report_folders import BASE
from support.tracked import Failing
from tacit.experiment import Config, Sweep, run, sweep
from tacit.experiment.progress import Event
from tacit.experiment.trackers import Careful, Tracker, reason

ONE = {**BASE, "seeds": 1, "data": {**BASE["data"], "tasks": 2}}


def test_a_run_goes_on_without_its_tracker(tmp_path: Path) -> None:
    events: list[Event] = []
    tracker = Failing()
    done = run(ONE, tmp_path / "run", trackers=[tracker], progress=events.append)
    assert done.left == () and (tmp_path / "run" / "metrics.json").exists()
    assert tracker.attempts == [False, True]  # after the first task, and at the end
    (warning,) = [event.name for event in events if "nothing more is sent" in event.name]
    assert "mlflow" in warning and f"`tacit track {tmp_path / 'run'} --to mlflow`" in warning
    assert "password" not in warning and "more lines" not in warning and "no answer from http://127.0.0.1:1" in warning


def test_a_tracker_that_recovers_is_sent_the_end(tmp_path: Path) -> None:
    tracker = Failing(failures=1)
    with pytest.warns(UserWarning, match="nothing more is sent to mlflow for now"):
        run(ONE, tmp_path / "run", trackers=[tracker])
    assert tracker.attempts == [False, True]
    tracker.attempts.clear()
    run(ONE, tmp_path / "run", resume=True, trackers=[tracker])  # nothing is left to learn
    assert tracker.attempts[-1] is True


def test_a_sweep_warns_once(tmp_path: Path) -> None:
    plan = Sweep.model_validate({"kind": "sweep", "name": "s", "base": ONE, "grid": {"learner.steps": [2, 3, 4]}})
    events: list[Event] = []
    tracker = Failing()
    cells = sweep(plan, tmp_path, processes=1, trackers=[tracker], progress=events.append)
    assert [cell.status for cell in cells] == ["done"] * 3
    assert len([event for event in events if "nothing more is sent" in event.name]) == 1
    assert tracker.attempts == [False, True]


def test_only_errors_are_caught() -> None:
    class Interrupted(Failing):
        def send(self, folder: Path, *, final: bool = True) -> None:
            raise KeyboardInterrupt

    said: list[str] = []
    try:
        Careful(Interrupted(), said.append).send(Path())
    except KeyboardInterrupt:
        said.append("passed on")
    assert said == ["passed on"] and isinstance(Failing(), Tracker)
    assert len(reason(ValueError("x" * 5000))) < 350 and reason(ValueError()) == "ValueError"
    assert Config.model_validate(ONE).seeds == (0,)
