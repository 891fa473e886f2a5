"""Attacks on the arithmetic of the exits: what floating point gave away, or let one unit do, before sums were exact.

Each of these succeeded on noise in float32 that was added to a float sum, and on norms and sums in float32.
"""

import math
import os
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from support.made_up import admit_to, assert_scale
from tacit import Block, Budget, Declared, GradientPlan, LabelPlan, Ledger, SumPlan, Vault
from tacit.gradients import sequence
from tacit.privacy.randomness.grid import grid_for
from tacit.privacy.randomness.keys import KeyRing

DEVICE = os.environ.get("TACIT_TEST_DEVICE", "cpu")
"""On a machine with a GPU: TACIT_TEST_DEVICE=cuda."""
ONE = Budget(epsilon=1.0, delta=1e-5)
RUNS = 24


def vault_of(key: int) -> Vault:
    return Vault(Ledger.throwaway(keys=KeyRing.for_tests(key)))


def on_the_lattice(out: np.ndarray, total: np.ndarray) -> float:
    """Take a candidate sum off a release: the share of what is left that float32 holds, where the release has at least
    eight times finer digits than what is left. Of the true sum all of it is left, if the noise was drawn in float32."""
    noise = out - total
    fine, coarse = np.spacing(np.abs(out).astype(np.float32)), np.spacing(np.abs(noise).astype(np.float32))
    telling = coarse >= 8 * fine
    near = np.abs(noise - noise.astype(np.float32)) <= fine / 2
    return float(near[telling].mean()) if telling.any() else 0.0


def right_guesses(
    exit_: Callable[[np.ndarray, int], np.ndarray], total: Callable[[np.ndarray], np.ndarray], x: np.ndarray
) -> int:
    """An observer who knows all records but the last says whether it is there, from one release."""
    sums = total(x[:-1].astype(np.float64)), total(x.astype(np.float64))
    right = 0
    for run in range(RUNS):
        member = bool(run % 2)
        found = [on_the_lattice(exit_(x if member else x[:-1], run), one) for one in sums]
        right += (found[1] > max(0.5, found[0])) == member
    return right


def admitted(x: np.ndarray, key: int, size: int) -> tuple[Vault, Block]:
    vault = vault_of(key)
    return vault, admit_to(vault, x, np.zeros(len(x)), labels=[0], budget=ONE, public=True, size=size)


def class_sums(x: np.ndarray, key: int) -> np.ndarray:
    vault, block = admitted(x, key, len(x))
    return vault.sums(block, SumPlan.for_budget(ONE)).double().numpy()[0]


def moments(x: np.ndarray, key: int) -> np.ndarray:
    vault, block = admitted(x, key, len(x))
    return vault.second_moment(block, SumPlan.for_budget(ONE)).double().numpy()[np.diag_indices(x.shape[1])]


def gradients(x: np.ndarray, key: int) -> np.ndarray:
    vault, block = admitted(x, key, 1)
    model = nn.Linear(x.shape[1], 1, bias=False).to(DEVICE)
    grant = vault.grant(block, GradientPlan(rate=1.0, steps=1, noise=4.0), model, lambda output, y: output.sum(1))
    return grant.gradient()["weight"].double().cpu().numpy()[0]


def positive(records: int, features: int) -> np.ndarray:
    """Records of length 0.9 whose sums are about as long as the noise in each coordinate."""
    x = np.abs(np.random.default_rng(0).normal(size=(records, features)))
    return (0.9 * x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def alone(features: int) -> np.ndarray:
    """The last record is the only one that has any of the features."""
    x = np.zeros((5, features), dtype=np.float32)
    x[-1] = positive(1, features)[0]
    return x


@pytest.mark.parametrize(
    ("exit_", "total", "x"),
    [
        (class_sums, lambda x: x.sum(0), positive(130, 512)),
        (moments, lambda x: (x**2).sum(0), positive(900, 160)),
        (gradients, lambda x: np.float32(x.sum(0) * (1 - 2.0**-17)).astype(np.float64), alone(60_000)),
    ],
    ids=["class sums", "second moment", "gradient"],
)
def test_the_low_digits_of_a_release_do_not_tell_who_is_in_it(
    exit_: Callable[[np.ndarray, int], np.ndarray], total: Callable[[np.ndarray], np.ndarray], x: np.ndarray
) -> None:
    """C1. With float32 noise nearly all guesses were right at a certified ε of 1; now they are as good as a coin's."""
    right = right_guesses(exit_, total, x)
    assert RUNS * 0.2 <= right <= RUNS * 0.8


def is_on_grid(values: Tensor, std: float) -> bool:
    """Multiples of γ, as far as float32 holds them: what is rounded to float32 afterwards is a function of them."""
    multiples = values.double() / grid_for(std)
    return bool(((multiples - multiples.round()).abs() <= multiples.abs() * 2.0**-24).all())


def test_every_exit_releases_multiples_of_a_public_power_of_two() -> None:
    vault = vault_of(1)
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(60, 20)).astype(np.float32), rng.integers(0, 3, 60)
    admit = partial(admit_to, vault, x, y, labels=range(3), public=True, size=64)
    plan = SumPlan(noise=1.7, clip=0.6)
    assert is_on_grid(vault.sums(admit(task="sums"), plan), plan.std * 0.6)
    moment = vault.second_moment(admit(task="moment"), plan)
    assert is_on_grid(moment.diag(), plan.std * 0.36)
    assert is_on_grid(moment[np.triu_indices(20, 1)], plan.std * 0.36 / math.sqrt(2))
    assert is_on_grid(torch.tensor(vault.count(admit(task="count"), plan)), plan.std)
    model = nn.Linear(20, 3).eval()
    accuracy = vault.accuracy(admit(task="accuracy"), model, plan)
    assert is_on_grid(torch.tensor(accuracy * 64), plan.std)
    asked = GradientPlan(rate=0.5, steps=1, noise=1.1, clip=0.7)
    grant = vault.grant(admit(task="g"), asked, model, nn.CrossEntropyLoss(reduction="none"))
    assert grant.expected_batch == 32
    for value in grant.gradient().values():
        assert is_on_grid(value * 32, asked.std)
    series = SumPlan(noise=1.0, horizon=3, series="s")
    for task in range(3):
        x[0, 0] = task  # the same records in a second task are refused
        block = admit_to(vault, x, y, labels=range(3), public=True, size=64, task=f"{task}")
        assert is_on_grid(vault.sums(block, series), 0.5)  # the grid of a later task is coarser, or the same
    labels = vault.label_set(admit(task="l"), LabelPlan(noise=1.0, candidates=(0, 1, 2), threshold=3.0))
    assert labels == (0, 1, 2)


def test_the_grid_would_be_missed_by_float_noise() -> None:
    """The check above can fail."""
    assert not is_on_grid(torch.randn(1000, dtype=torch.float64), 1.0)


class Pooled(nn.Module):
    """A linear path from a layer on tokens to the loss."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, 16, bias=False)
        self.last = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.first(x).mean(1))
        return out


@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("power", [20, 50, 60])
def test_tokens_that_cancel_do_not_erase_the_noise_of_a_layer(
    persons: bool, power: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C2. A record with tokens +Mv and −Mv has an ordinary gradient; noise + M·b − M·b was 0 in float32."""
    monkeypatch.setitem(sequence.KEPT, False, 0)  # as if the layer were large
    rng = np.random.default_rng(1)
    x = rng.normal(size=(6, 1024, 16)).astype(np.float32)
    x[0, 0] = 2.0**power * np.sign(x[0, 0])
    x[0, -1] = -x[0, 0]  # far away: a matrix product adds up to the noise block by block
    facts = {"stream": "s", "task": "t", "budget": Budget(epsilon=1e9, delta=1e-5), "size": 6, "labels": range(2)}
    vault = vault_of(2)
    if persons:
        budget = Budget(epsilon=1e9, delta=1e-5, unit="person")
        declared = Declared(**facts | {"budget": budget, "records_per_unit": 2}, public=True)  # type: ignore[arg-type]
        block = vault.admit((x, np.arange(6) % 2, np.array(["a", "a", "b", "b", "c", "c"])), declared)
    else:
        block = vault.admit((x, np.arange(6) % 2), Declared(**facts, public=True))  # type: ignore[arg-type]
    torch.manual_seed(0)
    model = Pooled(16).to(DEVICE)
    grant = vault.grant(block, GradientPlan(rate=1.0, steps=3, noise=5.0), model, nn.CrossEntropyLoss(reduction="none"))
    drawn = [grant.gradient()["first.weight"].cpu().numpy() * grant.expected_batch for _ in range(3)]
    assert_scale(drawn, 5.0)
