"""How hyper-parameters were chosen, and whether that was charged: what a certificate says of it."""

from dataclasses import dataclass
from typing import Literal, cast

from tacit.privacy.certificate import Certificate

Tuning = Literal["none", "public data", "charged", "not accounted"]


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """How hyper-parameters were chosen, as it is declared."""

    on: Tuning = "none"
    about: str = ""
    """What was tried, on what data: public words."""

    @classmethod
    def of(cls, certificate: Certificate) -> "Tuned":
        """What a certificate says of it."""
        on, _, about = certificate.tuning.partition(": ")
        return cls(on=cast(Tuning, on), about=about)
