"""Runs seeds in separate processes, which report through stdout and are stopped through stdin.

A worker receives a folder and a seed, and writes its events as lines of JSON. When this process dies, the input of the
worker ends and it stops between two steps, so that the folder can be resumed at once.
"""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tacit.charge_flag import touch
from tacit.errors import TacitError
from tacit.experiment.progress import Event, OnEvent, Stop

KILLED = "was killed, perhaps because memory ran out; repeat the command with fewer --processes"


class WorkerError(TacitError):
    """A seed failed; the message is that of its own error."""


@dataclass(kw_only=True)
class Worker:
    """One running seed."""

    seed: int
    process: "subprocess.Popen[str]"
    stderr: IO[str]
    failed: str | None = None
    traceback: str | None = None
    """That of the error, where it has a cause."""
    stopped: bool = False
    stopping: bool = False
    """Whether it was asked to stop."""

    def request_stop(self) -> None:
        if not self.stopping and self.process.stdin is not None:
            self.stopping = True
            self.process.stdin.close()

    def end(self) -> None:
        """Wait for the process; raises an error if it failed without a message."""
        code = self.process.wait()
        if code < 0 and not self.stopped and self.failed is None:
            self.failed = f"seed {self.seed} {KILLED}"
        if code and not self.stopped and self.failed is None:
            self.stderr.seek(0)
            raise RuntimeError(f"seed {self.seed} failed:\n{self.stderr.read()}")
        self.stderr.close()


def run_workers(
    folder: Path,
    seeds: Sequence[int],
    *,
    ledger: Path | None,
    goal: int | None,
    threads: int,
    processes: int,
    progress: OnEvent,
    stop: Stop,
) -> None:
    """Run the seeds, `processes` at a time. The first failure stops the others between two steps, and is raised."""
    waiting, running = list(seeds), dict[int, Worker]()
    lines: queue.Queue[tuple[int, dict[str, Any] | None]] = queue.Queue()
    failure: Exception | None = None
    if ledger is not None:
        touch()
    try:
        while running or (waiting and failure is None and not stop.requested):
            while waiting and len(running) < processes and failure is None and not stop.requested:
                worker = _start(folder, waiting.pop(0), ledger, goal, threads, lines)
                running[worker.seed] = worker
            if stop.requested or failure is not None:
                for worker in running.values():
                    worker.request_stop()
            try:
                seed, line = lines.get(timeout=0.2)
            except queue.Empty:
                continue
            failure = _handle(running, seed, line, progress) or failure
    finally:
        for worker in running.values():
            worker.request_stop()
            worker.process.wait()
    if failure is not None:
        raise failure
    stop.check()


def _handle(running: dict[int, Worker], seed: int, line: dict[str, Any] | None, progress: OnEvent) -> Exception | None:
    """Handle one line of a worker; returns its failure once it has ended with one."""
    worker = running[seed]
    if line is not None and "error" in line:
        worker.failed, worker.traceback = line["error"], line.get("traceback")
    elif line is not None and line.get("stopped"):
        worker.stopped = True
    elif line is not None:
        progress(Event(**line))
    else:
        del running[seed]
        try:
            worker.end()
        except RuntimeError as error:
            return error
        if worker.failed is not None:
            failure = WorkerError(worker.failed)
            failure.__cause__ = None if worker.traceback is None else RuntimeError(worker.traceback)
            return failure
    return None


def _start(
    folder: Path, seed: int, ledger: Path | None, goal: int | None, threads: int, lines: "queue.Queue[Any]"
) -> Worker:
    given = (folder, seed, ledger or "", goal or "")
    command = [sys.executable, "-m", "tacit.experiment.runs.worker", *map(str, given)]
    stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it lives as long as the worker
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"},
        start_new_session=True,  # Ctrl-C reaches this process only, which passes it on
    )
    threading.Thread(target=_listen, args=(process, seed, lines), daemon=True).start()
    return Worker(seed=seed, process=process, stderr=stderr)


def _listen(process: "subprocess.Popen[str]", seed: int, lines: "queue.Queue[Any]") -> None:
    assert process.stdout is not None
    for text in process.stdout:
        lines.put((seed, json.loads(text)))
    lines.put((seed, None))
