"""`tacit track RUN --to TRACKER`, and `--track` of `tacit run`."""

from pathlib import Path

import pytest
import yaml

from support.report_folders import BASE
from support.shell import tacit
from tacit.report.tracking.run_tree import tracked


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    plain = {**BASE, "seeds": 1, "data": {**BASE["data"], "tasks": 2}}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(plain))
    return tmp_path / "tiny.yaml"


def test_a_run_is_sent_as_it_goes_and_afterwards(config: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    words = ("run", config, "--out", "r", "--quiet", "--no-report", "--track", "tensorboard=live")
    tacit(*words)
    output = tacit("track", "r", "--to", "tensorboard=later").output
    assert "sent    r to tensorboard: tensorboard --logdir later" in output
    (entry,) = tracked(tmp_path / "r")
    for logs in ("live", "later"):
        found = EventAccumulator(str(tmp_path / logs / "r"))
        found.Reload()
        values = {event.step: event.value for event in found.Scalars("average_accuracy")}
        assert values == pytest.approx(entry.series["average_accuracy"])
    tacit("run", "r", "--resume", "--quiet", "--no-report", "--track", "tensorboard=live")
    found.Reload()
    assert len(found.Scalars("average_accuracy")) == 2


def test_wrong_inputs_are_one_sentence_and_nothing_is_run(config: Path, tmp_path: Path) -> None:
    output = tacit("run", config, "--out", "r", "--track", "wandb", code=1).output
    assert "error: there is no tracker 'wandb'; there are tensorboard, mlflow" in output
    assert not (tmp_path / "r").exists()
    assert "there is no run in" in tacit("track", tmp_path, "--to", "tensorboard", code=1).output
    (tmp_path / "file").write_text("x")
    output = tacit("track", tmp_path / "nothing", "--to", "tensorboard=file", code=1).output
    assert output.startswith("error: ") and output.count("\n") == 1


def test_a_server_that_is_down_is_one_sentence(config: Path) -> None:
    output = tacit("run", config, "--out", "r", "--quiet", "--no-report", "--track", "mlflow=http://127.0.0.1:9").output
    assert output.count("nothing more is sent to mlflow for now") == 1 and "average accuracy" in output
    output = tacit("track", "r", "--to", "mlflow=http://127.0.0.1:9", code=1).output
    assert "could not be sent to mlflow" in output and "Traceback" not in output
