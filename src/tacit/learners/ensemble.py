"""The PEFT ensemble of Tobaben et al. 2025 (Algorithm 2): a private model a task, all of them asked.

Each task trains what the network has to train (an adapter and a head on a frozen public backbone, or a linear layer on
its features) with DP-SGD, from the same start, over the task's own public labels. Answers over the labels of the tasks
learnt so far are post-processing; f_l(o) is the logit of model l for label o of its task:
argmax   max_l f_l(o)                                                 (Eq. 10)
median   max_l [f_l(o) − median_o' f_l(o')]                           (Eq. A41)
entropy  Σ_l w_l f_l(o), w = softmax_l(−H_l), H_l the entropy of model l   (Zhao et al. 2024, Eq. 11, γ = 1)
A label outside a model's own is not among that model's answers.

Claim: Theorems 4.4 and 4.5. Certified: each task's records lose what their own DP-SGD plan costs (rate and steps are
fixed by public sizes), once; over tasks by the declared number of tasks per unit. Tuning is not part of it.
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
from tacit.learners.apart import Apart
from tacit.learners.core import Network
from tacit.learners.gradient import Each
from tacit.learners.routing import entropy
from tacit.learners.taskwise import TaskWise
from tacit.learners.weights import State, trained
from tacit.privacy.declared import Block
from tacit.privacy.vault import Vault

Places = Tensor | slice
Members = Iterable[tuple[Places, Tensor]]
"""Of each model: the places of its labels among the outputs, and its logits for them."""


def head_or_adapter(info: StreamInfo) -> nn.Module:
    """On features (rows of numbers) a linear layer that starts at zero; on images FiLM adapters of a backbone."""
    classes = len(info.labels)
    if len(info.shape) == 1:
        return models.build("linear", info.shape, classes, zero=True)
    return models.build("pretrained", info.shape, classes)


@dataclass(kw_only=True, eq=False)
class PEFTEnsemble(Apart, TaskWise):
    """40 epochs of Adam a task, as in the paper; `batch`, `lr` and `clip` it tunes."""

    network: Network = head_or_adapter
    steps: Each[int] | None = None
    epochs: Each[float] | None = 40
    batch: Each[float] = 500
    lr: Each[float] = 1e-3
    rule: Literal["sgd", "adam"] = "adam"
    aggregate: Literal["argmax", "median", "entropy"] = "argmax"
    """How the models' answers become one. Never choose it by test accuracy."""

    reference: ClassVar[str] = "Tobaben et al. 2025, Algorithm 2"
    certifies: ClassVar[str] = "a record: the DP-SGD plan of its own task, once"

    def start(self, stream: StreamInfo) -> None:
        if self.aggregate not in ("argmax", "median", "entropy"):
            raise LearnerError(f"aggregate must be 'argmax', 'median' or 'entropy', got {self.aggregate!r}")
        super().start(stream)

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        own = vault.with_labels(block, task.labels)  # targets are places among the task's labels
        loss = partial(own_cross_entropy, own=self.places(task))
        self.experts_.append(self.train(task, own, vault, self.plan(task), loss))
        vault.drop(own)

    def places(self, task: TaskInfo) -> Places:
        """Where the outputs of a task's labels are; as a slice, which is far quicker to read, if they lie together."""
        own = self.positions(task.labels)
        first = int(own[0])
        together = torch.equal(own, torch.arange(first, first + len(own)))
        return slice(first, first + len(own)) if together else own.to(self.device)

    def scores(self, x: Tensor, task: TaskInfo | None = None) -> Tensor:
        """The ensemble's answer, −∞ for labels of no task learnt; a known task is answered by its own model. While a
        task is learnt its unfinished model counts too; where there is no model, the start is asked."""
        rows = x.to(self.device)
        asked = list(zip(self.tasks_, self.experts_, strict=False))
        if self.learning_ is not None:
            asked.append((self.learning_, trained(self.model_)))
        if task is not None:
            asked = [one for one in asked if one[0].number == task.number]
        found = self.together(rows, asked) if asked else self.outputs(rows, self.start_)
        return found if task is None else found.masked_fill(~self.mask(task).to(self.device), -torch.inf)

    def together(self, rows: Tensor, asked: Sequence[tuple[TaskInfo, State]]) -> Tensor:
        """One answer of some models."""
        places = [self.places(task) for task, _ in asked]
        answers = ((own, self.outputs(rows, state)[:, own]) for own, (_, state) in zip(places, asked, strict=True))
        out = torch.full((len(rows), len(self.labels_)), -torch.inf, device=self.device)
        if self.aggregate == "entropy":
            return weighted(answers, out)
        return largest(answers if self.aggregate == "argmax" else ((own, centred(one)) for own, one in answers), out)


def largest(members: Members, out: Tensor) -> Tensor:
    """The largest answer of any model to each label, written to `out` (−∞ where there is none)."""
    for own, logits in members:
        out[:, own] = torch.maximum(out[:, own].clone(), logits)  # a copy: `out` changes before a gradient is taken
    return out


def weighted(members: Members, out: Tensor) -> Tensor:
    """The answers added up, each model's by exp(−entropy) over that of all models, written to `out`."""
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
