"""The ways out that every room's errors offer: what a wrong name was meant to be, how what is missing is installed."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

FEW = 8
"""So many names are read at a glance."""


def nearest(name: str, valid: Iterable[str], first: Sequence[str] = ()) -> str:
    """The way out of a wrong name: those in `first` and the nearest valid ones; where nothing is near, some."""
    names = list(valid)
    if not names:
        return "there is none"
    if near := [*first, *close(name, names)]:
        return f"did you mean {', '.join(near)}?"
    return f"there {'is' if len(names) == 1 else 'are'} {listed(names)}"


def listed(names: Sequence[str]) -> str:
    """Some names, and how many more there are."""
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return f"{', '.join(names[:FEW])}{more}"


def close(name: str, valid: Iterable[str]) -> list[str]:
    """The valid names that this one may be a slip or the beginning of; often none."""
    names = list(valid)
    begun = [one for one in names if name and one.startswith(name)]
    return list(dict.fromkeys([*begun[:FEW], *get_close_matches(name, names)]))


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 task`, `2 tasks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def install(extra: str) -> str:
    """How an extra is installed: from tacit's own folder, since no index has it."""
    return f"pip install -e '.[{extra}]' in tacit's folder"
