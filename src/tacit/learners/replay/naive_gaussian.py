"""The naive Gaussian mechanism (Lai et al. 2022, Section 3): A-GEM with noisy g and g_ref, and a share of ε per task.

Each of m tasks may spend ε/m: ε_D on its records plus ε_M on the memory, by the moments accountant. With a given noise
scale z a task stops before it would spend more; without one, it uses the least z with which it can finish. "This
results in either a large noise or a lack of training steps" (Section 6). The step is DP-CL's (`dpcl`).
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

from tacit.certificate.claims import Claim, moments_accountant, naive_gaussian
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError, PlanError
from tacit.learners.base.gradient import Each, affordable, at
from tacit.learners.base.public_figures import Claimed
from tacit.learners.replay.dpcl import ProjectedReplay, memory_sizes
from tacit.memory import Mode, Schedule
from tacit.privacy.accounting import calibrate
from tacit.privacy.vault import GradientPlan
from tacit.words import rounded_up

MAX_ORDER = 2**16
"""With the usual orders up to 32 no ε below log(1/δ)/32 can be shown, which is more than a task's share."""
_TOLERANCE = 1e-3
_MOST_NOISE, _LEAST_NOISE = 1e6, 0.1


@dataclass(kw_only=True, eq=False)
class NaiveGaussian(ProjectedReplay):
    """DP-CL's step, with reference gradients of records sampled from the whole memory and a share of ε per task.

    Reference: Lai et al. 2022, Section 3, NaiveGaussian.
    Claim: Eq. 4, the largest ε_D + ε_M of any task, which does not hold because a memory is read in every later task;
    and Theorem 1, their sum, which is at most ε.
    Certified: what the ledger was charged for a record. It is far less than the claim: a record is trained on or
    remembered, never both, and a task's training reads no records of other tasks.
    Sharp edges: ε is divided among the tasks by the papers' accountant, so with many of them noise is large or
    steps are few: it hardly learns. `DPCL` does the same step at what a record really loses.
    """

    steps: Each[int] | None = None
    epochs: Each[float] | None = None
    """The wanted steps or epochs; a task may stop earlier. Neither: one epoch."""
    noise: Each[float] | None = None
    """Noise scale z of both gradients. None: the least with which a task can take all its steps."""
    memory_noise: float | None = None
    """Another z for the reference gradients. None: the same."""
    total: Literal["sum", "max"] = "sum"
    """What ε bounds: the sum over tasks, so that each may spend ε/m; or the largest of any task (Eq. 4)."""

    reference: ClassVar[str] = "Lai et al. 2022, Section 3, NaiveGaussian"
    claim: ClassVar[str] = "Eq. 4: max over tasks of ε_D + ε_M; Theorem 1: their sum"
    certifies: ClassVar[str] = "a record: the larger of its training plan and all planned reads of its memory block"

    def start(self, stream: StreamInfo) -> None:
        if self.total not in ("sum", "max"):
            raise LearnerError(f"total must be 'sum' or 'max', got {self.total!r}")
        if self.steps is None and self.epochs is None:
            self.epochs = 1.0
        super().start(stream)

    def mode(self) -> Mode:
        return "union"

    def noise_is_given(self) -> bool:
        return True  # the task's share decides, so that nothing can be raised

    def cap(self) -> float:
        """What a task may spend by the paper's accountant."""
        return self.budget.epsilon / (len(self.stream_.tasks) if self.total == "sum" else 1)

    def steps_in(self, task: TaskInfo) -> int:
        """All wanted steps, or as many as the task's share allows."""
        wanted = super().steps_in(task)
        if self.noise is None:
            return wanted
        most = _most_steps(*self._rates(task), *self._scales(task), wanted, self.budget.delta, self.cap())
        if most:
            return most
        least = rounded_up(_least_noise(*self._rates(task), None, 1, self.budget.delta, self.cap()))
        raise PlanError(
            f"not one step of task {task.name!r} with noise {at(self.noise, task, 'noise'):g} fits its share ε = "
            f"{self.cap():.4g} by the moments accountant; use noise ≥ {least}, a smaller batch, a larger epsilon, or "
            "noise=None, which lets the budget decide"
        )

    def plan(self, task: TaskInfo) -> GradientPlan:
        noise, _ = self._scales(task)
        plan = GradientPlan(
            rate=self.rate_in(task), steps=self.steps_in(task), noise=noise, clip=self.clip, clipping=self.clipping
        )
        times = self.stream_.tasks_per_unit
        if self.noise is None and not calibrate.fits(plan.event, self.budget, times):
            # The paper's accountant allows too little noise here: tacit's decides.
            return replace(plan, noise=calibrate.gradient_noise(self.budget, plan.rate, plan.steps, times))
        return affordable(plan, self.budget, times)

    def schedule(self, stream: StreamInfo) -> Schedule:
        return self.reads(stream, tuple(self._scales(task)[1] for task in stream.tasks))

    def claimed_pairs(self) -> list[tuple[float, float]]:
        """(ε_D, ε_M) of the tasks learned so far."""

        def pair(task: TaskInfo) -> tuple[float, float]:
            return _spent(*self._rates(task), *self._scales(task), self.steps_in(task), self.budget.delta)

        return [pair(task) for task in self.tasks_]

    def claims(self) -> tuple[Claim, ...]:
        return naive_gaussian(self.claimed_pairs(), self.budget.delta, MAX_ORDER)

    def claimed(self) -> Claimed:
        largest, added = self.claims()
        return Claimed(per_task=largest.epsilon, total=added.epsilon, delta=self.budget.delta)

    def _rates(self, task: TaskInfo) -> tuple[float, float]:
        """Sampling rates of the task's records and of the memory's (of its smallest block; 0 without a memory)."""
        sizes = memory_sizes(self.memory_share, self.stream_)[: task.number]
        memory = min(1.0, self.memory_batch / (min(sizes) * len(sizes))) if sizes else 0.0
        return self.rate_in(task), memory

    def _scales(self, task: TaskInfo) -> tuple[float, float]:
        """Noise scales of the task's gradients and of its reference gradients."""
        if self.noise is not None:
            z = at(self.noise, task, "noise")
        else:
            wanted = super().steps_in(task)
            z = _least_noise(*self._rates(task), self.memory_noise, wanted, self.budget.delta, self.cap())
        return z, z if self.memory_noise is None else self.memory_noise


def _spent(
    rate: float, memory_rate: float, noise: float, memory_noise: float, steps: int, delta: float
) -> tuple[float, float]:
    """(ε_D, ε_M) of a task; an empty memory costs nothing."""
    memory = moments_accountant(memory_rate, memory_noise, steps, delta, MAX_ORDER) if memory_rate else 0.0
    return moments_accountant(rate, noise, steps, delta, MAX_ORDER), memory


@lru_cache(maxsize=4096)
def _most_steps(
    rate: float, memory_rate: float, noise: float, memory_noise: float, wanted: int, delta: float, cap: float
) -> int:
    """The most steps, up to the wanted number, that stay within the cap; 0 for none."""

    def fits(steps: int) -> bool:
        return sum(_spent(rate, memory_rate, noise, memory_noise, steps, delta)) <= cap

    fit, over = 0, wanted + 1
    while over - fit > 1:
        middle = (fit + over) // 2
        fit, over = (middle, over) if fits(middle) else (fit, middle)
    return fit


@lru_cache(maxsize=4096)
def _least_noise(
    rate: float, memory_rate: float, memory_noise: float | None, steps: int, delta: float, cap: float
) -> float:
    """The least noise scale with which the steps stay within the cap, rounded up."""

    def cost(log_noise: float) -> float:
        noise = math.exp(log_noise)
        return math.log(sum(_spent(rate, memory_rate, noise, memory_noise or noise, steps, delta)) / cap)

    found = calibrate.bracketed(cost, 1.0, math.log(_MOST_NOISE), math.log(_LEAST_NOISE), _TOLERANCE)
    if found is None:
        raise PlanError(
            f"no noise up to {_MOST_NOISE:g} keeps {steps} steps within a task's share ε = {cap:.4g} by the moments "
            "accountant; use fewer steps, more memory_noise, or a larger epsilon"
        )
    return math.exp(found)
