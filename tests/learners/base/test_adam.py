"""Adam on private gradients: the formula, a fresh beginning in every task, the same end after a crash."""

from pathlib import Path
from typing import Any

import pytest
import torch

from support.small_world import Stopped, Watched, fixed, given, learn, make, same, started, stop_at
from tacit import Vault
from tacit.errors import LearnerError

LR, STEPS = 0.05, 5


def adam(name: str, **settings: Any) -> Any:
    return started(name, **given(name, rule="adam", lr=LR, momentum=0.0, steps=STEPS, **settings))


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).double()


def test_it_is_adam_begun_afresh_in_every_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kingma & Ba 2015, Algorithm 1, by hand on the gradients that left the vault."""
    seen = Watched(monkeypatch)
    learner = adam("NaiveDPSGD")
    weights = flat(learner.model_)
    learn(learner, fixed(), [0, 1])
    for _, gradients in seen.of_training():
        assert len(gradients) == STEPS
        m = v = torch.zeros_like(weights)
        for t, g in enumerate(gradients.double(), start=1):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            weights = weights - LR * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
    assert torch.allclose(flat(learner.model_), weights, atol=1e-5)


def test_the_rule_changes_steps_and_nothing_that_is_charged() -> None:
    ends, charged = [], []
    for rule in ("sgd", "adam"):
        learner, vault = started("NaiveDPSGD", **given("NaiveDPSGD", rule=rule)), fixed()
        learn(learner, vault, [0])
        ends.append(learner.tensors())
        charged.append([(grant.plan, grant.reads) for grant in vault.ledger.statement(1).grants])
    assert not same(*ends) and charged[0] == charged[1]


@pytest.mark.parametrize("name", ["NaiveDPSGD", "Joint", "ensemble", "experts", "DPCL union", "DPER"])
def test_it_learns_and_goes_on_after_a_crash_as_if_there_were_none(name: str, tmp_path: Path) -> None:
    ends = []
    for crash in (False, True):
        place = tmp_path / str(crash)
        vault = fixed(place)
        learner = adam(name)
        with vault.until_saved():
            first = learn(learner, vault, [0])[0]
        with vault.until_saved():
            second = learn(learner, vault, [1])[0]
        if crash:
            stopped = adam(name)
            stopped.restore(second.tensors, second.tasks, vault)
            stopped.callback = stop_at(2, 3)
            with pytest.raises(Stopped), vault.until_saved():
                learn(stopped, vault, [2])
            vault = Vault(vault.ledger, place)
            learner = adam(name)
            learner.restore(second.tensors, second.tasks, vault)
        with vault.until_saved():
            (last,) = learn(learner, vault, [2])
        assert first.tasks == learner.stream_.tasks[:1]
        ends.append(last.tensors)
    assert same(*ends)


def test_momentum_is_adams_own() -> None:
    for name in ("NaiveDPSGD", "DPCL union", "ensemble"):
        with pytest.raises(LearnerError, match=r"momentum must be 0 with rule='adam', got 0\.9; Adam has its own"):
            started(name, rule="adam", momentum=0.9)
    with pytest.raises(LearnerError, match="rule must be 'sgd' or 'adam', got 'lamb'"):
        started("NaiveDPSGD", rule="lamb")
    assert make("NaiveDPSGD").rule == "sgd"  # type: ignore[attr-defined]
