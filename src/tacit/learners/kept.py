"""Records that a learner remembers, for a later process: they are in the vault's store, and nowhere else."""

import warnings

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError, VaultError
from tacit.privacy.declared import Block
from tacit.privacy.vault import Vault


def warn_of_no_store(method: str) -> None:
    """Said when a release is saved and planned tasks are left; in this process the learner goes on."""
    warnings.warn(
        f"{method} remembers records, and they are in this process only: a learner that remembers records needs "
        "store=FOLDER, from its first task on, to go on in another process",
        stacklevel=3,
    )


def reopened(vault: Vault, info: StreamInfo, task: TaskInfo, part: str) -> Block:
    """A kept part of an earlier task, held again; targets are places among the labels of the whole stream."""
    if not vault.has_store:
        raise LearnerError(
            "this learner remembers records, and they are in its store: give from_release(folder, ledger=…, store=…) "
            "the store that it was learnt with; without a store, or without its ledger, it only predicts"
        )
    try:
        block = vault.reopen(vault.find(info.name, task.name, part))
    except VaultError as error:
        raise LearnerError(
            f"this store does not hold what is remembered of task {task.name!r}; give the store that it was learnt with"
        ) from error
    return block if block.labels == info.labels else vault.with_labels(block, info.labels)
