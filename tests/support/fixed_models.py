"""Learners around networks that are given: nothing is learned in the vault, so they are made in a moment."""

import torch
from torch import Tensor, nn

from tacit.data.stream import StreamInfo
from tacit.learners.baselines.naive import NaiveDPSGD
from tacit.models.lipschitz import Norm
from tacit.models.noisy import Noisy


def around(network: nn.Module, shape: tuple[int, ...], classes: int) -> NaiveDPSGD:
    """A learner that answers by this network."""
    learner = NaiveDPSGD(network=network)
    learner.start(StreamInfo.uniform("fixed", labels=range(classes), shape=shape, size=100, tasks=2, public=True))
    return learner


def small(classes: int = 3) -> tuple[NaiveDPSGD, Tensor, Tensor]:
    """A network of random weights, records in [0, 1] and labels: half of them what the network says."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, classes))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(3)
    x = torch.rand(40, 3, 4)
    learner = around(network, (3, 4), classes)
    return learner, x, torch.where(torch.arange(40) % 2 == 0, learner.scores(x).argmax(1), torch.arange(40) % classes)


def separable(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Three labels around corners of a cube of eight dimensions."""
    coins = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=coins)
    centres = torch.tensor([[1.0, 0, 0, 1, 0, 0, 1, 0], [0, 1, 0, 0, 1, 0, 0, 1], [0, 0, 1, 0, 0, 1, 0, 0]])
    return (0.15 + 0.7 * centres[y] + 0.1 * torch.randn(n, 8, generator=coins)).clamp(0, 1), y


def trained_noisy(norm: Norm = "l2", radius: float = 0.1) -> NaiveDPSGD:
    """A network with a noise layer that tells the separable labels apart."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 3))
        made = Noisy(network, norm=norm, radius=radius, epsilon=1.0, delta=0.05, draws=8)
        optimizer = torch.optim.Adam(made.parameters(), lr=0.02)
        x, y = separable(300, 0)
        for _ in range(150):
            optimizer.zero_grad()
            nn.functional.cross_entropy(made(x), y).backward()
            optimizer.step()
    return around(made, (8,), 3)
