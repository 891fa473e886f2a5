"""The releases of a sweep's cells under attack, one cell at a time or several in processes of their own.

Guarantee: what is found of a seed is kept in its folder as soon as it is there, and never looked for again; so a sweep
that was stopped or killed goes on where it was. Attacks draw from generators of a whole process, so that two cells are
never attacked in one at the same time.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.errors import TacitError
from tacit.experiment.attack_section import AttackSection
from tacit.experiment.attacked import attack_run, kept
from tacit.experiment.events import Said, Stop, Stopped, Tell
from tacit.experiment.runner import available_cores
from tacit.experiment.workers import WorkerError

if TYPE_CHECKING:
    from tacit.experiment.sweep import Cell


def attack_cells(
    cells: "list[Cell]", section: AttackSection, *, at_once: int, late: Callable[[], bool], tell: Tell, stop: Stop
) -> None:
    """Attack every cell that is learnt and not attacked yet. `late`: whether no more is to be started."""
    asked = section.asked()
    for cell in cells:
        cell.attacked = kept(cell.folder.path, asked)

    def attacked(cell: "Cell") -> None:
        if cell.attacked is not None or stop.asked or late():
            return
        try:
            if at_once == 1:
                attack_run(cell.folder.path, asked, _told(cell.name, tell, stop), keep=True, allow_code=None)
            else:
                _apart(cell.folder.path, section, max(1, available_cores() // at_once), stop)
            cell.attacked = kept(cell.folder.path, asked)
        except Stopped:
            return
        except TacitError as error:
            cell.not_attacked = str(error)
        tell(Said(kind="notice", name=f"{cell.name}: {cell.not_attacked or 'attacked'}"))

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(attacked, cells))


def _told(name: str, tell: Tell, stop: Stop) -> Callable[[str], None]:
    def said(line: str) -> None:
        stop.check()
        tell(Said(kind="notice", name=f"{name}: attacks, {line}"))

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
        if stop.asked:
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
        attack_run(Path(folder), AttackSection.model_validate_json(section).asked(), keep=True, allow_code=None)
    except TacitError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
