"""Work inside `until_saved` can be done again after a crash, gives the same results, and is charged once."""

import gc
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit import Block, Budget, Declared, GradientPlan, Ledger, SumPlan, Vault
from tacit.errors import BudgetExceeded, TacitError, VaultError
from tacit.gradients.losses import cross_entropy
from tacit.privacy.vault.exits.billing import Bill

BUDGET = Budget(epsilon=50.0, delta=1e-5)
PLAN, LOOK = GradientPlan(rate=0.3, steps=4, noise=2.0), SumPlan(noise=3.0)


class Crash(Exception):
    """What happens between the work and the save."""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Real keys: what is the same here is the same because it was found again."""
    return Ledger(tmp_path / "ledger")


def world(ledger: Ledger, folder: Path) -> tuple[Vault, Block]:
    """What a process begins with."""
    vault = Vault(ledger, store=folder / "store")
    x = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    declared = Declared(stream="s", task="t", budget=BUDGET, size=60, labels=range(3))
    return vault, vault.admit((x, np.arange(60) % 3), declared)


def work(vault: Vault, block: Block, *, lr: float = 0.1, look: SumPlan = LOOK) -> tuple[Tensor, Tensor, float]:
    """Train, look, count: three exits."""
    torch.manual_seed(0)
    net = nn.Linear(5, 3)
    vault.commit({block: [PLAN, LOOK, LOOK]})
    grant = vault.grant(block, PLAN, net, cross_entropy, work={"lr": lr})
    for _ in grant:
        grant.backward()
        torch.optim.SGD(net.parameters(), lr=lr).step()
    return net.weight.detach().clone(), vault.sums(block, look), vault.count(block, LOOK)


def states(vault: Vault) -> list[str]:
    return [grant.state for grant in vault.ledger.statement(1).grants]


def same(one: tuple[Tensor, Tensor, float], other: tuple[Tensor, Tensor, float]) -> bool:
    return torch.equal(one[0], other[0]) and torch.equal(one[1], other[1]) and one[2] == other[2]


def crash_after_the_work(vault: Vault, block: Block) -> tuple[Tensor, Tensor, float]:
    with pytest.raises(Crash), vault.until_saved():
        done = work(vault, block)
        raise Crash
    return done


def test_without_a_crash_all_is_released(ledger: Ledger, tmp_path: Path) -> None:
    vault, block = world(ledger, tmp_path)
    with vault.until_saved():
        work(vault, block)
        assert states(vault) == ["CHARGED"] * 3  # finished, and not saved yet
    assert states(vault) == ["RELEASED"] * 3
    assert all(grant.output_hash for grant in ledger.statement(1).grants if grant.kind == "gradient")
    assert list((tmp_path / "store" / "grants").iterdir()) == []
    ledger.verify()


@pytest.mark.parametrize("fresh", [False, True], ids=["the same vault", "another process"])
def test_after_a_crash_the_same_calls_give_the_same_results(fresh: bool, ledger: Ledger, tmp_path: Path) -> None:
    vault, block = world(ledger, tmp_path)
    done = crash_after_the_work(vault, block)
    epsilon = ledger.epsilon(1)
    assert states(vault) == ["CHARGED"] * 3
    if fresh:
        vault, block = world(ledger, tmp_path)
    with vault.until_saved():
        again = work(vault, block)
    assert same(done, again)
    assert states(vault) == ["RELEASED"] * 3 and ledger.epsilon(1) == epsilon
    ledger.verify()


def test_many_crashes_are_one_charge(ledger: Ledger, tmp_path: Path) -> None:
    results = [crash_after_the_work(*world(ledger, tmp_path)) for _ in range(3)]
    vault, block = world(ledger, tmp_path)
    results.append(work(vault, block))  # and at last without it
    assert all(same(results[0], one) for one in results)
    assert states(vault) == ["RELEASED"] * 3


def test_a_crash_in_the_middle_of_a_grant(ledger: Ledger, tmp_path: Path) -> None:
    vault, block = world(ledger, tmp_path)
    torch.manual_seed(0)
    net = nn.Linear(5, 3)
    with pytest.raises(Crash), vault.until_saved():
        vault.commit({block: [PLAN, LOOK, LOOK]})
        grant = vault.grant(block, PLAN, net, cross_entropy, work={"lr": 0.1})
        first = grant.gradient()
        raise Crash
    vault, block = world(ledger, tmp_path)  # the old grant is still alive here, as in a notebook
    torch.manual_seed(0)
    resumed = vault.grant(block, PLAN, nn.Linear(5, 3), cross_entropy, work={"lr": 0.1})
    assert all(torch.equal(value, first[name]) for name, value in resumed.gradient().items())
    with pytest.raises((TacitError, ValueError)):
        grant.gradient()  # and gives nothing any more
    assert states(vault) == ["CHARGED"]


def test_other_work_after_the_crash_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    crash_after_the_work(*world(ledger, tmp_path))
    for change in ({"lr": 0.2}, {"look": SumPlan(noise=2.9)}):
        vault, block = world(ledger, tmp_path)
        with pytest.raises(BudgetExceeded):
            work(vault, block, **change)
    assert states(vault) == ["RELEASED", "CHARGED", "CHARGED"]  # the same training was found, the other look was not


def test_another_look_after_the_crash_has_its_own_noise_and_its_own_charge(ledger: Ledger, tmp_path: Path) -> None:
    """The same plan on other columns of labels is other work: it takes the entry that is left, not the old noise."""
    vault, block = world(ledger, tmp_path)
    with pytest.raises(Crash), vault.until_saved():
        vault.commit({block: [LOOK, LOOK]})
        before = vault.sums(block, LOOK)
        raise Crash
    after = vault.sums(block, LOOK, labels=(2, 1, 0))
    assert not torch.allclose(before.flip(0), after)
    assert sorted(states(vault)) == ["CHARGED", "RELEASED"]
    with pytest.raises(BudgetExceeded):
        vault.count(block, LOOK)


def test_after_the_save_the_work_is_done(ledger: Ledger, tmp_path: Path) -> None:
    vault, block = world(ledger, tmp_path)
    with vault.until_saved():
        work(vault, block)
    vault, block = world(ledger, tmp_path)
    with pytest.raises(BudgetExceeded, match="give new records as a new task"):
        work(vault, block)


def test_another_store_finds_nothing(ledger: Ledger, tmp_path: Path) -> None:
    crash_after_the_work(*world(ledger, tmp_path))
    gc.collect()
    vault, block = world(ledger, tmp_path / "elsewhere")
    with pytest.raises(TacitError):
        work(vault, block)


def test_it_is_not_nested(ledger: Ledger, tmp_path: Path) -> None:
    vault, block = world(ledger, tmp_path)
    with vault.until_saved():
        with (
            pytest.raises(VaultError, match="until_saved is not nested; end the work around it first"),
            vault.until_saved(),
        ):
            raise AssertionError
        work(vault, block)
    assert states(vault) == ["RELEASED"] * 3  # the outer one still does its part


def test_it_can_be_used_again(ledger: Ledger, tmp_path: Path) -> None:
    vault, block = world(ledger, tmp_path)
    crash_after_the_work(vault, block)
    with vault.until_saved():
        pass
    assert states(vault) == ["CHARGED"] * 3  # what crashed stays resumable
    with vault.until_saved():
        work(vault, block)
    assert states(vault) == ["RELEASED"] * 3


def test_a_crash_while_work_is_marked_loses_nothing(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All was saved by then: what is not marked stays charged, which costs nothing."""
    vault, block = world(ledger, tmp_path)
    honest = Bill.release
    marked: list[Bill] = []

    def release(bill: Bill, output_hash: str | None = None) -> None:
        if bill.later is None:
            if marked:
                raise Crash
            marked.append(bill)
        honest(bill, output_hash)

    monkeypatch.setattr(Bill, "release", release)
    epsilon = None
    with pytest.raises(Crash), vault.until_saved():
        work(vault, block)
        epsilon = ledger.epsilon(1)
    assert states(vault) == ["RELEASED", "CHARGED", "CHARGED"] and ledger.epsilon(1) == epsilon


def test_without_a_store_nothing_is_found_again(ledger: Ledger, tmp_path: Path) -> None:
    vault = Vault(ledger)
    x = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    block = vault.admit((x, np.arange(60) % 3), Declared(stream="s", task="t", budget=BUDGET, size=60, labels=range(3)))
    crash_after_the_work(vault, block)
    with pytest.raises(BudgetExceeded):
        work(vault, block)


def test_two_equal_exits_are_refused_until_the_first_is_saved(ledger: Ledger, tmp_path: Path) -> None:
    """After a crash nobody could tell which of them was which."""
    vault, block = world(ledger, tmp_path)
    vault.commit({block: [LOOK, LOOK]})
    with pytest.raises(VaultError, match="using this work"), vault.until_saved():
        vault.sums(block, LOOK)
        vault.sums(block, LOOK)
    with vault.until_saved():
        one = vault.sums(block, LOOK)
    assert not torch.equal(one, vault.sums(block, LOOK)) and states(vault) == ["RELEASED"] * 2


def test_a_grant_that_goes_on_afterwards_is_released_too(ledger: Ledger, tmp_path: Path) -> None:
    vault, block = world(ledger, tmp_path)
    with vault.until_saved():
        grant = vault.grant(block, PLAN, nn.Linear(5, 3), cross_entropy)
        grant.gradient()
    for _ in grant:
        grant.gradient()
    assert states(vault) == ["RELEASED"]
