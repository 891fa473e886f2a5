"""The parts of a pretrained backbone: its body, its preprocessing and the number of its features."""

from dataclasses import dataclass

from torch import nn

from tacit.models.preprocess import Preprocess

OFFLINE = "efficientnet-lite0"
"""The backbone whose weights come with a Python package, so that it needs no network connection."""
SCATTERING, MIRRORED = "scattering", "scattering-mirrored"
"""The fixed wavelet transform, which has no weights; and made symmetric, for pictures that are as likely mirrored."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts:
    """The parts of a backbone."""

    body: nn.Module
    """Maps preprocessed images to features of shape (n, width)."""
    prepare: Preprocess | None
    """The preprocessing, or None if the body includes it."""
    width: int
    source: str = ""
    """What determines the features besides the weights and the preprocessing."""
