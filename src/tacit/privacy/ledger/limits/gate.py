"""The gate: refuses every charge that would exceed a budget.

Formal guarantees. After every commit, reservation and registration of an open block:

* A unit in at most `tasks_per_unit` tasks stays within the stream's (ε, δ). Under replace-one this includes replacing
  it by a unit of another part or task.
* A unit stays within the policy's `unit_cap` over all streams of the ledger, where the policy has one.

Conditions and methods:

* Event lists that were fixed in advance are priced by min(PLD, RDP), with the predicate that calibration uses, so a
  plan calibrated for the budget is never refused.
* Different lists, and open blocks, are bounded by the k largest Rényi curves.
* Plans that are chosen adaptively over several tasks are bounded by a Rényi filter, which admits no additive δ.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from dp_accounting.dp_event import DpEvent
from sqlalchemy import Connection, Row, select

from tacit.errors import BudgetExceeded, LedgerError
from tacit.privacy.accounting.budget import Adjacency, Budget
from tacit.privacy.accounting.calibrate import INFINITE_PRICE, allowance, nano
from tacit.privacy.accounting.epsilon import ORDERS, rdp_to_epsilon
from tacit.privacy.accounting.events import to_json
from tacit.privacy.accounting.filters import RenyiFilter, cost_units
from tacit.privacy.ledger.limits import leaf_bounds, worst_case
from tacit.privacy.ledger.limits.leaf_bounds import LeafBound
from tacit.privacy.ledger.limits.policy import Policy
from tacit.privacy.ledger.limits.prices import Prices, extra_delta
from tacit.privacy.ledger.storage.lookup import all_streams, budget_of
from tacit.privacy.ledger.storage.tables import streams
from tacit.privacy.ledger.storage.values import StreamTerms

ADVICE = "use more noise, fewer steps or a smaller batch (in code, a plan's for_budget finds one that fits)"
ADVICE_CAP = "use more noise or fewer steps, or have a larger unit_cap adopted (tacit policy adopt)"


class Leaf(NamedTuple):
    """The stream and the root of a block that exists or is about to be created."""

    stream_id: int
    root_id: int


Changes = Mapping[int, tuple[Leaf, LeafBound]]
"""For each block id: its stream and root, and the bound it would get."""


def check(connection: Connection, changes: Changes, prices: Prices, policy: Policy) -> None:
    """Raise BudgetExceeded if a change does not fit its stream's budget or the policy's cap."""
    by_stream: dict[int, dict[int, tuple[int, LeafBound]]] = defaultdict(dict)
    for block, (leaf, bound) in changes.items():
        by_stream[leaf.stream_id][block] = (leaf.root_id, bound)
    for stream_id, extra in by_stream.items():
        stream = connection.execute(select(streams).where(streams.c.id == stream_id)).one()
        _check_stream(connection, stream, extra, prices)
    if by_stream:
        check_cap(connection, by_stream, prices, policy)


def _check_stream(
    connection: Connection, stream: Row[Any], extra: dict[int, tuple[int, LeafBound]], prices: Prices
) -> None:
    budget, k = budget_of(stream), stream.tasks_per_unit
    if k == 1:
        for bound in {bound for _, bound in extra.values() if bound.limits is None}:
            price = prices.nano(connection, bound.events or (), budget, 1)
            if not within(price, budget):
                _refuse(stream.name, 1, price, budget)
        if budget.adjacency is Adjacency.REPLACE_ONE:
            _check_exchange(connection, stream, extra, prices)
        return
    groups = leaf_bounds.root_groups(connection, stream.id, extra)
    bounds = {bound for group in groups for bound in group}
    if len(bounds) == 1 and next(iter(bounds)).limits is not None:
        return  # every open block has a 1/k share of the filter
    curve, extra_delta = leaf_bounds.largest_roots(connection, groups, k, budget.adjacency, prices)
    if not stream.fixed_schedule:
        _check_filter(curve, extra_delta, f"stream {stream.name!r}", budget, ADVICE)
        return
    exact = worst_case.several_tasks(connection, groups, k, budget, prices, ahead=True)
    if exact is not None and within(exact, budget):
        return
    by_curves = nano(rdp_to_epsilon(tuple(curve), budget.delta - extra_delta))
    if len(bounds) == 1 or not within(by_curves, budget):  # equal tasks: `exact` counts the tasks to come
        _refuse(stream.name, k, by_curves if exact is None else exact, budget)


def _check_exchange(
    connection: Connection, stream: Row[Any], extra: dict[int, tuple[int, LeafBound]], prices: Prices
) -> None:
    """A unit may be replaced by one of another part or task; each of the two leaves pays for its side."""
    budget = budget_of(stream)
    bounds = frozenset().union(*leaf_bounds.root_groups(connection, stream.id, extra))
    price = worst_case.exchange(connection, bounds, budget, prices, new={bound for _, bound in extra.values()})
    if not within(price, budget):
        raise BudgetExceeded(
            f"replacing a unit of {stream.name!r} by one of another part or task would cost ε = {shown(price)} at "
            f"δ = {budget.delta:g} with the requested reads, its budget is ε = {budget.epsilon:g}; use more noise, "
            "fewer steps or a smaller rate, or the same plan for all parts and tasks"
        )


def _refuse(name: str, k: int, price: int, budget: Budget) -> None:
    times = f" in {k} tasks" if k > 1 else ""
    raise BudgetExceeded(
        f"the requested reads would cost a unit of {name!r}{times} ε = {shown(price)} at δ = {budget.delta:g}, "
        f"its budget is ε = {budget.epsilon:g}; {ADVICE}"
    )


def _check_filter(curve: Any, extra: float, what: str, budget: Budget, advice: str) -> None:
    limit = RenyiFilter.for_budget(budget)
    if extra > 0:
        raise BudgetExceeded(
            f"the requested reads have an additive δ of {extra:g}, and the Rényi filter of {what} admits none; "
            "use a learner with Gaussian noise only, and declared labels"
        )
    needed = dict(zip(ORDERS, cost_units(tuple(curve)), strict=True))
    over = [o for o, most in zip(limit.orders, limit.limit_units, strict=True) if needed[o] > most]
    if over:
        asked = rdp_to_epsilon([needed[o] * leaf_bounds.NANO for o in limit.orders], budget.delta, limit.orders)
        raise BudgetExceeded(
            f"the requested reads would cost one {budget.unit} ε = {asked:.4g} over {what}, the limit is "
            f"ε = {budget.epsilon:g} at δ = {budget.delta:g} (checked by a Rényi filter); {advice}"
        )


def check_cap(
    connection: Connection,
    by_stream: Mapping[int, dict[int, tuple[int, LeafBound]]],
    prices: Prices,
    policy: Policy,
    *,
    ahead: bool = True,
) -> None:
    """Raise unless all streams together stay within the policy's cap.

    With `ahead`, a started stream counts with all tasks that a unit may be in, so that it is refused before its first
    task and not half-way.
    """
    cap = policy.cap
    if cap is None or policy.unit_cap is None:
        return
    by_budgets = policy.unit_cap.counts == "budgets"
    tops: dict[str, tuple[Any, float]] = {}
    for stream in all_streams(connection):
        if by_budgets and stream.public:
            continue
        check_cap_terms(budget_of(stream), stream.name, cap)
        if not stream.public and leaf_bounds.exposed(connection, stream.id):
            raise LedgerError(
                f"records of stream {stream.name!r} were released by an unsafe exit, so the policy's unit_cap cannot "
                "hold any more; adopt a policy without it, or use another ledger"
            )
        if not by_budgets:
            changes = by_stream.get(stream.id)
            tops[stream.name] = leaf_bounds.largest_of_stream(
                connection, stream, cap.adjacency, prices, changes, ahead=ahead
            )
    if by_budgets:
        check_budgets(connection, policy)
    elif tops:
        _check_curves(tops, policy, cap)


def check_whole(
    connection: Connection, name: str, k: int, lists: Sequence[Sequence[DpEvent]], prices: Prices, policy: Policy
) -> None:
    """Raise if a new stream of k tasks with the costliest of these event lists exceeds the cap with the known
    streams."""
    cap = policy.cap
    if cap is None or policy.unit_cap is None or policy.unit_cap.counts == "budgets" or not lists:
        return
    tops = {
        stream.name: leaf_bounds.largest_of_stream(connection, stream, cap.adjacency, prices, ahead=True)
        for stream in all_streams(connection)
    }
    texts = [tuple(to_json(event) for event in events) for events in lists]
    curve = np.max([prices.curve(connection, events, cap.adjacency) for events in texts], axis=0)
    tops[name] = (k * curve, k * max(extra_delta(events) for events in texts))
    _check_curves(tops, policy, cap)


def _check_curves(tops: Mapping[str, tuple[Any, float]], policy: Policy, cap: Budget) -> None:
    """Check the sum of the streams' curves against one filter; of streams declared disjoint, the largest counts."""
    total: Any = 0.0
    extra = 0.0
    for slot in policy.slots(tops):
        total = total + np.max([tops[name][0] for name in slot], axis=0)
        extra += max(tops[name][1] for name in slot)
    _check_filter(total, extra, "all streams (the policy's unit_cap)", cap, ADVICE_CAP)


def check_new(connection: Connection, terms: StreamTerms, policy: Policy) -> None:
    """Raise if a new stream would exceed the policy's cap, before its first task."""
    if policy.cap is None or policy.unit_cap is None or (terms.public and policy.unit_cap.counts == "budgets"):
        return
    check_cap_terms(terms.budget, terms.name, policy.cap)
    check_budgets(connection, policy, {terms.name: terms.budget})


def check_budgets(connection: Connection, policy: Policy, declared: Mapping[str, Budget] | None = None) -> None:
    """Raise if the budgets of all private streams exceed the cap; `declared` adds or replaces budgets by stream
    name."""
    cap = policy.cap
    if cap is None or policy.unit_cap is None or policy.unit_cap.counts != "budgets":
        return
    rows = (row for row in all_streams(connection) if not row.public)
    budgets = {row.name: budget_of(row) for row in rows} | dict(declared or {})
    slots = policy.slots(budgets)
    epsilon = sum((max(_decimal(budgets[name].epsilon) for name in slot) for slot in slots), Decimal())
    delta = sum((max(_decimal(budgets[name].delta) for name in slot) for slot in slots), Decimal())
    if epsilon > _decimal(cap.epsilon) or delta > _decimal(cap.delta):
        raise BudgetExceeded(
            f"the budgets of {', '.join(map(repr, budgets))}, which may hold the same {cap.unit}s, add up to "
            f"ε = {float(epsilon):g}, δ = {float(delta):g}, above the ledger's unit_cap of ε = {cap.epsilon:g}, "
            f"δ = {cap.delta:g}; "
            "use a smaller budget, another ledger for other people, or have a larger cap adopted (tacit policy adopt)"
        )


def _decimal(value: float) -> Decimal:
    """The number as it was written, so that 0.1 + 0.2 is 0.3."""
    return Decimal(repr(float(value)))


def check_cap_terms(budget: Budget, name: str, cap: Budget) -> None:
    """Raise unless a stream has the unit and the adjacency of the cap; other losses cannot be added."""
    for field in ("adjacency", "unit"):
        if getattr(budget, field) != getattr(cap, field):
            raise LedgerError(
                f"stream {name!r} has {field} {getattr(budget, field)}, the policy's unit_cap has "
                f"{getattr(cap, field)}; use the same, or another ledger"
            )


def within(price: int, budget: Budget) -> bool:
    """Whether a price in nano-ε is within the budget, as `calibrate.fits` decides it."""
    return price < INFINITE_PRICE and price <= allowance(budget)


def shown(price: int) -> str:
    """A price in nano-ε as text."""
    return "infinity" if price >= INFINITE_PRICE else f"{price / 1e9:.4g}"
