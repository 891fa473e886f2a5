"""Loads classes from a user's own Python files (`file.py:Name`), and optional packages.

A file that a configuration or a call names is executed. Releases and run folders of somebody else may name
one too: inside `only_code`, a file is executed only if the caller or a policy allows its SHA-256.
"""

import hashlib
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError, PolicyError, TacitError
from tacit.words import install, nearest

_ALLOWED: ContextVar[frozenset[str] | None] = ContextVar("allowed_sha256", default=None)


@contextmanager
def only_code(allowed: Collection[str]) -> Iterator[None]:
    """Within this context, executes a Python file only if its SHA-256 is allowed here or in an enclosing context.

    The hash is that of the file itself; modules that it imports are not checked.

    Args:
        allowed: Hexadecimal SHA-256 hashes.
    """
    before = _ALLOWED.set((_ALLOWED.get() or frozenset()) | {digest.lower() for digest in allowed})
    try:
        yield
    finally:
        _ALLOWED.reset(before)


def code_hash(file: str | Path, error: type[TacitError] = ConfigError) -> str:
    """The SHA-256 of a Python file, in hexadecimal."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError as problem:
        raise error(f"the Python file {str(file)!r} cannot be read: {problem.strerror}") from None


def is_hash(text: str) -> bool:
    """Whether a text is a SHA-256 in hexadecimal."""
    return len(text) == 64 and not set(text.lower()) - set("0123456789abcdef")


def own_files(value: Any) -> set[str]:
    """The Python files that nested plain values name as `file.py:Name`."""
    if isinstance(value, str):
        return {value.rpartition(":")[0]} if is_own(value) else set()
    if isinstance(value, dict):
        return set().union(*map(own_files, value.values()))
    return set().union(*map(own_files, value)) if isinstance(value, list | tuple) else set()


def is_own(name: str) -> bool:
    """Whether a name has the form `file.py:Name`."""
    return ".py:" in name


def raised_by(error: BaseException, made: object) -> bool:
    """Whether code of a user's own class was running when an error was raised.

    Args:
        error: The error.
        made: An instance of a class, which may be tacit's own.
    """
    own = {
        one.__module__ for one in type(made).__mro__ if one.__module__.partition(".")[0] not in ("tacit", "builtins")
    }
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_globals.get("__name__") in own:
            return True
        frame = frame.tb_next
    return False


def from_file(reference: str, what: str, error: type[TacitError]) -> Any:
    """Executes a Python file and returns one of its attributes.

    Args:
        reference: `file.py:Name`.
        what: The kind of thing that is loaded, for messages.
        error: The type of error to raise.

    Raises:
        TacitError: Of type `error`, if the file cannot be executed or has no such name.
        PolicyError: If an enclosing `only_code` does not allow the file.
    """
    file, _, name = reference.rpartition(":")
    path = Path(file).resolve()
    spec = spec_from_file_location(path.stem, path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise error(f"there is no Python file {file!r} with a {what} {name!r}; give it as file.py:Class")
    source = path.read_bytes()
    if (allowed := _ALLOWED.get()) is not None and (digest := hashlib.sha256(source).hexdigest()) not in allowed:
        raise PolicyError(
            f"the {what} {reference!r} is code that the opened folder names, and opening a folder runs no code; if you "
            f"trust the file, pass it yourself, or allow its SHA-256 {digest}"
        )
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        exec(compile(source, path, "exec"), vars(module))  # the hashed bytes, not a cached .pyc file
    except Exception as problem:
        raise error(f"{file} could not be executed: {type(problem).__name__}: {problem}") from problem
    if not hasattr(module, name):
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == spec.name]
        raise error(f"{file} has no {what} {name!r}; {nearest(name, own)}")
    return getattr(module, name)


def extra(module: str, what: str, name: str) -> Any:
    """Imports a module of an optional package.

    Args:
        module: The module to import.
        what: What needs the package, for the message.
        name: The extra of tacit that installs it.

    Raises:
        ConfigError: If it is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ConfigError(f"{what} needs {package}; install it with {install(name)}") from None


def installed(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of a group that installed packages register, by name. Nothing is imported.

    Args:
        group: Such as `tacit.learners`.
    """
    return _installed(group, tuple((folder, _changed(folder)) for folder in sys.path))


@lru_cache(maxsize=8)
def _installed(group: str, _searched: tuple[tuple[str, int], ...]) -> dict[str, list[EntryPoint]]:
    """Cached for the present folders of `sys.path`, since it reads the metadata of every installed package."""
    registered: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        registered.setdefault(point.name, []).append(point)
    return registered


def _changed(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0


def from_package(points: Collection[EntryPoint], what: str, error: type[TacitError]) -> Any:
    """Imports what a package registered under a name.

    Args:
        points: The entry points of that name.
        what: The kind of object, for messages.
        error: The type of the errors that are raised.

    Raises:
        TacitError: Several packages register the name, it cannot be imported, or opening somebody else's files would
            import it (`only_code`).
    """
    first, *others = points
    if others:
        packages = " and ".join(str(point.dist.name if point.dist else point.value) for point in points)
        raise error(f"{packages} both register a {what} {first.name!r}; uninstall one of them")
    if _ALLOWED.get() is not None:
        raise PolicyError(
            f"the {what} {first.name!r} is code of an installed package that the opened files name, and opening them "
            "runs no code; if you trust it, import it and pass it yourself"
        )
    try:
        return first.load()
    except Exception as problem:
        raise error(
            f"the {what} {first.name!r} of {first.value} cannot be imported: {type(problem).__name__}: {problem}"
        ) from problem
