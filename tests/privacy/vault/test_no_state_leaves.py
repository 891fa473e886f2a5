"""No state that a model, loss, rule or predictor reaches carries records out, or makes a repeated step another one."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from support.made_up import admit_to
from tacit import Block, GradientPlan, Ledger, Read, SumPlan, Vault
from tacit.errors import VaultError
from tacit.gradients.losses import cross_entropy
from tacit.privacy.randomness.keys import KeyRing
from tacit.privacy.vault import FilterPlan

X = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
PLAN = GradientPlan(rate=1.0, steps=3, noise=2.0)


def world() -> tuple[Vault, Block]:
    vault = Vault(Ledger.throwaway(keys=KeyRing.for_tests(0)))
    return vault, admit_to(vault, X, np.arange(40) % 2, labels=[0, 1], public=True, size=40)


def plain(out: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(out, y, reduction="none")


class Counting(nn.Module):
    """Counts labels: exactly, and on private records."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.seen, self.kept, self.number = how, nn.Buffer(torch.zeros(2)), torch.zeros(2), 0

    def count(self, y: Tensor) -> None:
        found = torch.bincount(y.long(), minlength=2).float()
        if self.how == "in place":
            self.seen += found
        elif self.how == "new buffer":
            self.seen = self.seen + found
        elif self.how == "data":
            self.seen.data.add_(found)
        elif self.how == "attribute":
            self.kept = self.kept + found
        else:
            self.number += len(y)

    def forward(self, out: Tensor, y: Tensor) -> Tensor:
        self.count(y)
        return plain(out, y)


def through_closure(counting: Counting) -> Any:
    def loss(out: Tensor, y: Tensor) -> Tensor:
        return counting(out, y)  # type: ignore[no-any-return]

    return loss


class Holder:
    def __init__(self, counting: Counting) -> None:
        self.parts = [counting]

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        return self.parts[0](out, y)  # type: ignore[no-any-return]


WAYS: dict[str, Callable[[Counting], Any]] = {
    "itself": lambda counting: counting,
    "closure": through_closure,
    "partial": lambda counting: partial(lambda out, y, by: by(out, y), by=counting),
    "bound": lambda counting: Holder(counting).loss,
    "attribute": lambda counting: counting.forward,
}


def state(counting: Counting) -> list[Any]:
    return [counting.seen.tolist(), counting.kept.tolist(), counting.number]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["in place", "new buffer", "data", "attribute", "number"])
def test_a_loss_that_counts_is_refused_before_the_charge(how: str, way: str) -> None:
    vault, block = world()
    counting = Counting(how)
    before = state(counting)
    with pytest.raises(VaultError, match="would carry records out"):
        vault.grant(block, PLAN, nn.Linear(5, 2), WAYS[way](counting))
    meter = vault.individual_filter(block, FilterPlan(rho=0.5)) if way == "closure" else None
    if meter is not None:
        with pytest.raises(VaultError, match="would carry records out"):
            meter.gradient(nn.Linear(5, 2), WAYS[way](counting), noise=5.0, clip=1.0)
    assert state(counting) == before
    assert len(vault.ledger.statement(1).grants) == (meter is not None)


class Sly(Counting):
    """Counts where the rows are not synthetic, which are all in [0, 1]."""

    def forward(self, out: Tensor, y: Tensor) -> Tensor:
        if len(y) > 10:
            self.count(y)
        return plain(out, y)


@pytest.mark.parametrize("how", ["in place", "new buffer", "data", "attribute", "number"])
def test_what_the_rehearsal_does_not_see_is_put_back(how: str) -> None:
    vault, block = world()
    counting = Sly(how)
    before = state(counting)
    grant = vault.grant(block, PLAN, nn.Linear(5, 2), through_closure(counting))
    with pytest.raises(VaultError, match="would carry records out"):
        grant.gradient()
    assert state(counting) == before


class Bank(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.rows = nn.Linear(5, 2), nn.Buffer(torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        self.rows += x.detach().sum(0)
        return self.linear(x)  # type: ignore[no-any-return]


def test_a_predictor_that_keeps_rows_is_refused_before_the_charge() -> None:
    bank = Bank().eval()
    for predict in (bank, lambda rows: bank(rows), partial(bank.forward), bank.forward):
        vault, block = world()
        with pytest.raises(VaultError, match="would carry records out"):
            vault.accuracy(block, predict, SumPlan(noise=2.0))
        assert not bank.rows.any() and not vault.ledger.statement(1).grants


def test_a_rule_is_asked_without_a_trace() -> None:
    vault, block = world()
    seen = {"number": 0}

    def rule(x: Tensor, y: Tensor) -> Tensor:
        seen["number"] += 1
        return y == 1

    with pytest.raises(VaultError, match="would carry records out"):
        vault.grant(Read(block, select=rule), PLAN, nn.Linear(5, 2), cross_entropy)
    assert seen == {"number": 0}


class Looking(nn.Module):
    """Its output on one record depends on a buffer, a frozen weight or an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.target = nn.Linear(5, 2), nn.Buffer(torch.tensor(X[0]))
        self.buffer, self.frozen = nn.Buffer(torch.ones(())), nn.Parameter(torch.ones(()), requires_grad=False)
        self.number, self.held = 1.0, torch.ones(())

    def forward(self, x: Tensor) -> Tensor:
        hit = (x == self.target).all(-1, keepdim=True)
        scale = self.buffer * self.frozen * self.number * self.held
        return self.linear(x) * torch.where(hit, scale, torch.ones_like(scale))  # type: ignore[no-any-return]


def change(net: Looking, what: str) -> None:
    if what in ("buffer", "frozen"):
        getattr(net, what).data.fill_(0.0)
    else:
        setattr(net, what, 0.0 if what == "number" else torch.zeros(()))


@pytest.mark.parametrize("what", ["buffer", "frozen", "number", "held", "train"])
@pytest.mark.parametrize("there", [True, False])
def test_a_step_is_not_redone_with_another_state(what: str, there: bool) -> None:
    """Whether the result would be another one depends on the records, so it is refused before they are read."""
    vault = Vault(Ledger.throwaway(keys=KeyRing.for_tests(0)))
    x, y = X[0 if there else 1 :], np.arange(40)[0 if there else 1 :] % 2
    block = admit_to(vault, x, y, labels=[0, 1], public=True, size=40)
    net = Looking()
    grant = vault.grant(block, PLAN, net, cross_entropy)
    first = grant.gradient()["linear.weight"].clone()
    grant.seek(0)
    assert torch.equal(grant.gradient()["linear.weight"], first)
    grant.seek(0)
    net.eval() if what == "train" else change(net, what)
    with pytest.raises(VaultError, match="taken with other parameters"):
        grant.gradient()


def test_a_correction_does_not_go_back_to_what_others_drew(tmp_path: Path) -> None:
    vault = Vault(Ledger(tmp_path / "ledger"), tmp_path / "store")
    block = admit_to(vault, X, np.arange(40) % 2, labels=[0, 1], size=40)
    with pytest.raises(RuntimeError), vault.until_saved():
        vault.grant(block, PLAN, nn.Linear(5, 2), cross_entropy, work={"lr": 1}).gradient()
        raise RuntimeError
    with vault.corrected():
        grant = vault.grant(block, PLAN, nn.Linear(5, 2), cross_entropy, work={"lr": 2})
        assert grant.step == 1
        with pytest.raises(VaultError, match="steps 1 to 1 can be repeated"):
            grant.seek(0)


def test_journals_of_earlier_releases_hold_parameters_alone(tmp_path: Path) -> None:
    from tacit.privacy.vault.intake.store import Journal

    journal = Journal(tmp_path / "a.steps")
    journal.leave(0, (5, 77))
    journal.check_again(0, 77 | 9 << 32)
    journal.leave(0, (5, 77 | 9 << 32))
    for other in (78 | 9 << 32, 76):
        with pytest.raises(VaultError):
            journal.check_again(0, other)
    journal.leave(1, (5, 77 | 9 << 32))
    with pytest.raises(VaultError):
        journal.check_again(1, 77 | 8 << 32)
