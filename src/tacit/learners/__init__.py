"""Learners: one file, one method. `find` knows them by name."""

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isabstract
from pathlib import Path

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
    """The method of this name; or one of your own, as `file.py:Class`."""
    if ":" in name:
        return _own(*name.rsplit(":", 1))
    if name not in HOMES:
        raise LearnerError(f"there is no learner {name!r}; there are {', '.join(HOMES)}, or your own as file.py:Class")
    found: type[Learner] = getattr(import_module(f"tacit.learners.{HOMES[name]}"), name)
    return found


def _own(file: str, name: str) -> type[Learner]:
    path = Path(file).resolve()
    spec = spec_from_file_location(path.stem, path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise LearnerError(f"there is no Python file {file!r} with a learner {name!r}; give it as file.py:Class")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise LearnerError(f"{file} could not be read: {type(error).__name__}: {error}") from error
    made = getattr(module, name, None)
    if not (isinstance(made, type) and issubclass(made, Learner)):
        raise LearnerError(f"{file} has no learner {name!r}: a class that inherits tacit.learners.Learner")
    if isabstract(made):
        raise LearnerError(f"{name} in {file} has no method fit(task, block, vault); write it, it is the method itself")
    return made
