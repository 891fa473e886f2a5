"""Label spaces: declared ones cost nothing, learned ones are charged, one from the data is refused or says so."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.made_up import Admit, admit_to
from tacit import Budget, Certificate, Ledger, SumPlan, Vault
from tacit.certificate.issuance import issue
from tacit.errors import BudgetExceeded, PlanError, VaultError
from tacit.privacy.accounting.calibrate import fits
from tacit.privacy.accounting.events import compose
from tacit.privacy.ledger.limits.policy import Policy
from tacit.privacy.vault import Constant, FromData, LabelPlan, LabelSpace, Learned, Prior
from tacit.privacy.vault.label_spaces import under

QUIET = SumPlan(noise=1e-3, clip=2.0)
BUDGET = Budget(epsilon=1.0, delta=1e-5)
PETS = ("cat", "dog", "other")
Y = ["cat"] * 200 + ["dog"] * 150 + ["eel"] * 3


def pets(admit: Admit, **facts: Any) -> Any:
    return admit(np.stack([np.ones(len(Y)), np.arange(len(Y))], 1), Y, **{"labels": None} | facts)


@pytest.mark.parametrize(
    ("space", "kept"),
    [
        (Constant(declared=("cat", "dog")), {"cat": 200, "dog": 150}),
        (Constant(declared=PETS, other="other"), {"cat": 200, "dog": 150, "other": 3}),
        (Prior(declared={"t": ("dog", "fox")}), {"dog": 150, "fox": 0}),
        (Prior(declared={"t": ("dog", "other")}, other="other"), {"dog": 150, "other": 203}),
    ],
)
def test_what_is_outside_a_declared_set_is_dropped_or_remapped(
    space: LabelSpace, kept: dict[str, int], vault: Vault, admit: Admit
) -> None:
    block = under(space, vault, admit(np.ones((len(Y), 1)) + 1e-6 * np.arange(len(Y))[:, None], Y, labels=None))
    assert block.labels == tuple(kept)
    sums = vault.sums(block, QUIET)[:, 0].tolist()
    assert dict(zip(block.labels, map(round, sums), strict=True)) == kept


def test_admission_remaps_by_the_same_rule(vault: Vault, admit: Admit) -> None:
    block = admit(np.ones((5, 1)) + np.arange(5)[:, None] * 1e-6, [0, 1, 7, 8, 1], labels=(0, 1, 2), other=2)
    assert [round(one) for one in vault.sums(block, QUIET)[:, 0].tolist()] == [1, 2, 2]


def test_a_remap_sees_one_record_at_a_time(ledger: Ledger, admit: Admit, vault: Vault) -> None:
    """One unit more changes one unit, whatever its label is: the sums differ by that record alone."""
    found = []
    for task, more in (("a", []), ("b", ["wolf"])):
        y = [*Y, *more]
        x = np.eye(len(Y) + 1, dtype=np.float32)[: len(y)]
        block = under(Constant(declared=PETS, other="other"), vault, admit(x, y, labels=None, task=task))
        found.append(vault.sums(block, QUIET))
    difference = (found[1] - found[0]).round().nonzero().tolist()
    assert difference == [[PETS.index("other"), len(Y)]]


def test_the_label_for_the_rest_must_be_in_the_set(vault: Vault, admit: Admit) -> None:
    for wrong in (
        lambda: Constant(declared=("cat",), other="other"),
        lambda: Prior(declared={"t": ("cat",)}, other="other"),
        lambda: Learned(candidates=("cat",), other="other"),
        lambda: vault.with_labels(pets(admit), ("cat",), other="other"),
        lambda: pets(admit, labels=("cat",), other="other"),
        lambda: pets(admit, labels=None, other="other"),
    ):
        with pytest.raises(VaultError, match="'other' is where labels outside the set go"):
            wrong()


def test_a_prior_names_every_task(vault: Vault, admit: Admit) -> None:
    with pytest.raises(VaultError, match="no label set was declared for task 't'"):
        under(Prior(declared={"u": ("cat",)}), vault, pets(admit))


# -- from data ---------------------------------------------------------------------------------------------------------


def test_from_data_is_refused_for_private_data(vault: Vault, admit: Admit, ledger: Ledger) -> None:
    block = pets(admit)
    with pytest.raises(
        VaultError,
        match=r"depends on one record .*Prop. 4.6.*declare it .*label_space: task, cons.* learn it .*: learned",
    ):
        under(FromData(), vault, block)
    assert ledger.statement(block.stream_id).exposures == ()


def test_from_data_says_so_where_it_is_allowed(tmp_path: Path, admit_fixed: Admit, fixed: Vault) -> None:
    block = under(FromData(), fixed, pets(admit_fixed))
    assert block.labels == ("cat", "dog", "eel")
    assert issue(fixed.ledger, block, method="m").labels.policy == "from data, not private"
    with Ledger(tmp_path / "loose") as ledger:
        ledger.adopt(Policy(allow_unsafe=True), by="officer", why="to show the leak")
        vault = Vault(ledger)
        block = under(FromData(), vault, admit_to(vault, np.arange(3)[:, None], [3, 1, 3], labels=None))
        said = issue(vault.ledger, block, method="m")
    assert block.labels == (1, 3)
    assert said.epsilon is None and said.labels.policy == "from data, not private"
    assert "label sets were read from the data" in said.claims.certified.reason and "from data, not private" in str(
        said
    )


# -- learned -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize(
    "learned",
    [Learned(candidates=PETS, share=0.1), Learned(candidates=PETS, share=0.7), Learned(other="other", share=0.3)],
)
def test_labels_and_weights_take_the_whole_budget_and_no_more(learned: Learned, tasks: int) -> None:
    asked, rest = learned.plan(BUDGET, tasks_per_unit=tasks), learned.rest(BUDGET, tasks_per_unit=tasks)
    sums = rest.sums()
    assert fits(compose([asked.event, sums.event]), BUDGET, tasks)
    assert not fits(compose([asked.event, SumPlan(noise=0.99 * sums.noise).event]), BUDGET, tasks)
    halves = [rest.sums(share=0.5).event] * 2
    assert fits(compose([asked.event, *halves]), BUDGET, tasks)
    gradient = rest.gradient(rate=0.1, steps=20)
    assert fits(compose([asked.event, gradient.event]), BUDGET, tasks)
    thinner = replace(gradient, noise=0.99 * gradient.noise)
    assert not fits(compose([asked.event, thinner.event]), BUDGET, tasks)


def test_a_series_of_sums_shares_with_the_labels() -> None:
    learned = Learned(candidates=PETS, share=0.2)
    for tasks in (1, 3):
        sums = learned.rest(BUDGET, tasks_per_unit=tasks).sums(horizon=5, series="prototypes")
        both = compose([learned.plan(BUDGET, tasks_per_unit=tasks).event, sums.event])
        assert fits(both, BUDGET, tasks) and not fits(compose([both, sums.event]), BUDGET, tasks)


def test_both_are_committed_in_one_transaction(vault: Vault, admit: Admit, ledger: Ledger) -> None:
    learned = Learned(candidates=("cat", "dog", "eel", "fox"), share=0.2)
    asked, sums = learned.plan(BUDGET), learned.rest(BUDGET).sums()
    block = pets(admit, budget=BUDGET)
    vault.commit({block: [asked, sums]})
    known = under(learned, vault, block)
    assert set(known.labels) >= {"cat", "dog"} and "fox" not in known.labels
    assert vault.sums(known, sums).shape == (len(known.labels), 2)
    assert 0.99 < ledger.epsilon(block.stream_id) <= 1.0
    with pytest.raises(BudgetExceeded):
        vault.sums(known, sums)
    said = issue(vault.ledger, known, method="m")
    assert said.labels.policy == "learned privately" and "label sets    learned privately" in str(said)


def test_a_learned_set_is_never_empty(fixed: Vault, admit_fixed: Admit) -> None:
    """An empty task has a classifier too, and what is released of it is what noise makes (Prop. F.1)."""

    def of(space: LabelSpace, task: str, y: list[str]) -> Any:
        block = admit_fixed(np.zeros((len(y), 1)), y, labels=None, task=task, budget=BUDGET, shape=(1,), size=9)
        return under(space, fixed, block).labels

    high = Learned(candidates=("cat", "dog"), share=1.0, threshold=60.0)
    assert of(high, "nobody", []) == ("cat", "dog")
    assert of(high, "few", ["cat"] * 5) == ("cat", "dog")
    assert of(Learned(candidates=PETS, other="other", threshold=8.0), "more", ["dog"] * 300) == ("dog", "other")
    assert of(Learned(other="other"), "alone", ["wolf"]) == ("other",)
    assert of(Learned(other="other"), "many", ["dog"] * 300 + ["wolf"]) == ("dog", "other")


def test_splitting_epsilon_is_less_noisy_than_splitting_people() -> None:
    """n·s at noise σ against n at noise σ/√s; and for the rest n(1 − s) at σ against n at σ/√(1 − s)."""
    share, whole = 0.05, SumPlan.for_budget(BUDGET).noise
    by_people = (share / Learned(candidates=PETS, share=1.0).plan(BUDGET).noise, (1 - share) / whole)
    learned = Learned(candidates=PETS, share=share)
    by_epsilon = (1 / learned.plan(BUDGET).noise, 1 / learned.rest(BUDGET).sums().noise)
    assert by_epsilon[0] / by_people[0] == pytest.approx(1 / math.sqrt(share), rel=1e-6)
    assert by_epsilon[1] / by_people[1] == pytest.approx(1 / math.sqrt(1 - share), rel=1e-6)


def test_impossible_plans_are_refused() -> None:
    for wrong, said in (
        ({"candidates": PETS, "share": 0.0}, "share must be in"),
        ({"candidates": PETS, "share": 1.5}, "share must be in"),
        ({"other": "other", "delta_share": 1.0}, "delta_share must be in"),
        ({}, "discovery may find nothing"),
    ):
        with pytest.raises(PlanError, match=said):
            Learned(**wrong)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="spends the whole budget on the labels"):
        Learned(candidates=PETS, share=1.0).rest(BUDGET)


@pytest.mark.parametrize("learned", [Learned(other="other"), Learned(candidates=("0", "1"))])
def test_labels_of_another_kind_are_refused_before_the_charge(
    learned: Learned, vault: Vault, admit: Admit, ledger: Ledger
) -> None:
    block = admit(np.ones((4, 1)) + np.arange(4)[:, None], [0, 1, 1, 0], labels=(0, 1), budget=BUDGET)
    with pytest.raises(PlanError, match=r"is named as a label, and the labels of .* are of another kind, such as 0"):
        under(learned, vault, block)
    assert ledger.statement(block.stream_id).grants == ()
    assert 9 in under(Learned(other=9), vault, block).labels


# -- what the certificate says -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ([(0, 1)], "declared public"),
        ([(0, 1), (0, 1)], "declared constant"),
        ([(0, 1), (2, 3)], "declared per task"),
        ([None], "none"),
    ],
)
def test_the_certificate_says_where_label_sets_come_from(
    sets: list[tuple[int, ...] | None], said: str, vault: Vault, admit: Admit
) -> None:
    for number, labels in enumerate(sets):
        block = admit([[float(number)]], [0], labels=labels, task=str(number))
    found = issue(vault.ledger, block, method="m")
    assert found.labels.policy == said and f"label sets    {said};" in str(found)
    assert independent(found) == (said != "none") and not any(one.name == "label sets" for one in found.assumptions)


def independent(certificate: Certificate) -> bool:
    """Whether the label sets are said not to depend on the data."""
    (facts,) = [one for one in certificate.assumptions if one.name == "public facts"]
    assert "nominal sizes, number and timing of tasks do not depend on the data" in facts.says
    return "label sets" in facts.says


def test_sets_that_depend_on_the_data_are_not_said_to_be_independent(fixed: Vault, admit_fixed: Admit) -> None:
    for space, state in ((Learned(candidates=("cat", "dog")), "checked"), (FromData(), "violated")):
        block = pets(admit_fixed, stream=state)
        found = issue(fixed.ledger, under(space, fixed, block), method="m")
        assert not independent(found)
        assert [one.state for one in found.assumptions if one.name == "label sets"] == [state]


@pytest.mark.parametrize("candidates", [("a", "b", "a"), (1, np.int64(1)), (1, True), (0, 0.0), ("1", 1)])
def test_a_candidate_that_is_named_twice_is_refused(candidates: tuple[Any, ...]) -> None:
    """A unit would add to the count of each copy: k copies have a sensitivity of √k."""
    with pytest.raises(VaultError, match=r"twice|all whole numbers or all texts"):
        LabelPlan(noise=1.0, candidates=candidates)
    assert LabelPlan(noise=1.0, candidates=(np.int64(1), 2)).candidates == (1, 2)  # type: ignore[arg-type]
