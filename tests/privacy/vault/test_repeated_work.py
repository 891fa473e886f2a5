"""Work that is taken up again never puts the same noise on something else."""

import copy
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from support.made_up import BUDGET
from tacit import Block, Budget, Declared, GradientPlan, Ledger, Read, StreamInfo, SumPlan, Vault
from tacit.errors import VaultError
from tacit.gradients.losses import cross_entropy
from tacit.privacy.vault.intake.fingerprint import _home, fingerprint
from tacit.privacy.vault.intake.reached import Reached
from tacit.privacy.vault.intake.store import Journal

LOOK = SumPlan(noise=2.0)
PLAN = GradientPlan(rate=0.5, steps=3, noise=2.0)


class Fixed:
    """A predictor with a state of its own."""

    def __init__(self, answer: int) -> None:
        self.answer = answer

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        return torch.full((len(x),), self.answer)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.predict(x)


def world(ledger: Ledger, folder: Path) -> tuple[Vault, Block]:
    vault = Vault(ledger, folder)
    x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    facts = Declared(stream="s", task="t", budget=BUDGET, size=60, labels=range(3))
    return vault, vault.admit((x, np.arange(60) % 3), facts)


def test_two_objects_of_one_class_are_two_works() -> None:
    one, two = Fixed(0), Fixed(1)
    assert fingerprint(f=one.predict) != fingerprint(f=two.predict) and fingerprint(f=one) != fingerprint(f=two)
    assert fingerprint(f=one.predict) == fingerprint(f=Fixed(0).predict) and fingerprint(f=torch.sin) != fingerprint(
        f=torch.cos
    )


def test_what_left_is_given_again_and_not_computed_again(ledger: Ledger, tmp_path: Path) -> None:
    """Even where the predictor's code changed in a way that the pin cannot see."""
    vault, block = world(ledger, tmp_path / "store")
    vault.commit({block: [LOOK, LOOK]})
    answers = {"now": 0}

    def predict(x: torch.Tensor) -> torch.Tensor:
        return torch.full((len(x),), int(os.environ["ANSWER"]))

    os.environ["ANSWER"] = str(answers["now"])
    with pytest.raises(KeyboardInterrupt), vault.until_saved():
        first = vault.accuracy(block, predict, LOOK)
        raise KeyboardInterrupt
    later, same = world(ledger, tmp_path / "store")
    os.environ["ANSWER"] = "1"
    assert later.accuracy(same, predict, LOOK) == first
    assert later.accuracy(same, predict, LOOK) != first  # the next one has its own noise and its own charge
    del os.environ["ANSWER"]
    assert len(ledger.statement(1).grants) == 2


def test_a_result_that_could_not_be_written_down_does_not_leave(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault, block = world(ledger, tmp_path / "store")
    grant = vault.grant(block, PLAN, nn.Linear(4, 3), cross_entropy)
    grant.gradient()

    class Full:
        closed = False

        def write(self, _bytes: bytes) -> int:
            return 3

        def close(self) -> None:
            self.closed = True

    journal: Journal = grant._bill.journal
    monkeypatch.setattr(journal, "_file", Full())
    for _ in range(2):  # neither the first time nor the second
        with pytest.raises(VaultError, match=r"cannot write the journal|was closed"):
            grant.gradient()


def test_a_grant_of_work_that_crashed_is_given_up(ledger: Ledger, tmp_path: Path) -> None:
    vault, block = world(ledger, tmp_path / "store")
    with pytest.raises(KeyboardInterrupt), vault.until_saved():
        grant = vault.grant(block, PLAN, nn.Linear(4, 3), cross_entropy)
        grant.gradient()
        raise KeyboardInterrupt
    for _ in range(2):
        with pytest.raises(VaultError, match="was closed"):
            grant.gradient()


def test_a_linked_store_is_no_store(ledger: Ledger, tmp_path: Path) -> None:
    world(ledger, tmp_path / "store")
    os.link(tmp_path / "store" / "identity", tmp_path / "other")
    with pytest.raises(VaultError, match="linked"):
        Vault(ledger, tmp_path / "store")


def test_what_was_saved_but_not_marked_is_settled(ledger: Ledger, tmp_path: Path) -> None:
    vault, block = world(ledger, tmp_path / "store")
    with pytest.raises(KeyboardInterrupt), vault.until_saved():
        vault.sums(block, LOOK)
        raise KeyboardInterrupt
    later, same = world(ledger, tmp_path / "store")
    later.settle(same)
    assert [grant.state for grant in ledger.statement(1).grants] == ["RELEASED"]
    assert not list((tmp_path / "store" / "grants").iterdir())


def test_a_source_that_fails_is_not_quoted(ledger: Ledger) -> None:
    class Bad:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
            if i:
                raise ValueError("cannot parse 'John Doe'")
            return torch.zeros(4), 0

    facts = Declared(stream="s", task="t", budget=BUDGET, size=60, labels=range(3), shape=(4,))
    with pytest.raises(VaultError, match="withheld") as error:
        Vault(ledger).admit(Bad(), facts)
    assert "John" not in str(error.value) and error.value.__context__ is None


def test_one_odd_label_is_one_label_outside(ledger: Ledger) -> None:
    rows = [(torch.full((4,), float(i)), i % 3) for i in range(30)]
    facts = Declared(stream="s", task="t", budget=BUDGET, size=30, labels=range(3), shape=(4,))
    vault = Vault(ledger)
    block = vault.admit([*rows, (torch.ones(4), "odd")], facts)
    assert vault._admission.records(block).units == 31 and len(vault._admission.records(block).y) == 30


def test_a_fingerprint_names_moved_code_as_ledgers_first_recorded_it() -> None:
    """A file that was renamed, or moved within its room, must not change the fingerprint of unfinished work."""
    moved = {
        "tacit.learners.replay.projection": "tacit.learners.projected",
        "tacit.privacy.vault.exits.individual_filter": "tacit.privacy.meter",
        "tacit.learners.pool.held_out_tasks": "tacit.learners.pool_held",
        "tacit.models.autoencoder_classifier": "tacit.models.stacked",
        "tacit.gradients.losses": "tacit.gradients.losses",
        "someone.elses.projection": "someone.elses.projection",
    }
    for module, recorded in moved.items():
        assert _home(type("Code", (), {"__module__": module})) == recorded


def test_a_fingerprint_names_all_fields_of_facts_with_a_short_repr() -> None:
    """The hashes are those of tacit before their `repr` was shortened: unfinished work is still found."""
    info = StreamInfo.uniform("visits", labels=(0, 1), shape=4, size=100, tasks=2)
    settings = {"budget": Budget(epsilon=1.0, delta=1e-5)}
    assert fingerprint(settings=settings) == "d030870edad3ac3290ac32f296a3f17737ddfffec41c8f23cfeb45f8e73095ef"
    assert fingerprint(stream=info) == "4b571895765cb07131aa41df2ab56e0e598a5e57e5dd242d15d0d7d0f96a100f"


class Scaled:
    """A loss with a state of some type."""

    def __init__(self, state: object) -> None:
        self.state = state

    def __call__(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return outputs.sum(1)


STATES = [
    (np.array([1.0, 1.0]), np.array([1.0, 2.0])),
    (np.float32(1), np.float32(2)),
    (frozenset({1}), frozenset({2})),
    ({"a"}, {"b"}),
    (b"a", b"b"),
    (np.zeros(5000), np.r_[np.zeros(4999), 1.0]),
    ([0.0] * 5000, [0.0] * 4999 + [1.0]),
]


@pytest.mark.parametrize("one, other", STATES, ids=lambda state: type(state).__name__)
def test_work_is_told_apart_by_states_of_every_type(one: object, other: object) -> None:
    """Otherwise a repeated step says whether a record is there that the state concerns."""
    key = bytes(32)
    for wrap in (Scaled, lambda state: lambda outputs, y: outputs.sum(1) * len(str(state))):
        first, same, second = wrap(one), wrap(copy.deepcopy(one)), wrap(other)
        assert fingerprint(loss=first) != fingerprint(loss=second)
        assert Reached(first).keyed_hash(key) == Reached(same).keyed_hash(key) != Reached(second).keyed_hash(key)
        assert Reached(first).marks() != Reached(second).marks()


class Rule:
    """A selection rule whose threshold is in an object of its own."""

    def __init__(self, threshold: float) -> None:
        self.part = Scaled(threshold)

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x[0] < self.part.state


@pytest.mark.parametrize("larger", [False, True])
def test_a_step_under_another_rule_is_refused_whatever_the_records_are(
    larger: bool, ledger: Ledger, tmp_path: Path
) -> None:
    """With and without a record that the two rules treat differently."""
    x = np.full((20, 4), 0.1, dtype=np.float32)
    x[0] = 1.5 if larger else 0.1
    facts = Declared(stream="s", task="t", budget=BUDGET, size=20, labels=range(3))

    def step(threshold: float) -> None:
        vault = Vault(ledger, tmp_path / "store")
        block = vault.admit((x, np.zeros(20)), facts)
        torch.manual_seed(0)
        with vault, vault.until_saved():
            grant = vault.grant(Read(block, select=Rule(threshold)), PLAN, nn.Linear(4, 3), cross_entropy)
            grant.gradient()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        step(2.0)
    with pytest.raises(VaultError, match=r"step 0 .*(other|differ|chang)"):
        step(1.0)
