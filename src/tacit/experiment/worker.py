"""One seed of a run, in this process: `python -m tacit.experiment.worker FOLDER SEED LEDGER GOAL`. See `workers`."""

import json
import os
import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tacit.errors import TacitError
from tacit.experiment.events import Said, Stop, Stopped


def main(folder: str, seed: str, ledger: str, goal: str) -> int:
    """Exit code 0: done; 1: a sentence was said; 130: stopped. `ledger` and `goal` may be empty."""
    stop = Stop()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one says when to stop
    threading.Thread(target=_until_input_ends, args=(stop,), daemon=True).start()
    try:
        from tacit.experiment.runner import one_seed

        place, upto = Path(ledger) if ledger else None, int(goal) if goal else None
        one_seed(Path(folder), int(seed), ledger=place, goal=upto, tell=_tell(stop), stop=stop)
    except Stopped:
        _say({"stopped": True}, stop)
        return 130
    except TacitError as error:
        _say({"error": str(error)}, stop)
        return 1
    return 0


def _tell(stop: Stop) -> Any:
    def tell(said: Said) -> None:
        _say(asdict(said), stop)

    return tell


def _say(line: dict[str, Any], stop: Stop) -> None:
    try:
        print(json.dumps(line), flush=True)
    except BrokenPipeError:  # nobody listens any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        stop.ask()


def _until_input_ends(stop: Stop) -> None:
    while os.read(0, 1024):  # not sys.stdin: its lock would be held when the process ends
        pass
    stop.ask()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
