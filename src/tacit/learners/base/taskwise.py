"""The claim of Tobaben et al. 2025: every task is (ε_t, δ_t)-DP, and tasks compose by whether units recur.

Thm 4.4 (a unit is in one task): the largest ε_t and δ_t. Thm 4.5 (a unit is in up to k tasks): added up, here over the
k tasks that cost most. ε_t by the tight accountant (the paper: analytic Gaussian, PRV), add-or-remove, at the budget's
δ.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from dp_accounting.dp_event import DpEvent

from tacit.certificate.claims import Claim, task_wise
from tacit.data.stream import TaskInfo
from tacit.learners.base.learner import Learner
from tacit.learners.base.public_figures import Claimed
from tacit.privacy.accounting import epsilon
from tacit.privacy.vault import GradientPlan, SumPlan


@dataclass(kw_only=True, eq=False)
class TaskWise(Learner):
    """A learner that reads a task's records once, by one plan."""

    claim: ClassVar[str] = "Thm 4.4: the largest (ε, δ) of any task; Thm 4.5: their sum where units recur"

    @abstractmethod
    def plan(self, task: TaskInfo) -> GradientPlan | SumPlan:
        """The plan that reads a task's records."""

    def charges(self) -> list[list[DpEvent]]:
        return [[self.plan(task).event] for task in self.stream_.tasks]

    def claims(self) -> tuple[Claim, ...]:
        if not self.tasks_:
            return ()
        return (task_wise(self._epsilons(), [self.budget.delta] * len(self.tasks_), self.stream_.tasks_per_unit),)

    def claimed(self) -> Claimed | None:
        claims = self.claims()
        if not claims:
            return None
        return Claimed(per_task=max(self._epsilons()), total=claims[0].epsilon, delta=claims[0].delta)

    def _epsilons(self) -> list[float]:
        return [epsilon.epsilon(self.plan(task).event, self.budget.delta) for task in self.tasks_]
