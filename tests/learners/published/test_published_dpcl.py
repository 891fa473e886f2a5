"""DP-CL by the rule of its authors' code: what is clipped and read, what noise is added, what is claimed."""

from pathlib import Path
from typing import Any

import pytest
import torch

from support.made_up import assert_scale
from support.small_world import facts, fixed, learn, records, tiny
from tacit import Budget, Ledger, StreamInfo, Vault
from tacit.errors import LearnerError, PolicyError
from tacit.learners import AGEM, PublishedDPCL
from tacit.learners.base.learner import Learner

DESAI = Budget(epsilon=5.0, delta=1e-4)


def make(info: StreamInfo | None = None, **settings: Any) -> PublishedDPCL:
    learner = PublishedDPCL(**{"network": tiny, "batch": 30, "memory_per_class": 5, "memory_batch": 5} | settings)
    learner.start(info or facts())
    return learner


def coins(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(n: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = records(0, n)
    return torch.from_numpy(x), torch.from_numpy(y)


@pytest.mark.parametrize("clip", [0.02, 100.0])
def test_each_tensor_of_the_mean_gradient_is_clipped(clip: float) -> None:
    learner = make(clip=clip, noise=1e-12)
    plain = AGEM.gradient(learner, *batch(), coins())
    for name, g in learner.gradient(*batch(), coins()).items():
        assert torch.allclose(g, plain[name] * min(1.0, clip / float(plain[name].norm())), atol=1e-7)
        assert float(g.norm()) <= clip * 1.0001


@pytest.mark.parametrize(("kind", "std"), [("squared", 0.04), ("linear", 0.2)])
def test_the_noise_has_the_square_of_its_standard_deviation_until_2022(kind: Any, std: float) -> None:
    learner, quiet = make(clip=0.1, noise=2.0, noise_std=kind), make(clip=0.1, noise=1e-12)
    clipped = quiet.gradient(*batch(), coins())
    noises = []
    for seed in range(20):
        noisy = learner.gradient(*batch(), coins(seed))
        noises += [(noisy[name] - g).flatten() for name, g in clipped.items()]
    assert_scale(torch.cat(noises).numpy(), std)


def test_the_first_rows_of_the_first_task_are_read_for_ever() -> None:
    learner = make(steps=2)
    learn(learner, fixed(), [0, 1, 2])
    memory = learner._memory()
    assert memory is not None and len(memory[1]) == 3 * 2 * 5
    for seed in range(3):
        x, y = learner.remembered(memory, torch.tensor([1]), coins(seed))
        assert torch.equal(x, learner.kept_[0][0][:5]) and y.tolist() == [0] * 5  # one class of the first task
    x = learner.kept_[0][0]
    trained_on = torch.from_numpy(records(0)[0])
    assert all((trained_on == row).all(1).any() for row in x)  # memory rows are training rows


def test_the_papers_own_numbers_are_claimed() -> None:
    learner = make(facts(17, size=55_000), budget=DESAI, steps=301, batch=100, claimed_reference=1.47)
    learner.tasks_ = learner.stream_.tasks
    assert learner.claimed_pairs()[0] == (pytest.approx(0.85, abs=5e-4), 1.47)
    claimed = learner.claimed()
    assert claimed.per_task == pytest.approx(2.32, abs=1e-3) and claimed.total == pytest.approx(39.4, abs=0.1)
    (claim,) = learner.claims()
    assert "Lemma 2" in claim.formula and claim.epsilon == pytest.approx(2.32, abs=1e-3)
    ten = StreamInfo.uniform("ten", labels=range(10), shape=(6,), size=55_000, tasks=1, public=True)
    honest = make(ten, budget=DESAI, steps=301, batch=100, memory_per_class=25, memory_batch=50)
    honest.tasks_ = honest.stream_.tasks
    assert honest.claimed_pairs()[0][1] == pytest.approx(29.2, abs=0.1)  # 50 of the 250 rows that a task remembers


@pytest.mark.parametrize("method", ["PublishedDPCL", "PublishedRobustDPCL"])
def test_it_is_refused_on_private_data_and_certifies_nothing_on_public(method: str, tmp_path: Path) -> None:
    from tacit.learners import find

    def started(public: bool) -> Learner:
        learner: Learner = find(method)(network=tiny, batch=30)
        learner.start(facts(public=public))
        return learner

    with Ledger(tmp_path / "ledger") as ledger:
        with pytest.raises(PolicyError, match="allow_unsafe") as error:
            learn(started(False), Vault(ledger), [0])
        assert "\n" not in str(error.value) and ledger.epsilon(1) == 0
    (release,) = learn(started(True), Vault(Ledger.throwaway()), [0])
    certified = release.certificate.claims.certified
    assert certified.epsilon is None and "raw records were released" in certified.reason
    assert release.certificate.claims.paper[0].epsilon > 0


def test_wrong_settings_are_named() -> None:
    with pytest.raises(LearnerError, match="noise_std must be 'squared' or 'linear', got 'std'"):
        make(noise_std="std")
    with pytest.raises(LearnerError, match="claimed_reference must be a finite number > 0, or None, got -1"):
        make(claimed_reference=-1.0)
