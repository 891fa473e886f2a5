"""The learners by name: those of tacit, those of installed packages, and your own as `file.py:Class`.

A package registers a learner under the entry-point group `tacit.learners`:

    [project.entry-points."tacit.learners"]
    MyMethod = "my_package.my_method:MyMethod"
"""

from collections.abc import Collection
from importlib import import_module
from inspect import isabstract
from pathlib import Path
from typing import Any

from tacit.errors import LearnerError, TacitError
from tacit.learners.base.learner import Learner
from tacit.learners.base.release import Release, damage
from tacit.plugins import from_file, from_package, installed
from tacit.privacy.ledger import Ledger

GROUP = "tacit.learners"
"""The entry-point group of packages that bring a learner."""
LEARNERS = {
    "AGEM": "baselines.agem",
    "AdaptiveDPSGD": "adaptive.adaptive",
    "Centralised": "baselines.centralised",
    "CosineClassifier": "closed_form.cosine",
    "DPAGEM": "replay.dpagem",
    "DPCL": "replay.dpcl",
    "DPER": "replay.dper",
    "DPFC": "closed_form.dpfc",
    "DPGenerativeReplay": "replay.generative",
    "DPL2M": "published.dpl2m",
    "FeCAM": "baselines.fecam",
    "Joint": "baselines.joint",
    "L2DPML": "published.l2dpml",
    "LifelongDP": "closed_form.lifelong",
    "MeteredGD": "adaptive.metered",
    "MomentsClassifier": "closed_form.moments",
    "NaiveDPSGD": "baselines.naive",
    "NaiveGaussian": "replay.naive_gaussian",
    "PEFTEnsemble": "experts.ensemble",
    "Pool": "pool.pool",
    "PublishedDPCL": "published.published_dpcl",
    "PublishedRobustDPCL": "published.published_robust_dpcl",
    "RanPAC": "baselines.ranpac",
    "RoutedExperts": "experts.experts",
}


def find(name: str) -> type[Learner]:
    """The class of a learner.

    Args:
        name: A name of `LEARNERS` or its beginning, a name that an installed package registers, or `file.py:Class`.

    Returns:
        The class.

    Raises:
        LearnerError: There is no such learner, or its code cannot be used.
    """
    if ":" in name:
        return _checked(from_file(name, "learner", LearnerError), name)
    registered, names = installed(GROUP), matching(name)
    if len(names) != 1:
        known = ", ".join(names or (*LEARNERS, *registered))
        raise LearnerError(f"there is no learner {name!r}; there are {known}, or your own as file.py:Class")
    if names[0] not in LEARNERS:
        points = registered[names[0]]
        return _checked(from_package(points, "learner", LearnerError), points[0].value)
    for other, (point, *_) in registered.items():
        if _letters(other) == _letters(names[0]):
            raise LearnerError(
                f"{point.value} is registered as the learner {other!r}, a name of tacit's own {names[0]}; uninstall "
                "its package, or register it under another name"
            )
    learner: type[Learner] = getattr(import_module(f"tacit.learners.{LEARNERS[names[0]]}"), names[0])
    return learner


def load_learner(
    folder: str | Path,
    *,
    ledger: str | Path | Ledger | None = None,
    store: str | Path | None = None,
    allow_code: Collection[str] = (),
    **changed: Any,
) -> Learner:
    """The learner of any release, by the method that it names; see `Learner.from_release`.

    It runs no code that the release names unless it is allowed, and no learner but those of tacit.

    Args:
        folder: The folder of the release.
        ledger: The ledger to go on with; None to predict only.
        store: The private folder of records that are kept.
        allow_code: SHA-256 hashes of the Python files that the release may execute.
        changed: Settings that replace the stored ones.

    Returns:
        The learner, as it was after its last task.

    Raises:
        LearnerError: The release is damaged, or names a method that is not one of tacit.
        PolicyError: It names code that is not allowed.
    """
    method = Release.load(Path(folder)).method
    if not isinstance(method, str):
        raise LearnerError(damage(folder))
    if method not in LEARNERS:
        raise LearnerError(
            f"{folder} is a release of {method}, which is not a method of tacit, and opening a release runs no other "
            f"code; import the class and use {method}.from_release"
        )
    if changed:
        made: Learner = find(method).from_release(folder, ledger=ledger, store=store, allow_code=allow_code, **changed)
        return made
    try:
        made = find(method).from_release(folder, ledger=ledger, store=store, allow_code=allow_code)
        return made
    except TacitError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise LearnerError(damage(folder)) from error


def matching(name: str) -> list[str]:
    """The learners that a name may mean: the one with that name, else all whose name or file begins with it.

    Case and punctuation are ignored: `moments` is MomentsClassifier, `dp-agem` DPAGEM, `experts` RoutedExperts. A
    learner of an installed package is matched by its full name only, and tacit's own learners come first.

    Args:
        name: What a person typed.

    Returns:
        Names of `LEARNERS` or of installed packages; none, one or several.
    """
    short, registered = _letters(name), installed(GROUP)
    for names in (LEARNERS, {name} & set(registered), registered):
        if exact := [known for known in names if _letters(known) == short]:
            return exact
    return [
        known
        for known, module in LEARNERS.items()
        if short and any(_letters(text).startswith(short) for text in (known, module.rpartition(".")[2]))
    ]


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _checked(loaded: Any, reference: str) -> type[Learner]:
    """The class that was loaded from `file.py:Class` or `module:Class`, if it is a learner."""
    source, _, name = reference.rpartition(":")
    if not (isinstance(loaded, type) and issubclass(loaded, Learner)):
        missing = f"{source} has no learner {name!r}" if source else f"{name} is not a learner"
        raise LearnerError(f"{missing}: a class that inherits tacit.learners.Learner")
    if isabstract(loaded):
        raise LearnerError(
            f"{name} in {source} has no method fit(task, block, vault); write it, it is the method itself"
        )
    return loaded
