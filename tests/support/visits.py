"""Visits to a hospital: one small private table in every form, and its declaration."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tacit.data.stream import Stream, Task
from tacit.privacy.vault.sources.source import DeclaredRows

FACTS: dict[str, Any] = {
    "name": "visits",
    "columns": {"label": "label", "task": "month", "person": "patient"},
    "categories": {"ward": ["north", "south"]},
    "scaling": {"age": [0, 100]},
    "labels": ["sick", "well"],
    "tasks": [{"name": "jan", "size": 3}, {"name": "feb", "size": 3}, {"name": "mar", "size": 3}],
    "unit": "person",
    "tasks_per_unit": 2,
}
ROWS = {
    "age": [50.0, 200.0, None, 25.0, 75.0],
    "ward": ["north", "south", "east", "north", None],
    "patient": ["p1", "p2", "p3", "p1", "p4"],
    "month": ["jan", "jan", "feb", "may", "jan"],
    "label": ["sick", "well", "sick", "well", "unheard"],
}
CSV = """age,ward,patient,month,label
50,north,p1,jan,sick
200,south,p2,jan,well
,east,p3,feb,sick
25,north,p1,may,well
75,,p4,jan,unheard
secret-cell,north,p5,feb,well
1,2,3
"""


def declare(folder: Path, **changes: Any) -> Path:
    path = folder / "visits.yaml"
    path.write_text(yaml.safe_dump(FACTS | changes))
    return path


def looks_right(stream: Stream, feb: int = 1) -> None:
    assert stream.info.shape == (3,) and not stream.info.public
    x, y, ids = rows_of(stream[0])
    assert x.dtype == np.float32
    assert x.tolist() == [[0.5, 1, 0], [1, 0, 1], [0.75, 0, 0]]
    assert y.tolist() == ["sick", "well", "unheard"] and ids.tolist() == ["p1", "p2", "p4"]
    assert rows_of(stream[1])[0].tolist()[0] == [0, 0, 0] and len(rows_of(stream[1])[1]) == feb
    x, y, ids = rows_of(stream[2])
    assert (x.shape, y.shape, ids.shape) == ((0, 3), (0,), (0,))
    assert stream[0].test is None


def rows_of(task: Task) -> Any:
    """The arrays that the vault reads when it admits a task of a declared stream."""
    assert isinstance(task.records, DeclaredRows)
    return tuple(column for column in task.records.reader.read(task.records.task) if column is not None)
