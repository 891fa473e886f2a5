"""People who are in several tasks: what is committed is what is read, and all of it fits their budget."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from support.small_world import REPLAY, ROOMY, fixed, given, learn, of_people, person_facts, started, uncommitted
from tacit import Budget
from tacit.learners.replay.dper import DPER
from tacit.memory import calibration
from tacit.privacy.accounting.budget import Unit


@pytest.mark.parametrize("name", REPLAY)
def test_people_who_recur_are_billed_for_what_is_read(name: str) -> None:
    """Noise is given here; two tasks a person, two records a task."""
    settings = given(name, budget=replace(ROOMY, unit=Unit.PERSON))
    learner, vault = started(name, person_facts(), **settings), fixed()
    learn(learner, vault, [0, 1, 2], of_people)
    assert uncommitted(vault) == Counter()


@pytest.mark.parametrize("name", ["NaiveDPSGD", "experts", "DPER", "DPCL union", "DPAGEM each"])
def test_calibrated_plans_fit_people_who_recur(name: str) -> None:
    """Also one who is trained on in one task and remembered in another, which costs more than twice either."""
    budget = Budget(epsilon=2.0, delta=1e-5, unit=Unit.PERSON)
    learner, vault = started(name, person_facts(), budget=budget), fixed()
    learn(learner, vault, [0, 1, 2], of_people)
    assert 0.9 * budget.epsilon <= vault.ledger.epsilon(1) <= budget.epsilon
    assert uncommitted(vault) == Counter()


@pytest.mark.parametrize("times", [1, 2])
def test_replay_with_a_margin_reads_what_it_committed(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where mixtures of plans do not fit at once, the noise of both parts is raised, to the same number."""
    honest, asked = calibration.calibrate.fits_mixed, []

    def fits(*given: Any) -> bool:
        asked.append(given)
        return len(asked) > times and honest(*given)

    monkeypatch.setattr(calibration.calibrate, "fits_mixed", fits)
    budget = Budget(epsilon=2.0, delta=1e-5, unit=Unit.PERSON)
    learner = started("DPER", person_facts(), budget=budget, steps=5)
    assert isinstance(learner, DPER) and learner.slack_ == pytest.approx(1.02**times)
    for task in learner.stream_.tasks:
        assert learner.plan(task).noise == learner.memory_.schedule.noise_of(task.number)
