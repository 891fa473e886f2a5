"""Which outputs belong to which task, for losses that ask about a task's own labels only."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from tacit.data.stream import Label, StreamInfo, TaskInfo
from tacit.gradients.losses import cross_entropy
from tacit.privacy.vault import Loss


def of_task(task: TaskInfo, labels: Sequence[Label]) -> Tensor:
    """Which of these labels, in their order, are the task's."""
    known = set(task.labels)
    return torch.tensor([label in known for label in labels])


def by_label(tasks: Sequence[TaskInfo], labels: Sequence[Label]) -> Tensor | None:
    """For each label, the outputs of its task; None where a label is in tasks with different label sets."""
    masks: dict[Label, Tensor] = {}
    for task in tasks:
        mask = of_task(task, labels)
        for label in task.labels:
            if label in masks and not torch.equal(masks[label], mask):
                return None
            masks[label] = mask
    return torch.stack([masks[label] for label in labels])


def loss(info: StreamInfo, device: str) -> Loss:
    """Cross-entropy; where the task is given at test and follows from the label, over the task's labels only."""
    found = by_label(info.tasks, info.labels) if info.task_id == "given" else None
    if found is None or bool(found.all()):
        return cross_entropy
    return partial(masked_cross_entropy, masks=found.to(device))


def masked_cross_entropy(output: Tensor, y: Tensor, masks: Tensor) -> Tensor:
    """Cross-entropy over the outputs of the example's own task."""
    return cross_entropy(output.masked_fill(~masks[y], -torch.inf), y)
