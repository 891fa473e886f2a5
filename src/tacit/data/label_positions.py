"""Positions of labels in a public label set: the targets of a loss, and what predictions are compared with."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.stream import Label


def positions(y: NDArray[Any], labels: Sequence[Label]) -> NDArray[np.int64]:
    """The position of each label in the public label set; −1 for a label outside it."""
    table = {label: position for position, label in enumerate(labels)}
    return np.fromiter((table.get(label, -1) for label in y.tolist()), dtype=np.int64, count=len(y))


def as_declared(y: NDArray[Any], labels: Sequence[Label]) -> NDArray[Any]:
    """Converts labels to the type of the public set, each by itself: a text that is a whole number to that number, and
    a whole number to its text. A label that cannot be converted becomes one outside the set."""
    texts = isinstance(labels[0], str)
    if y.dtype.kind in ("U" if texts else "iuf"):
        return y
    if texts:
        return np.asarray([_text(label) for label in y.tolist()], dtype=str).reshape(len(y))
    outside = min(int(label) for label in labels) - 1
    return np.asarray([_number(label, outside) for label in y.tolist()], dtype=np.int64).reshape(len(y))


def _text(label: int | float | str) -> str:
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def _number(label: int | float | str, outside: int) -> int:
    if isinstance(label, str):
        return int(label) if _WHOLE.fullmatch(label) else outside
    return int(label) if -(2**53) < label < 2**53 and label == int(label) else outside


_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,15}\s*")
