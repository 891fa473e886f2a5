"""Remaining budget for adaptively chosen plans: a block's filter, and further limits of the learner."""

from collections.abc import Callable
from dataclasses import dataclass

from dp_accounting.dp_event import DpEvent

from tacit.errors import PlanError
from tacit.privacy.accounting.budget import Adjacency
from tacit.privacy.accounting.filters import RenyiFilter


@dataclass(frozen=True, kw_only=True)
class Room:
    """The remaining budget at every order of every filter. It is public, since it depends on charges only."""

    filters: tuple[RenyiFilter, ...]
    adjacency: Adjacency

    def fits(self, event: DpEvent) -> bool:
        return all(limit.less(event, self.adjacency) is not None for limit in self.filters)

    def less(self, event: DpEvent) -> "Room":
        """The remaining budget after an event that fits."""
        left = [limit.less(event, self.adjacency) for limit in self.filters]
        if None in left:
            raise PlanError("this event does not fit what is left; ask `fits` first, or `least` for a noise that does")
        return Room(filters=tuple(limit for limit in left if limit is not None), adjacency=self.adjacency)

    def least(self, event_of: Callable[[float], DpEvent]) -> float:
        """The least noise for which `event_of(noise)` fits."""
        noises = [limit.least_noise(event_of, self.adjacency) for limit in self.filters]
        known = [noise for noise in noises if noise is not None]
        if len(known) < len(noises):
            raise PlanError("no noise fits what is left of the budget; use fewer steps, or a larger epsilon")
        return max(known)
