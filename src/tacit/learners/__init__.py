"""Learners: one file, one method. `find` knows them by name."""

from collections.abc import Collection
from importlib import import_module
from inspect import isabstract
from pathlib import Path
from typing import Any

from tacit.errors import LearnerError, TacitError
from tacit.learners.learner import Learner
from tacit.learners.release import Release, damage
from tacit.plugins import from_file
from tacit.privacy.ledger import Ledger

HOMES = {
    "AGEM": "agem",
    "AdaptiveDPSGD": "adaptive",
    "Centralised": "centralised",
    "CosineClassifier": "cosine",
    "DPAGEM": "dpagem",
    "DPCL": "dpcl",
    "DPER": "dper",
    "DPL2M": "dpl2m",
    "Joint": "joint",
    "L2DPML": "l2dpml",
    "LifelongDP": "lifelong",
    "MeteredGD": "metered",
    "MomentsClassifier": "moments",
    "NaiveDPSGD": "naive",
    "NaiveGaussian": "naive_gaussian",
    "PEFTEnsemble": "ensemble",
    "Pool": "pool",
    "RoutedExperts": "experts",
}


def find(name: str) -> type[Learner]:
    """The method of this name, or a short one; or one of your own, as `file.py:Class`."""
    if ":" in name:
        return _own(name)
    meant = matching(name)
    if len(meant) != 1:
        known = ", ".join(meant or HOMES)
        raise LearnerError(f"there is no learner {name!r}; there are {known}, or your own as file.py:Class")
    found: type[Learner] = getattr(import_module(f"tacit.learners.{HOMES[meant[0]]}"), meant[0])
    return found


def opened(
    folder: str | Path,
    *,
    ledger: str | Path | Ledger | None = None,
    store: str | Path | None = None,
    allow_code: Collection[str] = (),
    **changed: Any,
) -> Learner:
    """The learner of any release, by the method that it names; see `Learner.from_release`. No code that the release
    names is run unless it is allowed."""
    method = Release.load(Path(folder)).method
    if not isinstance(method, str):
        raise LearnerError(damage(folder))
    if method not in HOMES:
        raise LearnerError(f"{folder} is a release of {method}, a method of your own; use {method}.from_release")
    if changed:
        return find(method).from_release(folder, ledger=ledger, store=store, allow_code=allow_code, **changed)
    try:
        return find(method).from_release(folder, ledger=ledger, store=store, allow_code=allow_code)
    except TacitError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise LearnerError(damage(folder)) from error


def ends(name: str, stream: str) -> str:
    """Why a learner cannot learn a stream without end, and which ones can."""
    can = " or ".join(one for one in HOMES if find(one).forever)
    return f"{name} plans or keeps something for every task of a stream, and {stream!r} has no last one; use {can}"


def matching(name: str) -> list[str]:
    """The learners that a name may mean: itself, else all that begin so, or whose file does. Capitals and punctuation
    do not count: `moments` is MomentsClassifier, `dp-agem` DPAGEM, `experts` RoutedExperts."""
    short = _letters(name)
    exact = [one for one in HOMES if _letters(one) == short]
    if exact or not short:
        return exact
    return [one for one, home in HOMES.items() if any(_letters(known).startswith(short) for known in (one, home))]


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _own(place: str) -> type[Learner]:
    file, _, name = place.rpartition(":")
    made = from_file(place, "learner", LearnerError)
    if not (isinstance(made, type) and issubclass(made, Learner)):
        raise LearnerError(f"{file} has no learner {name!r}: a class that inherits tacit.learners.Learner")
    if isabstract(made):
        raise LearnerError(f"{name} in {file} has no method fit(task, block, vault); write it, it is the method itself")
    return made
