"""Learners: one file, one method. `find` knows them by name."""

from importlib import import_module
from inspect import isabstract

from tacit.errors import LearnerError
from tacit.learners.learner import Learner
from tacit.plugins import from_file

HOMES = {
    "AGEM": "agem",
    "CosineClassifier": "cosine",
    "DPAGEM": "dpagem",
    "DPCL": "dpcl",
    "DPER": "dper",
    "Joint": "joint",
    "MomentsClassifier": "moments",
    "NaiveDPSGD": "naive",
    "PEFTEnsemble": "ensemble",
    "RoutedExperts": "experts",
}


def find(name: str) -> type[Learner]:
    """The method of this name; or one of your own, as `file.py:Class`."""
    if ":" in name:
        return _own(name)
    if name not in HOMES:
        raise LearnerError(f"there is no learner {name!r}; there are {', '.join(HOMES)}, or your own as file.py:Class")
    found: type[Learner] = getattr(import_module(f"tacit.learners.{HOMES[name]}"), name)
    return found


def _own(place: str) -> type[Learner]:
    file, _, name = place.rpartition(":")
    made = from_file(place, "learner", LearnerError)
    if not (isinstance(made, type) and issubclass(made, Learner)):
        raise LearnerError(f"{file} has no learner {name!r}: a class that inherits tacit.learners.Learner")
    if isabstract(made):
        raise LearnerError(f"{name} in {file} has no method fit(task, block, vault); write it, it is the method itself")
    return made
