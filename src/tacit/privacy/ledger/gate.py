"""The gate: what may be promised to the units of a stream. Nothing passes that does not fit.

Guarantee: after every commit, reservation and open block, one unit that is in at most `tasks_per_unit` tasks stays
within the stream's (ε, δ), also where it is replaced by a unit of another part or task, and within the cap over all
streams where the policy has one. Lists that are fixed in
advance are priced by the predicate of calibration; different lists, open blocks among them, by the k largest
Rényi curves; plans chosen as one goes over several tasks by a Rényi filter.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, select

from tacit.errors import BudgetExceeded, LedgerError
from tacit.privacy.accounting import ORDERS, rdp_to_epsilon
from tacit.privacy.budget import Adjacency, Budget
from tacit.privacy.calibrate import INFINITE_PRICE, NANO, allowance
from tacit.privacy.filters import RenyiFilter, cost_units
from tacit.privacy.ledger import pairs, profile, recurring
from tacit.privacy.ledger.prices import Prices
from tacit.privacy.ledger.profile import Face, budget_of
from tacit.privacy.ledger.tables import streams
from tacit.privacy.policy import Policy

ADVICE = "use more noise, fewer steps or a smaller rate (a plan's for_budget finds one that fits)"


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
    if policy.cap is not None and by_stream:
        check_cap(connection, by_stream, prices, policy.cap)


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
        _check_filter(curve, extra_delta, RenyiFilter.for_budget(budget), stream.name, budget)
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


def _check_filter(curve: Any, extra: float, limit: RenyiFilter, what: str, budget: Budget) -> None:
    if extra > 0:
        raise BudgetExceeded(
            f"{what!r} is gated by a Rényi filter and cannot hold an additive δ of {extra:g}; use a Gaussian mechanism"
        )
    needed = dict(zip(ORDERS, cost_units(tuple(curve)), strict=True))
    over = [o for o, most in zip(limit.orders, limit.limit_units, strict=True) if needed[o] > most]
    if over:
        asked = rdp_to_epsilon([needed[o] * profile.NANO for o in limit.orders], budget.delta, limit.orders)
        raise BudgetExceeded(
            f"one unit of {what!r} would exceed its filter of ε = {budget.epsilon:g} at {len(over)} of "
            f"{len(limit.orders)} Rényi orders (ε = {asked:.4g} in all); {ADVICE}"
        )


def check_cap(
    connection: Connection, by_stream: Mapping[int, dict[int, tuple[int, Face]]], prices: Prices, cap: Budget
) -> None:
    """Over all streams together: the sum of each stream's k largest curves stays under one filter."""
    total: Any = 0.0
    extra_delta = 0.0
    for stream in profile.all_streams(connection):
        check_cap_terms(budget_of(stream), stream.name, cap)
        if not stream.public and profile.exposed(connection, stream.id):
            raise LedgerError(
                f"records of stream {stream.name!r} left the vault by an unsafe exit, so the policy's unit_cap cannot "
                "hold any more; adopt a policy without it, or use another ledger"
            )
        groups = profile.roots(connection, stream.id, by_stream.get(stream.id, {}))
        curve, extra = profile.top(connection, groups, stream.tasks_per_unit, cap.adjacency, prices)
        total, extra_delta = total + curve, extra_delta + extra
    if not isinstance(total, float):
        _check_filter(total, extra_delta, RenyiFilter.for_budget(cap), "all streams (unit_cap)", cap)


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
