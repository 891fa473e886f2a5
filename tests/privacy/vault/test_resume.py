"""A grant survives a crash, is billed once, and serves nothing but the work it was billed for."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tacit import Block, Budget, Declared, GradientPlan, Ledger, Vault
from tacit.errors import BudgetExceeded, LedgerError, TacitError, VaultError
from tacit.gradients.losses import cross_entropy
from tacit.privacy.randomness.keys import KeyRing
from tacit.privacy.vault import Grant
from tacit.privacy.vault.intake.fingerprint import fingerprint

BUDGET = Budget(epsilon=3.0, delta=1e-5)
PLAN = GradientPlan(rate=0.3, steps=8, noise=3.0)


def world(folder: Path, *, store: str = "store", **said: object) -> tuple[Vault, Block]:
    ledger = Ledger(folder / "ledger")
    vault = Vault(ledger, store=folder / store)
    x = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    declared = Declared(stream="s", task="t", budget=BUDGET, size=60, labels=range(3), **said)  # type: ignore[arg-type]
    return vault, vault.admit((x, np.arange(60) % 3), declared)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))


def train(grant: Grant, net: nn.Module, *, until: int, lr: float = 0.1) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    while grant.step < until:
        grant.backward()
        optimizer.step()


def flat(net: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def crash(grant: Grant) -> None:
    """What the operating system does when a process dies: files are closed, nothing else happens."""
    grant._bill.journal.close()


def test_it_goes_on_bit_for_bit_and_is_billed_once(tmp_path: Path) -> None:
    vault, block = world(tmp_path)
    net = model()
    grant = vault.grant(block, PLAN, net, cross_entropy, work={"lr": 0.1})
    train(grant, net, until=3)
    checkpoint = {name: value.clone() for name, value in net.state_dict().items()}
    train(grant, net, until=5)
    at_five = flat(net)
    epsilon = vault.ledger.epsilon(block.stream_id)
    crash(grant)

    vault, block = world(tmp_path)
    net = model()
    grant = vault.grant(block, PLAN, net, cross_entropy, work={"lr": 0.1})
    train(grant, net, until=3)  # from the start: the same steps, the same noise
    assert all(torch.equal(value, checkpoint[name]) for name, value in net.state_dict().items())
    grant.seek(3)
    net.load_state_dict(checkpoint)
    train(grant, net, until=5)
    assert torch.equal(flat(net), at_five)
    train(grant, net, until=8)
    assert vault.ledger.epsilon(block.stream_id) == epsilon
    assert [g.state for g in vault.ledger.statement(block.stream_id).grants] == ["RELEASED"]


def test_an_interrupted_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    """With test keys (not private, public data) two ledgers toss the same coins, so the two runs can be compared."""
    ends = []
    for interrupted in (False, True):
        ledger = Ledger.throwaway(keys=KeyRing.for_tests(1))
        folder = tmp_path / str(interrupted)

        def begin(ledger: Ledger = ledger, folder: Path = folder) -> tuple[Grant, nn.Module]:
            vault = Vault(ledger, store=folder)
            x = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
            declared = Declared(stream="s", task="t", budget=BUDGET, size=60, labels=range(3), public=True)
            net = model()
            return vault.grant(vault.admit((x, np.arange(60) % 3), declared), PLAN, net, cross_entropy), net

        grant, net = begin()
        if interrupted:
            train(grant, net, until=4)
            state = net.state_dict()
            crash(grant)
            grant, net = begin()
            net.load_state_dict(state)
            grant.seek(4)
        train(grant, net, until=8)
        ends.append(flat(net))
    assert torch.equal(*ends)


def test_another_learning_rate_cannot_reuse_it(tmp_path: Path) -> None:
    vault, block = world(tmp_path)
    net = model()
    grant = vault.grant(block, PLAN, net, cross_entropy, work={"lr": 0.1})
    train(grant, net, until=4)
    crash(grant)
    vault, block = world(tmp_path)
    net = model()
    with pytest.raises(BudgetExceeded):  # declared: it is other work, and the block has no budget for it
        vault.grant(block, PLAN, net, cross_entropy, work={"lr": 0.5})
    grant = vault.grant(block, PLAN, net, cross_entropy, work={"lr": 0.1})
    with pytest.raises(VaultError, match="step 1 of this grant was taken with other parameters"):
        train(grant, net, until=4, lr=0.5)  # undeclared: the journal sees it


@pytest.mark.parametrize("change", ["model", "initial parameters", "loss", "plan"])
def test_other_work_cannot_reuse_it(change: str, tmp_path: Path) -> None:
    vault, block = world(tmp_path)
    net = model()
    grant = vault.grant(block, PLAN, net, cross_entropy)
    grant.gradient()
    crash(grant)
    vault, block = world(tmp_path)
    net, plan, loss = model(), PLAN, cross_entropy
    if change == "model":
        net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
        net.load_state_dict(model().state_dict())
    elif change == "initial parameters":
        net[0].bias.data[0] += 1e-6
    elif change == "loss":
        loss = lambda output, y: 2 * cross_entropy(output, y)  # noqa: E731
    else:
        plan = GradientPlan(rate=0.3, steps=8, noise=3.0, clip=0.5)
    with pytest.raises(BudgetExceeded):
        vault.grant(block, plan, net, loss)


def test_a_copy_of_the_folder_cannot_reuse_it(tmp_path: Path) -> None:
    vault, block = world(tmp_path)
    net = model()
    grant = vault.grant(block, PLAN, net, cross_entropy)
    train(grant, net, until=2)
    crash(grant)
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    vault, block = world(tmp_path, store="copy")
    with pytest.raises(LedgerError, match="held by"):
        vault.grant(block, PLAN, model(), cross_entropy)


def test_a_second_process_cannot_use_a_live_grant(tmp_path: Path) -> None:
    vault, block = world(tmp_path)
    first = vault.grant(block, PLAN, model(), cross_entropy)
    first.gradient()
    other, same = world(tmp_path)
    with pytest.raises(VaultError, match="is using this work"):
        other.grant(same, PLAN, model(), cross_entropy)
    for _ in range(7):
        first.gradient()  # and the first one is not disturbed
    assert [g.state for g in vault.ledger.statement(block.stream_id).grants] == ["RELEASED"]


def test_records_that_changed_cannot_reuse_the_noise(tmp_path: Path) -> None:
    """The same noise on two different sums would cancel."""
    vault, block = world(tmp_path)
    grant = vault.grant(block, PLAN, model(), cross_entropy)
    grant.gradient()
    crash(grant)
    vault = Vault(vault.ledger, store=tmp_path / "store")
    x = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)[1:]
    declared = Declared(stream="s", task="t", budget=BUDGET, size=60, labels=range(3))
    block = vault.admit((x, (np.arange(60) % 3)[1:]), declared)
    with pytest.raises(BudgetExceeded):
        vault.grant(block, PLAN, model(), cross_entropy)


def test_another_label_set_cannot_reuse_the_noise(tmp_path: Path) -> None:
    vault, block = world(tmp_path)
    grant = vault.grant(block, PLAN, model(), cross_entropy)
    grant.gradient()
    crash(grant)
    vault, block = world(tmp_path)
    with pytest.raises(BudgetExceeded):
        vault.grant(vault.with_labels(block, (0, 1)), PLAN, model(), cross_entropy)


class Scaled(nn.Module):
    """A model whose output depends on attributes that `str` does not show, one of them of its class."""

    shift = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = model(), torch.tensor(1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.scale * self.shift


def test_nothing_that_changes_a_gradient_meets_the_same_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever changed and however it hides: a step that is redone must give the same result or none."""
    vault, block = world(tmp_path)
    net = Scaled()
    grant = vault.grant(block, PLAN, net, cross_entropy)
    first = grant.gradient()["inner.0.weight"].clone()
    grant.seek(0)
    assert torch.equal(grant.gradient()["inner.0.weight"], first)
    net.scale = torch.tensor(3.0)
    grant.seek(0)
    with pytest.raises(VaultError, match="step 0 of this grant was taken with other parameters"):
        grant.gradient()
    net.scale = torch.tensor(1.0)
    monkeypatch.setattr(Scaled, "shift", 3.0)
    with pytest.raises(VaultError, match="step 0 of this grant already released another gradient"):
        grant.gradient()


def test_dropout_can_be_resumed(tmp_path: Path) -> None:
    vault, block = world(tmp_path)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 30), nn.Dropout(0.5), nn.Linear(30, 3))
    grant = vault.grant(block, PLAN, net, cross_entropy)
    first = grant.gradient()["0.weight"].clone()
    torch.manual_seed(99)
    grant.seek(0)
    assert torch.equal(grant.gradient()["0.weight"], first)
    second = grant.gradient()["0.weight"]
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (partial(F.cross_entropy, reduction="none"), partial(F.cross_entropy, reduction="none", label_smoothing=0.1)),
        (nn.CrossEntropyLoss(reduction="none"), nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1)),
        (lambda o, y: o.sin().sum(1), lambda o, y: o.cos().sum(1)),
        ((lambda k: lambda o, y: k * o.sum(1))(1.0), (lambda k: lambda o, y: k * o.sum(1))(2.0)),
    ],
)
def test_losses_that_differ_have_other_pins(one: Any, other: Any) -> None:
    assert fingerprint(loss=one) == fingerprint(loss=one)
    assert fingerprint(loss=one) != fingerprint(loss=other)


def test_a_forked_child_cannot_use_the_grant(tmp_path: Path) -> None:
    vault, block = world(tmp_path)
    grant = vault.grant(block, PLAN, model(), cross_entropy)
    grant._process += 1  # what os.getpid() would say in a child
    with pytest.raises(VaultError, match="belongs to the process"):
        grant.gradient()


def test_seek_cannot_skip_ahead(tmp_path: Path) -> None:
    vault, block = world(tmp_path)
    grant = vault.grant(block, PLAN, model(), cross_entropy)
    with pytest.raises(VaultError, match="cannot continue at step 3"):
        grant.seek(3)


@pytest.mark.slow
def test_sigkill_in_the_middle_and_on_again(tmp_path: Path) -> None:
    """A real process, killed while it trains; the next one ends where an undisturbed one would."""
    script = textwrap.dedent(
        f"""
        import sys; sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[2])]!r}
        from pathlib import Path
        import test_resume as t
        vault, block = t.world(Path({str(tmp_path)!r}))
        net = t.model()
        grant = vault.grant(block, t.PLAN, net, t.cross_entropy)
        t.train(grant, net, until=5)
        print(t.flat(net).double().sum().item().hex(), flush=True)
        sys.stdin.read()
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert process.stdout is not None
    before = process.stdout.readline().strip()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    vault, block = world(tmp_path)
    net = model()
    grant = vault.grant(block, PLAN, net, cross_entropy)
    train(grant, net, until=5)
    assert flat(net).double().sum().item().hex() == before
    train(grant, net, until=8)
    assert len(vault.ledger.statement(block.stream_id).grants) == 1
    vault.ledger.verify()


def test_a_full_disk_releases_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault, block = world(tmp_path)
    grant = vault.grant(block, PLAN, model(), cross_entropy)

    def full(ticket: object) -> None:
        raise LedgerError("the disk is full")

    monkeypatch.setattr(vault.ledger, "charge", full)
    with pytest.raises(TacitError, match="full"):
        grant.gradient()
    assert grant.step == 0
