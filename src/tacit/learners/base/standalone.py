"""A learner used by itself: `partial_fit` learns a task through its own vault, `save` and `from_release` keep it.

The functions are methods of `Learner`, their first argument.
"""

import warnings
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from tacit.certificate.certificate import Tuned
from tacit.data.stream import StreamInfo, Task, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.base.estimator import as_rows, check_learned, with_classes
from tacit.learners.base.rehearsal import rehearse_once
from tacit.learners.base.release import Release
from tacit.learners.base.settings import Stored
from tacit.learners.base.task_loop import TaskLoop
from tacit.plugins import code_hash, only_code, own_files
from tacit.privacy.ledger import Ledger
from tacit.privacy.vault import Vault


def partial_fit(learner: Any, X: Any, y: Any, ids: Any = None, classes: Iterable[Any] | None = None) -> Any:
    """Learns the next planned task.

    The charges are final when it returns. Call `save` at once if the release must outlive this process: a task that was
    learned and not saved cannot be learned again.

    Pictures (channels, height, width) are bytes, which are divided by 255, or floats, which are taken as they are:
    a backbone reads [0, 1]. Other integers become floats. The type alone decides, here and in `predict`.

    Args:
        X: Records of the declared shape.
        y: Their labels.
        ids: Whose records they are, where the unit is a person.
        classes: The declared labels or, where the stream was declared without, the labels of every task.

    Returns:
        The learner itself.

    Raises:
        LearnerError: A setting or input is refused. Nothing was read or charged.
    """
    if not hasattr(learner, "stream_"):
        if learner.stream is None:
            raise LearnerError(
                "declare the stream first: stream=StreamInfo.uniform(name, labels=…, shape=…, size=…, tasks=…)"
            )
        learner.start(with_classes(learner.stream, classes))
    with_classes(learner.stream_, classes)
    planned = learner.stream_.task(learner.tasks_learned)
    if planned is None:
        raise LearnerError(
            f"all {learner.tasks_learned} planned tasks are learned; plan more of them in StreamInfo from the start"
        )
    x, vault = as_rows(X, learner.stream_, learner.model_), opened_vault(learner)
    check_not_learned(vault, learner.stream_, planned, type(learner).__name__)
    rehearse_once(learner)
    loop = TaskLoop(learner, vault, learner.stream_, learner.budget)
    loop.learn(Task(info=planned, records=lambda: (x, y) if ids is None else (x, y, ids)))
    learner.unsaved_ = loop
    return learner


def save(learner: Any, folder: str | Path) -> None:
    """Writes the release of the last task: `model.safetensors`, `release.json`, `certificate.json`, and a model card.

    It may be published, and `from_release` resumes from it.

    Args:
        folder: The folder; it is made if it does not exist.

    Raises:
        NotLearned: Nothing is learned yet.
    """
    check_learned(learner)
    goes_on = learner.stream_.task(learner.tasks_learned) is not None
    if learner.ledger is not None and learner.store is None and learner.has_memory and goes_on:
        warnings.warn(
            f"{type(learner).__name__} remembers records, and without store=FOLDER from the first task on they are in "
            "this process only: it can go on here, but not in another process",
            stacklevel=2,
        )
    learner.certificate_ = learner.last_release().save(Path(folder))
    if (loop := getattr(learner, "unsaved_", None)) is not None:
        loop.settle(learner.tasks_[-1])
        learner.unsaved_ = None


def from_release(
    cls: Any,
    /,
    folder: str | Path,
    *,
    ledger: str | Path | Ledger | None = None,
    store: str | Path | None = None,
    allow_code: Collection[str] = (),
    **changed: Any,
) -> Any:
    """The learner of a release, with its settings.

    It predicts at once; with the ledger that it was charged to (and the store, if it has a memory) it goes on with
    the next planned task.

    Args:
        folder: The folder that `save` wrote.
        ledger: The ledger that the release was charged to.
        store: The store that remembered records are in.
        allow_code: SHA-256 of Python files that may be run. A file that the release names (`backbone =
            "file.py:Class"`) is not run unless its hash is here or in the ledger's policy, or it is in `changed`.
        changed: Settings, by keyword, that replace those of the release (such as `device`), or that are code, which no
            file holds.

    Returns:
        The learner.

    Raises:
        LearnerError: The folder holds another method's release, or a setting is missing or unknown.
    """
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
    allowed = opened_vault(made).ledger.policy.allow_code if release.names_code and ledger is not None else ()
    with only_code({*allow_code, *given, *allowed}):
        made.start(release.info)
        vault = None if ledger is None else opened_vault(made)
        if vault is not None:
            check_charged(vault, release)
        made.restore(release.tensors, release.tasks, vault)
    made.certificate_ = release.certificate
    made.card_ = (release.certificate.id, release.card)
    made.tuned_ = Tuned.of(release.certificate)
    return made


def opened_vault(learner: Any) -> Vault:
    """The vault of a learner that is used by itself, opened once."""
    if not hasattr(learner, "vault_"):
        learned = learner.tasks_learned if hasattr(learner, "tasks_") else 0
        stream = learner.stream_ if hasattr(learner, "stream_") else learner.stream
        learner.vault_ = open_vault(learner.ledger, learner.store, stream, learned)
    vault: Vault = learner.vault_
    return vault


def open_vault(ledger: str | Path | Ledger | None, store: str | Path | None, stream: StreamInfo, learned: int) -> Vault:
    """The vault of a learner that is used by itself.

    Raises:
        LearnerError: There is no ledger, and the data is private or something was already charged elsewhere.
    """
    if ledger is None and learned:
        raise LearnerError(
            "this learner was made from a release without its ledger, so it only predicts; to learn the next task, "
            "give from_release(folder, ledger=…) the ledger that it was charged to"
        )
    if ledger is None and not stream.public:
        raise LearnerError(
            f"the stream {stream.name!r} is private, so its charges must last: give ledger=path and keep the file"
        )
    given = Ledger.throwaway() if ledger is None else ledger
    return Vault(given if isinstance(given, Ledger) else Ledger(given), store)


def check_not_learned(vault: Vault, stream: StreamInfo, task: TaskInfo, method: str) -> None:
    """Refuses a task that was learned to its end, in this process or another; an unfinished one is resumed."""
    if vault.ledger.grant_states(stream.name, task.name) == {"RELEASED"}:
        raise LearnerError(
            f"task {task.name!r} of {stream.name!r} has already been learned; load the release saved after it with "
            f"{method}.from_release(folder, ledger=…)"
        )


def check_charged(vault: Vault, release: Release) -> None:
    """Refuses a ledger that does not know the tasks that a release has learned."""
    for task in release.tasks:
        if vault.ledger.grant_states(release.info.name, task.name) is None:
            raise LearnerError(
                f"this ledger knows nothing of task {task.name!r} of {release.info.name!r}, which the release has "
                "learned; give the one that was charged for it"
            )
