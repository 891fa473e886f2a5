"""After a failure past the charge, corrected settings go on with the steps that were not drawn, under the same charge.

Drawn steps are never derived again: the same noise on two gradients would cancel.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit import Block, Budget, Declared, GradientPlan, Ledger, Read, SumPlan, Vault
from tacit.errors import BudgetExceeded, VaultError
from tacit.gradients.losses import cross_entropy

PLAN = GradientPlan(rate=0.5, steps=6, noise=2.0)
LOOK = SumPlan(noise=2.0)


def world(folder: Path) -> tuple[Vault, Block]:
    """What a process begins with."""
    vault = Vault(Ledger(folder / "ledger"), store=folder / "store")
    x = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    declared = Declared(stream="s", task="t", budget=Budget(epsilon=50.0, delta=1e-5), size=40, labels=range(2))
    return vault, vault.admit((x, np.arange(40) % 2), declared)


def train(vault: Vault, block: Block, lr: float, fails_at: int | None = None) -> list[Tensor]:
    """The noisy gradients of a training run that may fail after a step."""
    torch.manual_seed(0)
    net = nn.Linear(5, 2)
    out = []
    with vault.until_saved():
        grant = vault.grant(block, PLAN, net, cross_entropy, work={"lr": lr})
        for step in grant:
            out.append(grant.gradient()["weight"].clone())
            grant._parameters["weight"].data.sub_(lr * out[-1])
            if step == fails_at:
                raise RuntimeError("the optimizer failed")
    return out


def states(vault: Vault) -> list[str]:
    return [grant.state for grant in vault.ledger.statement(1).grants]


def failed(folder: Path, lr: float = 5.0, after: int = 1) -> list[Tensor]:
    vault, block = world(folder)
    with pytest.raises(RuntimeError, match="failed"):
        train(vault, block, lr, fails_at=after)
    assert states(vault) == ["CHARGED"]
    vault.ledger.close()
    return []


def test_other_settings_are_refused_unless_they_are_a_correction(tmp_path: Path) -> None:
    failed(tmp_path)
    vault, block = world(tmp_path)
    with pytest.raises(BudgetExceeded, match="held by an unfinished grant"):
        train(vault, block, 0.1)


def test_a_correction_goes_on_with_the_steps_that_were_not_drawn(tmp_path: Path) -> None:
    failed(tmp_path, after=1)  # steps 0 and 1 were drawn
    vault, block = world(tmp_path)
    before = vault.ledger.epsilon(1)
    with vault.corrected():
        rest = train(vault, block, 0.1)
    assert len(rest) == PLAN.steps - 2
    assert states(vault) == ["RELEASED"] and vault.ledger.epsilon(1) == before
    vault.ledger.verify()


def test_no_noise_comes_twice(tmp_path: Path) -> None:
    """On no records what leaves is noise alone: every step's is another, before and after the correction."""
    vault = Vault(Ledger(tmp_path / "ledger"), store=tmp_path / "store")
    facts = Declared(
        stream="s", task="t", budget=Budget(epsilon=50.0, delta=1e-5), size=40, labels=range(2), shape=(5,)
    )
    block = vault.admit((np.zeros((0, 5), dtype=np.float32), np.zeros(0, dtype=np.int64)), facts)
    seen: list[Tensor] = []
    net = nn.Linear(5, 2)
    with pytest.raises(RuntimeError), vault.until_saved():
        grant = vault.grant(block, PLAN, net, cross_entropy, work={"lr": 5})
        for step in grant:
            seen.append(grant.gradient()["weight"].clone())
            if step == 2:
                raise RuntimeError
    with vault.corrected(), vault.until_saved():
        grant = vault.grant(block, PLAN, net, cross_entropy, work={"lr": 1})
        seen += [grant.gradient()["weight"].clone() for _ in grant]
    assert len(seen) == PLAN.steps
    assert all(not torch.allclose(a, b) for n, a in enumerate(seen) for b in seen[:n])


def test_a_correction_that_is_killed_is_redone_from_where_it_began(tmp_path: Path) -> None:
    failed(tmp_path, after=1)
    vault, block = world(tmp_path)
    with pytest.raises(RuntimeError), vault.corrected():
        train(vault, block, 0.1, fails_at=3)
    vault.ledger.close()
    vault, block = world(tmp_path)
    assert len(train(vault, block, 0.1)) == PLAN.steps - 2  # the same work: nothing has to be said again
    assert states(vault) == ["RELEASED"]


def test_the_first_settings_do_not_redo_what_a_correction_drew(tmp_path: Path) -> None:
    failed(tmp_path, after=1)
    vault, block = world(tmp_path)
    with pytest.raises(RuntimeError), vault.corrected():
        train(vault, block, 0.1, fails_at=3)
    vault.ledger.close()
    vault, block = world(tmp_path)
    assert len(train(vault, block, 5.0)) == PLAN.steps - 4


def test_where_no_step_is_left_it_is_said(tmp_path: Path) -> None:
    failed(tmp_path, after=PLAN.steps - 1)
    vault, block = world(tmp_path)
    with pytest.raises(VaultError, match=r"all 6 charged steps were drawn under other settings"), vault.corrected():
        train(vault, block, 0.1)
    assert len(train(vault, block, 5.0)) == PLAN.steps  # the settings that it was begun with finish it


def test_other_reads_are_not_taken_over(tmp_path: Path) -> None:
    failed(tmp_path)
    vault, block = world(tmp_path)
    more = GradientPlan(rate=0.5, steps=6, noise=1.9)
    with pytest.raises(BudgetExceeded), vault.corrected():
        vault.grant(block, more, nn.Linear(5, 2), cross_entropy)


class Breaks(nn.Module):
    """A map that fails on private rows, which have negative numbers."""

    def forward(self, x: Tensor) -> Tensor:
        if float(x.min()) < 0:
            raise ValueError
        return x


def test_sums_that_never_left_are_asked_for_again_through_another_map(tmp_path: Path) -> None:
    vault, block = world(tmp_path)
    with pytest.raises(VaultError, match="withheld"), vault.until_saved():
        vault.sums(block, LOOK, through=Breaks().eval())
    assert states(vault) == ["CHARGED"]
    with vault.corrected():
        vault.sums(block, LOOK)
    assert states(vault) == ["RELEASED"]


def test_a_refusal_before_the_charge_gives_the_reservation_back(tmp_path: Path) -> None:
    vault, block = world(tmp_path)
    with pytest.raises(ValueError, match="learning rate"), vault.until_saved():
        net = nn.Linear(5, 2)
        vault.grant(block, PLAN, net, cross_entropy)
        torch.optim.SGD(net.parameters(), lr=-1)
    assert states(vault) == ["RESERVED"]  # the same work would find it again
    with vault.corrected():
        assert len(train(vault, block, 0.1)) == PLAN.steps
    assert states(vault) == ["VOID", "RELEASED"]


class Source:
    """A Dataset that fails once it is told to."""

    broken = False

    def __len__(self) -> int:
        return 40

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        if self.broken:
            raise ValueError
        return torch.full((5,), float(row)), row % 2


def test_a_rule_that_is_asked_about_private_records_is_paid_for(tmp_path: Path) -> None:
    """Otherwise whether the reservation was given back would tell that a record made it fail."""
    vault, source = Vault(Ledger(tmp_path / "ledger"), store=tmp_path / "store"), Source()
    facts = Declared(
        stream="s", task="t", budget=Budget(epsilon=50.0, delta=1e-5), size=40, labels=range(2), shape=(5,)
    )
    block = vault.admit(source, facts)
    with pytest.raises(VaultError, match="rule of a read fails on synthetic records: AttributeError"):
        vault.grant([Read(block, select=lambda x, y: x.nothing)], PLAN, nn.Linear(5, 2), cross_entropy)
    assert states(vault) == []
    source.broken = True
    with pytest.raises(VaultError, match="withheld"):
        vault.grant([Read(block, select=lambda x, y: y == 1)], PLAN, nn.Linear(5, 2), cross_entropy)
    assert states(vault) == ["CHARGED"]


def test_other_turns_of_labels_do_not_take_over_a_charge(tmp_path: Path) -> None:
    """Six turns of K labels cost the same for every K; each switch would read a unit in more steps than are priced."""
    vault = Vault(Ledger(tmp_path / "ledger"), store=tmp_path / "store")
    x, y = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32), np.zeros(40, dtype=np.int64)
    event = GradientPlan(rate=0.5, steps=6, noise=20.0).event
    facts = Declared(stream="s", task="t", budget=Budget(epsilon=50.0, delta=1e-5), size=40, labels=range(4))
    block = vault.admit((x, y), facts)
    for classes, places in ((2, (0, 1)), (2, (0, 2)), (4, (0, 1, 2, 3))):
        plan = GradientPlan(rate=0.5, steps=6 * classes, noise=20.0, classes=classes, places=places)
        assert plan.event == event
        try:
            with vault.corrected(), vault.until_saved():
                grant = vault.grant(block, plan, nn.Linear(5, 4), cross_entropy, work={"turns": places})
                assert grant.step == 0 and places == (0, 1)
                grant.gradient()
                raise RuntimeError
        except (RuntimeError, BudgetExceeded):
            pass
    plan = GradientPlan(rate=0.5, steps=12, noise=20.0, classes=2, places=(0, 1))
    with vault.corrected():
        assert vault.grant(block, plan, nn.Linear(5, 4), cross_entropy, work={"lr": 1}).step == 1
    assert [grant.state for grant in vault.ledger.statement(1).grants] == ["CHARGED"]


@pytest.mark.parametrize("what", ["labels", "order"])
def test_a_correction_of_a_plan_with_classes_keeps_records_and_labels(what: str, tmp_path: Path) -> None:
    """Otherwise one unit would be read in the steps of two labels, and is priced for those of one."""
    plan = GradientPlan(rate=1.0, steps=4, noise=4.0, classes=4)

    def attempt(number: int, lr: float) -> int:
        vault = Vault(Ledger(tmp_path / "ledger"), store=tmp_path / "store")
        label = number if what == "labels" else 0
        declared = Declared(stream="s", task="t", budget=Budget(epsilon=50.0, delta=1e-5), size=1, labels=range(4))
        block = vault.admit((np.ones((1, 5)), np.array([label]), np.array([7])), declared)
        if what == "order":
            block = vault.with_labels(block, tuple(np.roll(range(4), number).tolist()))
        torch.manual_seed(0)
        try:
            with vault.corrected(), vault.until_saved():
                grant = vault.grant(block, plan, nn.Linear(5, 4), cross_entropy, work={"lr": lr})
                drawn = 0
                for _ in grant:
                    grant.gradient()
                    drawn += 1
                    if lr == 1.0:
                        raise RuntimeError
                return drawn
        finally:
            vault.close()
            vault.ledger.close()

    with pytest.raises(RuntimeError):
        attempt(0, 1.0)
    with pytest.raises(VaultError, match="begun on other records or labels"):
        attempt(1, 0.1)
    assert attempt(0, 0.1) == 3  # the correction itself
