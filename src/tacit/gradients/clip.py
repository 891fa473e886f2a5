"""Clipping rules: flat, automatic and per-layer.

A unit is one example, or one group of examples if groups are given.

Formal guarantees
  * A unit moves the released sum by at most `sensitivity` in the L2 norm, whatever the example, the model and the
    rounding.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import torch
from torch import Tensor

from tacit.errors import PlanError


class ClipRule(Protocol):
    """Turns squared norms into weights. One weight tensor for each parameter, in the order of `names`."""

    @property
    def sensitivity(self) -> float:
        """The most a unit can move the sum, in the L2 norm over all parameters."""
        ...

    def bind(self, names: Sequence[str]) -> "ClipRule":
        """This rule for these parameters; refuses names that it does not know."""
        ...

    @property
    def whole(self) -> bool:
        """Whether only the norm over all parameters counts, so that parameters may be measured together."""
        ...

    def weights(self, squared: Sequence[Tensor], slack: float) -> list[Tensor]:
        """A weight in [0, 1 - slack]·(clip / norm) for every unit; zero where the norm is not finite."""
        ...


@dataclass(frozen=True, kw_only=True)
class _WholeNorm:
    """One bound on the norm of the whole gradient, which is also the sensitivity."""

    norm: float
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _positive("clip norm", self.norm)

    @property
    def sensitivity(self) -> float:
        return self.norm

    def bind(self, names: Sequence[str]) -> Self:
        return self


class Flat(_WholeNorm):
    """One bound on the norm of the whole gradient: weight = min(1, norm / ‖g‖)."""

    def weights(self, squared: Sequence[Tensor], slack: float) -> list[Tensor]:
        weight = _shrink(_total(squared), self.norm, slack)
        return [weight] * len(squared)


@dataclass(frozen=True, kw_only=True)
class Automatic(_WholeNorm):
    """Normalising clip: weight = norm / (‖g‖ + stability), so that no unit moves the sum by more than `norm`.

    Bu et al. 2023, "Automatic clipping", eq. (AUTO-S).
    """

    stability: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive("stability", self.stability)

    def weights(self, squared: Sequence[Tensor], slack: float) -> list[Tensor]:
        total = _total(squared)
        weight = (1.0 - slack) * self.norm / (total.sqrt() + self.stability)
        return [torch.where(total.isfinite(), weight, 0.0)] * len(squared)


@dataclass(frozen=True, kw_only=True)
class PerLayer:
    """One bound for each parameter, by its name (or one float for every parameter).

    The sensitivity of the whole sum is sqrt(sum of the squared bounds). With one float it is known only after
    `bind`, because it depends on how many parameters there are.
    """

    norms: Mapping[str, float] | float
    whole: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for value in self.norms.values() if isinstance(self.norms, Mapping) else (self.norms,):
            _positive("clip norm", value)

    @property
    def sensitivity(self) -> float:
        if not isinstance(self.norms, Mapping):
            raise PlanError(
                f"PerLayer(norms={self.norms}) has no sensitivity before its parameters are known; "
                "use Clipper.sensitivity or give norms by parameter name"
            )
        return math.sqrt(math.fsum(c * c for c in self.norms.values()))

    def bind(self, names: Sequence[str]) -> "PerLayer":
        if not isinstance(self.norms, Mapping):
            return PerLayer(norms=dict.fromkeys(names, float(self.norms)))
        wrong = sorted(set(names) ^ set(self.norms))
        if wrong:
            raise PlanError(
                f"PerLayer needs one norm for each trainable parameter, see {wrong[0]!r}; use Clipper.names"
            )
        return PerLayer(norms={name: self.norms[name] for name in names})

    def weights(self, squared: Sequence[Tensor], slack: float) -> list[Tensor]:
        assert isinstance(self.norms, Mapping), "bind() comes first"
        # A unit with one bad parameter counts as zero in all of them: its other gradients came from the same numbers.
        fine = _total(squared).isfinite()
        bounds = self.norms.values()
        return [torch.where(fine, _shrink(sq, bound, slack), 0.0) for sq, bound in zip(squared, bounds, strict=True)]


def as_rule(clip: "float | ClipRule") -> "ClipRule":
    """A number means flat clipping at that norm."""
    return Flat(norm=float(clip)) if isinstance(clip, int | float) else clip


def _total(squared: Sequence[Tensor]) -> Tensor:
    return squared[0] if len(squared) == 1 else torch.stack(list(squared)).sum(0)


def _shrink(squared: Tensor, bound: float, slack: float) -> Tensor:
    """min(1, bound / sqrt(squared)) rounded down by `slack`; zero where `squared` is not finite."""
    # rsqrt(0) is inf, which the clamp makes 1; rsqrt(inf) is 0; NaN stays NaN until it is made 0.
    return squared.rsqrt().mul_(bound * (1.0 - slack)).clamp_(max=1.0 - slack).nan_to_num_(nan=0.0)


def _positive(what: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise PlanError(f"{what} must be finite and > 0, got {value}; use 1.0 if in doubt")
