"""What a person brings in a Python file of their own (`file.py:Name`), and packages that are there only if wanted."""

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError, TacitError
from tacit.words import install, nearest


def is_own(place: str) -> bool:
    """Whether it is written as `file.py:Name`."""
    return ".py:" in place


def from_file(place: str, what: str, error: type[TacitError]) -> Any:
    """What has this name in this file; `error` in one sentence where the file cannot be used or nothing has the name.

    The file is run: it is code that the person trusts."""
    file, _, name = place.rpartition(":")
    path = Path(file).resolve()
    spec = spec_from_file_location(path.stem, path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise error(f"there is no Python file {file!r} with a {what} {name!r}; give it as file.py:Class")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise error(f"{file} could not be read: {type(problem).__name__}: {problem}") from problem
    if not hasattr(module, name):
        own = [one for one, value in vars(module).items() if getattr(value, "__module__", None) == spec.name]
        raise error(f"{file} has no {what} {name!r}; {nearest(name, own)}")
    return getattr(module, name)


def extra(module: str, what: str, name: str) -> Any:
    """A module of an optional package; where it is not installed, the sentence that says how it is."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ConfigError(f"{what} needs {package}; install it with {install(name)}") from None
