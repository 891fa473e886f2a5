"""The same adversarial examples as the Adversarial Robustness Toolbox finds: four attacks in L∞, L2 and L1."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from support.fixed_models import small
from tacit.models.lipschitz import ORDER, Norm
from tacit.robustness.attacks import KINDS, Attack, Kind, attack
from tacit.robustness.balls import distance

evasion = pytest.importorskip("art.attacks.evasion", reason="the extra [dev] brings adversarial-robustness-toolbox")
pytestmark = pytest.mark.filterwarnings("ignore")
RADIUS: dict[Norm, float] = {"linf": 0.1, "l2": 0.3, "l1": 0.6}
NORMS: tuple[Norm, ...] = ("linf", "l2", "l1")


def theirs(learner: Any, x: Tensor, y: Tensor, how: Attack) -> Tensor:
    """What the library makes of the records, with the same settings."""
    from art.estimators.classification import PyTorchClassifier

    model = PyTorchClassifier(
        learner.model_.eval(), loss=torch.nn.CrossEntropyLoss(), input_shape=x.shape[1:], nb_classes=3,
        clip_values=how.range, device_type="cpu",
    )  # fmt: skip
    order = ORDER[how.norm] if how.norm == "linf" else int(ORDER[how.norm])
    iterated = {"eps": how.radius, "eps_step": how.stride, "max_iter": how.taken, "verbose": False}
    if how.kind == "fgsm":
        made = evasion.FastGradientMethod(model, norm=order, eps=how.radius, num_random_init=0)
    elif how.kind == "ifgsm" and how.norm == "linf":
        made = evasion.BasicIterativeMethod(model, **iterated)
    elif how.kind == "mim":
        made = evasion.MomentumIterativeMethod(model, norm=order, decay=how.decay, **iterated)
    else:
        starts = int(how.starts_anywhere)
        made = evasion.ProjectedGradientDescentPyTorch(model, norm=order, num_random_init=starts, **iterated)
    return torch.from_numpy(made.generate(x.numpy(), y.numpy()))


def gains(learner: Any, y: Tensor, x: Tensor, *found: Tensor) -> list[float]:
    """By how much each changes the loss."""
    losses = [float(torch.nn.functional.cross_entropy(learner.scores(rows), y)) for rows in (x, *found)]
    return [one - losses[0] for one in losses[1:]]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_as_the_library(kind: Kind, norm: Norm) -> None:
    learner, x, y = small()
    # In L1 the library puts a whole step into one number, range or not; tacit does so where there is room for it.
    span = None if norm == "l1" else (0.0, 1.0)
    how = Attack(kind=kind, norm=norm, radius=RADIUS[norm], random_start=False, range=span)
    mine, other = attack(learner, x, y, how), theirs(learner, x, y, how)
    assert float(distance(mine - x, norm).max()) > 0.5 * how.radius
    if kind == "pgd" and norm != "linf":  # it cuts to the range before the ball, and to L1 by shrinking all alike
        ours, library = gains(learner, y, x, mine, other)
        assert ours == pytest.approx(library, rel=0.02 if norm == "l2" else 0.1)
    else:  # where a gradient is almost 0, its sign may differ by rounding
        assert float(((mine - other).abs() < 1e-5).float().mean()) > 0.99


@pytest.mark.parametrize("kind", KINDS)
def test_in_l1_within_a_range_it_finds_more_than_the_library(kind: Kind) -> None:
    learner, x, y = small()
    how = Attack(kind=kind, norm="l1", radius=1.5, random_start=False)
    ours, library = gains(learner, y, x, attack(learner, x, y, how), theirs(learner, x, y, how))
    assert ours >= library > 0


def test_from_a_random_start_it_succeeds_as_often() -> None:
    learner, x, y = small()
    how = Attack(kind="pgd", radius=0.3)
    np.random.seed(0)  # the library's start
    found = (x, attack(learner, x, y, how), theirs(learner, x, y, how))
    right = [float((learner.scores(rows).argmax(1) == y).float().mean()) for rows in found]
    assert right[1] < right[0] and abs(right[1] - right[2]) <= 0.05
