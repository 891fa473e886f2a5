"""The section `attacks` of a sweep: what is done to the releases of every cell once it is learnt."""

from typing import TYPE_CHECKING, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from tacit.experiment.attacked import Asked


class AttackSection(BaseModel):
    """Attacks of one norm and radius, with what `tacit attack` can be told; all checked before the first cell."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kinds: tuple[str, ...] = ("fgsm", "ifgsm", "mim", "pgd")
    norm: str = "linf"
    radius: float = Field(default=0.1, gt=0)
    steps: int | None = Field(default=None, ge=1)
    """Of all but FGSM. None: as in each attack's paper."""
    step_size: float | None = Field(default=None, gt=0)
    """Of all but FGSM. None: the radius over the steps; 2.5 times that for PGD."""
    decay: float = 1.0
    """μ of MIM."""
    draws: int | None = Field(default=None, ge=1)
    """Evaluations that a gradient is the mean of. None: 1, or 8 where there is a noise layer."""
    range: tuple[float, float] | None = None
    """Of features. None: from the smallest to the largest number in the public test sets."""
    rows: int | None = Field(default=500, ge=1)
    """Of each test set, by public coins. None: all."""
    certificates: int = Field(default=1000, ge=0)
    """Draws of a certificate. 0: none."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        self.asked()
        return self

    def asked(self) -> "Asked":
        """As `attack_run` takes it."""
        from tacit.experiment.attacked import Asked
        from tacit.robustness.attacks import Attack

        def one(kind: str) -> Attack:
            paces = {} if kind == "fgsm" else {"steps": self.steps, "step_size": self.step_size}
            return Attack(kind=kind, norm=self.norm, radius=self.radius, decay=self.decay, range=self.range, **paces)  # type: ignore[arg-type]

        return Asked(
            attacks=tuple(one(kind) for kind in self.kinds),
            draws=self.draws,
            range=self.range,
            rows=self.rows,
            certificates=self.certificates,
        )
