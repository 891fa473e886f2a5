"""Held-out tasks (the paper's D^CV), on which each new learner of a pool is first trained.

The held-out tasks are a separate stream with a certificate of its own; the certificate of the learned stream only names
them. Either they are public and read without noise, or all passes of all learners over them are committed before the
first one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tacit.data.stream import Label, StreamInfo
from tacit.errors import LearnerError
from tacit.privacy.vault import Block, Loss, Vault

WHY = "held tasks, declared public: new learners begin on them without noise"


@dataclass(frozen=True, kw_only=True)
class HeldTasks:
    """The blocks of the held-out tasks, and the output indices of their labels."""

    blocks: tuple[Block, ...]
    places: Tensor
    """Output index of each label of the blocks."""

    @classmethod
    def of(cls, blocks: Sequence[Block], vault: Vault, stream: StreamInfo) -> "HeldTasks":
        """The labels that the stream has too are learned as what they are, other labels beside them are skipped. A task
        that shares none with the stream (other classes) stands in for the stream's task of the same number: its labels
        are learned in the places of that task's."""
        if not blocks:
            raise LearnerError("there is no held task to begin on; give the blocks of one or more, or fine_tune=None")
        outputs = {label: place for place, label in enumerate(stream.labels)}
        found: dict[Label, int] = {}
        for number, block in enumerate(blocks):
            if block.labels is None:
                raise LearnerError(f"{block} has no public label set; declare it, so that a learner can begin on it")
            known = {label: outputs[label] for label in block.labels if label in outputs}
            others = stream.tasks[number % len(stream.tasks)].labels
            found |= known or {label: outputs[other] for label, other in zip(block.labels, others, strict=False)}
        space = tuple(found)
        return cls(
            blocks=tuple(vault.with_labels(block, space) for block in blocks), places=torch.tensor(list(found.values()))
        )

    @property
    def size(self) -> float:
        """Nominal number of units of all held-out tasks."""
        return sum(block.size for block in self.blocks)

    def loss(self, loss: Loss, device: str) -> Loss:
        """The learner's own loss, for targets that are labels of the held tasks."""
        return partial(placed, loss=loss, places=self.places.to(device))

    def said(self, vault: Vault) -> str:
        """What a certificate of the stream that is learned says of them."""
        one = self.blocks[0]
        if all(block.public for block in self.blocks):
            return f"learners also begin on stream {one.stream!r}, public held tasks: nothing is certified for them"
        lost = f"ε = {vault.ledger.epsilon(one.stream_id):.4g}, δ = {one.budget.delta:.3g}"
        return f"learners also begin on stream {one.stream!r}, whose records lose {lost} (its own certificate)"

    def raw(self, vault: Vault) -> "Raw":
        """All records, without noise; public data only."""
        return Raw([vault.unsafe.records(block, WHY) for block in self.blocks])


class Raw:
    """Raw records of several tasks as one indexable set, without copying them."""

    def __init__(self, parts: Sequence[tuple[Tensor, Tensor]]) -> None:
        self._parts = parts
        self._ends = torch.tensor([len(y) for _, y in parts]).cumsum(0)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Records by index, grouped by task."""
        of = torch.bucketize(rows, self._ends, right=True)
        begins = self._ends - torch.tensor([len(y) for _, y in self._parts])
        picked = [(x[own], y[own]) for n, (x, y) in enumerate(self._parts) if len(own := rows[of == n] - begins[n])]
        return torch.cat([x for x, _ in picked]), torch.cat([y for _, y in picked])


def placed(output: Tensor, y: Tensor, loss: Loss, places: Tensor) -> Tensor:
    """The loss of targets that are put in other places."""
    return loss(output, places[y])
