"""Private tuning: one charge, a secret random number of trials, only the winner leaves."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from support.made_up import Admit
from tacit import Budget, Declared, Ledger, SumPlan, TuningPlan, Vault
from tacit.certificate.issuance import issue
from tacit.errors import BudgetExceeded, PlanError, VaultError
from tacit.privacy.ledger import Ticket
from tacit.privacy.randomness.keys import KeyRing
from tacit.privacy.vault.exits import repeat_and_select

READ = SumPlan(noise=50.0)


def test_one_charge_for_all_trials_and_the_best_comes_back(vault: Vault, admit: Admit, ledger: Ledger) -> None:
    block = admit(np.ones((5, 1)), np.zeros(5), budget=Budget(epsilon=5.0, delta=1e-5))
    scores = []

    def trial(rng: np.random.Generator) -> tuple[float, float]:
        choice = float(rng.uniform())
        vault.count(block, READ)
        scores.append(choice)
        return choice, choice

    winner = vault.umbrella([block], TuningPlan(reads=[READ], trials=8, shape=1.0), trial)
    assert winner.result == max(scores) == winner.score
    grants = ledger.statement(block.stream_id).grants
    assert [grant.kind for grant in grants] == ["tuning"]
    assert 0 < ledger.epsilon(block.stream_id) < 5.0
    assert issue(vault.ledger, block, method="tuned").tuning == "charged"


def test_a_trial_cannot_read_more_than_its_plan(vault: Vault, admit: Admit) -> None:
    block = admit(np.ones((5, 1)), np.zeros(5))
    plan = TuningPlan(reads=[READ], trials=3, shape=0.0)

    def greedy(rng: np.random.Generator) -> tuple[float, None]:
        vault.count(block, READ)
        vault.count(block, READ)
        return 0.0, None

    with pytest.raises(BudgetExceeded, match=r"TuningPlan\.reads"):
        vault.umbrella([block], plan, greedy)


def test_a_trial_cannot_use_less_noise_than_its_plan(vault: Vault, admit: Admit) -> None:
    block = admit(np.ones((5, 1)), np.zeros(5))

    def loud(rng: np.random.Generator) -> tuple[float, None]:
        vault.count(block, SumPlan(noise=1.0))
        return 0.0, None

    with pytest.raises(BudgetExceeded):
        vault.umbrella([block], TuningPlan(reads=[READ], trials=3, shape=0.0), loud)


def test_tunings_do_not_nest(vault: Vault, admit: Admit) -> None:
    block = admit(np.ones((5, 1)), np.zeros(5), open=True)
    plan = TuningPlan(reads=[READ], trials=3, shape=0.0)

    def nested(rng: np.random.Generator) -> tuple[float, None]:
        vault.umbrella([block], plan, lambda rng: (0.0, None))
        return 0.0, None

    with pytest.raises((VaultError, BudgetExceeded)):
        vault.umbrella([block], plan, nested)


def test_records_stay_until_the_last_trial(vault: Vault, admit: Admit) -> None:
    """A learner lets go of its block when it is done; the next trial reads it too."""
    block = admit(np.ones((5, 1)), np.zeros(5), budget=Budget(epsilon=20.0, delta=1e-5))
    seen = []

    def trial(rng: np.random.Generator) -> tuple[float, None]:
        seen.append(vault.count(block, READ))
        vault.drop(block)
        return 0.0, None

    vault.umbrella([block], TuningPlan(reads=[READ], trials=30, shape=math.inf), trial)
    assert len(seen) > 1
    vault.drop(block)
    with pytest.raises(VaultError, match="does not hold the records"):
        vault.count(block, READ)


def test_trials_have_independent_noise(vault: Vault, admit: Admit) -> None:
    block = admit(np.ones((5, 1)), np.zeros(5), budget=Budget(epsilon=20.0, delta=1e-5))
    seen = []

    def trial(rng: np.random.Generator) -> tuple[float, None]:
        seen.append(vault.count(block, READ))
        return 0.0, None

    vault.umbrella([block], TuningPlan(reads=[READ], trials=30, shape=math.inf), trial)
    assert len(seen) > 10 and len(set(seen)) > 0.8 * len(seen)  # two may meet on the grid


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 3.0, math.inf])
def test_the_number_of_trials_has_the_billed_distribution(shape: float) -> None:
    """The mean is the billed one (±30 % would fail), and only Poisson gives zero."""
    plan = TuningPlan(reads=[READ], trials=6.0, shape=shape)
    keys = KeyRing.for_tests(0)
    draws = np.asarray(
        [repeat_and_select.draw_trials(plan, keys, Ticket(grant=str(i), token=1, generation=1)) for i in range(3000)]
    )
    error = draws.std() / math.sqrt(len(draws))
    assert abs(draws.mean() - 6.0) < 4.5 * error
    assert 4.5 * error < 0.3 * 6.0
    assert (draws.min() == 0) == math.isinf(shape)
    if shape == 1.0:
        assert stats.kstest(draws, stats.geom(1 / 6.0).cdf).statistic < stats.geom(1 / 6.0).pmf(1) + 0.03


def test_masses_add_up_to_one() -> None:
    for shape in (0.0, 0.5, 1.0, 4.0, math.inf):
        masses = repeat_and_select._masses(TuningPlan(reads=[READ], trials=5.0, shape=shape))
        assert sum(next(masses) for _ in range(3000)) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("bad", [{"reads": []}, {"trials": 1.0}, {"trials": math.inf}, {"shape": -1.0}])
def test_bad_tuning_plans_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(PlanError):
        TuningPlan(**({"reads": [READ], "trials": 5.0, "shape": 1.0} | bad))  # type: ignore[arg-type]


def test_a_charge_gives_one_result_whatever_became_of_it(tmp_path: Path) -> None:
    """Two results of one charge have the same number of trials and the same noise, so they tell of the records."""
    vault = Vault(Ledger(tmp_path / "ledger"), tmp_path / "store")
    facts = Declared(stream="s", task="t", budget=Budget(epsilon=5.0, delta=1e-5), size=5, labels=[0])
    block = vault.admit((np.ones((5, 1)), np.zeros(5)), facts)
    plan, counts = TuningPlan(reads=[READ], trials=3.0), list[float]()

    def trial(rng: np.random.Generator) -> tuple[float, float]:
        counts.append(vault.count(block, READ))
        return counts[-1], counts[-1]

    with pytest.raises(RuntimeError), vault.until_saved():
        vault.umbrella(block, plan, trial)
        raise RuntimeError
    before = len(counts)
    assert before
    with pytest.raises(BudgetExceeded), vault.corrected():
        vault.umbrella(block, plan, trial)
    assert len(counts) == before
    vault.ledger.close()
    later = Vault(Ledger(tmp_path / "ledger"), tmp_path / "store")
    again = later.admit((np.ones((5, 1)), np.zeros(5)), facts)
    with pytest.raises(BudgetExceeded), later.corrected():
        later.umbrella(again, plan, trial)
    assert len(counts) == before
