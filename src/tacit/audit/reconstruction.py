"""Reconstruction of a training record from releases of L2DP-ML as published (Lai et al. 2022).

L2DP-ML (`text`) learns one step of digits, and `reconstruction_attack` recovers a record and its label from the
released parameters. The control is a private noisy sum of the same records at the same ε, attacked by the same
adversary: independent noise does not cancel, while noise that all records share does. `distinguishing_attack` is for
`code`.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.audit.distinguishing_attack import RUNS, Distinguished, distinguish
from tacit.audit.reconstruction_attack import Known, reconstruct
from tacit.data.benchmarks.named import load
from tacit.data.samples import scaled
from tacit.data.stream import Label, StreamInfo
from tacit.errors import ConfigError, PlanError
from tacit.learners.base.task_loop import admit
from tacit.learners.published.l2dpml import L2DPML
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.ledger import Ledger
from tacit.privacy.vault import SumPlan, Vault
from tacit.words import install

BATCHES: Mapping[str, int] = {"mnist": 2500, "digits": 500}
"""λ, the number of records of the task: as in the paper for MNIST, the largest possible for scikit-learn's digits."""
MOST_EPSILON = 10.0
LR = 0.01
DELTA = 1e-5
"""The δ of the control; the paper claims δ = 0."""
SETTINGS: Mapping[str, torch.dtype] = {"L2DP-ML, float64": torch.float64, "L2DP-ML, float32": torch.float32}
"""The precision of the released parameters. Training itself uses float64."""

Picture = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Reconstruction:
    """What the adversary recovers in one setting."""

    release: str
    rmse: float
    """The root mean square error of the features, which lie in [−1, 1]."""
    label: Label | None
    """The recovered label; None where only features can be recovered."""
    picture: Picture


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of the attack on one record."""

    data: str
    claimed: float
    certified: float | None
    reason: str
    scale: float
    """The scale of the Laplace noise on a pixel."""
    spread: float
    """The standard deviation of the pixels of all records, for comparison with the rmse."""
    label: Label
    """The victim's label."""
    victim: Picture
    perturbed: Picture
    """The victim's record with the mechanism's noise."""
    findings: tuple[Reconstruction, ...]
    """One for each of `SETTINGS`, and one for the private sum."""
    code: Distinguished
    """The attack on the authors' code."""


def audit(*, data: str = "digits", epsilon: float = 0.5, victim: int = 0, runs: int = RUNS) -> Report:
    """Train L2DP-ML, attack it, attack the control, and distinguish two data sets by the authors' code.

    Args:
        data: "digits" or "mnist".
        epsilon: The claimed ε.
        victim: The index of the attacked record; the adversary knows all other records.
        runs: The number of runs of the authors' code on each of the two data sets.

    Raises:
        PlanError: An argument is out of range.
    """
    if data not in BATCHES:
        raise PlanError(f"the attack runs on {' or '.join(BATCHES)}, got {data!r}")
    if epsilon > MOST_EPSILON:
        raise PlanError(f"epsilon must be at most {MOST_EPSILON:g}, the largest that the papers claim, got {epsilon:g}")
    size = BATCHES[data]
    if not 0 <= victim < size:
        raise PlanError(f"victim must be one of the task's {size} records, 0 to {size - 1}, got {victim}")
    public = load(data)
    x, y = scaled(public.train.x[:size]), public.train.y[:size]
    info = StreamInfo.uniform(data, labels=public.labels, shape=public.shape, size=size, tasks=1, public=True)
    budget = Budget(epsilon=epsilon, delta=DELTA)
    learner = L2DPML(budget=budget, lr=LR, encoder_lr=LR, batch=None, double=True)
    learner.start(info)
    before = learner.model_.state_dict()
    before = {name: value.clone() for name, value in before.items()}
    with Ledger.throwaway() as ledger:
        vault = Vault(ledger)
        release = learner.learn(info.tasks[0], admit(vault, (x, y), info, info.tasks[0], budget), vault)
    after, bound = learner.model_.state_dict(), release.certificate.claims.certified
    plan = learner.plan(info.tasks[0])
    every = plan.scaled(torch.from_numpy(x).double())
    flat, labels = every.flatten(1), torch.from_numpy(y)
    others = torch.arange(size) != victim

    def picture(features: Tensor) -> Picture:
        return features.view(every.shape[-2:]).numpy()

    def result(release: str, features: Tensor, label: int | None) -> Reconstruction:
        rmse = float((features - flat[victim]).square().mean().sqrt())
        name = None if label is None else info.labels[label]
        return Reconstruction(release=release, rmse=rmse, label=name, picture=picture(features))

    results = []
    for name, dtype in SETTINGS.items():
        rounded = ({key: value.to(dtype).double() for key, value in step.items()} for step in (before, after))
        known = Known(
            before=next(rounded), after=next(rounded), records=flat[others], labels=labels[others],
            network=deepcopy(learner.stacked), lr=LR,
        )  # fmt: skip
        results.append(result(name, *reconstruct(known)))
    results.append(result("private sum (control)", private_sum(flat, flat[others], budget), None))
    return Report(
        data=data,
        claimed=learner.claimed().total,
        certified=bound.epsilon,
        reason=bound.reason,
        scale=plan.delta_r / plan.epsilon1 / plan.batch,
        spread=float(every.std()),
        label=info.labels[int(labels[victim])],
        victim=picture(flat[victim]),
        perturbed=picture(flat[victim] + learner.chi_["input"].flatten() / size),
        findings=tuple(results),
        code=distinguish(epsilon=epsilon, runs=runs),
    )


def private_sum(records: Tensor, others: Tensor, budget: Budget) -> Tensor:
    """The adversary's estimate from a private sum: the noisy sum of the task minus the known records."""
    features = records.shape[1]
    info = StreamInfo.uniform("honest", labels=(0,), shape=(features,), size=len(records), tasks=1, public=True)
    x, y = records.float().numpy(), np.zeros(len(records), dtype=np.int64)
    with Ledger.throwaway() as ledger:
        vault = Vault(ledger)
        block = admit(vault, (x, y), info, info.tasks[0], budget)
        noisy = vault.sums(block, SumPlan.for_budget(budget, clip=features**0.5), by_label=False)
    return noisy[0].double() - others.sum(0)


def draw(report: Report, file: Path) -> None:
    """Draw the victim, its perturbed record and the reconstructions to a PNG file, on one grey scale from −1 to 1."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(
            f"{file.name} was not drawn because matplotlib is missing; {install('plots')} brings it"
        ) from None
    panels = [
        (f"the victim's record\nlabel {report.label}", report.victim),
        (f"as it is 'protected'\nLaplace noise, scale {report.scale:.0f} a pixel", report.perturbed),
    ]
    for found in report.findings:
        label = "" if found.label is None else f"label {found.label}, "
        panels.append((f"from {found.release}\n{label}rmse {found.rmse:.3g}", found.picture))
    figure = Figure(figsize=(2.5 * len(panels), 3.1), layout="constrained")
    for axes, (title, picture) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        axes.imshow(picture, cmap="gray", vmin=-1, vmax=1, interpolation="nearest")
        axes.set_title(title, fontsize=9.5)
        axes.set_xticks([])
        axes.set_yticks([])
    certified = "none" if report.certified is None else f"{report.certified:.3g}"
    figure.suptitle(f"L2DP-ML as published: claimed ε = {report.claimed:.3g}, certified: {certified}", fontsize=11)
    try:
        figure.savefig(file, dpi=130)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot write the picture {file}: {error}") from None
