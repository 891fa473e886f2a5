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
"""The term that the certificate uses."""


class TunedSection(FixedSection):
    """How the settings were chosen; certificates and metrics repeat it. `tacit tune` writes it."""

    how: How = "none"
    """public-proxy: on other, public data. held-tasks: on the first tasks, which are public and not learned later.
    private: on the data itself, under one charge. paper-protocol: on the data itself, uncharged (benchmarks only)."""
    charged: bool = False
    about: str = ""
    """What was tried and on which data. Public."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.charged != (self.how == "private"):
            raise ConfigError(
                f"tuned.charged = {str(self.charged).lower()} contradicts tuned.how = {self.how!r}: only private "
                "tuning is charged; correct one of them"
            )
        return self

    def plain(self) -> dict[str, Any] | None:
        """The section for `metrics.json`; None if nothing was tuned."""
        return None if self.how == "none" else self.model_dump(mode="json")
