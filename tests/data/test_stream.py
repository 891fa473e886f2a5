"""Public facts of a stream, as a person writes them: what is meant is taken, what makes no sense is one sentence."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from tacit import StreamInfo
from tacit.errors import DataError

PLAIN: dict[str, Any] = {"labels": range(3), "shape": (4,), "size": 10, "tasks": 2}


def test_a_number_is_a_shape_of_one_side() -> None:
    assert StreamInfo.uniform("s", **PLAIN | {"shape": 768}).shape == (768,)
    assert StreamInfo.uniform("s", **PLAIN | {"shape": [3, 32, 32]}).shape == (3, 32, 32)


def test_numbers_of_numpy_become_plain_ones() -> None:
    given = {"labels": np.arange(3), "shape": np.int64(4), "size": np.int32(10), "tasks": np.int64(2)}
    found = StreamInfo.uniform("s", **given)
    assert found == StreamInfo.uniform("s", **PLAIN)
    assert json.dumps(asdict(found))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"labels": 10}, r"labels must be a list of whole numbers or texts, got 10; such as range\(10\)"),
        ({"labels": "sick"}, "labels must be a list of whole numbers or texts, got 'sick'"),
        ({"labels": []}, r"labels must name at least one label, and each once, got \[\]"),
        ({"labels": [0, 1, 1]}, r"labels must name at least one label, and each once, got \[0, 1, 1\]"),
        ({"tasks": 0}, "tasks must be a whole number ≥ 1, got 0"),
        ({"tasks": 2.0}, r"tasks must be a whole number ≥ 1, got 2\.0"),
        ({"size": 0}, "size must be a whole number ≥ 1, got 0"),
        ({"shape": (3, 0)}, "each side of shape must be a whole number ≥ 1, got 0"),
    ],
)
def test_what_makes_no_sense_is_said_at_once(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        StreamInfo.uniform("s", **PLAIN | wrong)


def test_its_repr_is_short_for_any_number_of_tasks() -> None:
    info = StreamInfo.uniform("visits", labels=range(10), shape=(1, 28, 28), size=500, tasks=12, unit="person")
    assert repr(info) == "StreamInfo('visits', 12 tasks, 10 labels, shape=(1, 28, 28), unit='person')"
    endless = StreamInfo.uniform("visits", labels=["well"], shape=4, size=500, tasks=1, endless=True)
    assert repr(endless) == "StreamInfo('visits', 1 task a period, 1 label, shape=(4,), unit='record')"
