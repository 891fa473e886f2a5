"""Work on the cells of a sweep, several at a time, and again with fewer where memory ran out."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat

from tacit.errors import OUT_OF_MEMORY, is_out_of_memory
from tacit.experiment.runs.workers import KILLED
from tacit.experiment.sweeps.cell import Cell


@dataclass(frozen=True, kw_only=True)
class Slot:
    """What a cell is given: it runs beside `cells - 1` others, with `seeds` of its seeds at a time."""

    cells: int
    seeds: int
    separate: bool
    """Whether it runs in processes of its own."""


Work = Callable[[Cell, Slot], bool]
"""Works on a cell; returns whether memory ran out."""


def side_by_side(cells: Sequence[Cell], most: int, work: Work) -> None:
    """Work on all cells; those that ran out of memory are worked on again, half as many at a time, until one is alone.

    Args:
        cells: The cells.
        most: How many seeds run at a time, over all cells.
        work: Works on one cell.
    """
    waiting, separate = list(cells), False
    while waiting:
        at_once = min(most, len(waiting))
        seeds = max(1, most // at_once)
        slot = Slot(cells=at_once, seeds=seeds, separate=separate or at_once > 1)
        if at_once == 1:
            full = [work(cell, slot) for cell in waiting]
        else:
            with ThreadPoolExecutor(at_once) as pool:
                full = list(pool.map(work, waiting, repeat(slot)))
        short = [cell for cell, lacks in zip(waiting, full, strict=True) if lacks]
        used = at_once * min(seeds, max((len(cell.config.seeds) for cell in short), default=1))
        if used == 1:
            return
        waiting, most, separate = short, used // 2, True


def short_of_memory(error: BaseException) -> bool:
    """Whether fewer runs side by side may help: memory ran out, or the process was killed."""
    return is_out_of_memory(error) or OUT_OF_MEMORY in str(error) or KILLED in str(error)
