"""Experts that continue from the last one: the order of entries found from class sums, and what is refused."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.small_world import facts, fixed, given, learn, records, started, tiny
from tacit.data.stream import StreamInfo
from tacit.errors import LearnerError
from tacit.learners.base.weights import trained
from tacit.learners.experts.alignment import first_layer, matching, moved
from tacit.learners.experts.experts import RoutedExperts
from tacit.models import build

SHAPE = (2, 10)
ORDERS = [torch.randperm(20, generator=torch.Generator().manual_seed(number)) for number in range(3)]


def aligned(info: StreamInfo | None = None, **settings: Any) -> RoutedExperts:
    learner = started("aligned experts", info, **settings)
    assert isinstance(learner, RoutedExperts)
    return learner


def wide(tasks: int = 3) -> StreamInfo:
    return StreamInfo.uniform("reordered", labels=(0, 1, 2), shape=SHAPE, size=600, tasks=tasks, public=True)


def reordered(number: int, part: int = 0, n: int = 600) -> tuple[Any, Any]:
    """Three labels around three means with 20 different entries; each task has another order of entries."""
    rng = np.random.default_rng([number, part])
    means = np.random.default_rng(0).uniform(0, 1, (3, 20))
    y = rng.integers(0, 3, n)
    x = (means[y] + 0.3 * rng.normal(size=(n, 20))).astype(np.float32)
    return x[:, ORDERS[number].numpy()].reshape(n, *SHAPE), y


def right(learner: RoutedExperts, number: int) -> float:
    x, y = reordered(number, part=1)
    return float(np.mean(learner.predict(torch.from_numpy(x)) == y))


def test_the_order_is_found_from_noisy_sums() -> None:
    draw = torch.Generator().manual_seed(0)
    sums, order = 100 * torch.rand(4, 50, generator=draw), torch.randperm(50, generator=draw)
    found = matching(sums, sums[:, order] + torch.randn(4, 50, generator=draw))
    assert torch.equal(found, order)
    assert torch.equal(matching(sums, sums), torch.arange(50))
    nothing = matching(torch.zeros(4, 50), torch.zeros(4, 50))  # of entries that look alike: some permutation
    assert torch.equal(nothing.sort().values, torch.arange(50))


@pytest.mark.parametrize("centred", [False, True])
def test_a_moved_network_answers_reordered_records_alike(centred: bool) -> None:
    torch.manual_seed(0)
    model = build("mlp", SHAPE, 3, hidden=[7], centred=centred, length=2.0 if centred else None)
    x, order = torch.rand(5, *SHAPE), ORDERS[0]
    state = moved(trained(model), first_layer(model, SHAPE), order)
    again = torch.func.functional_call(model, state, (x.flatten(1)[:, order].view(5, *SHAPE),))
    assert torch.allclose(model(x), again, atol=1e-5)


def test_later_tasks_begin_where_the_last_one_ended() -> None:
    """With hardly any training of its own, the third task is answered by what the first has learned."""
    settings: dict[str, Any] = {"network": "linear", "lr": [4.0, 1e-6, 1e-6], "steps": [30, 1, 1], "batch": 300}
    learner, vault = aligned(wide(), **settings), fixed()
    learn(learner, vault, [0], reordered)
    first = right(learner, 0)
    assert first > 0.85
    learn(learner, vault, [1, 2], reordered)
    for number in range(3):
        assert abs(right(learner, number) - first) < 0.05
    alone = started("experts by prototypes", wide(), **settings)
    learn(alone, fixed(), [0, 1, 2], reordered)
    assert isinstance(alone, RoutedExperts) and right(alone, 2) < 0.7  # the control: from the initial weights


def test_earlier_tasks_gain_from_later_ones() -> None:
    settings: dict[str, Any] = {"network": "linear", "lr": [1e-6, 4.0], "steps": [1, 30], "batch": 300}
    learner, vault = aligned(wide(2), **settings), fixed()
    learn(learner, vault, [0], reordered)
    before = right(learner, 0)
    learn(learner, vault, [1], reordered)
    assert right(learner, 0) > max(before, 0.85)


def test_a_release_answers_as_the_learner_did(tmp_path: Path) -> None:
    learner, vault = aligned(**given("aligned experts")), fixed()
    learn(learner, vault, [0, 1])[-1].save(tmp_path / "release")
    again = RoutedExperts.from_release(tmp_path / "release", network=tiny)
    x = torch.from_numpy(records(0, part=1)[0])
    assert torch.equal(again.scores(x), learner.scores(x))


def test_it_costs_what_other_experts_cost() -> None:
    spent = []
    for name in ("aligned experts", "experts by prototypes"):
        vault = fixed()
        learn(started(name, facts(), **given(name)), vault, [0, 1, 2], records)
        spent.append((vault.ledger.epsilon(1), len(vault.ledger.statement(1).grants)))
    assert spent[0] == spent[1]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"router": "mean"}, "router='prototypes'"),
        ({"rank": 2}, "rank=None"),
        ({"most": 2}, "most=None"),
        ({"network": lambda info: torch.nn.Sequential(torch.nn.Unflatten(1, (1, 6)), torch.nn.Conv1d(1, 2, 3))}, "mlp"),
    ],
)
def test_what_it_cannot_align_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(LearnerError, match=re.escape(said)):
        aligned(**settings)
