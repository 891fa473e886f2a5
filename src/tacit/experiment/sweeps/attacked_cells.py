"""Attacks on the releases of a sweep's cells, one cell at a time or several in processes of their own.

The results of a seed are saved to its folder at once and reused, so that a sweep that was stopped or killed continues
where it was. Attacks draw from the global generators of a process; two cells are never attacked in one process at the
same time. Where memory runs out, fewer are attacked at a time.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tacit.errors import OUT_OF_MEMORY, TacitError, is_out_of_memory
from tacit.experiment.attacks.attacked import attack_run, kept
from tacit.experiment.config.attack_section import AttackSection
from tacit.experiment.process import available_cores
from tacit.experiment.progress import OnEvent, Stop, Stopped, notify
from tacit.experiment.runs.workers import KILLED, WorkerError
from tacit.experiment.sweeps.cell import Cell
from tacit.experiment.sweeps.side_by_side import Slot, short_of_memory, side_by_side


def attack_cells(
    cells: list[Cell], section: AttackSection, *, most: int, late: Callable[[], bool], progress: OnEvent, stop: Stop
) -> None:
    """Attack every cell that is learned and not attacked yet, `most` at a time. `late`: no more is to be started."""
    for cell in cells:
        cell.attacked = kept(cell.folder.path, section)

    def attacked(cell: Cell, slot: Slot) -> bool:
        if stop.requested or late():
            return False
        short = False
        try:
            if not slot.separate:
                attack_run(cell.folder.path, section, _told(cell.name, progress, stop), keep=True, allow_code=None)
            else:
                _apart(cell.folder.path, section, max(1, available_cores() // slot.cells), stop)
            cell.attacked, cell.not_attacked = kept(cell.folder.path, section), None
        except Stopped:
            return False
        except Exception as error:
            short = short_of_memory(error)
            if not isinstance(error, TacitError) and not short:
                raise
            cell.not_attacked = OUT_OF_MEMORY if is_out_of_memory(error) else str(error)
        notify(progress, f"{cell.name}: {cell.not_attacked or 'attacked'}")
        return short

    side_by_side([cell for cell in cells if cell.attacked is None], most, attacked)


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
    error_text = process.stderr.read().strip()
    stop.check()
    if process.returncode < 0:
        raise WorkerError(f"the attack {KILLED}")
    if process.returncode:
        raise WorkerError(
            error_text.splitlines()[-1] if error_text else f"the attacks ended with code {process.returncode}"
        )


def main(folder: str, section: str) -> int:
    """Exit code 0: done; 1: a sentence was said."""
    try:
        attack_run(Path(folder), AttackSection.model_validate_json(section), keep=True, allow_code=None)
    except Exception as error:
        if not isinstance(error, TacitError) and not is_out_of_memory(error):
            raise
        print(OUT_OF_MEMORY if is_out_of_memory(error) else error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
