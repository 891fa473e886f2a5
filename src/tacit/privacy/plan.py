"""Plans: what will be done, frozen before it is done.

The sampler, the noise and the accounting event of an exit are all properties of one plan, so they cannot disagree:
`event` is the only source of accounting, `std` the only source of noise.
"""

import math
from dataclasses import asdict, dataclass, replace

from dp_accounting import dp_event

from tacit.errors import PlanError
from tacit.privacy import calibrate, events, toeplitz
from tacit.privacy.budget import Budget

LEAST_NOISE, MOST_NOISE = 1e-7, 2 * calibrate.MOST_NOISE


def positive(name: str, value: float, hint: str) -> None:
    if not (isinstance(value, int | float) and value > 0 and math.isfinite(value)):
        raise PlanError(f"{name} must be a finite number > 0, got {value}; {hint}")


def check_noise(value: float, hint: str) -> None:
    """Noise multipliers for which sum and noise fit in the numbers that are added up exactly."""
    positive("noise", value, hint)
    if not LEAST_NOISE <= value <= MOST_NOISE:
        raise PlanError(
            f"noise must be between {LEAST_NOISE:g} and {MOST_NOISE:g} times what one unit can change, got {value:g}; "
            + ("use more of it" if value < LEAST_NOISE else "use a larger ε")
        )


@dataclass(frozen=True, kw_only=True)
class GradientPlan:
    """`steps` noisy clipped gradients: each unit drawn with probability `rate`, clipped to `clip`, summed, one noise
    draw of standard deviation `noise · clip` on the sum, divided by the public expected batch.

    Guarantee: (with the vault) each block read at `rate` loses at most `event`. Under replace-one and zero-out the
    same event is priced for those neighbours.

    By class (`classes` = K > 0): the steps go through K labels in turn, and a step reads only records of the label
    whose turn it is. Whatever label an added or removed record has, all other steps are the same with and without it,
    so it is read in at most ⌈steps/K⌉ of them, and no more are priced. The vault refuses units with several records
    (of several labels) and neighbours that replace a record (by one of another label).
    """

    rate: float
    steps: int
    noise: float
    clip: float = 1.0
    clipping: str = "flat"
    """flat: min(1, C/‖g‖). automatic: C/(‖g‖ + 0.01). per-layer: C/√L for each of the L parameters."""
    classes: int = 0
    """K: how many labels the steps go through in turn. 0: every step reads records of all labels."""
    places: tuple[int, ...] = ()
    """Which ones, by their places in the public label set. (): all of them, in its order."""

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise PlanError(
                f"rate must be in (0, 1], got {self.rate}; it is the expected batch over the number of units"
            )
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 1:
            raise PlanError(f"steps must be a whole number ≥ 1, got {self.steps!r}")
        check_noise(self.noise, "a private plan needs noise; use Vault.unsafe on public data for none")
        positive("clip", self.clip, "it bounds what one unit can change")
        if self.clipping not in ("flat", "automatic", "per-layer"):
            raise PlanError(f"clipping must be 'flat', 'automatic' or 'per-layer', got {self.clipping!r}")
        if isinstance(self.classes, bool) or not isinstance(self.classes, int) or self.classes < 0:
            raise PlanError(
                f"classes must be a whole number ≥ 0, got {self.classes!r}; 0 reads all labels in every step"
            )
        if self.places and (len(set(self.places)) != self.classes or len(self.places) != self.classes):
            raise PlanError(
                f"places must name {self.classes} labels, each once, got {len(self.places)} of them, "
                f"{len(set(self.places))} different; a label that came twice in a turn would be read twice as often as "
                "is priced"
            )

    @classmethod
    def for_budget(
        cls,
        budget: Budget,
        *,
        rate: float,
        steps: int,
        clip: float = 1.0,
        clipping: str = "flat",
        classes: int = 0,
        tasks_per_unit: int = 1,
        open: bool = False,
    ) -> "GradientPlan":
        """The plan with the least noise that the budget allows (in all `tasks_per_unit` tasks of a unit together).

        `open`: for a block that is admitted with `open=True, like=plan`.
        """
        # Bad values fail before the search.
        plan = cls(rate=rate, steps=steps, noise=1.0, clip=clip, clipping=clipping, classes=classes)
        search = calibrate.open_gradient_noise if open else calibrate.gradient_noise
        return replace(plan, noise=search(budget, rate=rate, steps=plan.turns, times=tasks_per_unit))

    @property
    def turns(self) -> int:
        """In how many of the steps one unit may be read: all, or by class those of its own label."""
        return -(-self.steps // max(1, self.classes))

    def place(self, step: int) -> int | None:
        """Public: the place of the label that is read in a step. None: all of them are."""
        if not self.classes:
            return None
        return self.places[step % self.classes] if self.places else step % self.classes

    @property
    def event(self) -> dp_event.DpEvent:
        """What a block that is read at the plan's own rate is charged."""
        return self.event_at(self.rate)

    def event_at(self, rate: float, shared: int = 1) -> dp_event.DpEvent:
        """What a block that is read at `rate` is charged, for each step in which one unit of it may be read.

        `shared`: of how many tasks of the grant one unit may be part. They share one draw of noise, so the unit moves
        the sum by up to `shared · clip`; the sum is post-processing of as many releases with noise/√shared each.
        """
        return events.poisson_gaussian(rate, self.noise / math.sqrt(shared), self.turns)

    @property
    def std(self) -> float:
        """Standard deviation of the noise on the sum."""
        return self.noise * self.clip

    def describe(self) -> dict[str, object]:
        """For pins and ledgers; what is not used is left out, so that older ones stay what they were."""
        told = {name: value for name, value in asdict(self).items() if value or name not in ("classes", "places")}
        return {"plan": "gradient", **told}


@dataclass(frozen=True, kw_only=True)
class SumPlan:
    """One release of sums (of features, of their second moments, of counts) with Gaussian noise.

    Guarantee: all releases of one series in which a unit takes part (at most `participations` of `horizon` tasks)
    are together one Gaussian mechanism with multiplier `noise`. With horizon 1 the noise is independent for every
    release; with a longer one it is correlated over tasks (see `toeplitz`), so that sums over tasks carry less.
    """

    noise: float
    clip: float = 1.0
    """Bound on the norm of one unit's features (a longer one is scaled down)."""
    horizon: int = 1
    participations: int = 1
    series: str = ""
    """Name of the release within the stream, the same for all its tasks; needed when horizon > 1."""

    def __post_init__(self) -> None:
        check_noise(self.noise, "a private sum needs noise")
        positive("clip", self.clip, "it bounds what one unit can change")
        if self.horizon < 1:
            raise PlanError(f"horizon must be ≥ 1, got {self.horizon}; it is the public number of tasks")
        if self.horizon > 1 and not self.series:
            raise PlanError(f"a horizon of {self.horizon} tasks needs a series name, the same in every task")
        if self.horizon == 1 and self.participations != 1:
            raise PlanError(
                f"participations is {self.participations} with horizon 1; independent releases are billed one by one"
            )
        toeplitz.sensitivity(self.horizon, self.participations)

    @classmethod
    def for_budget(
        cls,
        budget: Budget,
        *,
        clip: float = 1.0,
        horizon: int = 1,
        participations: int = 1,
        series: str = "",
        share: float = 1.0,
        tasks_per_unit: int = 1,
    ) -> "SumPlan":
        """The plan with the least noise that fits; `share` of the budget in μ² (1/σ²): shares of one block add to 1.

        With horizon 1, a unit of `tasks_per_unit` tasks pays for each of them; with a longer horizon the
        participations are paid for together.
        """
        if not 0 < share <= 1:
            raise PlanError(f"share must be in (0, 1], got {share}; the shares of one block's releases add up to 1")
        noise = calibrate.gaussian_noise(budget) / math.sqrt(share)
        if horizon == 1:
            noise *= math.sqrt(tasks_per_unit)
        noise *= 1 + 1e-9  # the charges of the parts, squared and added in floating point, must not exceed the whole
        return cls(noise=noise, clip=clip, horizon=horizon, participations=participations, series=series)

    @property
    def event(self) -> dp_event.DpEvent:
        """What one task's block is charged: `participations` such charges make the whole."""
        return events.gaussian(self.noise * math.sqrt(self.participations))

    @property
    def std(self) -> float:
        """Standard deviation of each normal z of the series, for sensitivity 1."""
        return self.noise * toeplitz.sensitivity(self.horizon, self.participations)

    def describe(self) -> dict[str, object]:
        return {"plan": "sum", **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class LabelPlan:
    """A private label set: noisy counts above a public threshold.

    Guarantee: with candidates, a Gaussian mechanism. Without candidates only labels that occur get a noisy count (a
    stable histogram), and `delta` bounds the probability that a label only one unit has is shown: an additive δ.
    A unit's labels (at most `labels_per_unit`, the rest are skipped) share its weight: each counts 1/√m.
    """

    noise: float
    labels_per_unit: int = 1
    candidates: tuple[str | int, ...] | None = None
    threshold: float | None = None
    """For candidates: the smallest noisy count that is kept; default 4 standard deviations."""
    delta: float = 0.0
    """Without candidates: the additive δ; the threshold follows from it."""

    def __post_init__(self) -> None:
        check_noise(self.noise, "a private label set needs noise")
        if self.labels_per_unit < 1:
            raise PlanError(f"labels_per_unit must be ≥ 1, got {self.labels_per_unit}")
        if self.candidates is None and not 0 < self.delta < 1:
            raise PlanError(
                f"discovery without candidates needs delta in (0, 1), got {self.delta}; or name the candidates"
            )
        if self.candidates is not None and self.delta:
            raise PlanError(f"delta is only for discovery without candidates, got {self.delta}; leave it at 0")

    @property
    def event(self) -> dp_event.DpEvent:
        base = events.gaussian(self.noise)
        return events.with_additive_delta(base, self.delta) if self.candidates is None else base

    @property
    def std(self) -> float:
        return self.noise

    @property
    def cut(self) -> float:
        """Noisy counts below it are not shown.

        Discovery: a label that one unit alone has counts 1/√m when the unit has m labels; it stays below the cut
        with probability (1−δ)^(1/m), for each m up to the bound. The rounding to the grid is less than a 256th of
        the noise, and is added.
        """
        if self.candidates is not None:
            return 4 * self.std if self.threshold is None else self.threshold
        from scipy.special import log1p, ndtri_exp

        return max(
            1 / math.sqrt(m) + self.std * (float(ndtri_exp(log1p(-self.delta) / m)) + 2.0**-8)
            for m in range(1, self.labels_per_unit + 1)
        )

    def describe(self) -> dict[str, object]:
        return {"plan": "labels", **asdict(self)}


Plan = GradientPlan | SumPlan | LabelPlan
