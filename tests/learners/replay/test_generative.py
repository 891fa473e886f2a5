"""DP generative replay: it remembers by synthetic records only, and its loss is the bound that it claims to be."""

import math

import numpy as np
import pytest
import torch

from support.small_world import ROOMY, fixed, learn, split_facts
from tacit.learners import DPGenerativeReplay
from tacit.learners.replay.generative import negative_elbo


def two_labels(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels 2n and 2n + 1 of a stream: clusters that are far from each other."""
    rng = np.random.default_rng(number)
    y = rng.integers(2 * number, 2 * number + 2, 120)
    centres = 3 * np.random.default_rng(99).normal(size=(6, 6))
    return (centres[y] + 0.3 * rng.normal(size=(120, 6))).astype(np.float32), y


def learner() -> DPGenerativeReplay:
    made = DPGenerativeReplay(
        budget=ROOMY, network="mlp", noise=None, steps=50, batch=120, lr=0.03, clip=1.0, latent=4, hidden=24,
        likelihood="gaussian", samples=60, classifier_epochs=30,
    )  # fmt: skip
    made.start(split_facts(3))
    return made


def test_it_remembers_earlier_tasks_by_what_their_generators_replay() -> None:
    made, vault = learner(), fixed()
    learn(made, vault, [0, 1, 2], two_labels)
    for number in range(3):
        x, y = two_labels(number)
        assert made.score(x, y) > 0.9
    assert not made.has_memory
    reads = [grant.reads for grant in vault.ledger.statement(1).grants]
    assert len(reads) == 3 and len({block for read in reads for block, _ in read}) == 3  # a task reads its own block


def test_it_replays_every_label_of_a_task_alike() -> None:
    made = learner()
    learn(made, fixed(), [0], two_labels)
    x, y = made.replayed(made.tasks_[0])
    assert x.shape == (120, 6) and y.bincount(minlength=6).tolist() == [60, 60, 0, 0, 0, 0]
    near = torch.stack([x[y == label].mean(0) for label in (0, 1)])
    true = torch.stack([torch.from_numpy(two_labels(0)[0][two_labels(0)[1] == label].mean(0)) for label in (0, 1)])
    assert torch.cdist(near, true).argmin(1).tolist() == [0, 1]


@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
def test_the_loss_is_reconstruction_and_divergence(likelihood: str) -> None:
    """At the anchor with variance 1 the divergence is 0; elsewhere it is that of two normals."""
    rows, anchors = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    made, spread = torch.tensor([[0.0, 0.0]]), torch.zeros(1, 2)
    away = 2 * math.log(2) if likelihood == "bernoulli" else 0.5
    for mean, label, expected in (([1.0, 2.0], 0, away), ([1.0, 2.0], 1, away + 2.5), ([0.0, 0.0], 0, away + 2.5)):
        output = torch.cat([made, torch.tensor([mean]), spread, rows], 1)
        found = negative_elbo(output, torch.tensor([label]), anchors, likelihood)  # type: ignore[arg-type]
        assert float(found) == pytest.approx(expected)
