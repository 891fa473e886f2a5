"""A noise layer inside the vault: its dice are thrown again after a crash, and what must be still is refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tacit import Block, Budget, Declared, GradientPlan, Ledger, SumPlan, Vault
from tacit.errors import BudgetExceeded, VaultError
from tacit.gradients.losses import cross_entropy
from tacit.models.noisy import noisy
from tacit.privacy.randomness.keys import KeyRing

PLAN = GradientPlan(rate=0.5, steps=4, noise=3.0)


def world(folder: Path, epsilon: float = 9.0) -> tuple[Vault, Block]:
    vault = Vault(Ledger(folder / "ledger"), store=folder / "store")
    x = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    budget = Budget(epsilon=epsilon, delta=1e-5)
    return vault, vault.admit(
        (x, np.arange(60) % 3), Declared(stream="s", task="t", budget=budget, size=60, labels=range(3))
    )


def model(**settings: float) -> nn.Module:
    torch.manual_seed(0)
    return noisy((5,), 3, options={"hidden": [8]}, **settings)  # type: ignore[arg-type]


def train(vault: Vault, block: Block, net: nn.Module, steps: int) -> list[torch.Tensor]:
    grant = vault.grant(block, PLAN, net, cross_entropy)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    found = []
    for _ in range(steps):
        grant.backward()
        found.append(torch.cat([p.grad.flatten().clone() for p in net.parameters() if p.grad is not None]))
        optimizer.step()
    grant._bill.journal.close()  # what the operating system does when a process dies
    return found


def test_a_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    vault, block = world(tmp_path)
    torch.manual_seed(1)
    first = train(vault, block, model(), 3)
    torch.manual_seed(2)  # another process has other generators
    again = train(vault, block, model(), 4)
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=False))


def test_the_dice_differ_from_step_to_step_and_leave_the_generators_alone(tmp_path: Path) -> None:
    vault, block = world(tmp_path, epsilon=1e4)
    net = model(radius=5.0)
    grant = vault.grant(block, GradientPlan(rate=1.0, steps=2, noise=0.05), net, cross_entropy)
    before = torch.get_rng_state()
    one, other = (grant.gradient()["rest.1.weight"].clone() for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    vaults = 0.05 / 60 * (2 * one.numel()) ** 0.5  # how far the vault's own noise takes them apart
    assert float((one - other).norm()) > 5 * vaults  # the same weights and records: the layer's noise is new


class Dropped(nn.Module):
    """By a function: no layer says so."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.5, training=True)


class Depth(nn.Module):
    """A block that is skipped for half of the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keep = torch.empty(x.shape[0], *[1] * (x.dim() - 1)).bernoulli_(0.5)
        return x + keep * self.block(x)


@pytest.mark.parametrize("layer", [lambda: nn.RReLU(0.01, 1.0), Dropped, Depth])
def test_dice_that_nobody_spoke_of_are_secret_too(tmp_path: Path, layer: Callable[[], nn.Module]) -> None:
    """They hang on the step's key alone: the caller's generator, whose seed is public, gives and gets nothing."""

    def net() -> nn.Module:
        torch.manual_seed(0)
        made = nn.Sequential(nn.Linear(5, 8), layer(), nn.Linear(8, 3))
        nn.init.constant_(made[0].bias, -5.0)  # type: ignore[arg-type] # RReLU throws for what is below 0
        return made

    def gradient(folder: Path, seed: int, key: bytes | None = None) -> torch.Tensor:
        folder.mkdir()
        with Ledger.throwaway(keys=KeyRing.for_tests(0)) as ledger:
            vault = Vault(ledger, store=folder / "store")
            x = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
            facts = Declared(stream="s", task="t", budget=wide, size=60, labels=range(3), public=True)
            block = vault.admit((x, np.arange(60) % 3), facts)
            grant = vault.grant(block, GradientPlan(rate=1.0, steps=1, noise=0.001), net(), cross_entropy)
            grant._dice = key or grant._dice
            torch.manual_seed(seed)
            before = torch.get_rng_state()
            found = torch.cat([value.flatten() for value in grant.gradient().values()])
            assert torch.equal(torch.get_rng_state(), before)
            return found

    wide = Budget(epsilon=1e9, delta=1e-5)
    one, same, other = (
        gradient(tmp_path / name, seed, key)
        for name, seed, key in (("a", 1, None), ("b", 2, None), ("c", 1, b"k" * 32))
    )
    assert torch.equal(one, same)
    assert float((one - other).norm()) > 20 * 0.001 / 60 * one.numel() ** 0.5


def test_another_noise_is_other_work(tmp_path: Path) -> None:
    vault, block = world(tmp_path)
    train(vault, block, model(), 1)
    with pytest.raises(BudgetExceeded, match="held by an unfinished grant"):
        train(vault, block, model(radius=0.2), 1)


def test_what_must_be_the_same_every_time_is_refused(tmp_path: Path) -> None:
    vault, block = world(tmp_path)
    net = model().eval()
    with pytest.raises(VaultError, match="the predictor has a noise layer"):
        vault.accuracy(block, net, SumPlan(noise=5.0))
    with pytest.raises(VaultError, match="the feature map has a noise layer"):
        vault.sums(block, SumPlan(noise=5.0), through=net)
