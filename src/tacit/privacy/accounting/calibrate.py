"""Calibration: the least noise, the most steps or the highest sampling rate that fit a budget.

Formal guarantees:

* Every returned value was tested with `fits`, so the event it gives costs at most the budget.
* The ledger's gate uses the same predicate in the same integers (nano-ε, prices rounded up, budgets rounded down), so
  it never refuses a calibrated plan whose events are the whole list of a block.

Condition: the events are fixed in advance. `open_gradient_noise` calibrates for a Rényi filter instead.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from itertools import combinations, combinations_with_replacement

from dp_accounting.dp_event import DpEvent

from tacit.errors import PlanError
from tacit.privacy.accounting import replace_one
from tacit.privacy.accounting.budget import Adjacency, Budget
from tacit.privacy.accounting.epsilon import Method, epsilon, rdp_curve, rdp_to_epsilon
from tacit.privacy.accounting.events import compose, gaussian, poisson_gaussian, repeat, to_json

NANO = 10**9
"""Prices are integers in nano-ε, rounded up; budgets are rounded down."""
INFINITE_PRICE = 2**62
TOLERANCE = 1e-4
"""The relative distance of a calibrated value from the best one."""
MOST_CHOICES = 12
"""Up to this many choices of lists are priced one by one; beyond, the largest Rényi curves are summed."""
MOST_NOISE, LEAST_NOISE = 1e6, 1e-3
"""The range of the search for a noise multiplier."""
_MOST_STEPS, _LEAST_RATE = 10**9, 1e-12
_MOST_TRIALS = 60


def price(event: DpEvent, budget: Budget, times: int = 1, method: Method = Method.BEST) -> int:
    """The price of `times` such events at the budget's δ and adjacency, in nano-ε rounded up."""
    return nano(epsilon(repeat(event, times), budget.delta, budget.adjacency, method))


def nano(value: float) -> int:
    """An ε in nano-ε, rounded up."""
    return min(math.ceil(Fraction(value) * NANO), INFINITE_PRICE) if math.isfinite(value) else INFINITE_PRICE


def allowance(budget: Budget) -> int:
    """The budget's ε in nano-ε, rounded down."""
    return min(math.floor(Fraction(budget.epsilon) * NANO), INFINITE_PRICE - 1)


def fits(event: DpEvent, budget: Budget, times: int = 1) -> bool:
    """Whether `times` such events, committed together, are within the budget."""
    return price(event, budget, times) <= allowance(budget)


def fits_mixed(lists: Sequence[Sequence[DpEvent]], budget: Budget, times: int) -> bool:
    """Whether a unit with any `times` of these event lists, one per task, stays within the budget.

    Under replace-one this includes exchanging two units with different choices. Like the gate, it prices every choice
    if there are few, and otherwise sums the largest Rényi curves.
    """
    by_texts = {tuple(sorted(to_json(event) for event in events)): events for events in lists}
    counted = {texts: Counter(texts) for texts in by_texts}
    largest = [by_texts[texts] for texts, own in counted.items() if not any(own < other for other in counted.values())]
    replaces = budget.adjacency is Adjacency.REPLACE_ONE
    if math.comb(len(largest) + times - 1, times) <= MOST_CHOICES or (replaces and times == 1):
        choices = combinations_with_replacement(largest, times)
        wholes = [compose([event for events in choice for event in events]) for choice in choices]
        if not all(fits(whole, budget) for whole in wholes):
            return False
        pairs = combinations(wholes, 2) if replaces else ()
        return all(nano(replace_one.epsilon(*pair, budget.delta)) <= allowance(budget) for pair in pairs)
    curves = [rdp_curve(compose(events), budget.adjacency) for events in largest]
    worst = [times * max(at_order) for at_order in zip(*curves, strict=True)]
    return rdp_to_epsilon(worst, budget.delta) <= budget.epsilon


def noise_for(
    budget: Budget, event_of: Callable[[float], DpEvent], tolerance: float = TOLERANCE, method: Method = Method.BEST
) -> float:
    """The least noise for which `event_of(noise)` fits, up to a relative `tolerance`.

    Args:
        budget: The budget.
        event_of: The event of a noise multiplier; its cost must decrease with the noise.
        tolerance: The relative distance from the least noise.
        method: The accountant.

    Raises:
        PlanError: No noise up to 1e6 fits.
    """

    def cost(log_noise: float, method: Method) -> float:
        return _log_ratio(event_of(math.exp(log_noise)), budget, method)

    found = _search(
        cost, start=0.0, good=math.log(MOST_NOISE), bad=math.log(LEAST_NOISE), tolerance=tolerance, final=method
    )
    if found is None:
        raise PlanError(
            f"no noise up to {MOST_NOISE:g} meets {budget}; "
            "use fewer steps, a smaller rate, or a larger epsilon or delta"
        )
    return math.exp(found)


def rate_for(budget: Budget, event_of: Callable[[float], DpEvent]) -> float:
    """The highest sampling rate for which `event_of(rate)` fits, up to 1e-4; PlanError if none does."""

    def cost(log_rate: float, method: Method) -> float:
        return _log_ratio(event_of(min(1.0, math.exp(log_rate))), budget, method)

    found = _search(cost, start=math.log(0.01), good=math.log(_LEAST_RATE), bad=0.0, tolerance=TOLERANCE)
    if found is None:
        raise PlanError(f"no sampling rate meets {budget}; use more noise, fewer steps, or a larger epsilon or delta")
    return min(1.0, math.exp(found))


def steps_for(budget: Budget, event_of: Callable[[int], DpEvent]) -> int:
    """The most steps, up to a billion, for which `event_of(steps)` fits, up to 1e-4; PlanError if none does."""

    def cost(log_steps: float, method: Method) -> float:
        return _log_ratio(event_of(math.floor(math.exp(log_steps) + 1e-9)), budget, method)

    found = _search(cost, start=math.log(100), good=0.0, bad=math.log(_MOST_STEPS), tolerance=TOLERANCE)
    if found is None:
        raise PlanError(
            f"not even one step meets {budget}; use more noise, a smaller rate, or a larger epsilon or delta"
        )
    steps = math.floor(math.exp(found) + 1e-9)
    while steps < 10 / TOLERANCE and fits(event_of(steps + 1), budget):
        steps += 1
    return steps


@cache
def gradient_noise(budget: Budget, rate: float, steps: int, times: int = 1) -> float:
    """The least noise multiplier of Poisson-sampled gradient steps such that `times` such plans on one unit fit."""
    return noise_for(budget, partial(_repeated, rate, steps, times))


def open_gradient_noise(budget: Budget, rate: float, steps: int, times: int = 1) -> float:
    """Like `gradient_noise`, for an open block whose filter has this plan's shape: priced by its Rényi curve."""
    slightly = replace(budget, epsilon=budget.epsilon * (1 - 1e-6))  # costs are rounded up and limits down
    event_of = partial(_repeated, rate, steps, times)
    return noise_for(slightly, event_of, method=Method.RDP)


def _repeated(rate: float, steps: int, times: int, noise: float) -> DpEvent:
    return repeat(poisson_gaussian(rate, noise, steps), times)


def gradient_steps(budget: Budget, rate: float, noise: float, times: int = 1) -> int:
    """The most Poisson-sampled gradient steps such that `times` such plans on one unit fit."""
    return steps_for(budget, lambda steps: _repeated(rate, steps, times, noise))


def gradient_rate(budget: Budget, steps: int, noise: float) -> float:
    """The highest Poisson sampling rate at which `steps` gradient steps fit."""
    return rate_for(budget, lambda rate: poisson_gaussian(rate, noise, steps))


def gaussian_noise(budget: Budget, times: int = 1) -> float:
    """The noise multiplier of `times` Gaussian releases, exact (Balle & Wang 2018) and rounded up.

    It is relative to the sensitivity of adding a unit; replacing a unit has twice that sensitivity, which is priced.
    """
    return noise_for(budget, lambda noise: repeat(gaussian(noise), times), tolerance=1e-10)


def _log_ratio(event: DpEvent, budget: Budget, method: Method) -> float:
    """log(price / allowance), which is at most 0 exactly if the event fits."""
    cost, allowed = price(event, budget, 1, method), allowance(budget)
    if cost >= INFINITE_PRICE or allowed == 0:
        return math.inf
    return 0.0 if cost == allowed else math.log(max(cost, 1e-3) / allowed)


def _search(
    cost: Callable[[float, Method], float],
    *,
    start: float,
    good: float,
    bad: float,
    tolerance: float,
    final: Method = Method.BEST,
) -> float | None:
    """The x nearest to `bad` with cost(x) <= 0; None if there is none. The returned value was always tested.

    Rényi curves are fast and never below the best accountant, so they give the first bracket.
    """
    rough = bracketed(lambda x: cost(x, Method.RDP), start, good, bad, 0.01)
    return bracketed(lambda x: cost(x, final), start if rough is None else rough, good, bad, tolerance)


def bracketed(cost: Callable[[float], float], start: float, good: float, bad: float, tolerance: float) -> float | None:
    """The x nearest to `bad` with cost(x) <= 0, within `tolerance`, by a safeguarded secant; None if there is none."""
    x, y = start, cost(start)
    inside: tuple[float, float] | None = None  # fits
    outside: tuple[float, float] | None = None  # does not fit
    step = 0.1
    for _ in range(_MOST_TRIALS):
        if y <= 0:
            inside = (x, y)
        else:
            outside = (x, y)
        if inside and outside:
            break
        edge = bad if y <= 0 else good
        if x == edge:
            break
        x = x + math.copysign(step, edge - x) if abs(edge - x) > step else edge
        step *= 2
        y = cost(x)
    if inside is None or outside is None:
        return inside[0] if inside else None
    for trial in range(_MOST_TRIALS):
        width = abs(outside[0] - inside[0])
        if width <= tolerance:
            break
        guess = inside[0] + (outside[0] - inside[0]) / 2
        if math.isfinite(inside[1]) and math.isfinite(outside[1]) and trial % 3 < 2:
            slope = inside[1] / (inside[1] - outside[1])
            guess = inside[0] + slope * (outside[0] - inside[0])
            nudge = 0.45 * tolerance * (1 if trial % 2 else -1)  # land on either side of the root in turn
            guess = min(max(guess + nudge, min(inside[0], outside[0])), max(inside[0], outside[0]))
            if guess in (inside[0], outside[0]):
                guess = inside[0] + (outside[0] - inside[0]) / 2
        y = cost(guess)
        if y <= 0:
            inside = (guess, y)
        else:
            outside = (guess, y)
    return inside[0]
