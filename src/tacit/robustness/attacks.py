"""White-box attacks on any learner: FGSM, I-FGSM, MIM and PGD, in L∞, L2 and L1.

The attacker knows the model and the right label, and follows the gradient of the cross-entropy of the learner's own
`scores` to the record; where answers are drawn at random, the mean gradient over `draws` evaluations (Athalye et al.
2018). Guarantee: a changed record is within `radius` of the record, and within the public range of features where the
record is. Random starts and noise come from a fixed public seed; torch's generators and the modes of modules stay as
they are. An attack that fails proves nothing: `certified` does.

FGSM     Goodfellow et al. 2015: one step of the whole radius.
I-FGSM   Kurakin et al. 2017: 10 steps of radius/10, each cut to the ball.
MIM      Dong et al. 2018: the same along g ← μg + ∇/‖∇‖₁ with μ = 1.
PGD      Madry et al. 2018: 40 steps of 2.5·radius/40 from a random point of the ball.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tacit.data.stream import TaskInfo
from tacit.errors import ConfigError
from tacit.learners.core import Core, differentiable
from tacit.models.lipschitz import Norm, known_norm
from tacit.models.parts import whole
from tacit.robustness.balls import anywhere, inside, steepest

Kind = Literal["fgsm", "ifgsm", "mim", "pgd"]
KINDS: tuple[Kind, ...] = get_args(Kind)
STEPS = {"fgsm": 1, "ifgsm": 10, "mim": 10, "pgd": 40}
NAMES = {"fgsm": "FGSM", "ifgsm": "I-FGSM", "mim": "MIM", "pgd": "PGD"}
ROWS = 512
"""So many records are attacked together."""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack; what is left out is as in its paper."""

    kind: Kind = "pgd"
    norm: Norm = "linf"
    radius: float = 0.1
    steps: int | None = None
    """None: 1 for FGSM, 10 for I-FGSM and MIM, 40 for PGD."""
    step_size: float | None = None
    """None: the radius over the steps; 2.5 times that for PGD."""
    decay: float = 1.0
    """μ of MIM; the others have none."""
    random_start: bool | None = None
    """None: PGD starts at a random point of the ball, the others at the record."""
    draws: int = 1
    """Evaluations that a gradient is the mean of."""
    range: tuple[float, float] | None = (0.0, 1.0)
    """The public range of features. None: there is none."""

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
        """How many steps."""
        return STEPS[self.kind] if self.steps is None else self.steps

    @property
    def stride(self) -> float:
        """How long a step is, in the attack's norm."""
        if self.step_size is not None:
            return self.step_size
        return (2.5 if self.kind == "pgd" else 1.0) * self.radius / max(1, self.taken)

    @property
    def starts_anywhere(self) -> bool:
        return self.kind == "pgd" if self.random_start is None else self.random_start

    def describe(self) -> str:
        """All that decides what it finds, in one line."""
        steps = f"{self.taken} step{'s' if self.taken > 1 else ''} of {self.stride:.4g}"
        start = "a random start" if self.starts_anywhere else "the record"
        momentum = f", decay {self.decay:g}" if self.kind == "mim" else ""
        drawn = f", gradients over {self.draws} draws" if self.draws > 1 else ""
        cut = "no range" if self.range is None else f"features in [{self.range[0]:g}, {self.range[1]:g}]"
        ball = f"{self.norm.upper().replace('LINF', 'L∞')} {self.radius:g}"
        return f"{NAMES[self.kind]}, {ball}, {steps} from {start}{momentum}{drawn}, {cut}"


def attack(
    learner: Core, x: Tensor, y: Tensor, attack: Attack, task: TaskInfo | None = None, *, seed: int = 0
) -> Tensor:
    """The records changed so that the learner should err. `y`: places of the right labels among its outputs; `task`:
    where it is given at test."""
    if not x.is_floating_point():
        raise ConfigError(f"records of {x.dtype} have no gradient; attack features that are numbers with a fraction")
    coins = torch.Generator().manual_seed(seed)
    with learner.public_dice(seed):
        parts = zip(torch.split(x.detach(), ROWS), torch.split(y, ROWS), strict=True)
        found = [_attacked(learner, rows, right, attack, task, coins) for rows, right in parts]
    return torch.cat(found) if found else x.clone()


def gradient(learner: Core, x: Tensor, y: Tensor, task: TaskInfo | None = None, *, draws: int = 1) -> Tensor:
    """∇ₓ of the cross-entropy of the learner's scores, the mean over so many evaluations; 0 where it is not finite."""
    total = torch.zeros_like(x)
    for _ in range(draws):
        with differentiable():
            leaf = x.detach().requires_grad_()
            scores = learner.scores(leaf, task)
            if not scores.requires_grad:  # nothing is learnt yet: all labels alike
                return total
            loss = cross_entropy(scores, y.to(scores.device), reduction="sum")
            (found,) = torch.autograd.grad(loss, leaf)
        total += found
    return torch.nan_to_num(total / draws, nan=0.0, posinf=0.0, neginf=0.0)


def _attacked(
    learner: Core, x: Tensor, y: Tensor, how: Attack, task: TaskInfo | None, coins: torch.Generator
) -> Tensor:
    # A record outside the range is not brought inside: that alone could be a larger change.
    low = x - how.radius if how.range is None else x.clamp(max=how.range[0])
    high = x + how.radius if how.range is None else x.clamp(min=how.range[1])
    now = (x + anywhere(x, how.radius, how.norm, coins)).clamp(low, high) if how.starts_anywhere else x
    velocity = torch.zeros_like(x)
    for _ in range(how.taken):
        found = gradient(learner, now, y, task, draws=how.draws)
        if how.kind == "mim":
            length = found.flatten(1).abs().sum(1).clamp(min=1e-30).view(-1, *[1] * (x.dim() - 1))
            found = velocity = how.decay * velocity + found / length
        room = torch.where(found > 0, high - now, now - low)
        moved = now + steepest(found, how.stride, how.norm, room)
        now = (x + inside(moved - x, how.radius, how.norm)).clamp(low, high)
    return now
