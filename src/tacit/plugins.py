"""What a person brings in a Python file of their own (`file.py:Name`), and packages that are there only if wanted.

A configuration or a call names such a file, and then it is run. What somebody else wrote (a release, a run folder that
is attacked) may name one too: inside `only_code` a file is run only if the caller, or a policy, allows its SHA-256.
"""

import hashlib
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError, PolicyError, TacitError
from tacit.words import install, nearest

_ALLOWED: ContextVar[frozenset[str] | None] = ContextVar("SHA-256 of the files that may be run", default=None)


@contextmanager
def only_code(allowed: Collection[str]) -> Iterator[None]:
    """Within it, no Python file is run but those with one of these SHA-256 (hexadecimal), and those that a context
    around it allows. The hash is of the file itself; what it imports is not looked at."""
    before = _ALLOWED.set((_ALLOWED.get() or frozenset()) | {one.lower() for one in allowed})
    try:
        yield
    finally:
        _ALLOWED.reset(before)


def code_hash(file: str | Path, error: type[TacitError] = ConfigError) -> str:
    """The SHA-256 of a Python file, by which it is allowed."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError as problem:
        raise error(f"the Python file {str(file)!r} cannot be read: {problem.strerror}") from None


def is_hash(text: str) -> bool:
    """Whether it is a SHA-256 in hexadecimal."""
    return len(text) == 64 and not set(text.lower()) - set("0123456789abcdef")


def own_files(value: Any) -> set[str]:
    """The Python files that plain values name as `file.py:Name`, however deep."""
    if isinstance(value, str):
        return {value.rpartition(":")[0]} if is_own(value) else set()
    if isinstance(value, dict):
        return set().union(*map(own_files, value.values()))
    return set().union(*map(own_files, value)) if isinstance(value, list | tuple) else set()


def is_own(place: str) -> bool:
    """Whether it is written as `file.py:Name`."""
    return ".py:" in place


def from_file(place: str, what: str, error: type[TacitError]) -> Any:
    """What has this name in this file; `error` in one sentence where the file cannot be used or nothing has the name.

    The file is run: it is code that the person trusts, or that the context around allows (`only_code`)."""
    file, _, name = place.rpartition(":")
    path = Path(file).resolve()
    spec = spec_from_file_location(path.stem, path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise error(f"there is no Python file {file!r} with a {what} {name!r}; give it as file.py:Class")
    source = path.read_bytes()
    if (allowed := _ALLOWED.get()) is not None and (found := hashlib.sha256(source).hexdigest()) not in allowed:
        raise PolicyError(
            f"the {what} {place!r} is code that what is being opened names, and opening it runs no code; if you trust "
            f"the file, pass it yourself, or allow its SHA-256 {found}"
        )
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        exec(compile(source, path, "exec"), vars(module))  # these bytes, and no compiled file that lies beside them
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
