"""`attack_sweep(folder)`: the releases of a sweep that was run, under other attacks than it may have asked for itself.

Guarantee: nothing in the folder changes. What the sweep kept of the same attacks is not looked for again.
"""

from collections.abc import Callable, Collection
from pathlib import Path

from tacit.errors import ConfigError, TacitError
from tacit.experiment.attacked import Asked, attack_run, kept
from tacit.experiment.config import Sweep
from tacit.experiment.loading import load
from tacit.experiment.sweep import Cell, cells_of
from tacit.plugins import only_code


def attack_sweep(
    folder: Path,
    asked: Asked,
    tell: Callable[[str], None] = lambda said: None,
    *,
    allow_code: Collection[str] = (),
) -> list[Cell]:
    """The cells, one after the other, each with what was found or why nothing was. `allow_code`: as in `attack_run`."""
    with only_code(allow_code):
        return _attack_sweep(folder, asked, tell)


def _attack_sweep(folder: Path, asked: Asked, tell: Callable[[str], None]) -> list[Cell]:
    plan = load(folder)
    assert isinstance(plan, Sweep)
    cells = cells_of(plan, folder)
    if not any(cell.folder.has_run for cell in cells):
        raise ConfigError(f"no cell of {folder} was run; go on with the sweep by --resume, then attack it")
    for cell in cells:
        try:
            cell.attacked = kept(cell.folder.path, asked) or attack_run(cell.folder.path, asked, _of(cell.name, tell))
        except TacitError as error:
            cell.not_attacked = str(error)
    return cells


def _of(name: str, tell: Callable[[str], None]) -> Callable[[str], None]:
    return lambda line: tell(f"{name}: {line}")
