"""Learners: one file, one method. `LEARNERS` finds them by name."""

from importlib import import_module

from tacit.errors import LearnerError
from tacit.learners.learner import Learner

HOMES = {
    "AGEM": "agem",
    "DPAGEM": "dpagem",
    "DPCL": "dpcl",
    "DPER": "dper",
    "Joint": "joint",
    "NaiveDPSGD": "naive",
    "RoutedExperts": "experts",
}


def find(name: str) -> type[Learner]:
    """The method of this name."""
    if name not in HOMES:
        raise LearnerError(f"there is no learner {name!r}; there are {', '.join(HOMES)}")
    found: type[Learner] = getattr(import_module(f"tacit.learners.{HOMES[name]}"), name)
    return found
