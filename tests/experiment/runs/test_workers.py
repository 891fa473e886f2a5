"""Seeds in processes of their own: the same numbers, errors as sentences, and nothing goes on unseen."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.blobs import make_config
from tacit.errors import TacitError
from tacit.experiment.progress import Event
from tacit.experiment.runs.runner import run

SMALL: dict[str, Any] = {
    "data": {"source": "digits", "scenario": "permuted", "tasks": 2, "limit": 100},
    "learner": {"method": "NaiveDPSGD", "steps": 6, "batch": 20},
    "seeds": 2,
}


@pytest.mark.slow
def test_processes_give_the_numbers_of_one(tmp_path: Path) -> None:
    heard: list[Event] = []
    run(make_config(**SMALL), tmp_path / "one", processes=1)
    run(make_config(**SMALL), tmp_path / "two", processes=2, progress=heard.append)
    for name in ("metrics.json", "accuracy.csv", "config.yaml"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert {said.seed for said in heard if said.kind == "done"} == {0, 1}


@pytest.mark.slow  # the command's own test meets the same error in a worker
def test_an_error_comes_back_as_its_sentence(tmp_path: Path) -> None:
    wrong = SMALL | {"learner": {"method": "NaiveDPSGD", "steps": 6, "batch": 5000}}
    with pytest.raises(TacitError, match="an expected batch of 5000 cannot be drawn") as caught:
        run(make_config(**wrong), tmp_path / "r", processes=2)
    assert "\n" not in str(caught.value)


def begun(folder: Path, config: Path, *more: str) -> "subprocess.Popen[str]":
    """The command, far enough that a task is released."""
    command = [sys.executable, "-m", "tacit", "run", str(config), "--out", str(folder), *more]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not list(folder.glob("seeds/seed-*/releases/01-*/release.json")):
        assert process.poll() is None and time.monotonic() < until, process.communicate()
        time.sleep(0.02)
    return process


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_or_killed_command_goes_on(how: signal.Signals, tmp_path: Path) -> None:
    long = (
        SMALL
        | {"data": SMALL["data"] | {"tasks": 4}}
        | {"learner": {"method": "NaiveDPSGD", "steps": 400, "batch": 20}}
    )
    file, folder = tmp_path / "c.yaml", tmp_path / "r"
    file.write_text(yaml.safe_dump(make_config(**long).plain()))
    process = begun(folder, file)
    os.kill(process.pid, how)
    _, said = process.communicate(timeout=30)
    if how == signal.SIGINT:
        assert process.returncode == 130 and "resume with: tacit run" in said
    assert not (folder / "metrics.json").exists()
    command = [sys.executable, "-m", "tacit", "run", str(folder), "--resume", "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["average_accuracy"]["per_seed"][1] >= 0
