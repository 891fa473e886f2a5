"""Trackers by name, as `--track` and `tacit track --to` take them."""

from collections.abc import Callable, Sequence

from tacit.errors import ConfigError
from tacit.report.tracking.mlflow_tracker import MLflow
from tacit.report.tracking.tensorboard_tracker import TensorBoard
from tacit.words import nearest

TRACKERS: dict[str, Callable[[str | None], TensorBoard | MLflow]] = {"tensorboard": TensorBoard, "mlflow": MLflow}


def find_trackers(names: Sequence[str]) -> list[TensorBoard | MLflow]:
    """Trackers by name.

    Args:
        names: Such as `mlflow` or, with its place, `mlflow=http://127.0.0.1:5000` and `tensorboard=logs`.

    Returns:
        The trackers; nothing is sent yet.

    Raises:
        ConfigError: There is no such tracker, its place is empty, or its package is not installed.
    """
    found = []
    for given in names:
        name, stated, where = given.partition("=")
        if name not in TRACKERS:
            raise ConfigError(f"there is no tracker {name!r}; {nearest(name, TRACKERS)}")
        if stated and not where:
            raise ConfigError(f"{given!r} has no place after '='; give one, or {name!r} alone")
        found.append(TRACKERS[name](where or None))
    return found
