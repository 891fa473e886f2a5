"""What can no longer be done: with retired records, with records that left raw, inside a trial, under a cap."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit import Block, Budget, Declared, GradientPlan, Ledger, Policy, SumPlan, Vault
from tacit.certificate.issuance import issue
from tacit.errors import LedgerError, VaultError
from tacit.gradients.losses import cross_entropy
from tacit.privacy import Unit
from tacit.privacy.ledger.storage.values import FROM_DATA, SHARED_NOISE
from tacit.privacy.vault import Rehearsal, TuningPlan
from tacit.privacy.vault.intake.feature_map import FeatureMap
from tacit.privacy.vault.intake.isolation import beside

ONE = Budget(epsilon=1.0, delta=1e-5)
X, Y = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32), np.arange(20) % 2


def admit_to(vault: Vault, x: Any, y: Any, ids: Any = None, **declared: Any) -> Block:
    facts = {"stream": "s", "task": "t", "budget": ONE, "size": 20, "labels": range(2)} | declared
    return vault.admit((x, y) if ids is None else (x, y, ids), Declared(**facts))


def test_retired_records_leave_by_no_exit_and_are_not_kept(ledger: Ledger, tmp_path: Path) -> None:
    ledger.adopt(Policy(allow_unsafe=True), by="officer", why="baseline")
    vault = Vault(ledger, tmp_path / "store")
    block = admit_to(vault, X, Y)
    vault.retire(block)
    block = admit_to(vault, X, Y)
    for use in (
        vault.keep,
        lambda b: vault.unsafe.records(b, "why"),
        vault.unsafe.labels,
        lambda b: vault.sums(b, _plan()),
    ):
        with pytest.raises(LedgerError, match="retired"):
            use(block)
    assert not list((tmp_path / "store").rglob("*.safetensors"))
    assert issue(vault.ledger, block, method="m").epsilon is not None


def test_a_trial_of_private_tuning_cannot_retire(vault: Vault, admit: Any) -> None:
    """Else the second trial would fail, and tell that there was one."""
    block: Block = admit(X, Y)

    def trial(rng: np.random.Generator) -> tuple[float, None]:
        vault.retire(block)
        return 0.0, None

    with pytest.raises(VaultError, match="cannot retire"):
        vault.umbrella([block], TuningPlan(reads=[_plan()], trials=3, shape=1.0), trial)


def test_records_that_left_raw_as_public_ones_are_not_private_later(vault: Vault) -> None:
    public = admit_to(vault, X, Y, stream="open", public=True)
    vault.unsafe.records(public, "a baseline")
    with pytest.raises(LedgerError, match="left the vault raw; they cannot be private now"):
        admit_to(vault, X, Y, stream="closed", task="u")
    admit_to(vault, X, Y, stream="open too", public=True)


def test_a_cap_over_all_streams_ends_where_one_of_them_was_let_out(ledger: Ledger) -> None:
    cap = Budget(epsilon=1.5, delta=1e-5)
    ledger.adopt(Policy(allow_unsafe=True, unit_cap=cap), by="officer", why="cap")
    vault = Vault(ledger)
    vault.unsafe.records(admit_to(vault, X, Y, stream="a", budget=ONE), "a baseline")
    other = admit_to(vault, X + 1, Y, stream="b", budget=ONE)
    with pytest.raises(LedgerError, match="unit_cap cannot hold"):
        vault.sums(other, SumPlan.for_budget(ONE))


@pytest.mark.parametrize("why", [FROM_DATA, SHARED_NOISE])
def test_raw_records_have_a_reason_of_their_own(vault: Vault, admit: Any, why: str) -> None:
    block = admit(X, Y, public=True)
    with pytest.raises(VaultError, match="the reason of another exit"):
        vault.unsafe.records(block, why)


class Huge(nn.Module):
    """Finite in every row; two rows of one sign add up to infinity."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x[:, :1] > 5, 1.5e308, x.double())


def test_a_persons_rows_that_add_up_to_infinity_count_for_nothing(vault: Vault) -> None:
    person = Budget(epsilon=1e9, delta=1e-5, unit=Unit.PERSON)
    loud = np.full((2, 3), 9, dtype=np.float32)
    x, y, ids = np.concatenate([X, loud]), np.concatenate([Y, [1, 1]]), np.arange(22)
    ids[-2:] = 100
    found = []
    for task, rows in (("with", slice(None)), ("without", slice(20))):
        facts = {"budget": person, "records_per_unit": 2, "stream": task}
        block = admit_to(vault, x[rows], y[rows], ids[rows], task=task, **facts)
        found.append(vault.sums(block, SumPlan(noise=1e-4), through=Huge().eval()))
    assert torch.isfinite(found[0]).all()
    assert torch.allclose(found[0], found[1], atol=1e-2)


def test_rows_go_where_a_map_without_parameters_keeps_its_buffers() -> None:
    module = nn.Module()
    module.register_buffer("w", torch.zeros(3, device="meta"))
    assert beside(module, torch.zeros(2, 3)).device.type == "meta"


def _plan() -> SumPlan:
    return SumPlan(noise=5.0)


def test_an_open_grant_reads_no_retired_records(vault: Vault) -> None:
    block = admit_to(vault, X, Y)
    grant = vault.grant(block, GradientPlan.for_budget(ONE, rate=0.5, steps=3), nn.Linear(3, 2), cross_entropy)
    grant.gradient()
    vault.retire(block)
    with pytest.raises(LedgerError, match="retired"):
        grant.gradient()


def test_what_was_kept_before_a_split_goes_with_its_parts(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        vault = Vault(ledger, tmp_path / "store")
        block = admit_to(vault, X, Y)
        vault.keep(block)
        one, two = vault.split(block, {"a": 0.5, "b": 0.5})
        held = vault._admission.records(two)
        rows = held.features(torch.arange(len(held.rows)))
        vault.retire(one)
        again = Vault(ledger, tmp_path / "store")
        kept = again._admission.records(again.reopen(two))
        assert torch.equal(kept.features(torch.arange(len(kept.rows))), rows)
        with pytest.raises(VaultError, match="does not hold"):
            again.reopen(block)
        vault.retire(two)
        assert not list((tmp_path / "store").rglob("*.safetensors"))


def test_a_part_does_not_hold_the_records_of_a_retired_one(vault: Vault) -> None:
    block = admit_to(vault, X, Y)
    one, two = vault.split(block, {"a": 0.5, "b": 0.5})
    gone, held = vault._admission.records(one), vault._admission.records(two)
    before = held.features(torch.arange(len(held.rows)))
    vault.retire(one)
    assert torch.equal(held.features(torch.arange(len(held.rows))), before)
    assert len(gone.rows) and len(held.rows) < len(X)
    with pytest.raises(IndexError):
        held.fetch(torch.tensor([len(held.rows)]))


def test_features_in_a_cache_go_with_their_records(ledger: Ledger, tmp_path: Path) -> None:
    through = FeatureMap(nn.Linear(3, 2).eval(), key="k", width=2, shape=(3,), folder=tmp_path / "cache")
    vault = Vault(ledger, tmp_path / "store")
    facts = Declared(stream="s", task="t", budget=ONE, size=20, labels=range(2), shape=(2,))
    block = vault.admit((X, Y), facts, through=through)
    vault.keep(block)
    assert list(tmp_path.rglob("cache/**/*.safetensors"))
    vault.retire(block)
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize(
    "forged", [{"tasks_per_unit": 1}, {"records_per_unit": 3}, {"size": 10_000}, {"public": True}, {"root": 7}]
)
def test_a_handle_with_other_facts_than_the_ledger_is_refused(vault: Vault, forged: dict[str, Any]) -> None:
    """Two tasks of one unit share a grant's noise, and cost √2 of what they would if a unit were in one of them."""
    ids = np.arange(20)
    blocks = [
        admit_to(vault, X + task, Y, ids, task=f"t{task}", tasks_per_unit=2, budget=Budget(epsilon=9.0, delta=1e-5))
        for task in range(2)
    ]
    plan = GradientPlan(rate=0.5, steps=1, noise=5.0)
    with pytest.raises(VaultError, match="other facts"):
        vault.grant([replace(block, **forged) for block in blocks], plan, nn.Linear(3, 2), cross_entropy)
    with pytest.raises(VaultError, match="other facts"):
        vault.sums(replace(blocks[0], **forged), SumPlan(noise=5.0))
    assert not vault.ledger.statement(1).grants
    vault.grant([replace(block, labels=(1, 0)) for block in blocks], plan, nn.Linear(3, 2), cross_entropy).gradient()


def test_a_rehearsal_takes_no_kept_ledger_and_no_private_records(ledger: Ledger) -> None:
    with pytest.raises(VaultError, match="throw-away ledger"):
        Rehearsal(ledger)
    with pytest.raises(VaultError, match="declare them public"):
        admit_to(Rehearsal(Ledger.throwaway()), X, Y)
    assert admit_to(Rehearsal(Ledger.throwaway()), X, Y, public=True).public
