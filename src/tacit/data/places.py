"""Places of labels in a public label set: the targets of a loss, and what an answer is compared with."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.stream import Label


def positions(y: NDArray[Any], labels: Sequence[Label]) -> NDArray[np.int64]:
    """Place of each label in the public label set; −1 for a label outside it."""
    table = {label: place for place, label in enumerate(labels)}
    return np.fromiter((table.get(label, -1) for label in y.tolist()), dtype=np.int64, count=len(y))
