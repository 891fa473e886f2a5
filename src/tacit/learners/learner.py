"""scikit-learn's shape for every learner: `partial_fit` is one task, `predict`, `predict_proba`, `get_params`.

Labels, nominal sizes and the number of tasks are declared (`stream=StreamInfo…` in the constructor, or `start`):
nothing is inferred from the data. Private data needs a ledger that is kept; public data may use one that is not.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.core import Core
from tacit.privacy.budget import Budget
from tacit.privacy.declared import Block, Declared
from tacit.privacy.ledger import Ledger
from tacit.privacy.vault import Vault


@dataclass(kw_only=True, eq=False)
class Learner(Core):
    """What every method inherits."""

    stream: StreamInfo | None = None
    """The public facts, where the learner is used by itself; a runner calls `start` instead."""
    ledger: str | Path | Ledger | None = None
    """Where the charges go. It belongs to the data: keep it. None: public data only, thrown away."""
    store: str | Path | None = None
    """A private folder for episodic memory; needed to go on in a later process."""

    _estimator_type: ClassVar[str] = "classifier"
    """For scikit-learn before 1.6; later ones ask for tags."""

    def partial_fit(self, X: Any, y: Any, ids: Any = None) -> Self:
        """Learn the next planned task from its records; `ids` say whose they are."""
        if not hasattr(self, "stream_"):
            if self.stream is None:
                raise LearnerError(
                    "declare the stream first: stream=StreamInfo.uniform(name, labels=…, shape=…, size=…, tasks=…)"
                )
            self.start(self.stream)
        planned, done = self.stream_.tasks, len(self.tasks_)
        if done == len(planned):
            raise LearnerError(f"all {done} planned tasks are learnt; plan more of them in StreamInfo from the start")
        vault = self._open()
        if np.shape(X)[1:] != self.stream_.shape:
            found, said = np.shape(X)[1:], self.stream_.shape
            raise LearnerError(f"records have the shape {found}, and {said} was declared; reshape them, or declare it")
        source = (X, y) if ids is None else (X, y, ids)
        block = admit(vault, source, self.stream_, planned[done], self.budget)
        self.learn(planned[done], block, vault)
        self.saved(block, vault)
        return self

    def predict(self, X: Any, task: TaskInfo | None = None) -> NDArray[Any]:
        """The likeliest label of each row; with a task, among its labels."""
        places = self._scored(X, task).argmax(1).cpu().numpy()
        found: NDArray[Any] = self.classes_[places]
        return found

    def predict_proba(self, X: Any, task: TaskInfo | None = None) -> NDArray[np.float32]:
        """Probabilities over the labels of the stream, in their declared order (`classes_`)."""
        found: NDArray[np.float32] = self._scored(X, task).softmax(1).cpu().numpy()
        return found

    def score(self, X: Any, y: Any, task: TaskInfo | None = None) -> float:
        """Accuracy on public data. On private data it is a query: use `Vault.accuracy`."""
        return float(np.mean(self.predict(X, task) == np.asarray(y)))

    @property
    def classes_(self) -> NDArray[Any]:
        return np.asarray(self.labels_)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings, as scikit-learn asks for them."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def set_params(self, **params: Any) -> Self:
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise LearnerError(f"{type(self).__name__} has no setting {name!r}; it has {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __sklearn_clone__(self) -> Self:
        """A learner with the same settings that has learnt nothing. It shares the ledger: copies would not add up."""
        return type(self)(**self.get_params())

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn's tools ask of an estimator: a classifier, whose noise is new every time."""
        from sklearn.utils import ClassifierTags, Tags, TargetTags

        return Tags(
            estimator_type=self._estimator_type,
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            non_deterministic=True,
        )

    def settings(self) -> dict[str, Any]:
        """Everything that decides what is learnt and answered, besides the network: what grants are pinned to."""
        elsewhere = {"network", "stream", "ledger", "store"}
        return {"method": type(self).__name__} | {k: v for k, v in self.get_params().items() if k not in elsewhere}

    def _scored(self, x: Any, task: TaskInfo | None) -> Tensor:
        if not getattr(self, "tasks_", ()):
            raise LearnerError("nothing is learnt yet; call partial_fit first")
        rows = x if isinstance(x, Tensor) else torch.from_numpy(np.ascontiguousarray(x))
        return self.scores(rows.float(), task)

    def _open(self) -> Vault:
        if not hasattr(self, "vault_"):
            if self.ledger is None and not self.stream_.public:
                raise LearnerError(
                    f"the stream {self.stream_.name!r} is private, so its charges must last: give ledger=path and keep "
                    "the file"
                )
            given = Ledger.throwaway() if self.ledger is None else self.ledger
            self.vault_ = Vault(given if isinstance(given, Ledger) else Ledger(given), self.store)
        return self.vault_


def reopened(vault: Vault, info: StreamInfo, task: TaskInfo, part: str) -> Block:
    """A kept part of an earlier task, held again; targets are places among the labels of the whole stream."""
    block = vault.reopen(vault.find(info.name, task.name, part))
    return block if block.labels == info.labels else vault.with_labels(block, info.labels)


def admit(vault: Vault, source: Any, info: StreamInfo, task: TaskInfo, budget: Budget) -> Block:
    """Take a task's records in as declared; targets are then places among the labels of the whole stream."""
    block = vault.admit(
        source,
        Declared(
            stream=info.name,
            task=task.name,
            budget=budget,
            size=task.size,
            labels=task.labels,
            other=info.other,
            shape=info.shape,
            tasks_per_unit=info.tasks_per_unit,
            records_per_unit=info.records_per_unit,
            public=info.public,
        ),
    )
    return block if task.labels == info.labels else vault.with_labels(block, info.labels)
