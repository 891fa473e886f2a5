"""The section `attacks` of a sweep: the attacks on the releases of every cell once it has learned its tasks."""

from typing import Any, Self

from pydantic import Field, model_validator

from tacit.experiment.config.validation import FixedSection
from tacit.models.lipschitz import known_norm
from tacit.robustness.attacks import Attack
from tacit.robustness.certified_accuracy import Votes
from tacit.robustness.certified_ball import Bound, CertifiedBall


class AttackSection(FixedSection):
    """Attacks of one norm and radius, with the options of `tacit attack`; all are checked before the first cell."""

    kinds: tuple[str, ...] = ("fgsm", "ifgsm", "mim", "pgd")
    norm: str = "linf"
    radius: float = Field(default=0.1, gt=0)
    steps: int | None = Field(default=None, ge=1)
    """Number of steps of all attacks but FGSM. None: as in each attack's paper."""
    step_size: float | None = Field(default=None, gt=0)
    """Step size of all attacks but FGSM. None: the radius divided by the steps; 2.5 times that for PGD."""
    decay: float = 1.0
    """μ of MIM."""
    draws: int | None = Field(default=None, ge=1)
    """Number of evaluations that a gradient is averaged over. None: 1, or 8 with a noise layer."""
    range: tuple[float, float] | None = None
    """The valid range of a feature. None: from the smallest to the largest number in the public test sets."""
    rows: int | None = Field(default=500, ge=1)
    """Number of random records of each test set. None: all."""
    certificates: int = Field(default=1000, ge=0)
    """Noise draws of a robustness certificate. 0: no certificates."""
    bound: Bound = "pixeldp"
    """How a certificate is computed. smoothing: from the same draws as pixeldp, and never smaller. ibp: by interval
    bounds, of networks without noise. auto: smoothing where there is noise, ibp where there is none."""
    votes: Votes = "soft"
    """What is estimated from the draws: mean probabilities (soft) or shares of votes (hard)."""
    error: float = Field(default=0.05, gt=0, lt=1)
    """The probability that a record's certificate from draws is wrong."""
    certified_norm: str | None = None
    """The norm of certified accuracy. None: that of the attacks. A noise layer reaches farthest in its own norm."""
    certified_radius: float | None = Field(default=None, gt=0)
    """The radius of certified accuracy. None: that of the attacks."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.attacks()  # an attack checks its settings when it is made
        self.certified()
        return self

    def certified(self) -> CertifiedBall | None:
        """The ball of certified accuracy; None where no certificates are requested."""
        ball = CertifiedBall(
            norm=known_norm(self.certified_norm or self.norm),
            radius=self.certified_radius or self.radius,
            bound=self.bound,
            draws=max(1, self.certificates),
            votes=self.votes,
            error=self.error,
        )
        return ball if self.certificates else None

    def attacks(self) -> tuple[Attack, ...]:
        """The attacks, one for each kind."""
        every: dict[str, Any] = self.model_dump(include={"norm", "radius", "decay", "range"})
        iterated = self.model_dump(include={"steps", "step_size"})
        return tuple(Attack(kind=kind, **every, **({} if kind == "fgsm" else iterated)) for kind in self.kinds)  # type: ignore[arg-type]
