"""One contract for each exit of the vault: how it is used, and what is claimed about it.

`tests/privacy/vault/test_exit_contract.py` checks every claim for every exit. An exit without a contract fails there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from dp_accounting import dp_event
from scipy import stats
from torch import Tensor, nn

from support.made_up import REJECTED, rate_is, scale_is
from tacit.privacy import Block, GradientPlan, LabelPlan, SumPlan, TuningPlan, Vault
from tacit.privacy.randomness.grid import grid_for
from tacit.privacy.vault import FilterPlan
from tacit.privacy.vault.exits.label_set import label_counts

SIZE = 16
"""The public nominal size of every block: a power of two, so that dividing by it keeps a grid."""
FEATURES = 4
DRAWS = 400
"""Numbers that are drawn to estimate the scale of a noise."""
QUIET = 1e-3
"""A noise multiplier with which a release shows the noiseless statistic."""


HasScale = Callable[[float], bool]


def confidence(factor: float) -> float:
    """The true scale must not be refused by chance, a wrong one must not pass by chance (see `REJECTED`)."""
    return 1e-6 if factor == 1 else REJECTED


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What is claimed about one exit.

    Attributes:
        plan: An ordinary plan of the exit.
        event: What `plan` charges its block.
        use: Uses the exit once, with a plan and, where the exit takes user code, a module that is applied to the
            records. Returns what is released, as a flat tensor.
        sensitivity: The most that one unit moves the noiseless statistic, in the Euclidean norm.
        noise: Draws noise on a block without records, and returns a function that tells whether it has a multiple of
            the stated standard deviation.
        statistic: The noiseless statistic; by default what `use` releases under `quiet`.
        quiet: The plan with almost no noise.
        grid: The public grid of what `use` releases under `plan`; None if it releases no numbers.
        takes_code: Whether the exit applies a user's module to records.
        repeats: What the same call does after a crash, without a second charge: it releases the "same bits", or draws
            "new noise", or is refused ("never").
    """

    plan: Any
    event: dp_event.DpEvent
    use: Callable[[Vault, Block, Any, nn.Module | None], Tensor]
    sensitivity: float
    noise: Callable[[Vault, Block], HasScale]
    quiet: Any = None
    statistic: Callable[[Vault, Block], Tensor] | None = field(default=None)
    grid: float | None = None
    takes_code: bool = True
    repeats: str = "same bits"


class Linear(nn.Module):
    """Its gradient under `sum_loss` is, for each output, the record itself; `code` is applied to the records first."""

    def __init__(self, code: nn.Module | None, outputs: int = 1) -> None:
        super().__init__()
        self.code = code
        self.weight = nn.Parameter(torch.zeros(outputs, FEATURES))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x if self.code is None else self.code(x), self.weight)


def sum_loss(output: Tensor, y: Tensor) -> Tensor:
    return output.sum(1)


GRADIENT = GradientPlan(rate=1.0, steps=1, noise=2.0, clip=2.0)


def gradient(vault: Vault, block: Block, plan: GradientPlan, code: nn.Module | None, outputs: int = 1) -> Tensor:
    torch.manual_seed(0)
    return vault.grant(block, plan, Linear(code, outputs), sum_loss).gradient()["weight"].flatten()


def filtered(vault: Vault, block: Block, noise: float, code: nn.Module | None, outputs: int = 1) -> Tensor:
    bounded = FilterPlan(rho=1e6 if noise == QUIET else 1.0)
    opened = vault.individual_filter(block, bounded)
    return opened.gradient(Linear(code, outputs), sum_loss, noise=noise, clip=2.0)["weight"].flatten()


SUM = SumPlan(noise=4.0, clip=2.0)


def sums(vault: Vault, block: Block, plan: SumPlan, code: nn.Module | None) -> Tensor:
    return vault.sums(block, plan, through=code).flatten()


def second_moment(vault: Vault, block: Block, plan: SumPlan, code: nn.Module | None) -> Tensor:
    return vault.second_moment(block, plan, through=code).flatten()


def second_moment_noise(vault: Vault, block: Block) -> HasScale:
    """The standard deviation is s on the diagonal and s/√2 off it."""
    out = vault.second_moment(block, SUM, through=Wide(DRAWS)).numpy()
    diagonal, above = np.diag(out), out[np.triu_indices(DRAWS, 1)][:DRAWS]
    return lambda factor: (
        scale_is(diagonal, factor * 16.0, confidence(factor))
        and scale_is(above, factor * 16.0 / math.sqrt(2), confidence(factor))
    )


class Wide(nn.Module):
    """Maps records to `width` features, so that one release has many numbers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :1].expand(-1, self.width)


def count(vault: Vault, block: Block, plan: SumPlan, code: nn.Module | None) -> Tensor:
    return torch.tensor([vault.count(block, plan)])


class First(nn.Module):
    """Predicts label 0 for every record."""

    def __init__(self, code: nn.Module | None) -> None:
        super().__init__()
        self.code = code
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros(len(x if self.code is None else self.code(x)), dtype=torch.long)


def accuracy(vault: Vault, block: Block, plan: SumPlan, code: nn.Module | None) -> Tensor:
    return torch.tensor([vault.accuracy(block, First(code), plan)])


def normal(values: Any, std: float) -> HasScale:
    """Whether normals have a multiple of a standard deviation."""
    return lambda factor: scale_is(values, factor * std, confidence(factor))


def repeated(use: Callable[..., Tensor], std: float) -> Callable[[Vault, Block], HasScale]:
    """The noise of single numbers, each from a charge of its own."""

    def noise(vault: Vault, block: Block) -> HasScale:
        vault.commit({block: [SUM] * DRAWS})
        return normal([float(use(vault, block, SUM, None)) for _ in range(DRAWS)], std)

    return noise


LABELS = LabelPlan(noise=4.0, candidates=(0, 1, 2, 3), threshold=2.0)


def label_set(vault: Vault, block: Block, plan: LabelPlan, code: nn.Module | None) -> Tensor:
    released = vault.label_set(block, plan)
    return torch.tensor(released) if released else torch.zeros(0, dtype=torch.int64)


def label_noise(vault: Vault, block: Block) -> HasScale:
    """An absent candidate passes a threshold of one standard deviation with probability 1 − Φ(1)."""
    many = LabelPlan(noise=4.0, candidates=tuple(range(5 * DRAWS)), threshold=4.0)
    passed = len(vault.label_set(block, many))
    return lambda factor: rate_is(passed, 5 * DRAWS, float(stats.norm.sf(1 / factor)), confidence(factor))


def label_statistic(vault: Vault, block: Block) -> Tensor:
    counts = label_counts(vault._admission.records(block), 2, bytes(32))
    return torch.tensor([counts.get(label, 0) * 2.0**-38 for label in range(4)], dtype=torch.float64)


TUNING = TuningPlan(reads=[SUM], trials=2.0)


def tuned(vault: Vault, block: Block, plan: TuningPlan, code: nn.Module | None) -> Tensor:
    """All scores are equal, so that the first trial wins whatever it released."""
    (read,) = plan.reads
    result: Tensor = vault.umbrella(block, plan, lambda _: (0.0, sums(vault, block, read, code))).result
    return result


CONTRACTS = {
    "grant": Contract(
        plan=GRADIENT,
        event=GRADIENT.event,
        use=gradient,
        quiet=replace(GRADIENT, noise=QUIET),
        sensitivity=2.0 / SIZE,
        noise=lambda vault, block: normal(gradient(vault, block, GRADIENT, None, DRAWS // FEATURES), 4.0 / SIZE),
        grid=grid_for(4.0) / SIZE,
    ),
    "individual_filter": Contract(
        plan=2.0,
        event=FilterPlan(rho=1.0).event,
        use=filtered,
        quiet=QUIET,
        sensitivity=2.0 / SIZE,
        noise=lambda vault, block: normal(filtered(vault, block, 2.0, None, DRAWS // FEATURES), 4.0 / SIZE),
        grid=grid_for(4.0) / SIZE,
        repeats="new noise",
    ),
    "sums": Contract(
        plan=SUM,
        event=SUM.event,
        use=sums,
        quiet=replace(SUM, noise=QUIET),
        sensitivity=2.0,
        noise=lambda vault, block: normal(sums(vault, block, SUM, Wide(DRAWS)), 8.0),
        grid=grid_for(8.0),
    ),
    "second_moment": Contract(
        plan=SUM,
        event=SUM.event,
        use=second_moment,
        quiet=replace(SUM, noise=QUIET),
        sensitivity=4.0,
        noise=second_moment_noise,
        grid=grid_for(16.0 / math.sqrt(2)),
    ),
    "count": Contract(
        plan=SUM,
        event=SUM.event,
        use=count,
        quiet=replace(SUM, noise=QUIET),
        sensitivity=1.0,
        noise=repeated(count, 4.0),
        grid=grid_for(4.0),
        takes_code=False,
    ),
    "accuracy": Contract(
        plan=SUM,
        event=SUM.event,
        use=accuracy,
        quiet=replace(SUM, noise=QUIET),
        sensitivity=1.0 / SIZE,
        noise=repeated(accuracy, 4.0 / SIZE),
        grid=grid_for(4.0) / SIZE,
    ),
    "label_set": Contract(
        plan=LABELS,
        event=LABELS.event,
        use=label_set,
        statistic=label_statistic,
        sensitivity=1.0,
        noise=label_noise,
        takes_code=False,
    ),
    "umbrella": Contract(
        plan=TUNING,
        event=TUNING.event,
        use=tuned,
        quiet=replace(TUNING, reads=[replace(SUM, noise=QUIET)]),
        sensitivity=2.0,
        noise=lambda vault, block: normal(tuned(vault, block, TUNING, Wide(DRAWS)), 8.0),
        grid=grid_for(8.0),
        repeats="never",
    ),
}
