"""Plans: frozen descriptions of what an exit will do.

Formal guarantees
  * The sampling rate, the noise and the accounting event of an exit are properties of one frozen plan, so they cannot
    disagree: `event` is the only source of accounting, and `std` the only source of noise.
  * A noise multiplier for which the sum and the noise cannot be added exactly is refused.
"""

import math
from dataclasses import asdict, dataclass, replace

from dp_accounting import dp_event

from tacit.errors import PlanError
from tacit.privacy.accounting import calibrate, events, toeplitz
from tacit.privacy.accounting.budget import Budget

LEAST_NOISE, MOST_NOISE = 1e-7, 2 * calibrate.MOST_NOISE


def positive(name: str, value: float, hint: str) -> None:
    """Refuses a value that is not a finite number > 0."""
    if not (isinstance(value, int | float) and value > 0 and math.isfinite(value)):
        raise PlanError(f"{name} must be a finite number > 0, got {value}; {hint}")


def check_noise(value: float, hint: str) -> None:
    """Refuses a noise multiplier for which sum and noise do not fit in the integers that are added exactly."""
    positive("noise", value, hint)
    if not LEAST_NOISE <= value <= MOST_NOISE:
        raise PlanError(
            f"noise must be between {LEAST_NOISE:g} and {MOST_NOISE:g} times what one unit can change, got {value:g}; "
            + ("use more of it" if value < LEAST_NOISE else "use a larger ε")
        )


@dataclass(frozen=True, kw_only=True)
class GradientPlan:
    """Noisy clipped gradients (DP-SGD).

    In each step every unit is sampled with probability `rate`, its gradient is clipped to `clip`, the gradients are
    summed, Gaussian noise of standard deviation `noise · clip` is added once, and the result is divided by the public
    expected batch size.

    Formal guarantees
      * A block that is read at `rate` costs each of its units at most `event`. Under replace-one and zero-out adjacency
        the same event is priced for those neighbours.
      * With `classes` = K > 0, the steps cycle through K labels, and a step reads only records of its label. All other
        steps are the same with and without a record, whatever its label, so it is read in at most ⌈steps/K⌉ steps, and
        these are priced. Conditions: one record per unit, and add-or-remove adjacency. The vault refuses others.

    Attributes:
        rate: The sampling rate of each unit, in (0, 1].
        steps: The number of gradients.
        noise: The noise multiplier: standard deviation of the noise over the clipping norm.
        clip: The clipping norm C of one unit's gradient.
        clipping: "flat" scales a gradient by min(1, C/‖g‖), "automatic" by C/(‖g‖ + 0.01), "per-layer" clips each of
            the L parameters to C/√L.
        classes: The number K of labels that the steps cycle through; 0 if every step reads records of all labels.
        places: Positions of these labels in the public label set; () for all of them, in order.
    """

    rate: float
    steps: int
    noise: float
    clip: float = 1.0
    clipping: str = "flat"
    classes: int = 0
    places: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise PlanError(
                f"rate must be in (0, 1], got {self.rate}; it is the expected batch over the number of units"
            )
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 1:
            raise PlanError(f"steps must be a whole number ≥ 1, got {self.steps!r}")
        check_noise(self.noise, "a private plan needs noise; use vault.unsafe on public data for none")
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
        """The plan with the least noise that a budget allows.

        Args:
            budget: What a unit may lose.
            rate: The sampling rate.
            steps: The number of gradients.
            clip: The clipping norm.
            clipping: "flat", "automatic" or "per-layer".
            classes: The number of labels that the steps cycle through.
            tasks_per_unit: The number of tasks of a unit that share the budget.
            open: Whether the block is admitted with `open=True, like=plan`.

        Returns:
            The plan, with the noise multiplier that was found.

        Raises:
            PlanError: If a value is not valid, or no noise fits.
        """
        # Bad values fail before the search.
        plan = cls(rate=rate, steps=steps, noise=1.0, clip=clip, clipping=clipping, classes=classes)
        search = calibrate.open_gradient_noise if open else calibrate.gradient_noise
        return replace(plan, noise=search(budget, rate=rate, steps=plan.turns, times=tasks_per_unit))

    @property
    def turns(self) -> int:
        """The number of steps that can read one unit: all, or with `classes` those of its own label."""
        return -(-self.steps // max(1, self.classes))

    def place(self, step: int) -> int | None:
        """The position of the label that a step reads; None if it reads all labels. Public.

        Args:
            step: The step, from 0.

        Returns:
            The position, or None.
        """
        if not self.classes:
            return None
        return self.places[step % self.classes] if self.places else step % self.classes

    @property
    def event(self) -> dp_event.DpEvent:
        """The charge to a block that is read at the plan's own rate."""
        return self.event_at(self.rate)

    def event_at(self, rate: float, shared: int = 1) -> dp_event.DpEvent:
        """The charge to a block that is read at `rate`.

        Args:
            rate: The sampling rate of the block.
            shared: The number of tasks of the grant that one unit may be in. They share one noise draw, so the unit
                moves the sum by up to `shared · clip`; the sum is post-processing of `shared` releases with noise
                multiplier noise/√shared each.

        Returns:
            The event of all steps that can read one unit of the block.
        """
        return events.poisson_gaussian(rate, self.noise / math.sqrt(shared), self.turns)

    @property
    def std(self) -> float:
        """Standard deviation of the noise on the sum."""
        return self.noise * self.clip

    def describe(self) -> dict[str, object]:
        """The plan as it is stored in ledgers. Unused fields are left out, so that earlier fingerprints stay valid.

        Returns:
            Plain JSON values.
        """
        fields = {name: value for name, value in asdict(self).items() if value or name not in ("classes", "places")}
        return {"plan": "gradient", **fields}


@dataclass(frozen=True, kw_only=True)
class SumPlan:
    """One release of a sum (of features, second moments, counts) with Gaussian noise.

    Formal guarantees
      * All releases of one series that a unit contributes to (at most `participations` of `horizon` tasks) are together
        one Gaussian mechanism with noise multiplier `noise`.
      * With horizon 1 the noise of every release is independent. With a longer horizon it is correlated over tasks (see
        `toeplitz`), so that sums over tasks carry less noise. With horizon None it is correlated over a stream of
        unknown length; then all releases, however many, are together one Gaussian mechanism.

    Attributes:
        noise: The noise multiplier: standard deviation of the noise over the sensitivity.
        clip: The clipping norm of one unit's features.
        horizon: The public number of tasks in the series; None if it is not known.
        participations: The largest number of tasks of the series that one unit may be in.
        series: The name of the release within the stream, the same for all its tasks; needed unless the horizon is 1.
        early: The share of a unit's squared sensitivity that the releases before the last may use, in (0, 1): less of
            it means less noise in the last release and in sums that end there, and more in the earlier ones. None:
            every release counts alike. It needs a horizon, and units in one task each.
    """

    noise: float
    clip: float = 1.0
    horizon: int | None = 1
    participations: int = 1
    series: str = ""
    early: float | None = None

    def __post_init__(self) -> None:
        check_noise(self.noise, "a private sum needs noise")
        positive("clip", self.clip, "it bounds what one unit can change")
        if self.horizon is not None and self.horizon < 1:
            raise PlanError(f"horizon must be ≥ 1, got {self.horizon}; it is the public number of tasks")
        if self.correlated and not self.series:
            length = "no horizon" if self.horizon is None else f"a horizon of {self.horizon} tasks"
            raise PlanError(f"a plan with {length} needs a series name, the same in every task")
        if self.horizon == 1 and self.participations != 1:
            raise PlanError(
                f"participations is {self.participations} with horizon 1, where each release is billed by itself; use "
                "participations=1, or horizon > 1 for one series over the tasks"
            )
        toeplitz.sensitivity(self.horizon, self.participations)
        if self.early is not None:
            toeplitz.check_early(self.horizon, self.participations, self.early)

    @classmethod
    def for_budget(
        cls,
        budget: Budget,
        *,
        clip: float = 1.0,
        horizon: int | None = 1,
        participations: int = 1,
        series: str = "",
        early: float | None = None,
        share: float = 1.0,
        tasks_per_unit: int = 1,
    ) -> "SumPlan":
        """The plan with the least noise that a budget allows.

        Args:
            budget: What a unit may lose.
            clip: The clipping norm.
            horizon: The number of tasks in the series; None if it is not known.
            participations: The largest number of tasks of the series that one unit may be in.
            series: The name of the series.
            early: The share of the releases before the last; None counts every release alike.
            share: The share of the budget, in μ² = 1/σ². The shares of one block's releases add up to 1.
            tasks_per_unit: The number of tasks of a unit. With horizon 1 each of them is charged by itself; in a
                series all participations are one charge.

        Returns:
            The plan, with the noise multiplier that was found.

        Raises:
            PlanError: If a value is not valid, or no noise fits.
        """
        if not 0 < share <= 1:
            raise PlanError(f"share must be in (0, 1], got {share}; the shares of one block's releases add up to 1")
        noise = calibrate.gaussian_noise(budget) / math.sqrt(share)
        if horizon == 1:
            noise *= math.sqrt(tasks_per_unit)
        noise *= 1 + 1e-9  # the charges of the parts, squared and added in floating point, must not exceed the whole
        return cls(noise=noise, clip=clip, horizon=horizon, participations=participations, series=series, early=early)

    @property
    def correlated(self) -> bool:
        """Whether its noise is correlated over the tasks of a series."""
        return self.horizon != 1

    @property
    def event(self) -> dp_event.DpEvent:
        """The charge to one task's block; `participations` such charges make up the whole series."""
        return events.gaussian(self.noise * math.sqrt(self.participations))

    @property
    def std(self) -> float:
        """Standard deviation of each independent normal of the series, for sensitivity 1."""
        return self.noise * toeplitz.sensitivity(self.horizon, self.participations)

    def describe(self) -> dict[str, object]:
        """The plan as it is stored in ledgers. Unused, `early` is left out, so that earlier fingerprints stay valid.

        Returns:
            Plain JSON values.
        """
        return {"plan": "sum", **{name: value for name, value in asdict(self).items() if name != "early" or value}}
