"""White-box attacks on any learner: FGSM, I-FGSM, MIM and PGD, in L∞, L2 and L1.

The attacker knows the model and the right label, and follows the gradient of the cross-entropy of the learner's
`scores` with respect to the record; for randomised predictions, the mean gradient over `draws` evaluations (Athalye et
al. 2018). For confident predictions the gradient of the cross-entropy underflows, and the attacker follows the margin
between the best other label and the right one. Where that has no gradient either (`flat`), no step is taken; this is
reported and not counted as robustness.

A changed record is within `radius` of the original, and within the public range of features wherever the original is.
Random starts and noise come from a fixed public seed; torch's generators and the modes of modules are restored. An
attack that fails proves nothing; `certified_accuracy` does.

FGSM     Goodfellow et al. 2015: one step of the whole radius.
I-FGSM   Kurakin et al. 2017: 10 steps of radius/10, each cut to the ball.
MIM      Dong et al. 2018: the same along g ← μg + ∇/‖∇‖₁ with μ = 1.
PGD      Madry et al. 2018: 40 steps of 2.5·radius/40 from a random point of the ball.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tacit.data.stream import TaskInfo
from tacit.errors import ConfigError
from tacit.learners.base.inference import differentiable
from tacit.learners.base.learner import Learner
from tacit.models.lipschitz import Norm, ball, known_norm
from tacit.models.parts import whole
from tacit.robustness.balls import anywhere, inside, steepest, unit

Kind = Literal["fgsm", "ifgsm", "mim", "pgd"]
KINDS: tuple[Kind, ...] = get_args(Kind)
STEPS = {"fgsm": 1, "ifgsm": 10, "mim": 10, "pgd": 40}
NAMES = {"fgsm": "FGSM", "ifgsm": "I-FGSM", "mim": "MIM", "pgd": "PGD"}
ROWS = 512
"""The number of records per batch."""
SURE = 1e-6
"""Below this cross-entropy the gradient is lost in rounding."""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """The settings of an attack; defaults are those of its paper.

    Attributes:
        kind: "fgsm", "ifgsm", "mim" or "pgd".
        norm: The norm of the ball.
        radius: The radius of the ball.
        steps: The number of steps; by default 1 for FGSM, 10 for I-FGSM and MIM, 40 for PGD.
        step_size: The length of a step; by default radius / steps, and 2.5 times that for PGD.
        decay: μ of MIM.
        random_start: Whether to start at a random point of the ball; by default only PGD does.
        draws: The number of evaluations that a gradient is averaged over.
        range: The public range of features; None if there is none.
    """

    kind: Kind = "pgd"
    norm: Norm = "linf"
    radius: float = 0.1
    steps: int | None = None
    step_size: float | None = None
    decay: float = 1.0
    random_start: bool | None = None
    draws: int = 1
    range: tuple[float, float] | None = (0.0, 1.0)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"attack must be one of {', '.join(KINDS)}, got {self.kind!r}")
        known_norm(self.norm)
        whole("draws", self.draws)
        whole("steps", self.taken)
        for name, value in (("radius", self.radius), ("step_size", self.stride), ("decay", self.decay)):
            if not 0 <= value < math.inf:
                raise ConfigError(f"{name} of an attack must be a number >= 0, got {value}")
        if self.kind == "fgsm" and self.taken != 1:
            raise ConfigError(f"fgsm takes one step, got steps = {self.steps}; use ifgsm")
        if self.range is not None and not self.range[0] < self.range[1]:
            raise ConfigError(f"range must be a smaller and a larger number, got {list(self.range)}")

    @property
    def taken(self) -> int:
        """The number of steps."""
        return STEPS[self.kind] if self.steps is None else self.steps

    @property
    def stride(self) -> float:
        """The length of a step in the attack's norm."""
        if self.step_size is not None:
            return self.step_size
        return (2.5 if self.kind == "pgd" else 1.0) * self.radius / max(1, self.taken)

    @property
    def starts_anywhere(self) -> bool:
        """Whether the attack starts at a random point of the ball."""
        return self.kind == "pgd" if self.random_start is None else self.random_start

    @property
    def ball(self) -> str:
        """Norm and radius as text."""
        return ball(self.norm, self.radius)

    def describe(self) -> str:
        """All settings in one line."""
        steps = f"{self.taken} step{'s' if self.taken > 1 else ''} of {self.stride:.4g}"
        start = "a random start" if self.starts_anywhere else "the record"
        momentum = f", decay {self.decay:g}" if self.kind == "mim" else ""
        drawn = f", gradients over {self.draws} draws" if self.draws > 1 else ""
        cut = "no range" if self.range is None else f"features in [{self.range[0]:g}, {self.range[1]:g}]"
        return f"{NAMES[self.kind]}, {self.ball}, {steps} from {start}{momentum}{drawn}, {cut}"


def attack(
    learner: Learner, x: Tensor, y: Tensor, attack: Attack, task: TaskInfo | None = None, *, seed: int = 0
) -> Tensor:
    """Change records so that the learner misclassifies them.

    Args:
        learner: The learner.
        x: The records, as floats.
        y: The indices of the right labels among the learner's outputs.
        attack: The settings.
        task: The records' task, if it is given at test time.
        seed: The seed of random starts and noise.

    Returns:
        The changed records.

    Raises:
        ConfigError: The records are not floats.
    """
    if not x.is_floating_point():
        raise ConfigError(f"records of {x.dtype} have no gradient; attack floating-point features")
    coins = torch.Generator().manual_seed(seed)
    with learner.seeded_randomness(seed):
        parts = zip(torch.split(x.detach(), ROWS), torch.split(y, ROWS), strict=True)
        changed = [_attacked(learner, rows, right, attack, task, coins) for rows, right in parts]
    return torch.cat(changed) if changed else x.clone()


def gradient(learner: Learner, x: Tensor, y: Tensor, task: TaskInfo | None = None, *, draws: int = 1) -> Tensor:
    """∇ₓ of the cross-entropy of the learner's scores, averaged over `draws` evaluations; 0 where it is not finite.

    For rows that are predicted so confidently that it underflows, the gradient of the margin.
    """
    slopes, losses = _loss_gradient(learner, x, y, task, draws, partial(cross_entropy, reduction="none"))
    sure = (losses < SURE) | zero_rows(slopes)
    if bool(sure.any()):
        slopes[sure] = _loss_gradient(learner, x[sure], y[sure], task, draws, margin)[0]
    return slopes


def flat(
    learner: Learner, x: Tensor, y: Tensor, task: TaskInfo | None = None, *, draws: int = 1, seed: int = 0
) -> Tensor:
    """The records without a gradient, about which gradient attacks show nothing."""
    with learner.seeded_randomness(seed):
        parts = zip(torch.split(x.detach(), ROWS), torch.split(y, ROWS), strict=True)
        masks = [zero_rows(gradient(learner, rows, right, task, draws=draws)) for rows, right in parts]
    return torch.cat(masks) if masks else torch.zeros(0, dtype=torch.bool)


def zero_rows(slopes: Tensor) -> Tensor:
    """A mask of the rows that are entirely 0."""
    return (slopes == 0).flatten(1).all(1)


def margin(scores: Tensor, y: Tensor) -> Tensor:
    """The best score of another label minus that of the right one; 0 if either is not finite."""
    right = scores.gather(1, y[:, None]).squeeze(1)
    best = scores.scatter(1, y[:, None], -torch.inf).amax(1)
    return torch.where(best.isfinite() & right.isfinite(), best - right, 0.0)


def _loss_gradient(
    learner: Learner, x: Tensor, y: Tensor, task: TaskInfo | None, draws: int, loss: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """The gradient of a loss with respect to the records, and each record's loss, averaged over `draws` evaluations."""
    total, losses = torch.zeros_like(x), torch.zeros(len(x), device=x.device)
    for _ in range(draws):
        with differentiable():
            leaf = x.detach().requires_grad_()
            scores = learner.scores(leaf, task)
            values = loss(scores, y.to(scores.device))
            losses += values.detach().to(losses) / draws
            if values.requires_grad:  # otherwise nothing is learned yet, and all labels have equal scores
                total += torch.autograd.grad(values.sum(), leaf)[0]
    return torch.nan_to_num(total / draws, nan=0.0, posinf=0.0, neginf=0.0), losses


def _attacked(
    learner: Learner, x: Tensor, y: Tensor, how: Attack, task: TaskInfo | None, coins: torch.Generator
) -> Tensor:
    # A record outside the range is not clipped to it, since that could be a larger change than the radius.
    low = x - how.radius if how.range is None else x.clamp(max=how.range[0])
    high = x + how.radius if how.range is None else x.clamp(min=how.range[1])
    now = (x + anywhere(x, how.radius, how.norm, coins)).clamp(low, high) if how.starts_anywhere else x
    velocity = torch.zeros_like(x)
    for _ in range(how.taken):
        slopes = gradient(learner, now, y, task, draws=how.draws)
        if how.kind == "mim":
            slopes = velocity = how.decay * velocity + unit(slopes, 1)
        room = torch.where(slopes > 0, high - now, now - low)
        moved = now + steepest(slopes, how.stride, how.norm, room)
        now = (x + inside(moved - x, how.radius, how.norm)).clamp(low, high)
    return now
