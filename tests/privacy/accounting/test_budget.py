"""A budget says how much, whose, and between which neighbours; nothing else passes for one."""

import math

import pytest

from tacit.errors import PlanError
from tacit.privacy.accounting.budget import Adjacency, Budget, ClaimAdjacency, Unit


def test_text_is_taken_for_its_meaning() -> None:
    budget = Budget(epsilon=1.0, delta=1e-5, unit="person", adjacency="replace-one")  # type: ignore[arg-type]
    assert budget.unit is Unit.PERSON and budget.adjacency is Adjacency.REPLACE_ONE
    assert str(Budget(epsilon=1.0, delta=1e-5)) == "ε = 1, δ = 1e-05 per record, add-or-remove"


def test_its_repr_is_the_call_that_makes_it() -> None:
    budget = Budget(epsilon=1.0, delta=1e-5)
    assert repr(budget) == "Budget(epsilon=1.0, delta=1e-05, unit='record', adjacency='add-or-remove')"
    assert eval(repr(budget)) == budget


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_epsilon_is_finite_and_positive(epsilon: float) -> None:
    with pytest.raises(PlanError, match="epsilon must be"):
        Budget(epsilon=epsilon, delta=1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_delta_is_inside_the_unit_interval(delta: float) -> None:
    with pytest.raises(PlanError, match="delta must be"):
        Budget(epsilon=1.0, delta=delta)


@pytest.mark.parametrize("adjacency", [*ClaimAdjacency, "anything"])
def test_a_papers_adjacency_is_refused(adjacency: str) -> None:
    with pytest.raises(PlanError, match="adjacency must be one of"):
        Budget(epsilon=1.0, delta=1e-5, adjacency=adjacency)  # type: ignore[arg-type]


def test_the_two_kinds_of_adjacency_share_no_value() -> None:
    assert not {str(one) for one in Adjacency} & {str(one) for one in ClaimAdjacency}


def test_frozen_and_keyword_only() -> None:
    budget = Budget(epsilon=1.0, delta=1e-5)
    with pytest.raises(AttributeError):
        budget.epsilon = 2.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        Budget(1.0, 1e-5)  # type: ignore[call-arg,misc]
