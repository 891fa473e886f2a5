"""Records are read in one way, whichever way they come in: their type and shape decide, never their values."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from support.pictures import TinyConv, digits, digits_facts
from support.small_world import GENEROUS, facts, fixed, given, make, records, same
from tacit import CosineClassifier
from tacit.errors import ConfigError, LearnerError
from tacit.learners.base.learner import Learner


def taught(x: Any, y: Any, **settings: Any) -> Learner:
    """With noise that can be repeated, so that twins can be compared."""
    learner = CosineClassifier(stream=digits_facts(1), backbone=TinyConv(), budget=GENEROUS, **settings)
    learner.vault_ = fixed()
    return learner.partial_fit(x, y)


def as_bytes(x: NDArray[np.float32]) -> NDArray[np.uint8]:
    return np.round(x * 255).astype(np.uint8)


def test_bytes_of_pictures_are_divided_on_every_way_in() -> None:
    (x, y), (new, truth) = digits(0), digits(0, test=True)
    floats = [torch.from_numpy(as_bytes(one)).float() / 255 for one in (x, new)]
    told, twin = taught(floats[0], y), taught(as_bytes(x), y)
    assert same(told.tensors(), twin.tensors())
    for asked in (as_bytes(new), torch.from_numpy(as_bytes(new))):
        assert np.array_equal(twin.predict_proba(asked), told.predict_proba(floats[1]))
    assert twin.score(as_bytes(new), truth) == told.score(floats[1].numpy(), truth) > 0.8


def test_floats_are_taken_as_they_are() -> None:
    x, y = digits(0)
    assert not same(taught(x, y).tensors(), taught(255 * x, y).tensors())


@pytest.mark.parametrize("name", ["NaiveDPSGD", "moments"])
@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.float16, np.bool_])
def test_other_numbers_become_floats(name: str, kind: Any) -> None:
    x, y = records(0)
    rows = np.abs(np.round(x)).astype(kind)
    learner = make(name, **given(name), stream=facts()).partial_fit(rows, y)
    assert np.array_equal(learner.predict_proba(rows), learner.predict_proba(rows.astype(np.float32)))


class Words(nn.Module):
    """Looks whole numbers up."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(4, 3), nn.Linear(18, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.table(x).flatten(1))
        return logits


def test_numbers_that_are_looked_up_stay_whole() -> None:
    rows = np.random.default_rng(0).integers(0, 4, (60, 6))
    learner = make("NaiveDPSGD", **given("NaiveDPSGD", network=Words()), stream=facts())
    assert learner.partial_fit(rows, rows[:, 0] % 2).predict_proba(rows).shape == (60, 2)


def test_a_wrong_shape_is_said_on_both_ways_and_nothing_is_charged() -> None:
    learner = make("moments", stream=facts())
    sentence = r"records have the shape \(5,\), and \(6,\) was declared; reshape them, or declare it"
    with pytest.raises(LearnerError, match=sentence):
        learner.partial_fit(np.zeros((3, 5)), [0, 1, 0])
    assert not hasattr(learner, "vault_")
    learner.partial_fit(*records(0))
    for ask in (learner.predict, learner.predict_proba, lambda x: learner.score(x, [0, 1, 0])):
        with pytest.raises(LearnerError, match=sentence):
            ask(np.zeros((3, 5)))


@pytest.mark.parametrize("name", ["NaiveDPSGD", "moments"])
@pytest.mark.parametrize("device", ["gpu", "cuda:x", "CPU"])
def test_a_device_is_cpu_or_cuda(name: str, device: str) -> None:
    with pytest.raises(ConfigError, match=f"device must be 'cpu' or 'cuda' .*, got '{device}'"):
        make(name, device=device).start(facts())


def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="there is no GPU for device = 'cuda:99'; use 'cpu'"):
        make("moments", device="cuda:99").start(facts())
