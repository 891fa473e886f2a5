"""A configuration for one's own data: a declaration is enough, the rest are defaults that hold for any table.

All of them come from public facts of the declaration: nominal sizes and the shape of a record.
"""

from pathlib import Path
from typing import Any

from tacit.data.own import open_declared
from tacit.data.stream import StreamInfo

LEARNER = {"method": "RoutedExperts", "steps": 50, "lr": 0.5, "momentum": 0.5, "average": 0.5}
BATCH_SHARE = 0.3
"""Of the nominal size of the smallest task: large batches carry less noise for each record."""


def for_declaration(path: Path) -> dict[str, Any]:
    """A private learner on the declared data, as plain values."""
    info = open_declared(path).info
    return {
        "name": info.name,
        "description": f"a private learner on {path.name}",
        "data": {"source": str(path.absolute()), "scenario": "declared"},
        "learner": LEARNER | _batches(info),
        "model": {"network": _network(info.shape)},
    }


def _batches(info: StreamInfo) -> dict[str, float]:
    smallest = min(task.size for task in info.tasks)
    batch = max(1, round(BATCH_SHARE * smallest))
    return {"batch": batch}


def _network(shape: tuple[int, ...]) -> str:
    return "tabular_mlp" if len(shape) == 1 else "cnn" if len(shape) == 3 else "mlp"
