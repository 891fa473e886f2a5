"""Checks that run before a learner starts, each answered by one sentence."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.base.ranges import check_types
from tacit.privacy.accounting.budget import Budget


def one_task(fit: Callable[..., None]) -> Callable[..., None]:
    """Wraps a learner's `fit`, which learns one task, to refuse records in place of a task."""

    @wraps(fit)
    def checked(self: Any, *given: Any, **named: Any) -> None:
        if not isinstance(given[0] if given else named.get("task"), TaskInfo):
            raise LearnerError(
                f"{type(self).__name__} learns task after task, so call partial_fit(X, y) once for each: a fit that "
                "started again would charge the same people again"
            )
        fit(self, *given, **named)

    return checked


def with_checked_types(start: Callable[..., None]) -> Callable[..., None]:
    """Wraps a learner's `start` to check the types of its settings before anything else."""

    @wraps(start)
    def checked(self: Any, *given: Any, **named: Any) -> None:
        check_types(self)
        start(self, *given, **named)

    return checked


def check_labels(stream: StreamInfo) -> None:
    """Refuses a stream with fewer than two labels."""
    if not stream.labels:
        raise LearnerError(
            f"the stream {stream.name!r} declares no labels; declare labels=, or give classes= to the first partial_fit"
        )
    if len(stream.labels) < 2:
        raise LearnerError(
            f"the stream {stream.name!r} declares one label, {stream.labels[0]!r}, and a model that knows no other has "
            "nothing to learn; declare all labels that records may have"
        )


def check_budget(budget: object) -> None:
    """Refuses anything but a budget."""
    if not isinstance(budget, Budget):
        raise LearnerError(f"budget must be a Budget, such as Budget(epsilon=1.0, delta=1e-5), got {budget!r}")
