"""`attack_sweep(folder)`: attack the releases of a finished sweep, optionally with other attacks than its plan has.

Nothing in the folder changes. Results that the sweep kept for the same attacks are reused.
"""

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from tacit.errors import ConfigError, TacitError
from tacit.experiment.attacks.attacked import attack_run, kept
from tacit.experiment.config.attack_section import AttackSection
from tacit.experiment.config.config import Sweep
from tacit.experiment.config.loading import load
from tacit.experiment.sweeps.cell import Cell
from tacit.experiment.sweeps.sweep import cells_of
from tacit.plugins import only_code


def attack_sweep(
    folder: Path,
    section: AttackSection,
    notify: Callable[[str], None] = lambda line: None,
    *,
    allow_code: Collection[str] = (),
) -> list[Cell]:
    """Attack the cells one after another; returns each with its results, or with the reason why it has none.

    Args:
        folder: The folder of the sweep.
        section: The attacks.
        notify: Receives sentences about the progress.
        allow_code: As in `attack_run`.
    """
    with only_code(allow_code):
        plan = load(folder)
        assert isinstance(plan, Sweep)
        cells = cells_of(plan, folder)
        if not any(cell.folder.has_run for cell in cells):
            raise ConfigError(f"no cell of {folder} was run; continue the sweep with --resume, then attack it")
        for cell in cells:
            path, prefixed = cell.folder.path, partial(_notify_cell, notify, cell.name)
            try:
                cell.attacked = kept(path, section) or attack_run(path, section, prefixed)
            except TacitError as error:
                cell.not_attacked = str(error)
        return cells


def _notify_cell(notify: Callable[[str], None], name: str, line: str) -> None:
    notify(f"{name}: {line}")
