"""scikit-learn's shape for learners: predictions, parameters, tags, the errors before fitting, serialised state.

Everything that is inferred from data in scikit-learn is declared here: the label set, the number of features and the
nominal size of a task come from the stream's public facts. The functions with a first argument `learner` are methods of
`Learner`.
"""

from collections.abc import Iterable
from dataclasses import MISSING, fields, replace
from functools import cache
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.certificate.certificate import Certificate
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.data.tensors import is_byte_image, model_input, tensor
from tacit.errors import LearnerError, NotLearned

REPR_LENGTH, VALUE_LENGTH = 160, 60
L = TypeVar("L")
MACHINE = ("ledger", "store")
"""Settings that belong to a machine: they are not part of a learner's serialised state."""


class CertificateOnce:
    """The attribute `certificate_`: before anything is learned it raises `NotLearned`, so that `hasattr` is False."""

    def __get__(self, learner: Any, owner: type | None = None) -> Certificate:
        certificate: Certificate | None = None if learner is None else vars(learner).get("certificate_")
        if certificate is None:
            raise NotLearned("nothing is learned yet, so there is no certificate; call partial_fit first")
        return certificate

    def __set__(self, learner: Any, certificate: Certificate) -> None:
        vars(learner)["certificate_"] = certificate


def predict(learner: Any, X: Any, task: TaskInfo | None = None) -> NDArray[Any]:
    """The likeliest label of each row; with a task, among its labels.

    Args:
        X: Features, one row each.
        task: The task of the rows, if it is given at test time.

    Returns:
        An array of labels.

    Raises:
        NotLearned: Nothing is learned yet; it is also scikit-learn's `NotFittedError`.
    """
    indices = _scores(learner, X, task).argmax(1).cpu().numpy()
    labels: NDArray[Any] = learner.classes_[indices]
    return labels


def predict_proba(learner: Any, X: Any, task: TaskInfo | None = None) -> NDArray[np.float32]:
    """Probabilities over the labels of the stream, in their declared order (`classes_`).

    Args:
        X: Features, one row each.
        task: The task of the rows, if it is given at test time.

    Returns:
        An array of shape (rows, labels).

    Raises:
        NotLearned: Nothing is learned yet.
    """
    chances: NDArray[np.float32] = _scores(learner, X, task).softmax(1).cpu().numpy()
    return chances


def score(learner: Any, X: Any, y: Any, task: TaskInfo | None = None) -> float:
    """Accuracy on public data. On private data it is a query: use `Vault.accuracy`.

    Args:
        X: Features of public records.
        y: Their labels.
        task: Their task, if it is given at test time.

    Returns:
        The share of rows whose label is predicted.
    """
    return float(np.mean(learner.predict(X, task) == np.asarray(y)))


def classes(learner: Any) -> NDArray[Any]:
    """The declared labels, in the order of the outputs."""
    return np.asarray(learner.labels_)


def number_of_features(learner: Any) -> int:
    """Number of features of one record, as declared."""
    if not hasattr(learner, "stream_"):
        raise NotLearned("nothing is learned yet, so there are no features; call partial_fit first")
    return prod(learner.stream_.shape)


def get_params(learner: Any, deep: bool = True) -> dict[str, Any]:
    """The settings by name.

    Args:
        deep: Has no effect; scikit-learn passes it.

    Returns:
        The settings.
    """
    return {one.name: getattr(learner, one.name) for one in fields(learner)}


def set_params(learner: L, **params: Any) -> L:
    """Changes settings by name.

    Args:
        params: New values by name.

    Returns:
        The learner itself.

    Raises:
        LearnerError: There is no setting of a name.
    """
    known = get_params(learner)
    for name, value in params.items():
        if name not in known:
            raise LearnerError(f"{type(learner).__name__} has no setting {name!r}; it has {', '.join(known)}")
        setattr(learner, name, value)
    return learner


def new_with_same_settings(learner: Any) -> Any:
    """For `sklearn.base.clone`: it has learned nothing and shares the ledger, because copies would not add up."""
    return type(learner)(**learner.get_params())


def check_learned(learner: Any) -> None:
    """Refuses a learner that has learned nothing."""
    if not getattr(learner, "tasks_", ()):
        raise _not_fitted()("nothing is learned yet; call partial_fit first")


def _scores(learner: Any, x: Any, task: TaskInfo | None) -> Tensor:
    check_learned(learner)
    scores: Tensor = learner.scores(model_input(as_rows(x, learner.stream_, learner.model_)), task)
    return scores


@cache
def _not_fitted() -> type[NotLearned]:
    """`NotLearned` that is also scikit-learn's error, which is imported on first use."""
    from sklearn.exceptions import NotFittedError

    return type("NotLearned", (NotLearned, NotFittedError), {"__module__": NotLearned.__module__})


def with_classes(stream: StreamInfo, classes: Iterable[Any] | None) -> StreamInfo:
    """The stream with `classes` as the labels of every task, if it was declared without labels.

    Raises:
        LearnerError: The stream declares other labels than `classes`.
    """
    if classes is None:
        return stream
    labels = tuple(dict.fromkeys(np.asarray(list(classes)).tolist()))
    if not stream.labels:
        return replace(stream, tasks=tuple(replace(task, labels=labels) for task in stream.tasks))
    if set(labels) != set(stream.labels):
        raise LearnerError(
            f"classes must be the declared labels {list(stream.labels)[:10]}, got {list(labels)[:10]}; leave them out, "
            "or declare these labels in StreamInfo"
        )
    return stream


def as_rows(x: Any, stream: StreamInfo, model: nn.Module) -> Tensor:
    """Records of the declared shape; all but the bytes of pictures as floats, unless the network embeds numbers."""
    rows = tensor(x, stream.shape, integers=embeds(model))
    if rows.shape[1:] != stream.shape:
        of = f": features by {stream.features}" if stream.features else ""
        raise LearnerError(
            f"records have the shape {tuple(rows.shape[1:])}, and {stream.shape} was declared{of}; reshape them, or "
            "declare it"
        )
    unchanged = is_byte_image(rows) or (embeds(model) and not rows.dtype.is_floating_point)
    return rows if unchanged else rows.float()


def embeds(model: nn.Module) -> bool:
    """Whether the network reads whole numbers."""
    return any(isinstance(module, nn.Embedding) for module in model.modules())


def short_repr(learner: Any) -> str:
    """The class and the settings that differ from their defaults, in fewer than 200 characters."""
    shown: list[str] = []
    for one in fields(learner):
        value = getattr(learner, one.name, None)
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        if one.repr and not _same(value, default):
            value = value.name if isinstance(value, StreamInfo) else value
            shown.append(f"{one.name}={_cut(getattr(value, '__name__', None) or repr(value), VALUE_LENGTH)}")
    return f"{type(learner).__name__}({_cut(', '.join(shown), REPR_LENGTH)})"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def _same(value: Any, default: Any) -> bool:
    try:
        return value is default or bool(value == default)
    except (TypeError, ValueError):  # arrays and the like
        return False


def classifier_tags(learner: Any) -> Any:
    """scikit-learn's tags: a classifier whose noise is new in every run."""
    from sklearn.utils import ClassifierTags, Tags, TargetTags

    return Tags(
        estimator_type=learner._estimator_type,
        target_tags=TargetTags(required=True),
        classifier_tags=ClassifierTags(),
        non_deterministic=True,
    )


def released_state(learner: Any) -> dict[str, Any]:
    """What a serialised learner holds: its settings and its last release. Never a vault, a ledger or records."""
    settings = {name: value for name, value in learner.get_params().items() if name not in MACHINE}
    state: dict[str, Any] = {"settings": settings}
    if getattr(learner, "tasks_", ()):
        state |= {"stream": learner.stream_, "tasks": learner.tasks_, "tensors": learner.tensors()}
        state |= {"certificate": learner.certificate_}
    return state


def restore_state(learner: Any, state: dict[str, Any]) -> None:
    """Makes a learner of what `released_state` returned. It predicts; to go on it needs `from_release`."""
    learner.__init__(**state["settings"])
    if "tasks" in state:
        learner.start(state["stream"])
        learner.restore(state["tensors"], state["tasks"])
        learner.certificate_ = state["certificate"]
