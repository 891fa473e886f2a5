"""DP generative replay (Farquhar and Gal 2019): a private generative model for each task replays it for later tasks.

A task trains a variational auto-encoder with DP-SGD from public initial weights and keeps its decoder. The classifier
is then trained from the start on synthetic records of all tasks so far, which is post-processing. No record is kept,
and none is read after its task.

Implemented from the idea of the paper; differences: the generator is one small auto-encoder for each task, with labels
as anchors of the prior, p(z | y) = N(anchor of y, I); the classifier sees synthetic records only, also of the current
task, so that a task is charged for its generator only; and every label of a task is replayed equally often, since their
numbers are private.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.learners.base import weights
from tacit.learners.base.callbacks import Step
from tacit.learners.base.gradient import Each, GradientLearner
from tacit.learners.base.ranges import FROM_ONE, POSITIVE, RATE, Range
from tacit.learners.base.weights import State, put, trained
from tacit.privacy.vault import Block, Vault

Likelihood = Literal["bernoulli", "gaussian"]
BATCH = 256
"""Rows of a step of the classifier."""


class AutoEncoder(nn.Module):
    """Returns side by side: the decoder's output, the mean and log-variance of the code, and the record."""

    def __init__(self, size: int, hidden: int, latent: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, size))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(1)
        mean, spread = self.encoder(rows).chunk(2, 1)
        spread = 8 * torch.tanh(spread / 8)
        code = mean + (spread / 2).exp() * torch.randn_like(mean) if self.training else mean
        return torch.cat([self.decoder(code), mean, spread, rows], 1)


def negative_elbo(output: Tensor, y: Tensor, anchors: Tensor, likelihood: Likelihood) -> Tensor:
    """−ELBO of each record, where the prior of its code is N(anchor of its label, I)."""
    latent = anchors.shape[1]
    size = (output.shape[1] - 2 * latent) // 2
    made, mean, spread, rows = torch.split(output, [size, latent, latent, size], 1)
    if likelihood == "bernoulli":
        target = rows.clamp(0, 1)
        away = nn.functional.binary_cross_entropy_with_logits(made, target, reduction="none").sum(1)
    else:
        away = (made - rows).square().sum(1) / 2
    divergence = ((mean - anchors[y]).square() + spread.exp() - spread - 1).sum(1) / 2
    found: Tensor = away + divergence
    return found


@dataclass(kw_only=True, eq=False)
class DPGenerativeReplay(GradientLearner):
    """A private generator for each task, and a classifier of what all generators replay.

    `steps`, `batch`, `lr`, `rule` and `clip` are those of the generators; `network` is the classifier.

    Reference: Farquhar and Gal 2019, DP generative replay.
    Claim: none.
    Certified: each record's privacy cost is that of the DP-SGD plan of its own task's generator, once.
    Sharp edges: the classifier is as good as what small auto-encoders draw, which suits digits and tables, not
    photographs. Each task adds a decoder, and the classifier is trained again on records of all tasks.
    """

    steps: Each[int] | None = 200
    batch: Each[float] = 1000
    lr: Each[float] = 3e-3
    rule: Literal["sgd", "adam"] = "adam"
    clipping: str = "automatic"
    latent: int = 8
    """Length of a code."""
    hidden: int = 100
    """Width of the hidden layers of encoder and decoder."""
    apart: float = 4.0
    """Length of the anchors, which are the means of the labels' codes."""
    likelihood: Likelihood = "bernoulli"
    """`bernoulli` for values in [0, 1], to which records are cut; `gaussian` for others."""
    samples: int = 500
    """Synthetic records for each label of each task."""
    classifier_epochs: int = 5
    """Passes of the classifier over the synthetic records."""
    classifier_lr: float = 1e-3
    """Learning rate of the classifier, by Adam."""

    reference: ClassVar[str] = "Farquhar and Gal 2019, DP generative replay"
    certifies: ClassVar[str] = "a record: the DP-SGD plan of its own task's generator, once"
    remembers: ClassVar[bool] = False
    ranges: ClassVar[Mapping[str, Range]] = {
        "latent": FROM_ONE, "apart": POSITIVE, "samples": FROM_ONE, "classifier_epochs": FROM_ONE, "classifier_lr": RATE
    }  # fmt: skip

    def start(self, stream: StreamInfo) -> None:
        super().start(stream)
        size = int(torch.Size(stream.shape).numel())
        with self.seeded_randomness(1):
            self.generator_ = AutoEncoder(size, self.hidden, self.latent).to(self.device)
            anchors = torch.randn(len(stream.labels), self.latent)
        self.anchors_ = (self.apart * nn.functional.normalize(anchors, dim=1)).to(self.device)
        self.start_ = trained(self.generator_)
        self.decoders_: list[State] = []

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        put(self.generator_, self.start_)
        loss = partial(negative_elbo, anchors=self.anchors_, likelihood=self.likelihood)
        grant = vault.grant(block, self.plan(task), self.generator_, loss, work=self.settings())
        optimizer = self.optimizer_for(self.generator_, task)
        for step in grant:
            self.report(Step(task=task, step=step, of=grant.plan.steps))
            grant.backward()
            optimizer.step()
        self.report(Step(task=task, step=grant.plan.steps, of=grant.plan.steps))
        vault.drop(block)
        self.decoders_.append(trained(self.generator_.decoder))
        self._learn((*self.tasks_, task))

    def _learn(self, tasks: tuple[TaskInfo, ...]) -> None:
        """Train the classifier from the start on synthetic records of these tasks."""
        self.model_ = self.build()
        with self.seeded_randomness(2, len(tasks)):
            made = [self.replayed(task) for task in tasks]
            x, y = torch.cat([x for x, _ in made]), torch.cat([y for _, y in made])
            optimizer = torch.optim.Adam(self.model_.parameters(), lr=self.classifier_lr)
            for _ in range(self.classifier_epochs):
                for rows in torch.split(torch.randperm(len(x)), BATCH):
                    loss = self.loss_(self.model_(x[rows]), y[rows]).mean()
                    optimizer.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
        self.model_.zero_grad()

    def replayed(self, task: TaskInfo) -> tuple[Tensor, Tensor]:
        """Synthetic records of a task, and their labels as indices among the labels of the stream."""
        put(self.generator_.decoder, self.decoders_[task.number])
        y = self.positions(task.labels).repeat_interleave(self.samples).to(self.device)
        with torch.no_grad():
            made = self.generator_.decoder(self.anchors_[y] + torch.randn(len(y), self.latent, device=self.device))
        x = made.sigmoid() if self.likelihood == "bernoulli" else made
        return x.view(len(x), *self.stream_.shape), y

    def tensors(self) -> State:
        """The classifier and the decoder of every task."""
        held = {f"classifier.{name}": value for name, value in weights.released(self.model_).items()}
        for number, decoder in enumerate(self.decoders_):
            held |= {f"decoder.{number}.{name}": value.cpu().clone() for name, value in decoder.items()}
        return held

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        weights.load(self.model_, weights.under(tensors, "classifier."))
        self.decoders_ = weights.each(tensors, "decoder", self.device)
