"""The efficient memory: a remembered record is used only while the last released model is sure of its label.

Hassanpour et al. 2022, Eq. 6, compares a record's margin with the mean of its batch, so that one record decides about
others. Here each record is judged alone: its own margin, under a model that is already released, with noise draws that
are public and the same for all records, against a public threshold. One record more or less changes nothing for any
other record, so the rule costs no privacy (`Read.select` maps it over single records: it cannot see two of them).
"""

import math
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from tacit.data.stream import StreamInfo
from tacit.errors import LearnerError
from tacit.learners.base import masks
from tacit.models.noisy import Noisy

_DRAWS = 7
"""Number of the stream of public coins, among those of the learner's seed, that the draws come from."""


@dataclass(frozen=True, kw_only=True)
class MarginRule:
    """The settings of the rule, and the rule under a released model."""

    threshold: float
    draws: int
    confidence: float
    seed: int

    def under(self, released: nn.Module, stream: StreamInfo, device: str) -> "Margin":
        """The rule as judged by a released model; where the task is given at test, over the task's own labels."""
        seed = int(np.random.SeedSequence([self.seed, _DRAWS]).generate_state(1)[0])
        own = masks.by_label(stream.tasks, stream.labels) if stream.task_id == "given" else None
        return Margin(
            released,
            public_draws(released, stream.shape, self.draws, seed),
            threshold=self.threshold,
            confidence=self.confidence,
            masks=None if own is None else own.to(device),
        )

    def check(self, network: nn.Module, *, labels: int) -> None:
        """Refuses a rule that no record could pass, or that every record passes."""
        noisy = isinstance(network, Noisy)
        if isinstance(self.draws, bool) or not isinstance(self.draws, int) or self.draws < 1:
            raise LearnerError(f"margin_draws must be a whole number ≥ 1, got {self.draws!r}; 32 is the default")
        if not 0 < self.confidence < 1:
            raise LearnerError(f"margin_confidence must be between 0 and 1, got {self.confidence}; 0.95 is the default")
        if labels < 2:
            raise LearnerError(
                "margin compares a record's label with the other labels, and the stream has one; use margin=None"
            )
        most = 1 - 2 * half_width(self.draws if noisy else 0, labels, self.confidence)
        if self.threshold <= (least := most - 2):
            raise LearnerError(
                f"margin = {self.threshold:g} excludes no record, since no margin is below {least:.3g}; use a value "
                "from 0 to 1, or margin=None"
            )
        if not self.threshold < most:
            bounds = (
                f": the bounds of {self.draws} draws with confidence {self.confidence:g} take {1 - most:.2g} of it"
                if noisy
                else ""
            )
            raise LearnerError(
                f"no record could reach a margin of {self.threshold:g}, only less than {most:.3g}{bounds}; lower margin"
                + (", or raise margin_draws" if noisy else "")
            )


class Margin(nn.Module):
    """(x, y) of one record → whether E^lb(p_y) − max over i ≠ y of E^ub(p_i) ≥ threshold.

    Behind a noise layer, E is the mean probability over fixed draws, and Hoeffding's bounds hold for all labels
    together with the given confidence. Without a noise layer, E is the probability itself."""

    draws: Tensor

    def __init__(
        self, network: nn.Module, draws: Tensor, *, threshold: float, confidence: float, masks: Tensor | None = None
    ) -> None:
        super().__init__()
        self.network = deepcopy(network).requires_grad_(False).eval()
        self.threshold, self.confidence = threshold, confidence
        self.register_buffer("draws", draws)
        self.register_buffer("masks", masks)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x, y = x.to(self.draws.device), y.to(self.draws.device)
        chances = self._chances(x[None], y)
        own = torch.arange(len(chances), device=chances.device) == y
        margin = torch.where(own, chances, 0.0).sum() - torch.where(own, -torch.inf, chances).max()
        return margin - 2 * half_width(len(self.draws), len(chances), self.confidence) >= self.threshold

    def _chances(self, x: Tensor, y: Tensor) -> Tensor:
        """E(p): the mean probability of each label."""
        if not isinstance(self.network, Noisy):
            return self._softmax(self.network(x), y)
        hidden, total = self.network.hidden(x), torch.zeros(())
        for draw in self.draws:
            total = total + self._softmax(self.network.rest(hidden + self.network.std * draw), y)
        return total / len(self.draws)

    def _softmax(self, logits: Tensor, y: Tensor) -> Tensor:
        """Where the task is given at test, over the labels of the record's own task."""
        if isinstance(self.masks, Tensor):
            logits = logits.masked_fill(~self.masks[y], -torch.inf)
        return logits.softmax(1)[0]


def half_width(draws: int, labels: int, confidence: float) -> float:
    """Hoeffding: √(ln(2K/(1 − η)) / 2n) bounds the error of the means of n draws for all K labels at once."""
    return math.sqrt(math.log(2 * labels / (1 - confidence)) / (2 * draws)) if draws else 0.0


def public_draws(network: nn.Module, shape: tuple[int, ...], number: int, seed: int) -> Tensor:
    """Standard normal noise for a network's noise layer, from a public seed; empty without a noise layer."""
    device = next(network.parameters()).device
    if not isinstance(network, Noisy):
        if any(getattr(module, "random_in_eval", False) for module in network.modules()):
            raise LearnerError(
                "margin supports a noise layer only at the top of a network; use the network 'noisy' itself"
            )
        return torch.zeros(0, device=device)
    with torch.no_grad():
        like = network.hidden(torch.zeros(1, *shape, device=device))
    return torch.randn((number, *like.shape), generator=torch.Generator().manual_seed(seed)).to(device)
