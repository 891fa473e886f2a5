"""What cannot work is refused before anything is billed: types, ranges, and a rehearsal on synthetic records."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError, TacitError
from tacit.learners import LEARNERS, find
from tacit.learners.base.ranges import POSITIVE, RANGES, Range
from tacit.learners.base.rehearsal import rehearse
from tacit.learners.baselines.naive import NaiveDPSGD
from tacit.privacy.accounting.budget import Budget, Unit
from tacit.privacy.ledger import Ledger
from tacit.privacy.vault import Block, Vault

BUDGET = Budget(epsilon=2.0, delta=1e-5)
SMALL: dict[str, dict[str, Any]] = {
    "RoutedExperts": {"batch": 20, "steps": 5},
    "PEFTEnsemble": {"batch": 20, "epochs": 1},
    "DPGenerativeReplay": {"batch": 20, "steps": 5},
    "L2DPML": {"batch": 20},
    "DPL2M": {"batch": 20},
}


def facts(**said: Any) -> StreamInfo:
    known = {"labels": [0, 1], "shape": (4,), "size": 60, "tasks": 2} | said
    return StreamInfo.uniform("visits", **known)


def rows(n: int = 60) -> tuple[Any, Any]:
    x = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(int)


def refused(folder: Path, learner: Any, match: str, *given: Any) -> None:
    """One sentence, and a ledger in which nothing is billed, reserved or even admitted."""
    with Ledger(folder / "visits.ledger") as book:
        learner.ledger = book
        with pytest.raises(TacitError, match=match):
            learner.partial_fit(*(given or rows()))
        assert book.streams() == []


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_rehearses_on_synthetic_records(name: str) -> None:
    learner = find(name)(budget=BUDGET, **SMALL.get(name, {}))
    rehearse(learner.rehearsal, facts(tasks=3, labels=[0, 1, 2], size=300))


def test_persons_rehearse_as_persons() -> None:
    learner = NaiveDPSGD(budget=Budget(epsilon=2.0, delta=1e-5, unit=Unit.PERSON), steps=3, batch=20)
    rehearse(learner.rehearsal, facts(unit="person", records_per_unit=3))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"lr": -1}, r"lr must be a finite number with 0 < lr ≤ 1000, got -1"),
        ({"lr": "0.1"}, r"lr must be a finite number with 0 < lr ≤ 1000, got '0.1'"),
        ({"lr": math.nan}, r"lr must be a finite number with 0 < lr ≤ 1000, got nan"),
        ({"lr": math.inf}, r"lr must be a finite number with 0 < lr ≤ 1000, got inf"),
        ({"lr": [0.1, 0.0]}, r"lr must be a finite number with 0 < lr ≤ 1000, got 0.0"),
        ({"lr": 1e9}, r"lr must be a finite number with 0 < lr ≤ 1000, got 1000000000.0"),
        ({"lr": True}, r"lr must be a finite number with 0 < lr ≤ 1000, got True"),
        ({"momentum": -2}, r"momentum must be a finite number with 0 ≤ momentum < 1, got -2"),
        ({"momentum": 5}, r"momentum must be a finite number with 0 ≤ momentum < 1, got 5"),
        ({"momentum": 1.0}, r"momentum must be a finite number with 0 ≤ momentum < 1"),
        ({"average": 3}, r"average must be a finite number with 0 ≤ average ≤ 1, got 3"),
        ({"clip": 0}, r"clip must be a finite number > 0, got 0"),
        ({"clip": -1.0}, r"clip must be"),
        ({"noise": 0.0}, r"noise must be a finite number > 0, or None, got 0.0"),
        ({"noise": "1"}, r"noise must be a finite number > 0, or None, got '1'"),
        ({"steps": 0}, r"steps must be a whole number ≥ 1, or None, got 0"),
        ({"steps": 2.5}, r"steps must be a whole number ≥ 1, or None, got 2.5"),
        ({"steps": None, "epochs": -1}, r"epochs must be"),
        ({"batch": 0}, r"batch must be a finite number > 0, got 0"),
        ({"batch": 61}, r"an expected batch of 61 cannot be drawn from 60 units"),
        ({"rule": "sdg"}, r"rule must be 'sgd' or 'adam', got 'sdg'"),
        ({"clipping": "flatt"}, r"clipping must be"),
        ({"seed": -1}, r"seed must be a whole number ≥ 0"),
        ({"seed": 0.5}, r"seed must be a whole number"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_is_billed(
    tmp_path: Path, settings: dict[str, Any], match: str
) -> None:
    made = {"steps": 5, "batch": 20} | settings
    refused(tmp_path, NaiveDPSGD(stream=facts(), budget=BUDGET, network="linear", **made), match)


class AnyRate(NaiveDPSGD):
    """One whose learning rate has no bound."""

    ranges: ClassVar[Mapping[str, Range]] = {"lr": POSITIVE}


def test_weights_that_grow_without_end_are_refused_before_anything_is_billed(tmp_path: Path) -> None:
    learner = AnyRate(stream=facts(), budget=BUDGET, network="linear", steps=5, batch=20, lr=1e38, clip=1e4)
    refused(tmp_path, learner, r"weights that are not finite")


@pytest.mark.parametrize("name", LEARNERS)
def test_no_learner_takes_a_number_outside_its_range(name: str) -> None:
    """Every setting of every learner that has a range, with values that are outside of all of them."""
    kind = find(name)
    own = [one for one in RANGES if one in kind.__dataclass_fields__]
    for setting in own:
        for wrong in (math.nan, -3, "3", True):
            if setting == "features" and not isinstance(kind.__dataclass_fields__[setting].default, int):
                continue
            learner = kind(budget=BUDGET, **SMALL.get(name, {}) | {setting: wrong})
            with pytest.raises(TacitError, match=f"{setting}|whole number"):
                learner.start(facts())


def test_one_declared_label_is_refused(tmp_path: Path) -> None:
    learner = NaiveDPSGD(stream=facts(labels=[1]), budget=BUDGET, steps=5, batch=20, network="linear")
    refused(tmp_path, learner, "declares one label, 1, and a model that knows no other")


class Failing(nn.Module):
    """A network of one's own that was made for other records."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class NoGrad(nn.Module):
    """One whose output has one label too few."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


@pytest.mark.parametrize("network", [Failing(), NoGrad(), nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))])
def test_a_network_that_cannot_learn_these_records_is_refused(tmp_path: Path, network: nn.Module) -> None:
    refused(tmp_path, NaiveDPSGD(stream=facts(), budget=BUDGET, steps=5, batch=20, network=network), ".")


class WrongOptimizer(NaiveDPSGD):
    """A method of one's own with a slip that only shows after the first gradient."""

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        grant = vault.grant(block, self.plan(task), self.model_, self.loss_, work=self.settings())
        for _ in self.training_steps(grant, task):
            gradient = grant.gradient()
            self.update(torch.optim.SGD([], lr=0.1), gradient)


def test_a_slip_after_the_first_gradient_costs_nothing(tmp_path: Path) -> None:
    learner = WrongOptimizer(stream=facts(), budget=BUDGET, steps=5, batch=20, network="linear")
    refused(tmp_path, learner, "fails on synthetic records .* so nothing was read or charged: ValueError")


class SlipInTheSecond(NaiveDPSGD):
    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        super().fit(task, block, vault)
        if task.number == 1:
            raise KeyError("memory")


def test_a_slip_in_the_second_task_is_found_before_the_first(tmp_path: Path) -> None:
    learner = SlipInTheSecond(stream=facts(), budget=BUDGET, steps=5, batch=20, network="linear")
    refused(tmp_path, learner, "nothing was read or charged: KeyError")


def test_changed_settings_are_rehearsed_again(tmp_path: Path) -> None:
    with Ledger(tmp_path / "visits.ledger") as book:
        learner = NaiveDPSGD(stream=facts(), budget=BUDGET, steps=5, batch=20, network="linear", ledger=book)
        learner.partial_fit(*rows())
        learner.set_params(momentum=7)
        with pytest.raises(LearnerError, match="momentum must be"):
            learner.partial_fit(*rows())
        assert book.grant_states("visits", "task-2") in (None, set())


def test_a_rehearsal_leaves_the_learner_as_it_was() -> None:
    """It is a second learner that rehearses: the first one's weights, and torch's generators, stay."""
    learner = NaiveDPSGD(stream=facts(), budget=BUDGET, steps=5, batch=20, network="linear")
    learner.start(facts())
    before = [value.clone() for value in learner.model_.parameters()]
    state = torch.get_rng_state()
    rehearse(learner.rehearsal, facts())
    assert all(torch.equal(a, b) for a, b in zip(before, learner.model_.parameters(), strict=True))
    assert torch.equal(state, torch.get_rng_state())
