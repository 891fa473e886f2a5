"""From a budget to a plan: the least noise, the most steps or the highest rate that still fit.

`fits` is the one predicate: calibration searches with it and the ledger's gate asks it, in the same rounded
integers, so a plan that was calibrated here is never refused there.
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
from tacit.privacy import exchange
from tacit.privacy.accounting import Method, epsilon, rdp_curve, rdp_to_epsilon
from tacit.privacy.budget import Adjacency, Budget
from tacit.privacy.events import compose, gaussian, poisson_gaussian, repeat, to_json

NANO = 10**9
"""Prices are whole nano-ε, rounded up; budgets are rounded down."""
INFINITE_PRICE = 2**62
TOLERANCE = 1e-4
"""How close, relatively, a calibrated number is to the best one."""
MOST_CHOICES = 12
"""So many choices of lists are priced one by one; beyond, the sum of the largest Rényi curves is the bound."""
MOST_NOISE, LEAST_NOISE = 1e6, 1e-3
"""Between them a noise that fits is looked for."""
_MOST_STEPS, _LEAST_RATE = 10**9, 1e-12
_MOST_TRIALS = 60


def price(event: DpEvent, budget: Budget, times: int = 1, method: Method = Method.BEST) -> int:
    """What `times` such events cost at the budget's δ and adjacency, in nano-ε rounded up."""
    return nano(epsilon(repeat(event, times), budget.delta, budget.adjacency, method))


def nano(value: float) -> int:
    """An ε in nano-ε, rounded up."""
    return min(math.ceil(Fraction(value) * NANO), INFINITE_PRICE) if math.isfinite(value) else INFINITE_PRICE


def allowance(budget: Budget) -> int:
    """The budget's ε in nano-ε, rounded down."""
    return min(math.floor(Fraction(budget.epsilon) * NANO), INFINITE_PRICE - 1)


def fits(event: DpEvent, budget: Budget, times: int = 1) -> bool:
    """Whether `times` such events, committed together, stay within the budget: what calibration and gate ask."""
    return price(event, budget, times) <= allowance(budget)


def fits_mixed(lists: Sequence[Sequence[DpEvent]], budget: Budget, times: int) -> bool:
    """Whether any `times` of these lists, met by one unit in as many tasks, stay within the budget, and under
    replace-one any two such choices, one for each of the units that are exchanged.

    As the gate asks: every choice is priced where there are few, else the largest Rényi curves are added up."""
    shown = {tuple(sorted(to_json(event) for event in one)): one for one in lists}
    counted = {name: Counter(name) for name in shown}
    largest = [shown[name] for name, events in counted.items() if not any(events < other for other in counted.values())]
    replace_one = budget.adjacency is Adjacency.REPLACE_ONE
    if math.comb(len(largest) + times - 1, times) <= MOST_CHOICES or (replace_one and times == 1):
        choices = combinations_with_replacement(largest, times)
        wholes = [compose([event for one in choice for event in one]) for choice in choices]
        if not all(fits(whole, budget) for whole in wholes):
            return False
        pairs = combinations(wholes, 2) if replace_one else ()
        return all(nano(exchange.epsilon(*pair, budget.delta)) <= allowance(budget) for pair in pairs)
    curves = [rdp_curve(compose(one), budget.adjacency) for one in largest]
    worst = [times * max(at_order) for at_order in zip(*curves, strict=True)]
    return rdp_to_epsilon(worst, budget.delta) <= budget.epsilon


def noise_for(
    budget: Budget,
    event_of: Callable[[float], DpEvent],
    tolerance: float = TOLERANCE,
    method: Method = Method.BEST,
) -> float:
    """The least noise for which `event_of(noise)` fits by this accountant, within `tolerance` above it."""

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
    """The highest sampling rate for which `event_of(rate)` fits, within 1e-4 below it."""

    def cost(log_rate: float, method: Method) -> float:
        return _log_ratio(event_of(min(1.0, math.exp(log_rate))), budget, method)

    found = _search(cost, start=math.log(0.01), good=math.log(_LEAST_RATE), bad=0.0, tolerance=TOLERANCE)
    if found is None:
        raise PlanError(f"no sampling rate meets {budget}; use more noise, fewer steps, or a larger epsilon or delta")
    return min(1.0, math.exp(found))


def steps_for(budget: Budget, event_of: Callable[[int], DpEvent]) -> int:
    """The most steps for which `event_of(steps)` fits, at most a billion, within 1e-4 below it."""

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
    """The noise multiplier of Poisson-sampled gradient steps; `times` such plans on one unit fit together."""
    return noise_for(budget, partial(_repeated, rate, steps, times))


def open_gradient_noise(budget: Budget, rate: float, steps: int, times: int = 1) -> float:
    """The same for an open block whose filter is shaped like this plan: by its Rényi curve, which the filter gates."""
    slightly = replace(budget, epsilon=budget.epsilon * (1 - 1e-6))  # costs are rounded up, limits down
    event_of = partial(_repeated, rate, steps, times)
    return noise_for(slightly, event_of, method=Method.RDP)


def _repeated(rate: float, steps: int, times: int, noise: float) -> DpEvent:
    return repeat(poisson_gaussian(rate, noise, steps), times)


def gradient_steps(budget: Budget, rate: float, noise: float, times: int = 1) -> int:
    """How many Poisson-sampled gradient steps fit; `times` such plans on one unit fit together."""
    return steps_for(budget, lambda steps: _repeated(rate, steps, times, noise))


def gradient_rate(budget: Budget, steps: int, noise: float) -> float:
    """The highest Poisson sampling rate at which `steps` gradient steps fit."""
    return rate_for(budget, lambda rate: poisson_gaussian(rate, noise, steps))


def gaussian_noise(budget: Budget, times: int = 1) -> float:
    """The noise of `times` Gaussian releases, exact (Balle & Wang 2018) and rounded up, as a multiple of what one
    added unit moves; a replaced unit moves twice that."""
    return noise_for(budget, lambda noise: repeat(gaussian(noise), times), tolerance=1e-10)


def _log_ratio(event: DpEvent, budget: Budget, method: Method) -> float:
    """log(price / allowance): at most 0 exactly where the event fits."""
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
    """The x nearest to `bad` with cost(x) <= 0, if `good` has one; the answer itself was always tested.

    Rényi curves are quick and never below the best accountant, so they bracket first; then a safeguarded secant.
    """
    rough = bracketed(lambda x: cost(x, Method.RDP), start, good, bad, 0.01)
    return bracketed(lambda x: cost(x, final), start if rough is None else rough, good, bad, tolerance)


def bracketed(cost: Callable[[float], float], start: float, good: float, bad: float, tolerance: float) -> float | None:
    """The x nearest to `bad` with cost(x) <= 0, within `tolerance`, if `good` has one: a safeguarded secant."""
    x, y = start, cost(start)
    inside: tuple[float, float] | None = None  # fits
    outside: tuple[float, float] | None = None  # does not
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
