"""The tasks that are held back from a stream (`data.held`), for learners that begin on them.

Guarantee: they are admitted as a stream of their own, named NAME/held, under the stream's own terms: what they lose is
charged to them, and the certificate of the stream that is learnt is not touched by it.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit.data.stream import Stream
from tacit.errors import ConfigError
from tacit.learners.learner import Learner, admit
from tacit.privacy.budget import Budget
from tacit.privacy.declared import Block
from tacit.privacy.vault import Vault


class Held:
    """The held tasks of one run."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._name = stream.held, f"{stream.info.name}/held"
        self._endless = stream.info.endless
        self._use: str | None = None
        self._blocks: list[Block] = []

    def check(self, learner: Learner) -> None:
        """Refuse a learner that wants held tasks which are not there, or are not public; nothing is read."""
        if (wanted := learner.wants_held) is None:
            return
        if self._stream is None and self._endless:
            raise ConfigError(
                f"learner.fine_tune = {wanted!r} begins on tasks that are held back, and a stream without end has "
                "none; leave it out"
            )
        if self._stream is None:
            raise ConfigError(
                f"learner.fine_tune = {wanted!r} begins on tasks that are held back from the stream, and data.held = 0 "
                "holds back none; set data.held to their number"
            )
        if wanted == "public" and not self._stream.info.public:
            raise ConfigError(
                f"learner.fine_tune = 'public' reads held tasks without noise, and {self._stream.info.name!r} is "
                "private; use 'charged'"
            )

    def hand_over(self, learner: Learner, vault: Vault, budget: Budget) -> None:
        """Admit them, each under its own labels, and give them to a learner that wants them; at every start."""
        if learner.wants_held is None or self._stream is None:
            return
        facts = replace(self._stream.info, name=self._name)
        self._use = learner.wants_held
        self._blocks = [
            admit(vault, task.records, replace(facts, tasks=(task.info,)), task.info, budget) for task in self._stream
        ]
        learner.held(self._blocks, vault)

    def settle(self, vault: Vault) -> None:
        """Mark finished work on them as released: after a crash between the save of a task and its mark."""
        if self._blocks:
            vault.settle(self._blocks[0])

    def said(self, vault: Vault, folder: Path) -> dict[str, Any] | None:
        """The line of their own in what a run says, from a certificate of their own, which is kept in the folder; None
        where they were not used."""
        if not self._blocks:
            return None
        found = vault.certificate(self._blocks[0], method="passes over held tasks")
        found.save(folder / "held-certificate.json")
        said = found.claims.certified
        return {
            "stream": self._name, "use": self._use, "epsilon": found.epsilon, "delta": said.delta, "reason": said.reason
        }  # fmt: skip
