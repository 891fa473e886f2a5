"""The section `tuned` of a configuration: how its settings were chosen, and whether that was charged."""

from typing import Any, Literal, Self

from pydantic import model_validator

from tacit.certificate.certificate import Tuning
from tacit.errors import ConfigError
from tacit.experiment.config.validation import FixedSection

How = Literal["none", "public-proxy", "held-tasks", "private", "paper-protocol"]
CERTIFIED_AS: dict[How, Tuning] = {
    "none": "none",
    "public-proxy": "public data",
    "held-tasks": "public data",
    "private": "charged",
    "paper-protocol": "not accounted",
}
"""What the certificate calls it."""


class TunedSection(FixedSection):
    """How the settings were chosen; certificates and metrics repeat it. `tacit tune` writes it."""

    how: How = "none"
    """public-proxy: on other data, which is public. held-tasks: on first tasks that are public and never learned.
    private: on the data itself, under one charge. paper-protocol: on the data itself, not charged (benchmarks only)."""
    charged: bool = False
    about: str = ""
    """What was tried, on what data: public words."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.charged != (self.how == "private"):
            raise ConfigError(
                f"tuned.charged = {str(self.charged).lower()} does not fit tuned.how = {self.how!r}: private tuning is "
                "charged, and no other is; correct one of them"
            )
        return self

    def plain(self) -> dict[str, Any] | None:
        """For `metrics.json`: None where nothing was tuned."""
        return None if self.how == "none" else self.model_dump(mode="json")
