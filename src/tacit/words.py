"""Phrases that messages share: suggestions for a wrong name, numbers and their nouns, how to install an extra."""

import math
from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, Context
from difflib import get_close_matches

MOST_LISTED = 8
"""A message lists at most this many names."""


def nearest(name: str, valid: Iterable[str], first: Sequence[str] = ()) -> str:
    """Suggests valid names in place of a wrong one.

    Args:
        name: The wrong name.
        valid: All valid names.
        first: Suggestions that come before the closest valid names.

    Returns:
        "did you mean …?" with the closest names or, if none is close, "there are …" with some of the valid ones.
    """
    names = list(valid)
    if not names:
        return "there is none"
    if suggestions := [*first, *close(name, names)]:
        return f"did you mean {', '.join(suggestions)}?"
    return f"there {'is' if len(names) == 1 else 'are'} {listed(names)}"


def listed(names: Sequence[str]) -> str:
    """Up to `MOST_LISTED` names, and how many more there are."""
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return f"{', '.join(names[:MOST_LISTED])}{more}"


def close(name: str, valid: Iterable[str]) -> list[str]:
    """The valid names that begin with this one, have its letters in another order or differ from it by a typo."""
    names = list(valid)
    completed = [valid_name for valid_name in names if name and valid_name.startswith(name)]
    swapped = [valid_name for valid_name in names if sorted(valid_name) == sorted(name)]
    return list(dict.fromkeys([*completed[:MOST_LISTED], *swapped, *get_close_matches(name, names)]))


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 task`, `2 tasks`, `3 entries`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def accuracy_percent(value: float) -> str:
    """An accuracy as it is printed, from 0 to 100 %."""
    return f"{within_bounds(value):.1%}"


def within_bounds(accuracy: float) -> float:
    """An accuracy, from 0 to 1; one of a charged query has noise and can lie outside. NaN is unchanged."""
    return accuracy if math.isnan(accuracy) else min(1.0, max(0.0, accuracy))


def install(extra: str) -> str:
    """How to install an optional dependency; tacit is not on a package index, so it is installed from its folder."""
    return f"pip install '.[{extra}]' in tacit's folder"


def rounded_up(value: float) -> str:
    """A positive number with four digits, rounded up, so that a noise copied from a message still fits."""
    digit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return f"{math.ceil(value / digit) * digit:.6g}"


def upper_bound(value: float) -> str:
    """A number with four digits, rounded up unless its shortest decimal has no more."""
    return f"{float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(value))):g}"


def probability_factor(epsilon: float) -> str:
    """The factor e^ε by which a probability changes at most, rounded up."""
    factor = math.exp(min(epsilon, 700.0))
    if factor < 1e3:
        return f"{float(Context(prec=3, rounding=ROUND_CEILING).create_decimal(repr(factor))):g}"
    return f"{math.ceil(factor):,}" if factor < 1e6 else "more than a million"
