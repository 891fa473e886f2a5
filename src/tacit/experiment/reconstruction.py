"""L2DP-ML as published is undone: it is trained on real digits, and its releases are attacked (Lai et al. 2022).

The attack is in `reconstruction_attack`; here is what it is held against. Noise that is independent for every release
does not cancel as noise that all records share: the control is an honest noisy sum of the same records at the same ε,
for the same adversary.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.data.named import load
from tacit.data.samples import scaled
from tacit.data.stream import Label, StreamInfo
from tacit.errors import PlanError
from tacit.experiment.reconstruction_attack import Known, reconstruct, reconstruct_projected
from tacit.learners.functional import MEMORY, NOISE
from tacit.learners.l2dpml import L2DPML
from tacit.learners.learner import admit
from tacit.privacy.budget import Budget
from tacit.privacy.certificate import Certificate
from tacit.privacy.ledger import Ledger
from tacit.privacy.plan import SumPlan
from tacit.privacy.vault import Vault

BATCHES: Mapping[str, int] = {"mnist": 2500, "digits": 500}
"""λ, the records of a task: the papers' for MNIST; all there are for scikit-learn's digits."""
MOST_EPSILON = 10.0
TASKS = 3
LR = 0.1
DELTA = 1e-5
"""Of the honest control; the paper claims δ = 0."""
WAYS: Mapping[str, tuple[Literal["conflict", "always"], torch.dtype]] = {
    "L2DP-ML, float64": ("conflict", torch.float64),
    "L2DP-ML, float32": ("conflict", torch.float32),
    "L2DP-ML, all steps projected": ("always", torch.float32),
}
"""When gradients are projected, and in which precision parameters are released. All is computed in float64: in float32
the method as published overflows in its third step."""

Picture = NDArray[np.float64]
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What came out of one release."""

    release: str
    rmse: float
    """Of the reconstruction; features lie in [−1, 1]."""
    label: Label | None
    """As the adversary says; None where only features are released."""
    picture: Picture


@dataclass(frozen=True, kw_only=True)
class Report:
    """The attack on one victim."""

    data: str
    claimed: float
    certified: float | None
    reason: str
    scale: float
    """Of the Laplace noise on a pixel."""
    spread: float
    """Standard deviation of the pixels of all records: what a rmse is to be held against."""
    label: Label
    """The victim's."""
    victim: Picture
    perturbed: Picture
    """The victim's picture as the mechanism 'protects' it."""
    findings: tuple[Finding, ...]
    """From releases in three ways (`WAYS`), and from an honest sum."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """One run of the method."""

    learner: L2DPML
    releases: tuple[Tensors, ...]
    """Parameters before the first task, and after each."""
    certificate: Certificate


def audit(*, data: str = "digits", epsilon: float = 0.5, victim: int = 0) -> Report:
    """Train, attack, compare. `victim`: which record of the first task; its neighbours are all known."""
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
    runs = {rule: train(info, x, y, budget, rule) for rule in dict.fromkeys(rule for rule, _ in WAYS.values())}
    learner = runs["conflict"].learner
    plan, bound = learner.plan(info.tasks[0]), runs["conflict"].certificate.claims.certified
    every = plan.scaled(torch.from_numpy(x).double())
    flat, labels = torch.split(every.flatten(1), size), torch.split(torch.from_numpy(y), size)
    others = torch.arange(size) != victim
    records = [(flat[0][others], labels[0][others]), *zip(flat[1:], labels[1:], strict=True)]

    def picture(features: Tensor) -> Picture:
        return features.view(every.shape[-2:]).numpy()

    def finding(release: str, features: Tensor, label: int | None) -> Finding:
        rmse = float((features - flat[0][victim]).square().mean().sqrt())
        said = None if label is None else info.labels[label]
        return Finding(release=release, rmse=rmse, label=said, picture=picture(features))

    found = []
    for name, (rule, dtype) in WAYS.items():
        seen = [{key: value.to(dtype).double() for key, value in one.items()} for one in runs[rule].releases]
        known = Known(releases=seen, records=records, network=learner.stacked, lr=LR, size=size)
        found.append(finding(name, *(reconstruct(known) if rule == "conflict" else reconstruct_projected(known))))
    found.append(finding("an honest sum", honest(flat[0], records[0][0], budget), None))
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
        findings=tuple(found),
    )


def train(
    info: StreamInfo, x: NDArray[np.float32], y: NDArray[np.int64], budget: Budget, rule: Literal["conflict", "always"]
) -> Trained:
    """Algorithm 1 of the paper: one step a task, a release after each."""
    learner = L2DPML(budget=budget, lr=LR, batch=None, projection=rule, double=True)
    learner.start(info)
    releases = [_parameters(learner.tensors())]
    with Ledger.throwaway() as ledger:
        vault = Vault(ledger)
        for task, rows in zip(info.tasks, np.split(np.arange(len(x)), len(info.tasks)), strict=True):
            release = learner.learn(task, admit(vault, (x[rows], y[rows]), info, task, budget), vault)
            releases.append(_parameters(release.tensors))
    return Trained(learner=learner, releases=tuple(releases), certificate=release.certificate)


def honest(records: Tensor, others: Tensor, budget: Budget) -> Tensor:
    """The same adversary against a sum that is private: the noisy sum of the task, less the records that are known."""
    features = records.shape[1]
    info = StreamInfo.uniform("honest", labels=(0,), shape=(features,), size=len(records), tasks=1, public=True)
    x, y = records.float().numpy(), np.zeros(len(records), dtype=np.int64)
    with Ledger.throwaway() as ledger:
        vault = Vault(ledger)
        block = admit(vault, (x, y), info, info.tasks[0], budget)
        noisy = vault.sums(block, SumPlan.for_budget(budget, clip=features**0.5), by_label=False)
    return noisy[0].double() - others.sum(0)


def _parameters(tensors: Tensors) -> dict[str, Tensor]:
    """θ alone: what a release of public data holds besides is not for the adversary."""
    return {name: value for name, value in tensors.items() if not name.startswith((MEMORY, NOISE))}
