"""Reconstruction of a training record from releases of L2DP-ML as published (Lai et al. 2022).

L2DP-ML is trained on digits, and `reconstruction_attack` recovers a record and its label from its released parameters.
The control is a private noisy sum of the same records at the same ε, attacked by the same adversary: independent noise
does not cancel, while noise that all records share does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.audit.reconstruction_attack import Known, reconstruct, reconstruct_projected
from tacit.certificate.certificate import Certificate
from tacit.data.benchmarks.named import load
from tacit.data.samples import scaled
from tacit.data.stream import Label, StreamInfo
from tacit.errors import ConfigError, PlanError
from tacit.learners.base.task_loop import admit
from tacit.learners.published.functional import MEMORY, NOISE
from tacit.learners.published.l2dpml import L2DPML
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.ledger import Ledger
from tacit.privacy.vault import SumPlan, Vault
from tacit.words import install

BATCHES: Mapping[str, int] = {"mnist": 2500, "digits": 500}
"""λ, the number of records of a task: as in the paper for MNIST, the largest possible for scikit-learn's digits."""
MOST_EPSILON = 10.0
TASKS = 3
LR = 0.1
DELTA = 1e-5
"""The δ of the control; the paper claims δ = 0."""
SETTINGS: Mapping[str, tuple[Literal["conflict", "always"], torch.dtype]] = {
    "L2DP-ML, float64": ("conflict", torch.float64),
    "L2DP-ML, float32": ("conflict", torch.float32),
    "L2DP-ML, all steps projected": ("always", torch.float32),
}
"""When gradients are projected, and the precision of released parameters. Training itself uses float64: in float32 the
published method overflows in its third step."""

Picture = NDArray[np.float64]
Tensors = Mapping[str, Tensor]


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


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained learner and its releases."""

    learner: L2DPML
    releases: tuple[Tensors, ...]
    """The parameters before the first task and after each task."""
    certificate: Certificate


def audit(*, data: str = "digits", epsilon: float = 0.5, victim: int = 0) -> Report:
    """Train L2DP-ML, attack it, and attack the control.

    Args:
        data: "digits" or "mnist".
        epsilon: The claimed ε.
        victim: The index of the attacked record in the first task; the adversary knows all other records.

    Raises:
        PlanError: An argument is out of range.
    """
    if data not in BATCHES:
        raise PlanError(f"the attack runs on {' or '.join(BATCHES)}, got {data!r}")
    if epsilon > MOST_EPSILON:
        raise PlanError(
            f"epsilon must be at most {MOST_EPSILON:g}, the largest that the papers claim, got {epsilon:g}: the attack "
            "reads hidden units that the noise has saturated, and less noise leaves some that are not"
        )
    size = BATCHES[data]
    if not 0 <= victim < size:
        raise PlanError(f"victim must be one of the first task's {size} records, 0 to {size - 1}, got {victim}")
    public = load(data)
    x, y = scaled(public.train.x[: TASKS * size]), public.train.y[: TASKS * size]
    info = StreamInfo.uniform(data, labels=public.labels, shape=public.shape, size=size, tasks=TASKS, public=True)
    budget = Budget(epsilon=epsilon, delta=DELTA)
    runs = {rule: train(info, x, y, budget, rule) for rule in dict.fromkeys(rule for rule, _ in SETTINGS.values())}
    learner = runs["conflict"].learner
    plan, bound = learner.plan(info.tasks[0]), runs["conflict"].certificate.claims.certified
    every = plan.scaled(torch.from_numpy(x).double())
    flat, labels = torch.split(every.flatten(1), size), torch.split(torch.from_numpy(y), size)
    others = torch.arange(size) != victim
    records = [(flat[0][others], labels[0][others]), *zip(flat[1:], labels[1:], strict=True)]

    def picture(features: Tensor) -> Picture:
        return features.view(every.shape[-2:]).numpy()

    def result(release: str, features: Tensor, label: int | None) -> Reconstruction:
        rmse = float((features - flat[0][victim]).square().mean().sqrt())
        name = None if label is None else info.labels[label]
        return Reconstruction(release=release, rmse=rmse, label=name, picture=picture(features))

    results = []
    for name, (rule, dtype) in SETTINGS.items():
        rounded = [{key: value.to(dtype).double() for key, value in step.items()} for step in runs[rule].releases]
        known = Known(releases=rounded, records=records, network=learner.stacked, lr=LR, size=size)
        results.append(result(name, *(reconstruct(known) if rule == "conflict" else reconstruct_projected(known))))
    results.append(result("an honest sum", private_sum(flat[0], records[0][0], budget), None))
    return Report(
        data=data,
        claimed=learner.claimed().total,
        certified=bound.epsilon,
        reason=bound.reason,
        scale=plan.delta_r / plan.epsilon1 / plan.batch,
        spread=float(every.std()),
        label=info.labels[int(labels[0][victim])],
        victim=picture(flat[0][victim]),
        perturbed=picture(flat[0][victim] + learner.chi_["input"].flatten() / size),
        findings=tuple(results),
    )


def train(
    info: StreamInfo, x: NDArray[np.float32], y: NDArray[np.int64], budget: Budget, rule: Literal["conflict", "always"]
) -> Trained:
    """Algorithm 1 of the paper: one step per task, and a release after each."""
    learner = L2DPML(budget=budget, lr=LR, batch=None, projection=rule, double=True)
    learner.start(info)
    releases = [_parameters(learner.tensors())]
    with Ledger.throwaway() as ledger:
        vault = Vault(ledger)
        for task, rows in zip(info.tasks, np.split(np.arange(len(x)), len(info.tasks)), strict=True):
            release = learner.learn(task, admit(vault, (x[rows], y[rows]), info, task, budget), vault)
            releases.append(_parameters(release.tensors))
    return Trained(learner=learner, releases=tuple(releases), certificate=release.certificate)


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


def _parameters(tensors: Tensors) -> dict[str, Tensor]:
    """The parameters θ alone, without the memory and the noise that a release of public data also contains."""
    return {name: value for name, value in tensors.items() if not name.startswith((MEMORY, NOISE))}


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
