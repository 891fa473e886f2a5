"""The held-out tasks of a stream (`data.held`), for learners that are first trained on them.

They are admitted as a stream of their own, named NAME/held, under the same terms. What they lose is charged to them and
does not enter the certificate of the stream that is learned.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit.certificate.issuance import issue
from tacit.data.stream import Stream, Task
from tacit.errors import ConfigError
from tacit.learners.base.learner import Learner
from tacit.learners.base.task_loop import admit
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.vault import Block, Vault


class HeldOutTasks:
    """The held-out tasks of one run.

    Args:
        stream: The stream that is learned, with its held-out tasks.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream, self._name = stream.held, f"{stream.info.name}/held"
        self._endless = stream.info.endless
        self._use: str | None = None
        self._blocks: list[Block] = []

    def check(self, learner: Learner) -> None:
        """Refuse a learner that needs held-out tasks where there are none, or public ones where they are private."""
        if (wanted := learner.held_out_access) is None:
            return
        if self._stream is None and self._endless:
            raise ConfigError(
                f"learner.fine_tune = {wanted!r} needs held-out tasks, and an endless stream has none; leave it out"
            )
        if self._stream is None:
            raise ConfigError(
                f"learner.fine_tune = {wanted!r} needs held-out tasks, and data.held = 0 "
                "holds out none; set data.held to their number"
            )
        if wanted == "public" and not self._stream.info.public:
            raise ConfigError(
                f"learner.fine_tune = 'public' reads held tasks without noise, and {self._stream.info.name!r} is "
                "private; use 'charged'"
            )

    def hand_over(self, learner: Learner, vault: Vault, budget: Budget) -> None:
        """Admit the tasks, each under its own labels, and give them to a learner that uses them; at every start."""
        if learner.held_out_access is None or self._stream is None:
            return
        facts = replace(self._stream.info, name=self._name)
        self._use = learner.held_out_access
        self._blocks = [
            admit(vault, task.records, replace(facts, tasks=(task.info,)), task.info, budget, through=task.through)
            for task in self._stream
        ]
        learner.receive_held_out(self._blocks, vault)

    def settle(self, vault: Vault) -> None:
        """Mark finished work on them as released, after a crash between saving a task and marking it."""
        if self._blocks:
            vault.settle(self._blocks[0])

    def summary(self, vault: Vault, folder: Path) -> dict[str, Any] | None:
        """What the metrics of a run say of the held-out tasks; their certificate is saved to the folder. None if they
        were not used."""
        if not self._blocks:
            return None
        certificate = issue(vault.ledger, self._blocks[0], method="passes over held tasks")
        certificate.save(folder / "held-certificate.json")
        for task in self._stream or ():
            delete_features(task)
        certified = certificate.claims.certified
        return {
            "stream": self._name, "use": self._use, "epsilon": certificate.epsilon, "delta": certified.delta,
            "reason": certified.reason,
        }  # fmt: skip


def delete_features(task: Task) -> None:
    """Deletes the cached features of a task's records, which are kept only until what is learned from them is saved."""
    if task.through is not None:
        task.through.forget(task.info.name)
