"""One seed of a run in this process: `python -m tacit.experiment.runs.worker FOLDER SEED LEDGER GOAL`."""

import json
import os
import signal
import sys
import threading
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tacit.errors import OUT_OF_MEMORY, TacitError, is_out_of_memory
from tacit.experiment.progress import Stop, Stopped


def main(folder: str, seed: str, ledger: str, goal: str) -> int:
    """Run the seed. Exit code 0: done; 1: failed with a message; 130: stopped. `ledger` and `goal` may be empty."""
    stop = Stop()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process decides when to stop
    threading.Thread(target=_until_input_ends, args=(stop,), daemon=True).start()
    try:
        from tacit.experiment.runs.runner import run_seed

        run_seed(
            Path(folder),
            int(seed),
            ledger=Path(ledger) if ledger else None,
            goal=int(goal) if goal else None,
            progress=lambda event: _write(asdict(event), stop),
            stop=stop,
        )
    except Stopped:
        _write({"stopped": True}, stop)
        return 130
    except TacitError as error:
        cause = None if error.__cause__ is None else "".join(traceback.format_exception(error))
        _write({"error": str(error), "traceback": cause}, stop)
        return 1
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        _write({"error": OUT_OF_MEMORY}, stop)
        return 1
    return 0


def _write(line: dict[str, Any], stop: Stop) -> None:
    try:
        print(json.dumps(line), flush=True)
    except BrokenPipeError:  # the parent process is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        stop.request()


def _until_input_ends(stop: Stop) -> None:
    while os.read(0, 1024):  # not sys.stdin: its lock would be held when the process ends
        pass
    stop.request()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
