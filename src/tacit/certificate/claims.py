"""The bounds that papers claim, by their own formulas. They are printed beside a certified bound and never used.

Nothing here is guaranteed by tacit. A `Claim` has a paper's neighbouring relation (`ClaimAdjacency`), which no budget,
accountant or ledger accepts, so a claim cannot become a certified bound by accident. docs/privacy.md states which
claims hold.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from tacit.errors import PlanError
from tacit.privacy.accounting import rdp
from tacit.privacy.accounting.budget import ClaimAdjacency

Stream = Sequence[Sequence[Hashable]]

LEARNER_ORDER = 128
"""The largest order of the moments accountant that reproduces the budgets in Hassanpour et al. 2022."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A bound as a paper states it.

    Attributes:
        paper: The paper and its method.
        formula: The formula, with its values.
        adjacency: The paper's neighbouring relation.
        epsilon: The claimed ε.
        delta: The claimed δ.
        source: Where the paper states it, and how its terms are computed.
        max_order: The largest order of the moments accountant, if it is used.

    Raises:
        PlanError: A value is out of range.
    """

    paper: str
    formula: str
    adjacency: ClaimAdjacency
    epsilon: float
    delta: float
    source: str
    max_order: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.adjacency, ClaimAdjacency):
            choices = ", ".join(f"ClaimAdjacency.{member.name}" for member in ClaimAdjacency)
            raise PlanError(f"a claim's adjacency must be one of {choices}, got {self.adjacency!r}")
        if not self.epsilon >= 0:
            raise PlanError(f"a claimed epsilon must be >= 0, got {self.epsilon}")
        if not 0 <= self.delta < 1:
            raise PlanError(f"a claimed delta must be >= 0 and below 1, got {self.delta}")

    def __str__(self) -> str:
        return f"{self.paper} claims ε = {self.epsilon:.4g}, δ = {self.delta:g} ({self.adjacency}; {self.formula})"


def moments_accountant(rate: float, noise: float, steps: int, delta: float, max_order: int = 32) -> float:
    """Abadi et al. 2016, Thm 2: min over integers λ ≤ max_order of (steps·α(λ) + log 1/δ) / λ.

    It is a valid but loose bound under add-or-remove and Poisson sampling, and reproduces the numbers in papers.
    """
    return moments_of({(rate, noise): steps}, delta, max_order)


def moments_of(steps: Mapping[tuple[float, float], int], delta: float, max_order: int = 32) -> float:
    """The moments accountant for several kinds of steps; `steps` maps (rate, noise) to their number."""
    for (rate, noise), count in steps.items():
        if not (0 < rate <= 1 and noise > 0 and count >= 0 and 0 < delta < 1 and max_order >= 1):
            raise PlanError(
                "the moments accountant needs 0 < rate <= 1, noise > 0, steps >= 0, 0 < delta < 1 and max_order >= 1, "
                f"got {rate}, {noise}, {count}, {delta} and {max_order}"
            )

    @cache
    def bound(order: int) -> float:
        spent = math.fsum(count * _log_moment(rate, noise, order) for (rate, noise), count in steps.items())
        return (spent - math.log(delta)) / order

    # α is convex with α(0) = 0, so the bound decreases to its minimum and then increases.
    top = 1
    while top < max_order and bound(min(2 * top, max_order)) < bound(top):
        top = min(2 * top, max_order)
    orders = range(max(1, top // 2), min(2 * top, max_order))
    turn = bisect_left(orders, True, key=lambda order: bound(order + 1) >= bound(order))
    return bound(turn + max(1, top // 2))


def moments_delta(rate: float, noise: float, steps: int, epsilon: float, max_order: int = 32) -> float:
    """The δ at ε by the same theorem: min over integers λ ≤ max_order of exp(steps·α(λ) − λε)."""
    if not (0 < rate <= 1 and noise > 0 and steps >= 0 and epsilon >= 0 and max_order >= 1):
        raise PlanError(
            "the moments accountant needs 0 < rate <= 1, noise > 0, steps >= 0, epsilon >= 0 and max_order >= 1, "
            f"got {rate}, {noise}, {steps}, {epsilon} and {max_order}"
        )
    exponents = (steps * _log_moment(rate, noise, order) - order * epsilon for order in range(1, max_order + 1))
    return math.exp(min(0.0, *exponents))


@lru_cache(maxsize=4096)
def _log_moment(rate: float, noise: float, order: int) -> float:
    if rate == 1:
        return order * (order + 1) / (2 * noise**2)
    return rdp.log_moment(rate, noise, order + 1)


def desai_dp_agem(train: float, reference: float, delta: float, task: int, tasks: int) -> Claim:
    """Desai 2021, Lemma 1: ε_i + (T − i) ε'_i after T tasks, with one δ. The δ would have to be summed as well."""
    _check_task(task, tasks)
    formula = f"Lemma 1: eps_i + (T - i) eps'_i, i = {task}, T = {tasks}"
    return _desai("DP-AGEM", formula, train + (tasks - task) * reference, delta)


def desai_dp_cl(train: float, reference: float, delta: float, task: int, tasks: int) -> Claim:
    """Desai 2021, Lemma 2: ε_i + ε'_i for every T. It does not hold, because block i is read in every later task."""
    _check_task(task, tasks)
    formula = f"Lemma 2: eps_i + eps'_i for every T, i = {task}, T = {tasks}"
    return _desai("DP-CL", formula, train + reference, delta)


def _desai(method: str, formula: str, epsilon: float, delta: float) -> Claim:
    return Claim(
        paper=f"Desai et al. 2021, {method}",
        formula=formula,
        adjacency=ClaimAdjacency.CONTINUAL,
        epsilon=epsilon,
        delta=delta,
        source=f"{formula.partition(':')[0]}; eps_i and eps'_i by the moments accountant",
        max_order=32,
    )


def naive_gaussian(pairs: Sequence[tuple[float, float]], delta: float, max_order: int) -> tuple[Claim, Claim]:
    """Lai 2022, Section 3, from (ε_D, ε_M) of each task: by Eq. 4 their largest sum, by Theorem 1 the sum over all
    tasks.

    Both claim the δ of one task. Eq. 4 does not hold, because a memory is read in every later task. The sum over tasks
    holds with the sum of the δ, and is far above what a record loses.
    """
    if not pairs:
        raise PlanError("the naive mechanism's claims need (eps_D, eps_M) of one task or more, got none")
    each = [math.fsum(pair) for pair in pairs]

    def claim(formula: str, epsilon: float, source: str) -> Claim:
        return Claim(
            paper="Lai et al. 2022, NaiveGaussian",
            formula=formula,
            adjacency=ClaimAdjacency.LIFELONG,
            epsilon=epsilon,
            delta=delta,
            source=f"{source}; eps_D and eps_M by the moments accountant",
            max_order=max_order,
        )

    return (
        claim("Eq. 4: max over tasks of eps_D + eps_M", max(each), "Eq. 4"),
        claim("Theorem 1: sum over tasks of eps_D + eps_M", math.fsum(each), "Section 3, after Theorem 1"),
    )


def lifelong(epsilon1: float, epsilon2: float, gamma: float, gamma_x: float = math.inf) -> Claim:
    """Lai 2022: ε1 + ε1/γ_x + ε1/γ + ε2 for any number of tasks; Phan 2019 without γ_x. No finite ε holds for
    either."""
    if not (gamma > 0 and gamma_x > 0):
        raise PlanError(f"gamma and gamma_x must be > 0, got {gamma} and {gamma_x}")
    return Claim(
        paper="Phan et al. 2019, DPL2M" if gamma_x == math.inf else "Lai et al. 2022, L2DP-ML",
        formula="eps1 + eps1/gamma + eps2" if gamma_x == math.inf else "eps1 + eps1/gamma_x + eps1/gamma + eps2",
        adjacency=ClaimAdjacency.LIFELONG,
        epsilon=epsilon1 + epsilon1 / gamma_x + epsilon1 / gamma + epsilon2,
        delta=0.0,
        source="the theorem on the whole stream, for any number of tasks and epochs",
    )


def lifelong_ratios(delta_r: float, batch: float, norm: float) -> tuple[float, float]:
    """γ = 2Δ_R/(λ‖θ₁‖₁,₁) and γ_x = Δ_R/λ (Lai 2022, Sec. 4); the norm is the largest 1-norm of a column of θ₁."""
    if not (delta_r > 0 and batch > 0 and norm > 0):
        raise PlanError(f"Δ_R, the batch and the norm must be > 0, got {delta_r}, {batch} and {norm}")
    return 2 * delta_r / (batch * norm), delta_r / batch


def stream_wide(rate: float, noise: float, steps: int, delta: float, max_order: int = LEARNER_ORDER) -> Claim:
    """Hassanpour 2022: one budget for the whole stream, by the moments accountant with orders up to 128."""
    return Claim(
        paper="Hassanpour et al. 2022",
        formula=f"moments accountant, q = {rate:g}, sigma = {noise:g}, {steps} steps",
        adjacency=ClaimAdjacency.STREAM,
        epsilon=moments_accountant(rate, noise, steps, delta, max_order),
        delta=delta,
        source="global privacy budget; q and steps are a fit, the paper's own do not give its numbers",
        max_order=max_order,
    )


def hassanpour(spent: Sequence[float], limit: float | None, delta: float, max_order: int = LEARNER_ORDER) -> Claim:
    """Hassanpour 2022, Section IV.A: (ε_g, δ_g) for any number of tasks, because a learner is replaced before it spends
    the global privacy budget (GPB), and its successor starts with nothing spent.

    It does not hold: budgets belong to records, and the next learner reads the memory again, and with an early start
    the same task.

    Args:
        spent: What each learner has spent, by the moments accountant over its own steps.
        limit: The GPB, if there is one.
        delta: δ.
        max_order: The largest order of the moments accountant.
    """
    if not spent:
        raise PlanError("the claim of a pool needs what one learner or more has spent, got none")
    most = max(spent)
    return Claim(
        paper="Hassanpour et al. 2022, learners in turn",
        formula=f"each learner's budget <= GPB, {len(spent)} learner(s), {most:.4g} spent by the one that spent most, "
        "in the training steps of its tasks",
        adjacency=ClaimAdjacency.STREAM,
        epsilon=most if limit is None else max(most, limit),
        delta=delta,
        source="Section IV.A, by the moments accountant; a fresh learner is not a fresh budget, so it does not hold",
        max_order=max_order,
    )


def task_wise(epsilons: Sequence[float], deltas: Sequence[float], tasks_per_unit: int = 1) -> Claim:
    """Tobaben 2025, Thm 4.4: the largest ε and δ of any task (parallel composition). Thm 4.5: if a unit may be in
    several tasks, the sums over that many largest ones (basic composition)."""
    if not epsilons or len(epsilons) != len(deltas):
        raise PlanError(f"a task-wise claim needs one epsilon and one delta a task, got {epsilons} and {deltas}")
    if tasks_per_unit < 1:
        raise PlanError(f"tasks_per_unit must be a whole number ≥ 1, got {tasks_per_unit}")
    parallel = tasks_per_unit == 1
    return Claim(
        paper="Tobaben et al. 2025",
        formula="max over tasks of (eps_t, delta_t)"
        if parallel
        else f"sum of the {tasks_per_unit} largest (eps_t, delta_t)",
        adjacency=ClaimAdjacency.TASK_WISE,
        epsilon=math.fsum(sorted(epsilons)[-tasks_per_unit:]),
        delta=math.fsum(sorted(deltas)[-tasks_per_unit:]),
        source="Thm 4.4" if parallel else "Thm 4.5",
    )


def neighbours(one: Stream, other: Stream, adjacency: ClaimAdjacency) -> bool:
    """Whether two streams (lists of tasks, which are multisets of samples) are neighbours in the paper's sense.

    Continual: the unions differ by at most one sample. Stream: the sequences of samples, in order, differ by
    one element added, removed or exchanged. Lifelong and task-wise: every task differs by at most one sample
    (lifelong: also an exchanged one).
    """
    if not isinstance(adjacency, ClaimAdjacency):
        raise PlanError(f"adjacency must be a paper's ClaimAdjacency, got {adjacency!r}")
    if adjacency is ClaimAdjacency.CONTINUAL:
        return _apart(_flat(one), _flat(other)) in _ONE_SAMPLE
    if adjacency is ClaimAdjacency.STREAM:
        return _one_edit(_flat(one), _flat(other))
    allowed = _ONE_SAMPLE if adjacency is ClaimAdjacency.LIFELONG else _ONE_SAMPLE - {(1, 1)}
    return len(one) == len(other) and all(_apart(a, b) in allowed for a, b in zip(one, other, strict=True))


_ONE_SAMPLE = frozenset({(0, 0), (1, 0), (0, 1), (1, 1)})  # (only here, only there): equal, added, removed, exchanged


def _flat(stream: Stream) -> list[Hashable]:
    return [sample for task in stream for sample in task]


def _apart(one: Sequence[Hashable], other: Sequence[Hashable]) -> tuple[int, int]:
    a, b = Counter(one), Counter(other)
    return (a - b).total(), (b - a).total()


def _one_edit(one: list[Hashable], other: list[Hashable]) -> bool:
    if abs(len(one) - len(other)) > 1:
        return False
    head = 0
    while head < min(len(one), len(other)) and one[head] == other[head]:
        head += 1
    skip_one, skip_other = head + (len(one) >= len(other)), head + (len(other) >= len(one))
    return one[skip_one:] == other[skip_other:]


def _check_task(task: int, tasks: int) -> None:
    if not 1 <= task <= tasks:
        raise PlanError(f"task must be between 1 and the number of tasks {tasks}, got {task}")
