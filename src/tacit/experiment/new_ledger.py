"""A ledger that a run makes: first it is settled what one unit may lose over all streams that will ever be in it.

Guarantee: a ledger for private data that a run or a command makes has the answer in its first entry. Without one, the
cap is the budget of the stream that it is made for: nobody in it loses more than that, whatever streams are added
later, until its owner adopts another policy. A run that is refused makes none: it is planned and rehearsed before.
"""

import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Literal

from tacit.data.stream import StreamInfo
from tacit.errors import ConfigError, PlanError
from tacit.experiment.config import Config
from tacit.experiment.streams import open_stream
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import Ledger, LedgerView, StreamTerms

UnitCap = str | float | None
"""What one unit may lose over all streams: "none", ε, or "ε,δ"; None where nobody said."""
Cap = Budget | Literal["none"]


def settled(ledger: Path, info: StreamInfo, budget: Budget, unit_cap: UnitCap) -> Cap | None:
    """The cap of a ledger that is to be made; None where there is one already, which must have room for the stream."""
    if not ledger.exists():
        return budget if unit_cap is None else parsed(str(unit_cap), budget)
    with LedgerView(ledger) as book:
        if unit_cap is not None:
            _same(book, parsed(str(unit_cap), budget))
        book.check_room(StreamTerms(name=info.name, budget=budget, tasks_per_unit=info.tasks_per_unit))
    return None


def parsed(answer: str, budget: Budget) -> Cap:
    """What an answer means for a stream with this budget. An ε without δ: with room for as many such streams as fit
    into that ε."""
    if answer.strip().lower() == "none":
        return "none"
    epsilon, comma, delta = (part.strip() for part in answer.partition(","))
    try:
        value = float(epsilon)
        times = math.floor(Decimal(repr(value)) / Decimal(repr(float(budget.epsilon)))) if math.isfinite(value) else 0
        found = replace(budget, epsilon=value, delta=float(delta) if comma else budget.delta * max(1, times))
    except (ValueError, PlanError):
        raise ConfigError(
            f"the unit cap must be an ε above 0, an ε and a δ such as 4,1e-5, or none, got {answer!r}"
        ) from None
    if found.epsilon < budget.epsilon or found.delta < budget.delta:
        raise ConfigError(
            f"a unit cap of ε = {found.epsilon:g}, δ = {found.delta:g} has no room for this stream, whose budget is "
            f"ε = {budget.epsilon:g}, δ = {budget.delta:g}; give a larger one, or a smaller budget"
        )
    return found


def to_ask(ledger: Path | None, config: Config) -> Budget | None:
    """The budget of the stream that a ledger would be made for; None where none would be made."""
    if ledger is None or ledger.exists() or config.data.scenario != "declared":
        return None
    info = open_stream(config.data, config.seeds[0]).info
    return None if info.public else config.budget.make(info.unit)


def as_made(ledger: Path, cap: Cap | None) -> Ledger:
    """The ledger; where it is still to be made, one that will be thrown away and has its cap."""
    return Ledger(ledger) if ledger.exists() else Ledger.throwaway(unit_cap=cap)


def make(ledger: Path, cap: Cap | None) -> None:
    """Make the ledger with the cap that was settled, unless it is there."""
    if not ledger.exists():
        Ledger(ledger, unit_cap=cap).close()


def told(ledger: Path, cap: Cap | None) -> str | None:
    """For whoever runs it: the cap of the ledger that is made."""
    if cap is None:
        return None
    if cap == "none":
        return f"{ledger} is made without a unit_cap: every stream that is added to it may cost its people more"
    return (
        f"{ledger} is made with a unit_cap: over all its streams together a {cap.unit} may lose ε = {cap.epsilon:g}, "
        f"δ = {cap.delta:g}; --unit-cap sets another when a ledger is made, tacit policy adopt later"
    )


def _same(book: LedgerView, asked: Cap) -> None:
    cap = book.policy.cap
    if cap != (None if asked == "none" else asked):
        found = "no unit_cap" if cap is None else f"a unit_cap of ε = {cap.epsilon:g}, δ = {cap.delta:g}"
        raise ConfigError(
            f"the ledger {book.path} is there already, with {found}; leave --unit-cap out, or have another one adopted "
            "(tacit policy adopt)"
        )
