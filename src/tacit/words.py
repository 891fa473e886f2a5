"""The ways out that every room's errors offer: what a wrong name was meant to be, how what is missing is installed."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


def nearest(name: str, valid: Iterable[str], first: Sequence[str] = ()) -> str:
    """The way out of a wrong name: those in `first` and the nearest valid ones, or all."""
    names = list(valid)
    if not names:
        return "there is none"
    return f"did you mean {', '.join([*first, *close(name, names)] or names)}?"


def close(name: str, valid: Iterable[str]) -> list[str]:
    """The valid names that this one may be a slip of; often none."""
    return get_close_matches(name, list(valid))


def install(extra: str) -> str:
    """How an extra is installed: from tacit's own folder, since no index has it."""
    return f"pip install -e '.[{extra}]' in tacit's folder"
