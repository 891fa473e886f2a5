"""Cells side by side: fewer at a time where memory runs out, and a cell that fails does not stop the others."""

import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from support.blobs import make_config
from tacit.errors import OUT_OF_MEMORY, is_out_of_memory
from tacit.experiment.config.config import Config, Sweep
from tacit.experiment.config.validation import validated
from tacit.experiment.progress import Stop
from tacit.experiment.runs.workers import KILLED, Worker, WorkerError
from tacit.experiment.sweeps import sweep as module
from tacit.experiment.sweeps.sweep import sweep

BASE = make_config(learner={"method": "NaiveDPSGD", "steps": 3, "batch": 20}).plain()


def plan(cells: int, seeds: int = 1) -> Sweep:
    grid = {"learner.steps": list(range(1, cells + 1))}
    return validated(Sweep, {"kind": "sweep", "name": "s", "base": {**BASE, "seeds": seeds}, "grid": grid})


class Device:
    """In place of a run: a device that holds so many runs at a time. Runs of one round wait for each other."""

    def __init__(self, room: int, error: Exception) -> None:
        self.room, self.error = room, error
        self.asked: list[tuple[int, bool]] = []
        self.inside, self.lock = 0, threading.Lock()

    def __call__(self, config: Config, folder: Path, *, processes: int, separate: bool, **_: Any) -> Any:
        with self.lock:
            self.asked.append((processes, separate))
            self.inside += min(processes, len(config.seeds))
            full = self.inside > self.room
        try:
            if full:
                raise self.error
            threading.Event().wait(0.05)
        finally:
            with self.lock:
                self.inside -= min(processes, len(config.seeds))
        folder.mkdir(parents=True)
        found = {"average_accuracy": {"mean": 0.5, "std": None, "per_seed": [0.5]}, "seeds": [0]}
        return type("Found", (), {"metrics": found})()


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        WorkerError(OUT_OF_MEMORY),
        WorkerError(f"seed 0 {KILLED}"),
        MemoryError(),
    ],
)
def test_fewer_run_side_by_side_until_all_fit(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(2, error)
    monkeypatch.setattr(module, "run", device)
    cells = sweep(plan(6), tmp_path / "s", processes=6)
    assert {cell.status for cell in cells} == {"done"}
    assert len(device.asked) > 6, "some were tried again"
    assert {processes for processes, _ in device.asked} == {1} and all(separate for _, separate in device.asked)


def test_what_does_not_fit_alone_is_tried_by_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(0, MemoryError())
    monkeypatch.setattr(module, "run", device)
    cells = sweep(plan(4), tmp_path / "s", processes=4)
    assert {cell.status for cell in cells} == {f"failed: {OUT_OF_MEMORY}"}
    assert len(device.asked) == 12, "four, two and one at a time"
    device.room = 4
    assert {cell.status for cell in sweep(plan(4), tmp_path / "s", processes=4)} == {"done"}


def test_seeds_run_side_by_side_where_there_are_few_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(2, MemoryError())
    monkeypatch.setattr(module, "run", device)
    assert [cell.status for cell in sweep(plan(1, seeds=5), tmp_path / "s", processes=8)] == ["done"]
    assert device.asked == [(8, False), (2, True)], "five seeds did not fit, two do"


def test_a_cell_that_fails_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(9, MemoryError())

    def run(config: Config, folder: Path, *, stop: Stop, **named: Any) -> Any:
        if config.learner.options["steps"] == 2:
            raise KeyError("a mistake of a learner")
        return device(config, folder, stop=stop, **named)

    monkeypatch.setattr(module, "run", run)
    for processes in (1, 3):
        folder = tmp_path / str(processes)
        with pytest.raises(KeyError, match="a mistake"):
            sweep(plan(3), folder, processes=processes)
        table = (folder / "cells.csv").read_text()
        assert table.count(",done,") == 2 and "failed: KeyError" in table


def test_a_killed_worker_is_told_as_one() -> None:
    command = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
    worker = Worker(seed=3, process=subprocess.Popen(command, text=True), stderr=tempfile.TemporaryFile("w+"))  # noqa: SIM115
    worker.end()
    assert worker.failed == f"seed 3 {KILLED}"


def test_what_says_that_memory_ran_out() -> None:
    assert is_out_of_memory(
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory")
    )
    assert not is_out_of_memory(RuntimeError("shapes cannot be multiplied"))
    assert not is_out_of_memory(ValueError("out of memory"))
