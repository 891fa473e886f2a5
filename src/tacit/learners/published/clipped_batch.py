"""The gradient of a batch as two papers clip it: of the batch as a whole, not record by record. NOT PRIVATE as claimed.

One record more can turn the direction of the batch's mean gradient, and what remains after the clip is as long as
before. So a batch that is clipped to C changes by up to 2C where the papers account for C (`tacit audit
batch-clipping`). Clipped tensor by tensor, n tensors together change by up to 2C√n.
"""

import torch

from tacit.learners.base.gradient import Gradient


def clipped_by_tensor(gradient: Gradient, clip: float) -> Gradient:
    """Each tensor of a batch's gradient, scaled down to at most the norm `clip` (TensorFlow's clip_by_norm)."""
    return {name: g * min(1.0, clip / max(float(g.norm()), 1e-30)) for name, g in gradient.items()}


def clipped_as_one(gradient: Gradient, clip: float) -> Gradient:
    """A batch's gradient g / max(1, ‖g‖ / clip), with the norm of all tensors together."""
    norm = sum(float(g.square().sum()) for g in gradient.values()) ** 0.5
    return {name: g / max(1.0, norm / clip) for name, g in gradient.items()}


def with_noise(gradient: Gradient, std: float, generator: torch.Generator) -> Gradient:
    """The gradient plus Gaussian noise of this standard deviation from a public seed: it hides nothing."""
    return {name: g + std * torch.randn(g.shape, generator=generator).to(g.device) for name, g in gradient.items()}
