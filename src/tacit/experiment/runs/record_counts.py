"""How many records a run reads, keeps and retires: `consumption.csv`, and a line of the summary.

These are expected values from public facts alone. Real numbers are not written, since a count of private records is a
query of its own, and a run on public data does what it would do on private data.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rich.table import Table

from tacit.data.stream import TaskInfo
from tacit.experiment.files import write_csv
from tacit.learners.base.learner import Learner
from tacit.learners.base.public_figures import Consumption

Counts = Mapping[str, float]
COLUMNS = tuple(field.name for field in fields(Consumption))
ADDED = tuple(name for name in COLUMNS if name != "held")
"""Columns that are added up over tasks."""


def consumed(learner: Learner, task: TaskInfo) -> dict[str, Counts]:
    """The entry of a task in the log; empty where the learner has no expected values."""
    found = learner.consumption(task)
    return {} if found is None else {"consumption": asdict(found)}


def write(file: Path, seeds: Mapping[int, Mapping[int, Counts]]) -> None:
    """Write one line for each seed and task; tasks are counted from 1."""
    rows = (
        (seed, task + 1, *(f"{counts[name]:.10g}" for name in COLUMNS))
        for seed, tasks in seeds.items()
        for task, counts in sorted(tasks.items())
    )
    write_csv(file, [("seed", "task", *(f"expected_{name}" for name in COLUMNS)), *rows])


def totals(seeds: Sequence[Mapping[int, Counts]]) -> dict[str, float] | None:
    """Totals over all tasks, as a mean over seeds in whole records; `held` is the largest number at a time.

    None if they are not known."""
    if not seeds or not all(seeds):
        return None
    added = {name: math.fsum(task[name] for tasks in seeds for task in tasks.values()) for name in ADDED}
    held = math.fsum(max(task["held"] for task in tasks.values()) for tasks in seeds)
    return {name: float(round(value / len(seeds))) for name, value in {**added, "held": held}.items()}


def sentence(found: Counts) -> str:
    """The sentence in the summary of a run."""
    text = f"{found['trained']:,.0f} read to train"
    if found["read"]:
        text += (
            f", {found['read']:,.0f} of the memory, which takes in {found['admitted']:,.0f}, retires "
            f"{found['retired']:,.0f} and holds {found['held']:,.0f} at most"
        )
    return text


def table(names: Sequence[str], found: Sequence[Mapping[str, Any] | None]) -> Table | None:
    """A table of the cells of a sweep; None if no cell retires records."""
    counts = [None if one is None else one.get("consumption") for one in found]
    if not any(one and one["retired"] for one in counts):
        return None
    heads = {"trained": "read to train", "read": "read of the memory"}
    columns = ("trained", "read", "admitted", "retired", "held")
    shown = Table("records, expected", *(heads.get(name, name) for name in columns), box=None, padding=(0, 2, 0, 0))
    for name, one in zip(names, counts, strict=True):
        shown.add_row(name, *("–" if one is None else f"{one[column]:,.0f}" for column in columns))
    return shown
