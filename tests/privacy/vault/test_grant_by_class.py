"""Gradients by class: a step reads records of one label, whose turn is public; a record pays for its own turns only."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from support.made_up import Admit, admit_to, assert_scale
from tacit import Budget, GradientPlan, Ledger, Read, Vault
from tacit.errors import PlanError, VaultError
from tacit.gradients import clip as clip_module
from tacit.gradients.losses import cross_entropy
from tacit.privacy.accounting import calibrate, epsilon, events
from tacit.privacy.accounting.budget import Adjacency
from tacit.privacy.randomness.keys import KeyRing
from tacit.privacy.randomness.noise import Normals
from tacit.privacy.vault import Grant

K = 3
LABELS = ("a", "b", "c")


def sum_loss(output: Tensor, y: Tensor) -> Tensor:
    """Its gradient with respect to a bias-free linear layer is the input itself."""
    return output.sum(1)


def linear(features: int, outputs: int = 1) -> nn.Module:
    return nn.Linear(features, outputs, bias=False)


def plan(**changes: Any) -> GradientPlan:
    return GradientPlan(**{"rate": 1.0, "steps": 7, "noise": 1e-3, "clip": 1.5, "classes": K, **changes})


def fresh() -> Vault:
    """Two of them toss the same coins and draw the same noise."""
    return Vault(Ledger.throwaway(keys=KeyRing.for_tests(0)))


def outputs(x: Any, y: Any, asked: GradientPlan, **declared: Any) -> tuple[list[Tensor], Grant, Vault]:
    vault = fresh()
    block = admit_to(vault, x, y, public=True, **{"labels": LABELS, "size": 10} | declared)
    grant = vault.grant(block, asked, linear(np.asarray(x).shape[1]), sum_loss)
    return [grant.gradient()["weight"].clone() for _ in range(asked.steps)], grant, vault


def moved(label: str, asked: GradientPlan) -> list[int]:
    """The steps in which one record more, of this label, changes any bit (without the noise, which is another)."""
    x, y = np.random.default_rng(0).normal(size=(20, 5)), np.resize(np.asarray(LABELS), 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Normals, "fill_", lambda self, out, scale: out.zero_())
        without, *_ = outputs(x, y, asked)
        with_it, *_ = outputs(np.vstack([x, np.ones((1, 5))]), np.append(y, label), asked)
    return [step for step, (one, two) in enumerate(zip(without, with_it, strict=True)) if not torch.equal(one, two)]


# -- checks: True when the exit is right; each is run on the true code and on broken code ------------------------------


def only_its_own_turns() -> bool:
    """Bit for bit, all other steps are what they are without the record."""
    turns = {label: moved(label, plan()) for label in LABELS}
    return turns == {"a": [0, 3, 6], "b": [1, 4], "c": [2, 5]}


def all_turns_are_billed() -> bool:
    """A record of no label is read more often than the ledger was charged for."""
    _, _, vault = outputs(np.eye(5), ["a", "b", "c", "a", "b"], plan())
    ((_, billed),) = vault.ledger.statement(1).grants[0].reads
    charged = events.from_json(billed)
    return max(len(moved(label, plan())) for label in LABELS) <= charged.count


def noise_is_right() -> bool:
    """Records without a gradient: noise · clip over the expected batch of one class, in every step."""
    asked = plan(noise=2.0, steps=4)
    vault = fresh()
    block = admit_to(vault, np.zeros((20, 100)), ["a"] * 20, public=True, labels=LABELS, size=24)
    grant = vault.grant(block, asked, linear(100, 100), sum_loss)
    drawn = [grant.gradient()["weight"].numpy().copy() for _ in range(4)]
    try:
        for one in drawn:  # also of labels that nobody has
            assert_scale(one, 2.0 * 1.5 / (24 / K))
    except AssertionError:
        return False
    return bool(max(abs(np.corrcoef(drawn[0].ravel(), one.ravel())[0, 1]) for one in drawn[1:]) < 0.05)


def clip_is_right() -> bool:
    """A huge gradient moves its own step by the clip norm, a small one by its own length."""
    found, *_ = outputs([[1000.0, 0.0], [0.0, 0.5]], ["a", "b"], plan(), size=K)
    return bool(
        torch.allclose(found[0], torch.tensor([[1.5, 0.0]]), atol=0.02)
        and torch.allclose(found[1], torch.tensor([[0.0, 0.5]]), atol=0.02)
    )


def divisor_is_public() -> bool:
    """Ten records of one label and two of another, declared as ninety in all: both sums are divided by thirty."""
    found, grant, _ = outputs(np.ones((12, 1)), ["a"] * 10 + ["b"] * 2, plan(), size=90)
    return [round(float(one) * 30, 1) for one in found[:3]] == [10.0, 2.0, 0.0] and grant.expected_batch == 30


CHECKS = [only_its_own_turns, all_turns_are_billed, noise_is_right, clip_is_right, divisor_is_public]


@pytest.mark.parametrize("check", CHECKS)
def test_the_exit_is_right(check: Callable[[], bool]) -> None:
    assert check()


def no_rotation(patch: pytest.MonkeyPatch) -> None:
    """steps / K is priced, and every step reads everybody."""
    patch.setattr(GradientPlan, "place", lambda self, step: None)


def one_label_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GradientPlan, "place", lambda self, step: 0 if step % 2 else step % self.classes)


def a_turn_too_few(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GradientPlan, "turns", property(lambda self: self.steps // max(1, self.classes)))


def divided_by_all(patch: pytest.MonkeyPatch) -> None:
    true = Grant._add_gradients

    def divided(self: Grant, total: Tensor, drawn: list[Tensor]) -> None:
        true(self, total, drawn)
        self._expected = float(max(1, sum(len(units) for units in drawn)))

    patch.setattr(Grant, "_add_gradients", divided)


def noise_too_small(patch: pytest.MonkeyPatch) -> None:
    true = Normals.fill_
    patch.setattr(Normals, "fill_", lambda self, out, scale: true(self, out, 0.7 * scale))


def one_noise_for_a_turn(patch: pytest.MonkeyPatch) -> None:
    true = Normals.fill_
    patch.setattr(
        Normals, "fill_", lambda self, out, scale: true(Normals(self.key, self.counter % K, self.count), out, scale)
    )


def no_clip(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(clip_module.Flat, "weights", lambda self, squared, slack: [torch.ones_like(s) for s in squared])


@pytest.mark.parametrize(
    ("mutation", "check"),
    [
        (no_rotation, only_its_own_turns),
        (no_rotation, all_turns_are_billed),
        (one_label_twice, only_its_own_turns),
        (one_label_twice, all_turns_are_billed),
        (a_turn_too_few, all_turns_are_billed),
        (divided_by_all, divisor_is_public),
        (noise_too_small, noise_is_right),
        (one_noise_for_a_turn, noise_is_right),
        (no_clip, clip_is_right),
    ],
)
def test_broken_code_is_caught(
    mutation: Callable[[pytest.MonkeyPatch], None], check: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    assert not check()


# -- behaviour ---------------------------------------------------------------------------------------------------------


def test_the_price_is_that_of_a_records_own_turns() -> None:
    asked = plan(rate=0.1, steps=100, noise=1.2)
    assert asked.event == events.poisson_gaussian(0.1, 1.2, 34)
    assert plan(rate=0.1, steps=99, noise=1.2).event == events.poisson_gaussian(0.1, 1.2, 33)
    vault = fresh()
    block = admit_to(vault, np.eye(4), ["a"] * 4, public=True, labels=LABELS)
    vault.grant(block, asked, linear(4), sum_loss).gradient()
    wanted = epsilon.epsilon(events.poisson_gaussian(0.1, 1.2, 34), 1e-5, Adjacency.ADD_OR_REMOVE)
    assert vault.ledger.epsilon(block.stream_id) == pytest.approx(wanted, rel=1e-6)
    assert wanted < epsilon.epsilon(events.poisson_gaussian(0.1, 1.2, 100), 1e-5, Adjacency.ADD_OR_REMOVE)


def test_noise_for_a_budget_knows_the_turns() -> None:
    budget = Budget(epsilon=1.0, delta=1e-5)
    found = GradientPlan.for_budget(budget, rate=0.05, steps=90, classes=10)
    assert found.noise == pytest.approx(calibrate.gradient_noise(budget, 0.05, 9), rel=1e-9)
    assert calibrate.fits(found.event, budget)


def test_each_record_is_drawn_by_its_own_coin(fixed: Vault, admit_fixed: Admit) -> None:
    """In its own turns a record joins at the rate, independently of the others."""
    n, rounds = 40, 60
    block = admit_fixed(np.eye(n), [LABELS[i % 2] for i in range(n)], size=n, labels=LABELS)
    grant = fixed.grant(block, plan(rate=0.3, steps=K * rounds), linear(n), sum_loss)
    drawn = np.stack([grant.gradient()["weight"][0].numpy() * grant.expected_batch > 0.5 for _ in range(K * rounds)])
    for place in (0, 1):
        mine = drawn[place::K, place::2]
        assert abs(mine.mean() - 0.3) < 0.05 and not drawn[place::K, 1 - place :: 2].any()
        assert 0.6 < mine.sum(1).var() / (n / 2 * 0.3 * 0.7) < 1.5
    assert not drawn[2::K].any()


def test_some_labels_may_be_named() -> None:
    """Places 2 and 0 in turn: nobody else is read at all."""
    found, *_ = outputs(np.eye(3), ["a", "b", "c"], plan(classes=2, places=(2, 0), steps=4), size=2)
    assert [one[0].round().tolist() for one in found] == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]] * 2


def test_several_blocks_take_the_same_turns() -> None:
    vault = fresh()
    blocks = [
        admit_to(vault, np.eye(4)[[i, i + 2]], ["a", "b"], public=True, labels=LABELS, size=2, task=str(i))
        for i in range(2)
    ]
    grant = vault.grant([Read(block, 1.0) for block in blocks], plan(), linear(4), sum_loss)
    first, second, third = (grant.gradient()["weight"][0] * grant.expected_batch for _ in range(3))
    assert first.round().tolist() == [1, 1, 0, 0] and second.round().tolist() == [0, 0, 1, 1]
    assert third.abs().max() < 0.02


def test_empty_units_have_no_turn(fixed: Vault, admit_fixed: Admit) -> None:
    """A record with a label outside the set leaves its unit behind, empty."""
    block = admit_fixed(np.eye(4), ["a", "x", "b", "y"], size=K, labels=LABELS)
    grant = fixed.grant(block, plan(), linear(4), sum_loss)
    assert [grant.gradient()["weight"][0].round().tolist() for _ in range(2)] == [[1, 0, 0, 0], [0, 0, 1, 0]]


def test_it_goes_on_after_a_crash(tmp_path: Path) -> None:
    def begin() -> tuple[Grant, Vault]:
        vault = Vault(ledger, store=tmp_path)
        block = admit_to(vault, np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % K, labels=range(K))
        torch.manual_seed(0)
        net = linear(4, K)
        return vault.grant(block, plan(rate=0.5, noise=1.0, steps=9), net, cross_entropy), vault

    ledger = Ledger(tmp_path / "ledger")
    grant, _ = begin()
    taken = [grant.gradient()["weight"].clone() for _ in range(5)]
    grant._bill.journal.close()
    grant, vault = begin()
    grant.seek(4)
    assert torch.equal(grant.gradient()["weight"], taken[4])
    for _ in range(4):
        grant.gradient()
    (bill,) = vault.ledger.statement(1).grants
    assert bill.state == "RELEASED" and len(bill.reads) == 1


def test_units_with_several_records_are_refused(fixed: Vault) -> None:
    person = Budget(epsilon=1e9, delta=1e-5, unit="person")
    facts = {"public": True, "labels": LABELS, "budget": person}
    two = admit_to(fixed, np.eye(2), ["a", "b"], ids=["ann", "ann"], records_per_unit=2, **facts)
    with pytest.raises(VaultError, match=r"a unit of 's' may have 2 records in a task.*use classes=0, or declare"):
        fixed.grant(two, plan(), linear(2), sum_loss)
    assert fixed.ledger.statement(two.stream_id).grants == ()
    one = admit_to(fixed, np.eye(2), ["a", "b"], ids=["ann", "bob"], stream="one", **facts)
    fixed.grant(one, plan(), linear(2), sum_loss).gradient()


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
def test_neighbours_that_may_take_two_labels_are_refused(adjacency: str, fixed: Vault) -> None:
    budget = Budget(epsilon=1e9, delta=1e-5, adjacency=adjacency)  # type: ignore[arg-type]
    block = admit_to(fixed, np.eye(2), ["a", "b"], public=True, labels=LABELS, budget=budget)
    with pytest.raises(VaultError, match=f"protects neighbours by {adjacency}, where a record may take two labels"):
        fixed.grant(block, plan(), linear(2), sum_loss)


@pytest.mark.parametrize("changes", [{"classes": 2}, {"classes": 4}, {"classes": 1, "places": (3,)}])
def test_the_turns_are_those_of_the_labels(changes: dict[str, Any], fixed: Vault, admit_fixed: Admit) -> None:
    block = admit_fixed(np.eye(2), ["a", "b"], labels=LABELS)
    with pytest.raises(VaultError, match=r"s/t/all has 3 of them; set classes to their number, or name the places"):
        fixed.grant(block, plan(**changes), linear(2), sum_loss)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"classes": -1}, "classes must be a whole number ≥ 0, got -1"),
        ({"classes": True}, "classes must be a whole number"),
        ({"classes": 2, "places": (1,)}, "places must name 2 labels, each once, got 1 of them"),
        ({"classes": 2, "places": (1, 1)}, "got 2 of them, 1 different; a label that came twice"),
    ],
)
def test_bad_turns_say_what_to_do(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        plan(**changes)


def test_plans_without_classes_are_described_as_ever() -> None:
    """Pins and ledgers of older grants stay what they were."""
    told = GradientPlan(rate=0.5, steps=3, noise=1.0).describe()
    assert set(told) == {"plan", "rate", "steps", "noise", "clip", "clipping"}
    assert plan().describe()["classes"] == K
