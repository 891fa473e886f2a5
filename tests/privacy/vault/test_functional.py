"""The functional mechanism as published: one draw for a stream, no protection, and no silence about it."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.made_up import Admit, admit_to
from tacit import Ledger, Vault
from tacit.certificate import claims
from tacit.certificate.issuance import issue
from tacit.errors import PlanError, PolicyError
from tacit.privacy.ledger.limits.policy import Policy
from tacit.privacy.vault import FunctionalPlan
from tacit.privacy.vault.exits.unsafe import laplace

X = np.random.default_rng(0).random((6, 4)).astype(np.float32)
Y = np.arange(6) % 3


def plan(**changes: Any) -> FunctionalPlan:
    facts: dict[str, Any] = {
        "epsilon1": 0.5, "epsilon2": 0.25, "batch": 2, "delta_r": 20, "delta_l": 10, "input": (4,), "hidden": (3,),
        "output": (5,),
    }  # fmt: skip
    return FunctionalPlan(**facts | changes)


def test_one_draw_for_every_record_of_every_task(vault: Vault, admit: Admit) -> None:
    first, second = (admit(X + k, Y, task=str(k), public=True, labels=range(3)) for k in (0, 0.001))
    one, two = (vault.unsafe.perturbed(block, plan(), dtype=torch.float64) for block in (first, second))
    for name in ("input", "hidden", "output"):
        assert torch.equal(getattr(one, name), getattr(two, name))
    raw, labels = vault.unsafe.records(first, "to compare")
    assert torch.allclose(one.x - one.input, 2 * raw.double() - 1, atol=1e-6)
    assert torch.equal(one.y, labels)
    assert not torch.allclose(one.x, raw.double(), atol=0.1)


def test_the_draw_belongs_to_the_keys_and_the_stream(tmp_path: Path) -> None:
    def drawn(ledger: str, stream: str) -> torch.Tensor:
        with Ledger(tmp_path / ledger) as book:
            vault = Vault(book)
            block = admit_to(vault, X, Y, stream=stream, task=stream, public=True)
            return vault.unsafe.perturbed(block, plan()).hidden

    first = drawn("a", "s")
    assert torch.equal(first, drawn("a", "s"))  # another process takes the stream up again
    assert not torch.equal(first, drawn("b", "s"))
    with Ledger(tmp_path / "c") as book:
        vault = Vault(book)
        both = [admit_to(vault, X + k, Y, stream=f"s{k}", public=True) for k in (0, 1)]
        one, two = (vault.unsafe.perturbed(block, plan()).hidden for block in both)
    assert not torch.equal(one, two)


def test_the_draw_outlives_a_rotation_of_keys(vault: Vault, admit: Admit, ledger: Ledger) -> None:
    block = admit(X, Y, public=True)
    before = vault.unsafe.perturbed(block, plan()).input
    ledger.keys.rotate(keep=set())
    assert torch.equal(vault.unsafe.perturbed(block, plan()).input, before)


def test_scales_are_those_of_the_papers(vault: Vault, admit: Admit) -> None:
    """Mean |Laplace(b)| = b: Δ_R/ε₁/λ on inputs, twice that on the hidden layer, Δ_L/ε₂/λ on the output layer."""
    n = 20_000
    block = admit(X, Y, public=True)
    found = vault.unsafe.perturbed(block, plan(hidden=(n,), output=(n,), input=(4,)))
    assert found.hidden.abs().mean() == pytest.approx(2 * 20 / 0.5 / 2, rel=0.05)
    assert found.output.abs().mean() == pytest.approx(10 / 0.25 / 2, rel=0.05)
    halved = vault.unsafe.perturbed(admit(X + 1, Y, task="u", public=True), plan(batch=4))
    assert torch.allclose(
        2 * halved.input, vault.unsafe.perturbed(admit(X + 2, Y, task="v", public=True), plan()).input
    )


def test_laplace_variables() -> None:
    x = laplace((200_000,), bytes(32), 0).numpy()
    assert (
        abs(x.mean()) < 0.02
        and np.abs(x).mean() == pytest.approx(1, rel=0.02)
        and x.std() == pytest.approx(2**0.5, rel=0.02)
    )
    for level in (1.0, 3.0):
        assert (x > level).mean() == pytest.approx(np.exp(-level) / 2, rel=0.06)
    assert not np.allclose(x, laplace((200_000,), bytes(32), 1).numpy())


def test_it_is_refused_without_opt_in_before_anything_is_read(tmp_path: Path) -> None:
    class Spied(torch.utils.data.Dataset[Any]):
        asked = 0

        def __len__(self) -> int:
            return 6

        def __getitem__(self, i: int) -> Any:
            Spied.asked += 1
            return X[i], int(Y[i])

    from tacit import Budget, Declared

    with Ledger(tmp_path / "ledger") as ledger:
        vault = Vault(ledger)
        facts = Declared(
            stream="s", task="t", budget=Budget(epsilon=1, delta=1e-5), size=6, labels=range(3), shape=(4,)
        )
        block = vault.admit(Spied(), facts)
        before = Spied.asked
        with pytest.raises(PolicyError) as error:
            vault.unsafe.perturbed(block, plan())
        assert re.fullmatch(r"[^.\n]*without public data[^.\n]*allow_unsafe = true[^.\n]*", str(error.value))
        vault.admit((X + 1, Y), replace(facts, stream="public", public=True))
        with pytest.raises(PolicyError) as error:
            vault.unsafe.perturbed(block, plan())
        assert re.fullmatch(r"[^.\n]*one draw of noise[^.\n]*allow_unsafe = true[^.\n]*", str(error.value))
        assert Spied.asked == before and ledger.epsilon(block.stream_id) == 0
        ledger.adopt(Policy(allow_unsafe=True), by="officer", why="to show an attack")
        vault.unsafe.perturbed(block, plan())
        assert ledger.epsilon(block.stream_id) == np.inf
        ledger.verify()


def test_the_certificate_gives_the_true_reason(vault: Vault, admit: Admit, ledger: Ledger) -> None:
    block = admit(X, Y, public=True)
    vault.unsafe.perturbed(block, plan())
    certificate = issue(vault.ledger, block, method="L2DPML", claims=[claims.lifelong(0.2, 0.2, 2.0, 80.0)])
    reason = certificate.claims.certified.reason
    assert certificate.epsilon is None and certificate.mode == "uncertified"
    assert "share one draw of noise" in reason and "differences of perturbed records are exact" in reason
    assert " raw" not in reason and " raw" not in certificate.claims.certified.accountant
    assert certificate.claims.paper[0].epsilon == pytest.approx(0.2 + 0.2 / 80 + 0.1 + 0.2)
    assert "no finite epsilon is certified" in str(certificate) and "not certified" in str(certificate)
    vault.unsafe.perturbed(block, plan())  # said once
    assert len(ledger.statement(block.stream_id).exposures) == 1
    vault.unsafe.records(block, "a baseline")  # the same block, raw: that is the reason then
    assert "raw records were released" in issue(vault.ledger, block, method="AGEM").claims.certified.reason


def test_the_papers_numbers() -> None:
    """d = 784, |h₁| = 256, λ = 2500."""
    delta_r = 784 * (256 + 2)
    assert delta_r == 202_272
    gamma, gamma_x = claims.lifelong_ratios(delta_r, 2500, norm=10.0)
    assert gamma_x == pytest.approx(80.9088) and gamma == pytest.approx(2 * 202_272 / 25_000)
    assert claims.lifelong(1.0, 0.0, gamma, gamma_x).epsilon == pytest.approx(1 + 0.012360 + 1 / gamma, abs=1e-6)
    with pytest.raises(PlanError, match="must be > 0"):
        claims.lifelong_ratios(delta_r, 0, 1.0)


@pytest.mark.parametrize("change", [{"epsilon1": 0}, {"batch": -1}, {"delta_l": np.inf}, {"low": 1.0}])
def test_plans_that_make_no_sense(change: dict[str, float]) -> None:
    with pytest.raises(PlanError):
        plan(**change)


def test_features_are_mapped_by_public_constants() -> None:
    x = torch.tensor([[-9.0, -2.0, 0.0, 2.0, 9.0]])
    assert plan(low=-2.0, high=2.0).scaled(x).tolist() == [[-1, -1, 0, 1, 1]]
