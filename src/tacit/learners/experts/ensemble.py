"""The PEFT ensemble of Tobaben et al. 2025 (Algorithm 2): one private model per task.

Each task trains the network's trainable parameters (an adapter and a head on a frozen public backbone, or a linear
layer on its features) with DP-SGD, from the same initial weights, over the task's own public labels. Predictions over
the labels of all learned tasks are post-processing; f_l(o) is the logit of model l for label o of its task:
argmax   max_l f_l(o)                                                 (Eq. 10)
median   max_l [f_l(o) − median_o' f_l(o')]                           (Eq. A41)
entropy  Σ_l w_l f_l(o), w = softmax_l(−H_l), H_l the entropy of model l   (Zhao et al. 2024, Eq. 11, γ = 1)
A model has no logits for labels outside its task.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from tacit import models
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.gradients.losses import cross_entropy
from tacit.learners.base.gradient import Each
from tacit.learners.base.learner import Network
from tacit.learners.base.taskwise import TaskWise
from tacit.learners.base.weights import State, trained
from tacit.learners.closed_form.routing import entropy
from tacit.learners.experts.per_task_models import PerTaskModels
from tacit.privacy.vault import Block, Vault

Places = Tensor | slice
Members = Iterable[tuple[Places, Tensor]]
"""For each model: the output indices of its labels, and its logits for them."""


def head_or_adapter(info: StreamInfo) -> nn.Module:
    """A zero-initialised linear layer for feature vectors; a backbone with FiLM adapters for images."""
    classes = len(info.labels)
    if len(info.shape) == 1:
        return models.build("linear", info.shape, classes, zero=True)
    return models.build("pretrained", info.shape, classes)


@dataclass(kw_only=True, eq=False)
class PEFTEnsemble(PerTaskModels, TaskWise):
    """An ensemble of one private model per task; 40 epochs of Adam per task as in the paper.

    Reference: Tobaben et al. 2025, Algorithm 2.
    Claim: Theorems 4.4 and 4.5.
    Certified: the privacy cost of each task's records is that of their own DP-SGD plan (rate and steps are fixed by
    public sizes), once; composed over the declared number of tasks per unit. Hyperparameter tuning is not included.
    Sharp edges: each task adds a model. Models that never met each other's labels are compared by their logits, so
    tasks of very different sizes cost accuracy where the task is hidden. A batch larger than a task reads it whole
    in every step. Adapters of a backbone need a GPU.
    """

    network: Network = head_or_adapter
    steps: Each[int] | None = None
    epochs: Each[float] | None = 40
    batch: Each[float] = 500
    lr: Each[float] = 1e-3
    rule: Literal["sgd", "adam"] = "adam"
    aggregate: Literal["argmax", "median", "entropy"] = "argmax"
    """How the models' logits are combined. Do not choose it by test accuracy."""

    reference: ClassVar[str] = "Tobaben et al. 2025, Algorithm 2"
    certifies: ClassVar[str] = "a record: the DP-SGD plan of its own task, once"
    supports_bounds: ClassVar[bool] = False

    def start(self, stream: StreamInfo) -> None:
        if self.aggregate not in ("argmax", "median", "entropy"):
            raise LearnerError(f"aggregate must be 'argmax', 'median' or 'entropy', got {self.aggregate!r}")
        super().start(stream)

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        own = vault.with_labels(block, task.labels)  # targets are indices into the task's labels
        loss = partial(own_cross_entropy, own=self.places(task))
        self.experts_.append(self.train(task, own, vault, self.plan(task), loss))
        vault.drop(own)

    def places(self, task: TaskInfo) -> Places:
        """Output indices of a task's labels; a slice, which is much faster to read, if they are contiguous."""
        indices = self.positions(task.labels)
        first = int(indices[0])
        contiguous = torch.equal(indices, torch.arange(first, first + len(indices)))
        return slice(first, first + len(indices)) if contiguous else indices.to(self.device)

    def scores(self, x: Tensor, task: TaskInfo | None = None) -> Tensor:
        """The ensemble's answer, −∞ for labels of no task learned; a known task is answered by its own model. While a
        task is learned its unfinished model counts too; where there is no model, the start is asked."""
        rows = x.to(self.device)
        asked = list(zip(self.tasks_, self.experts_, strict=False))
        if self.learning_ is not None:
            asked.append((self.learning_, trained(self.model_)))
        if task is not None:
            asked = [one for one in asked if one[0].number == task.number]
        found = self.together(rows, asked) if asked else self.outputs(rows, self.start_)
        return found if task is None else found.masked_fill(~self.mask(task).to(self.device), -torch.inf)

    def together(self, rows: Tensor, asked: Sequence[tuple[TaskInfo, State]]) -> Tensor:
        """The combined logits of several models."""
        places = [self.places(task) for task, _ in asked]
        answers = ((own, self.outputs(rows, state)[:, own]) for own, (_, state) in zip(places, asked, strict=True))
        out = torch.full((len(rows), len(self.labels_)), -torch.inf, device=self.device)
        if self.aggregate == "entropy":
            return weighted(answers, out)
        return largest(answers if self.aggregate == "argmax" else ((own, centred(one)) for own, one in answers), out)


def largest(members: Members, out: Tensor) -> Tensor:
    """The largest logit of any model for each label, written to `out` (−∞ for labels of no model)."""
    for own, logits in members:
        out[:, own] = torch.maximum(out[:, own].clone(), logits)  # a copy: `out` changes before a gradient is taken
    return out


def weighted(members: Members, out: Tensor) -> Tensor:
    """The sum of the models' logits with weights proportional to exp(−entropy), written to `out`."""
    sums, total = torch.zeros_like(out), torch.zeros_like(out[:, :1])
    for own, logits in members:
        weight = entropy(logits.softmax(1))[:, None].neg().exp()
        total += weight
        sums[:, own] += weight * logits
        out[:, own] = 0
    return out.add_(sums / total)


def centred(logits: Tensor) -> Tensor:
    """Each row minus its median; of an even number of values, the mean of the two in the middle."""
    count = logits.shape[1]
    low, high = (logits.kthvalue(place, 1, keepdim=True).values for place in ((count + 1) // 2, count // 2 + 1))
    return logits - (low + high) / 2


def own_cross_entropy(output: Tensor, y: Tensor, own: Places) -> Tensor:
    """Cross-entropy over some of the outputs; y are places among these."""
    return cross_entropy(output[:, own], y)
