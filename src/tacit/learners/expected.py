"""What people who know scikit-learn try on a learner, answered by one sentence instead of a traceback."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError, NotLearnt
from tacit.learners.ranges import check_types
from tacit.privacy.budget import Budget
from tacit.privacy.certificate import Certificate


class CertificateOnce:
    """`certificate_`: there once something is learnt; before, asking says so (and `hasattr` is False)."""

    def __get__(self, learner: Any, owner: type | None = None) -> Certificate:
        found: Certificate | None = None if learner is None else vars(learner).get("certificate_")
        if found is None:
            raise NotLearnt("nothing is learnt yet, so there is no certificate; call partial_fit first")
        return found

    def __set__(self, learner: Any, certificate: Certificate) -> None:
        vars(learner)["certificate_"] = certificate


def for_tasks(fit: Callable[..., None]) -> Callable[..., None]:
    """A learner's `fit` is one task of its method: with records in place of a task it is refused."""

    @wraps(fit)
    def checked(self: Any, *given: Any, **named: Any) -> None:
        if not isinstance(given[0] if given else named.get("task"), TaskInfo):
            raise LearnerError(
                f"{type(self).__name__} learns task after task, so call partial_fit(X, y) once for each: a fit that "
                "began anew would charge the same people again"
            )
        fit(self, *given, **named)

    return checked


def with_settings(start: Callable[..., None]) -> Callable[..., None]:
    """A learner's `start` looks at its settings only after their types were checked."""

    @wraps(start)
    def checked(self: Any, *given: Any, **named: Any) -> None:
        check_types(self)
        start(self, *given, **named)

    return checked


def check_labels(stream: StreamInfo) -> None:
    """Refuse a stream with one label."""
    if len(stream.labels) < 2:
        raise LearnerError(
            f"the stream {stream.name!r} declares one label, {stream.labels[0]!r}, and a model that knows no other has "
            "nothing to learn; declare all labels that records may have"
        )


def check_budget(budget: object) -> None:
    """Refuse what is no budget, before it is planned with."""
    if not isinstance(budget, Budget):
        raise LearnerError(f"budget must be a Budget, such as Budget(epsilon=1.0, delta=1e-5), got {budget!r}")
