"""scikit-learn's shape for every learner: `partial_fit` is one task, `predict`, `predict_proba`, `get_params`.

Labels, nominal sizes and the number of tasks are declared (`stream=StreamInfo…` in the constructor, or `start`):
nothing is inferred from the data. Private data needs a ledger that is kept; public data may use one that is not.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.data.sources import as_read, is_picture, tensor
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.core import Core
from tacit.learners.ending import Ending
from tacit.learners.kept import warn_of_no_store
from tacit.learners.rehearse import rehearse_once
from tacit.learners.release import Release
from tacit.learners.stored import Stored
from tacit.plugins import code_hash, only_code, own_files
from tacit.privacy.budget import Budget
from tacit.privacy.declared import Block, Declared
from tacit.privacy.ledger import Ledger
from tacit.privacy.plan import GradientPlan
from tacit.privacy.tuned import Tuned
from tacit.privacy.vault import Vault


@dataclass(kw_only=True, eq=False)
class Learner(Ending, Core):
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
        """Learn the next planned task from its records; `ids` say whose they are.

        Pictures (channels, height, width) are bytes, which are divided by 255, or floats, which are taken as they are:
        a backbone reads [0, 1]. Other whole numbers become floats. The type alone decides, here and in `predict`."""
        if not hasattr(self, "stream_"):
            if self.stream is None:
                raise LearnerError(
                    "declare the stream first: stream=StreamInfo.uniform(name, labels=…, shape=…, size=…, tasks=…)"
                )
            self.start(self.stream)
        planned = self.stream_.task(self.learnt)
        if planned is None:
            raise LearnerError(
                f"all {self.learnt} planned tasks are learnt; plan more of them in StreamInfo from the start"
            )
        x, vault = self._rows(X), self._open()
        self._check_new(vault, planned)
        rehearse_once(self)
        source = (x, y) if ids is None else (x, y, ids)
        block = admit(vault, source, self.stream_, planned, self.budget, like=self.like(planned))
        # A task of several grants is taken up again from its first; after a failure also with corrected settings.
        with vault.corrected(), vault.until_saved():
            self.learn(planned, block, vault)
        self.unsaved_: Block | None = block
        return self

    def rehearsal(self) -> Self:
        """A learner with the same settings, which has learnt nothing and charges nothing."""
        return type(self)(**self.get_params() | {"ledger": None, "store": None, "stream": None})

    @property
    def wants_shown(self) -> bool:
        """Whether it looks at public records of a task while it learns: `show` them before."""
        return False

    def show(self, X: Any, y: Any) -> None:
        """Public records like those of the next tasks, for learners that want them."""
        return

    @property
    def wants_held(self) -> Literal["public", "charged"] | None:
        """How it reads the tasks that are held back from the stream, if it does: `held` gives them."""
        return None

    def held(self, blocks: Sequence[Block], vault: Vault) -> None:
        """Take the held tasks, before the first task and after every restart: for learners that want them."""
        return

    def groups(self) -> list[range]:
        """Where several networks take turns: the tasks learnt by now that each of them answers for."""
        return []

    @property
    def holds(self) -> bool:
        """Whether it holds records of earlier tasks, to read them again."""
        return False

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

    def save(self, folder: str | Path) -> None:
        """Write the release of the last task: `model.safetensors`, `release.json`, `certificate.json`. It may be
        published, and `from_release` goes on with it."""
        self._check_learnt()
        if self.ledger is not None and self.store is None and self.holds and self.stream_.task(self.learnt) is not None:
            warn_of_no_store(type(self).__name__)
        self.certificate_ = self.last_release().save(Path(folder))
        if (block := getattr(self, "unsaved_", None)) is not None:
            self.saved(block, self._open())
            self.unsaved_ = None

    @classmethod
    def from_release(
        cls,
        folder: str | Path,
        *,
        ledger: str | Path | Ledger | None = None,
        store: str | Path | None = None,
        allow_code: Collection[str] = (),
        **changed: Any,
    ) -> Self:
        """The learner as a release left it, with its settings. It predicts at once; with the ledger that it was charged
        to (and the store, if it has a memory) it goes on with the next planned task.

        `changed`: settings that are to be others (such as `device`), or that are code, which no file holds. A Python
        file that the release names (`backbone = "file.py:Class"`) is not run, unless it is given here again as a
        setting, or its SHA-256 is in `allow_code` or in the policy of the ledger."""
        release = Release.load(Path(folder))
        if release.method != cls.__name__:
            raise LearnerError(
                f"{folder} is a release of {release.method}, not of {cls.__name__}; use {release.method}.from_release"
            )
        if release.settings is None and "budget" not in changed:
            raise LearnerError(
                f"{folder} was saved before releases held settings; give all of them, such as budget=Budget(…)"
            )
        settings = (release.settings or Stored()).settings(cls, changed)
        made = cls(**settings, stream=release.info, ledger=ledger, store=store)
        given = {code_hash(file, LearnerError) for file in own_files(changed)}
        with only_code({*allow_code, *given, *(made._policy_code() if release.names_code else ())}):
            made.start(release.info)
            made.restore(release.tensors, release.tasks, None if ledger is None else made._open_again(release))
        made.certificate_ = release.certificate
        made.tuned_ = Tuned.of(release.certificate)
        return made

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
        self._check_learnt()
        return self.scores(as_read(self._rows(x)), task)

    def _rows(self, x: Any) -> Tensor:
        """Records of the declared shape; all but bytes of pictures as floats, unless the network looks numbers up."""
        rows, said = tensor(x, self.stream_.shape), self.stream_
        if rows.shape[1:] != said.shape:
            of = f": features by {said.features}" if said.features else ""
            raise LearnerError(
                f"records have the shape {tuple(rows.shape[1:])}, and {said.shape} was declared{of}; reshape them, or "
                "declare it"
            )
        looked_up = any(isinstance(module, nn.Embedding) for module in self.model_.modules())
        as_they_are = is_picture(rows) or (looked_up and not rows.dtype.is_floating_point)
        return rows if as_they_are else rows.float()

    def _check_learnt(self) -> None:
        if not getattr(self, "tasks_", ()):
            raise LearnerError("nothing is learnt yet; call partial_fit first")

    def _check_new(self, vault: Vault, task: TaskInfo) -> None:
        """Refuse a task that was learnt to its end, here or in another process; what is unfinished is taken up."""
        if vault.ledger.states(self.stream_.name, task.name) == {"RELEASED"}:
            raise LearnerError(
                f"task {task.name!r} of {self.stream_.name!r} was learnt from already, as the ledger says; go on "
                f"with {type(self).__name__}.from_release(folder, ledger=…) from what save(folder) wrote after it"
            )

    def _policy_code(self) -> tuple[str, ...]:
        """The files that the policy of the ledger allows to run."""
        return () if self.ledger is None else self._open().ledger.policy.allow_code

    def _open_again(self, release: Release) -> Vault:
        """The vault of a later process; its ledger must know all that the release has learnt."""
        vault = self._open()
        for task in release.tasks:
            if vault.ledger.states(release.info.name, task.name) is None:
                raise LearnerError(
                    f"this ledger knows nothing of task {task.name!r} of {release.info.name!r}, which the release has "
                    "learnt; give the one that was charged for it"
                )
        return vault

    def _open(self) -> Vault:
        if not hasattr(self, "vault_"):
            if self.ledger is None and self.tasks_:
                raise LearnerError(
                    "this learner was made from a release without its ledger, so it only predicts; to learn the next "
                    "task, give from_release(folder, ledger=…) the ledger that it was charged to"
                )
            if self.ledger is None and not self.stream_.public:
                raise LearnerError(
                    f"the stream {self.stream_.name!r} is private, so its charges must last: give ledger=path and keep "
                    "the file"
                )
            given = Ledger.throwaway() if self.ledger is None else self.ledger
            self.vault_ = Vault(given if isinstance(given, Ledger) else Ledger(given), self.store)
        return self.vault_


def admit(
    vault: Vault,
    source: Any,
    info: StreamInfo,
    task: TaskInfo,
    budget: Budget,
    *,
    like: GradientPlan | None = None,
) -> Block:
    """Take a task's records in as declared; targets are then places among the labels of the whole stream.

    `like`: plans are chosen as one goes, so the block is open, behind a filter of this plan's shape."""
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
            open=like is not None,
            like=like,
            fixed_schedule=like is None,
            public=info.public,
        ),
    )
    return block if task.labels == info.labels else vault.with_labels(block, info.labels)
