"""`shrink`: weights move towards 0 after each step, which is post-processing."""

import torch
from torch import nn

from support.small_world import ROOMY, facts, fixed, records, take
from tacit.learners.base.gradient import soft_threshold
from tacit.learners.baselines.naive import NaiveDPSGD


def test_weights_move_by_the_learning_rate_times_shrink_and_biases_do_not() -> None:
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.5, -0.5], [0.05, -0.02]]))
        layer.bias.copy_(torch.tensor([0.01, -0.5]))
    soft_threshold(torch.optim.SGD(layer.parameters(), lr=0.5), 0.2)
    torch.testing.assert_close(layer.weight.detach(), torch.tensor([[0.4, -0.4], [0.0, 0.0]]))
    torch.testing.assert_close(layer.bias.detach(), torch.tensor([0.01, -0.5]))


def test_it_takes_noise_out_of_weights_and_changes_no_plan() -> None:
    info, noisy = facts(1), []
    for shrink in (0.0, 0.05):
        learner = NaiveDPSGD(network="linear", steps=30, batch=60, lr=0.2, noise=4.0, budget=ROOMY, shrink=shrink)
        learner.start(info)
        vault = fixed()
        learner.learn(info.tasks[0], take(vault, info, 0, records(0), learner.budget), vault)
        noisy.append((learner.plan(info.tasks[0]), learner.model_[1].weight.detach().abs().sum()))  # type: ignore[index]
    assert noisy[0][0] == noisy[1][0]
    assert float(noisy[1][1]) < 0.7 * float(noisy[0][1])
