"""What plans that are chosen as one goes have to fit: a block's filter, and what a learner keeps to besides."""

from collections.abc import Callable
from dataclasses import dataclass

from dp_accounting.dp_event import DpEvent

from tacit.errors import PlanError
from tacit.privacy.budget import Adjacency
from tacit.privacy.filters import RenyiFilter


@dataclass(frozen=True, kw_only=True)
class Room:
    """What is left, at every order of every filter. It is public: only charges made it smaller."""

    filters: tuple[RenyiFilter, ...]
    adjacency: Adjacency

    def fits(self, event: DpEvent) -> bool:
        return all(one.less(event, self.adjacency) is not None for one in self.filters)

    def less(self, event: DpEvent) -> "Room":
        """What is left after an event that fits."""
        left = [one.less(event, self.adjacency) for one in self.filters]
        if None in left:
            raise PlanError("this event does not fit what is left; ask `fits` first, or `least` for a noise that does")
        return Room(filters=tuple(one for one in left if one is not None), adjacency=self.adjacency)

    def least(self, event_of: Callable[[float], DpEvent]) -> float:
        """The least noise for which `event_of(noise)` fits."""
        found = [one.least_noise(event_of, self.adjacency) for one in self.filters]
        known = [noise for noise in found if noise is not None]
        if len(known) < len(found):
            raise PlanError("no noise fits what is left of the budget; use fewer steps, or a larger epsilon")
        return max(known)
