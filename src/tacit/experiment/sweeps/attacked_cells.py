"""Attacks on the releases of a sweep's cells, one cell at a time or several in processes of their own.

The results of a seed are saved to its folder at once and reused, so that a sweep that was stopped or killed continues
where it was. Attacks draw from the global generators of a process; two cells are never attacked in one process at the
same time.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tacit.errors import TacitError
from tacit.experiment.attacks.attacked import attack_run, kept
from tacit.experiment.config.attack_section import AttackSection
from tacit.experiment.process import available_cores
from tacit.experiment.progress import OnEvent, Stop, Stopped, notify
from tacit.experiment.runs.workers import WorkerError
from tacit.experiment.sweeps.cell import Cell


def attack_cells(
    cells: list[Cell], section: AttackSection, *, at_once: int, late: Callable[[], bool], progress: OnEvent, stop: Stop
) -> None:
    """Attack every cell that is learned and not attacked yet. `late`: whether no more is to be started."""
    for cell in cells:
        cell.attacked = kept(cell.folder.path, section)

    def attacked(cell: Cell) -> None:
        if cell.attacked is not None or stop.requested or late():
            return
        try:
            if at_once == 1:
                attack_run(cell.folder.path, section, _told(cell.name, progress, stop), keep=True, allow_code=None)
            else:
                _apart(cell.folder.path, section, max(1, available_cores() // at_once), stop)
            cell.attacked = kept(cell.folder.path, section)
        except Stopped:
            return
        except TacitError as error:
            cell.not_attacked = str(error)
        notify(progress, f"{cell.name}: {cell.not_attacked or 'attacked'}")

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(attacked, cells))


def _told(name: str, progress: OnEvent, stop: Stop) -> Callable[[str], None]:
    def said(line: str) -> None:
        stop.check()
        notify(progress, f"{name}: attacks, {line}")

    return said


def _apart(folder: Path, section: AttackSection, threads: int, stop: Stop) -> None:
    """In a process of its own. It may be ended at any moment: files are written whole."""
    command = [sys.executable, "-m", __name__, str(folder), section.model_dump_json()]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        start_new_session=True,  # Ctrl-C reaches this process only, and is passed on
    )
    while process.poll() is None:
        if stop.requested:
            process.terminate()
        time.sleep(0.1)
    assert process.stderr is not None
    said = process.stderr.read().strip()
    stop.check()
    if process.returncode:
        raise WorkerError(said.splitlines()[-1] if said else f"the attacks ended with code {process.returncode}")


def main(folder: str, section: str) -> int:
    """Exit code 0: done; 1: a sentence was said."""
    try:
        attack_run(Path(folder), AttackSection.model_validate_json(section), keep=True, allow_code=None)
    except TacitError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
