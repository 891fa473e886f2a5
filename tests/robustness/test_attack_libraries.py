"""The same adversarial examples as Foolbox and the Adversarial Robustness Toolbox find, where they are installed."""

from typing import Any

import numpy as np
import pytest
import torch
from fixed_models import small
from torch import Tensor

from tacit.models.lipschitz import Norm
from tacit.robustness.attacks import Attack, Kind, attack
from tacit.robustness.balls import distance

RADIUS: dict[Norm, float] = {"linf": 0.1, "l2": 0.3}


def same(mine: Tensor, theirs: Tensor, x: Tensor, norm: Norm) -> None:
    """Nearly all numbers are equal; where a gradient is almost 0 its sign may differ by rounding."""
    assert float((distance(mine - x, norm)).max()) > 0.5 * RADIUS[norm]
    assert float(((mine - theirs).abs() < 1e-5).float().mean()) > 0.99


def foolbox_attack(kind: Kind, norm: Norm, fb: Any) -> Any:
    makers = {
        ("fgsm", "linf"): lambda: fb.attacks.LinfFastGradientAttack(random_start=False),
        ("fgsm", "l2"): lambda: fb.attacks.L2FastGradientAttack(random_start=False),
        ("ifgsm", "linf"): lambda: fb.attacks.LinfBasicIterativeAttack(rel_stepsize=0.1, steps=10, random_start=False),
        ("ifgsm", "l2"): lambda: fb.attacks.L2BasicIterativeAttack(rel_stepsize=0.1, steps=10, random_start=False),
        ("pgd", "linf"): lambda: fb.attacks.LinfPGD(rel_stepsize=2.5 / 40, steps=40, random_start=False),
        ("pgd", "l2"): lambda: fb.attacks.L2PGD(rel_stepsize=2.5 / 40, steps=40, random_start=False),
    }
    return makers[kind, norm]()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("kind", ["fgsm", "ifgsm", "pgd"])
def test_foolbox(kind: Kind, norm: Norm) -> None:
    fb = pytest.importorskip("foolbox")
    learner, x, y = small()
    model = fb.PyTorchModel(learner.model_.eval(), bounds=(0, 1))
    _, theirs, _ = foolbox_attack(kind, norm, fb)(model, x, y, epsilons=RADIUS[norm])
    mine = attack(learner, x, y, Attack(kind=kind, norm=norm, radius=RADIUS[norm], random_start=False))
    same(mine, theirs, x, norm)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("kind", ["fgsm", "pgd", "mim"])
def test_adversarial_robustness_toolbox(kind: Kind, norm: Norm) -> None:
    evasion = pytest.importorskip("art.attacks.evasion")
    from art.estimators.classification import PyTorchClassifier

    learner, x, y = small()
    model = PyTorchClassifier(
        learner.model_.eval(), loss=torch.nn.CrossEntropyLoss(), input_shape=(3, 4), nb_classes=3, clip_values=(0, 1),
        device_type="cpu",
    )  # fmt: skip
    how = Attack(kind=kind, norm=norm, radius=RADIUS[norm], random_start=False)
    order = np.inf if norm == "linf" else 2
    if kind == "fgsm":
        made = evasion.FastGradientMethod(model, norm=order, eps=how.radius, num_random_init=0)
    else:
        made = evasion.ProjectedGradientDescentPyTorch(
            model, norm=order, eps=how.radius, eps_step=how.stride, max_iter=how.taken, num_random_init=0,
            decay=how.decay if kind == "mim" else None, verbose=False,
        )  # fmt: skip
    theirs = torch.from_numpy(made.generate(x.numpy(), y.numpy()))
    mine = attack(learner, x, y, how)
    if (kind, norm) == ("pgd", "l2"):  # it cuts to the range first and to the ball then, so that points differ a little
        losses = [float(torch.nn.functional.cross_entropy(learner.scores(rows), y)) for rows in (x, mine, theirs)]
        assert losses[1] - losses[0] == pytest.approx(losses[2] - losses[0], rel=0.02)
    else:
        same(mine, theirs, x, norm)
