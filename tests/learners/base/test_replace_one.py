"""Learners under replace-one: parts and tasks that are read in different ways fit together, before the first charge."""

import pytest

from support.small_world import facts, fixed, learn, started
from tacit import Budget

BUDGET = Budget(epsilon=4.0, delta=1e-5, adjacency="replace-one")  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "tasks_per_unit"), [("DPCL union", 1), ("DPER", 1), ("DPAGEM each", 2)])
def test_plans_of_training_and_memory_fit_together(name: str, tasks_per_unit: int) -> None:
    learner = started(name, facts(tasks_per_unit=tasks_per_unit), budget=BUDGET, steps=6)
    vault = fixed()
    learn(learner, vault, [0, 1, 2])
    assert 3.5 < vault.ledger.epsilon(1) <= 4.0
    vault.ledger.verify()
