"""Efficient memory, made valid: a remembered record is used only while the last released model is sure of its label.

Hassanpour et al. 2022, Eq. 6 compares a record's margin with the mean of its batch, so that one record decides about
the others. Here each record is judged by itself: its own margin, under a model that was released already, with noise
draws that are public and the same for all, against a public threshold. One record more or less changes nothing for any
other, so the rule is free (`Read.select` also maps it over records one by one, so that it cannot see two of them).
"""

import math
from copy import deepcopy

import torch
from torch import Tensor, nn

from tacit.errors import LearnerError
from tacit.models.noisy import Noisy


class Margin(nn.Module):
    """(x, y) of one record → whether E^lb(p_y) − max over i ≠ y of E^ub(p_i) ≥ threshold.

    Behind a noise layer, E is the mean probability over fixed draws and the bounds are Hoeffding's, which hold for all
    labels together with the given confidence; without one, E is the probability itself."""

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
        """Where the task is known at test, over the labels of the record's own task."""
        if isinstance(self.masks, Tensor):
            logits = logits.masked_fill(~self.masks[y], -torch.inf)
        return logits.softmax(1)[0]


def half_width(draws: int, labels: int, confidence: float) -> float:
    """Hoeffding: √(ln(2K/(1 − η)) / 2n), so that the means of n draws are as near for all K labels at once."""
    return math.sqrt(math.log(2 * labels / (1 - confidence)) / (2 * draws)) if draws else 0.0


def public_draws(network: nn.Module, shape: tuple[int, ...], number: int, seed: int) -> Tensor:
    """Standard normal noise for the layer of a network, from a public seed; no draws where it has no noise layer."""
    where = next(network.parameters()).device
    if not isinstance(network, Noisy):
        if any(getattr(module, "throws_dice", False) for module in network.modules()):
            raise LearnerError(
                "margin knows a noise layer at the top of a network only; use the network 'noisy' itself"
            )
        return torch.zeros(0, device=where)
    with torch.no_grad():
        like = network.hidden(torch.zeros(1, *shape, device=where))
    return torch.randn((number, *like.shape), generator=torch.Generator().manual_seed(seed)).to(where)


def check_margin(*, threshold: float, draws: int, confidence: float, labels: int, noisy: bool) -> None:
    """Refuse a rule that no record could pass, or that says nothing."""
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 1:
        raise LearnerError(f"margin_draws must be a whole number ≥ 1, got {draws!r}; 32 is the default")
    if not 0 < confidence < 1:
        raise LearnerError(f"margin_confidence must be between 0 and 1, got {confidence}; 0.95 is the default")
    if labels < 2:
        raise LearnerError("margin compares a record's label with the others, and the stream has one; leave it out")
    most = 1 - 2 * half_width(draws if noisy else 0, labels, confidence)
    if threshold <= (least := most - 2):
        raise LearnerError(
            f"margin = {threshold:g} leaves no record out, since none has less than {least:.3g}; use one from 0 to 1, "
            "or leave it out"
        )
    if not threshold < most:
        bounds = (
            f": the bounds of {draws} draws with confidence {confidence:g} take {1 - most:.2g} of it" if noisy else ""
        )
        raise LearnerError(
            f"no record could reach a margin of {threshold:g}, only less than {most:.3g}{bounds}; lower margin"
            + (", or raise margin_draws" if noisy else "")
        )
