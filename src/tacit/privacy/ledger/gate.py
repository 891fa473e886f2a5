"""The gate: what may be promised to the units of a stream. Nothing passes that does not fit.

Guarantee: after every commit, reservation and open block, one unit that is in at most `tasks_per_unit` tasks stays
within the stream's (ε, δ), also where it is replaced by a unit of another part or task, and within the cap over all
streams where the policy has one. Lists that are fixed in
advance are priced by the predicate of calibration; different lists, open blocks among them, by the k largest
Rényi curves; plans chosen as one goes over several tasks by a Rényi filter.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from dp_accounting.dp_event import DpEvent
from sqlalchemy import Connection, Row, select

from tacit.errors import BudgetExceeded, LedgerError
from tacit.privacy.accounting import ORDERS, rdp_to_epsilon
from tacit.privacy.budget import Adjacency, Budget
from tacit.privacy.calibrate import INFINITE_PRICE, NANO, allowance
from tacit.privacy.events import to_json
from tacit.privacy.filters import RenyiFilter, cost_units
from tacit.privacy.ledger import pairs, profile, recurring
from tacit.privacy.ledger.prices import Prices, extra_delta
from tacit.privacy.ledger.profile import Face, budget_of
from tacit.privacy.ledger.tables import streams
from tacit.privacy.ledger.terms import StreamTerms
from tacit.privacy.policy import Policy

ADVICE = "use more noise, fewer steps or a smaller batch (in code, a plan's for_budget finds one that fits)"
ADVICE_CAP = "use more noise or fewer steps, or have a larger unit_cap adopted (tacit policy adopt)"


class Where(NamedTuple):
    """Where a block is, or will be."""

    stream_id: int
    root_id: int


Changes = Mapping[int, tuple[Where, Face]]
"""Block id → (where it is, the face it would get)."""


def check(connection: Connection, changes: Changes, prices: Prices, policy: Policy) -> None:
    """Refuse, in one sentence, what does not fit."""
    by_stream: dict[int, dict[int, tuple[int, Face]]] = defaultdict(dict)
    for block, (where, face) in changes.items():
        by_stream[where.stream_id][block] = (where.root_id, face)
    for stream_id, extra in by_stream.items():
        stream = connection.execute(select(streams).where(streams.c.id == stream_id)).one()
        _check_stream(connection, stream, extra, prices)
    if by_stream:
        check_cap(connection, by_stream, prices, policy)


def _check_stream(connection: Connection, stream: Row[Any], extra: dict[int, tuple[int, Face]], prices: Prices) -> None:
    budget, k = budget_of(stream), stream.tasks_per_unit
    if k == 1:
        for face in {face for _, face in extra.values() if face.limits is None}:
            nano = prices.nano(connection, face.events or (), budget, 1)
            if not within(nano, budget):
                _refuse(stream.name, 1, nano, budget)
        if budget.adjacency is Adjacency.REPLACE_ONE:
            _check_exchange(connection, stream, extra, prices)
        return
    groups = profile.roots(connection, stream.id, extra)
    faces = {face for group in groups for face in group}
    if len(faces) == 1 and next(iter(faces)).limits is not None:
        return  # every open block holds one k-th of the filter
    curve, extra_delta = profile.top(connection, groups, k, budget.adjacency, prices)
    if not stream.fixed_schedule:
        _check_filter(curve, extra_delta, f"stream {stream.name!r}", budget, ADVICE)
        return
    exact = recurring.worst(connection, groups, k, budget, prices, ahead=True)
    if exact is not None and within(exact, budget):
        return
    by_curves = units(rdp_to_epsilon(tuple(curve), budget.delta - extra_delta))
    if len(faces) == 1 or not within(by_curves, budget):  # equal tasks: the tasks to come count too
        _refuse(stream.name, k, by_curves if exact is None else exact, budget)


def _check_exchange(
    connection: Connection, stream: Row[Any], extra: dict[int, tuple[int, Face]], prices: Prices
) -> None:
    """A unit may be replaced by one of another part or task: both leaves then pay, each one side."""
    budget = budget_of(stream)
    faces = frozenset().union(*profile.roots(connection, stream.id, extra))
    nano = pairs.worst(connection, faces, budget, prices, new={face for _, face in extra.values()})
    if not within(nano, budget):
        raise BudgetExceeded(
            f"replacing a unit of {stream.name!r} by one of another part or task would cost ε = {shown(nano)} at "
            f"δ = {budget.delta:g} with the reads asked for, its budget is ε = {budget.epsilon:g}; use more noise, "
            "fewer steps or a smaller rate, or the same plan for all parts and tasks"
        )


def _refuse(name: str, k: int, nano: int, budget: Budget) -> None:
    times = f" in {k} tasks" if k > 1 else ""
    raise BudgetExceeded(
        f"the reads asked for would cost a unit of {name!r}{times} ε = {shown(nano)} at δ = {budget.delta:g}, "
        f"its budget is ε = {budget.epsilon:g}; {ADVICE}"
    )


def _check_filter(curve: Any, extra: float, what: str, budget: Budget, advice: str) -> None:
    limit = RenyiFilter.for_budget(budget)
    if extra > 0:
        raise BudgetExceeded(
            f"the reads asked for need a δ of {extra:g} of their own, and the limit of {what} has no room for one (its "
            "Rényi filter holds no additive δ); use a learner with Gaussian noise only, and declared labels"
        )
    needed = dict(zip(ORDERS, cost_units(tuple(curve)), strict=True))
    over = [o for o, most in zip(limit.orders, limit.limit_units, strict=True) if needed[o] > most]
    if over:
        asked = rdp_to_epsilon([needed[o] * profile.NANO for o in limit.orders], budget.delta, limit.orders)
        raise BudgetExceeded(
            f"the reads asked for do not fit what one {budget.unit} may lose over {what}, ε = {budget.epsilon:g} at "
            f"δ = {budget.delta:g} (with them ε = {asked:.4g}, too much at {len(over)} of the {len(limit.orders)} "
            f"Rényi orders of its filter); {advice}"
        )


def check_cap(
    connection: Connection,
    by_stream: Mapping[int, dict[int, tuple[int, Face]]],
    prices: Prices,
    policy: Policy,
    *,
    ahead: bool = True,
) -> None:
    """Over all streams together. With `ahead`, a stream that has begun counts with all tasks that a unit may be in, so
    that it is refused before its first task and not half-way."""
    cap = policy.cap
    if cap is None or policy.unit_cap is None:
        return
    by_budgets = policy.unit_cap.counts == "budgets"
    tops: dict[str, tuple[Any, float]] = {}
    for stream in profile.all_streams(connection):
        if by_budgets and stream.public:
            continue
        check_cap_terms(budget_of(stream), stream.name, cap)
        if not stream.public and profile.exposed(connection, stream.id):
            raise LedgerError(
                f"records of stream {stream.name!r} left the vault by an unsafe exit, so the policy's unit_cap cannot "
                "hold any more; adopt a policy without it, or use another ledger"
            )
        if not by_budgets:
            groups = profile.roots(connection, stream.id, by_stream.get(stream.id, {}))
            k = stream.tasks_per_unit
            tops[stream.name] = profile.top(connection, groups, k, cap.adjacency, prices, ahead=ahead)
    if by_budgets:
        check_budgets(connection, policy)
    elif tops:
        _check_curves(tops, policy, cap)


def check_whole(
    connection: Connection, name: str, k: int, lists: Sequence[Sequence[DpEvent]], prices: Prices, policy: Policy
) -> None:
    """Refuse a stream that is about to begin if k of these lists, the costliest, do not fit the policy's cap beside
    the streams that are there."""
    cap = policy.cap
    if cap is None or policy.unit_cap is None or policy.unit_cap.counts == "budgets" or not lists:
        return
    tops = {
        stream.name: profile.top(
            connection,
            profile.roots(connection, stream.id, {}),
            stream.tasks_per_unit,
            cap.adjacency,
            prices,
            ahead=True,
        )
        for stream in profile.all_streams(connection)
    }
    texts = [tuple(to_json(event) for event in one) for one in lists]
    curves = np.max([prices.curve(connection, one, cap.adjacency) for one in texts], axis=0)
    tops[name] = (k * curves, k * max(extra_delta(one) for one in texts))
    _check_curves(tops, policy, cap)


def _check_curves(tops: Mapping[str, tuple[Any, float]], policy: Policy, cap: Budget) -> None:
    """The streams' curves stay under one filter; of streams that are declared disjoint, the largest."""
    total: Any = 0.0
    extra = 0.0
    for slot in policy.slots(tops):
        total = total + np.max([tops[name][0] for name in slot], axis=0)
        extra += max(tops[name][1] for name in slot)
    _check_filter(total, extra, "all streams (the policy's unit_cap)", cap, ADVICE_CAP)


def check_new(connection: Connection, terms: StreamTerms, policy: Policy) -> None:
    """Refuse a new stream that the policy's cap has no room for: before its first task."""
    if policy.cap is None or policy.unit_cap is None or (terms.public and policy.unit_cap.counts == "budgets"):
        return
    check_cap_terms(terms.budget, terms.name, policy.cap)
    check_budgets(connection, policy, {terms.name: terms.budget})


def check_budgets(connection: Connection, policy: Policy, declared: Mapping[str, Budget] | None = None) -> None:
    """The declared budgets of all private streams stay under the cap, with these in place of or beside those there."""
    cap = policy.cap
    if cap is None or policy.unit_cap is None or policy.unit_cap.counts != "budgets":
        return
    rows = (row for row in profile.all_streams(connection) if not row.public)
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
    """As it was declared: 0.1 and 0.2 are 0.3."""
    return Decimal(repr(float(value)))


def check_cap_terms(budget: Budget, name: str, cap: Budget) -> None:
    """A cap adds up only what is about the same neighbours."""
    for field in ("adjacency", "unit"):
        if getattr(budget, field) != getattr(cap, field):
            raise LedgerError(
                f"stream {name!r} has {field} {getattr(budget, field)}, the policy's unit_cap has "
                f"{getattr(cap, field)}; use the same, or another ledger"
            )


def within(nano: int, budget: Budget) -> bool:
    """Whether a price is inside the budget: the predicate of `calibrate.fits`."""
    return nano < INFINITE_PRICE and nano <= allowance(budget)


def units(epsilon: float) -> int:
    """An ε in nano-ε, rounded up."""
    return math.ceil(Fraction(epsilon) * NANO) if math.isfinite(epsilon) else INFINITE_PRICE


def shown(nano: int) -> str:
    """A price for people; rounded up."""
    return "infinity" if nano >= INFINITE_PRICE else f"{nano / 1e9:.4g}"
