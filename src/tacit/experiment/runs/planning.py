"""What one seed of a run reads and charges: learner, label sets and evaluation, planned together within the budget."""

from dataclasses import asdict, replace
from typing import Any

from tacit.data.stream import Stream, TaskInfo
from tacit.errors import ConfigError
from tacit.experiment.config.config import Config
from tacit.experiment.runs.evaluation import Evaluation
from tacit.experiment.runs.folder import SeedFolder
from tacit.experiment.runs.held_out import HeldOutTasks
from tacit.experiment.runs.labels import DeclaredSets
from tacit.experiment.runs.reporting import starting
from tacit.experiment.runs.resolver import caveats, declare, make_budget, make_evaluation, make_label_sets, make_learner
from tacit.learners.base.learner import Learner
from tacit.learners.base.rehearsal import rehearse
from tacit.privacy.accounting import calibrate
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.ledger import Ledger, StreamTerms
from tacit.privacy.vault import Block, Vault

SHARES = (1.0, 0.98, *(0.94**times for times in range(1, 20)))
"""Shares of ε that plans are tried with, in this order."""


class SeedPlan:
    """The parts of one seed, made from a configuration. `fit_budget` plans them; nothing is read or charged.

    Args:
        config: The configuration of the seed.
        folder: Where the seed keeps its releases.
        stream: The stream of the seed.
        vault: Admits the records later; its ledger says what budget is left.
    """

    def __init__(self, config: Config, folder: SeedFolder, stream: Stream, vault: Vault) -> None:
        self.config, self.folder, self.vault = config, folder, vault
        self.stream = declare(stream, config.data, folder.seed)
        self.budget = make_budget(config.budget, stream.info.unit)
        self.held_out = HeldOutTasks(stream)
        self._make(self.budget)

    def _make(self, budget: Budget) -> None:
        """Make everything that reads records, planned with this budget."""
        config = self.config
        self.evaluation: Evaluation = make_evaluation(config.evaluation, self.stream, self.vault, budget)
        self.labels: DeclaredSets = make_label_sets(config.data, self.evaluation.info, self.vault, budget)
        self.learner = make_learner(config, budget, self.folder.seed)

    def fit_budget(self) -> None:
        """Start the learner with plans that fit the budget together.

        A unit that recurs may be trained on in one task, remembered in a second and queried in a third. Each plan alone
        fits as often as the unit recurs. A mixture can cost more than any of them alone, and where there are too many
        mixtures to price each, the ledger's bound on all of them is looser. All are then planned with a smaller ε.

        Raises:
            ConfigError: No share of ε makes the plans fit.
            BudgetExceeded: The ledger has no room for them.
        """
        with starting(self.config.learner.method, self.learner):
            self._fit_budget()

    def _fit_budget(self) -> None:
        info = self.stream.info
        times = info.tasks_per_unit
        for share in SHARES:
            if share < 1:
                self._make(replace(self.budget, epsilon=share * self.budget.epsilon))
            self.learner.start(self.labels.info)
            self.evaluation.check(self.learner)
            self.held_out.check(self.learner)
            lists = self.learner.charges() + self.labels.charges() + self.evaluation.charges()
            alone = times == 1 and self.budget.adjacency != "replace-one"
            if alone or not lists or calibrate.fits_mixed(lists, self.budget, times):
                terms = StreamTerms(name=info.name, budget=self.budget, tasks_per_unit=times, public=info.public)
                self.vault.ledger.check_new_stream(terms, lists)
                return
        raise ConfigError(
            f"the plans for {info.name!r} do not fit {self.budget} together for a {info.unit} in {times} tasks; use "
            "fewer steps, tasks of the same nominal size, or evaluation.test = 'none'"
        )

    def rehearse(self, goal: int | None) -> None:
        """Try the learner on synthetic records if it is about to charge private ones; call `fit_budget` first."""
        goal = len(self.stream) if goal is None else goal
        if not self.stream.info.public and self.released < goal:
            rehearse(self.learner.rehearsal, self.labels.info)

    @property
    def released(self) -> int:
        """How many tasks have a whole release in the folder."""
        return self.folder.released(self.stream.info.tasks)

    @property
    def weights(self) -> list[float]:
        """The weight of each task's accuracy in averages over tasks."""
        return [task.weight for task in self.stream]

    @property
    def part(self) -> str:
        """The part of a task's records that the learner receives, after the test part and the label query are cut."""
        parts = [part for part in (self.evaluation.part, self.labels.part) if part not in (None, "all")]
        return "/".join(map(str, parts)) or "all"

    def prepare(self, task: TaskInfo, block: Block) -> tuple[TaskInfo, Block]:
        """Cut off records that are queried for accuracy and for the label set; returns what the learner receives."""
        if self.learner.needs_public_records:
            self.evaluation.give_public_records(self.learner, task.number)
        return self.labels.cut(task.number, self.evaluation.cut(task.number, block))


def end_note(plan: SeedPlan, last: int) -> dict[str, Any]:
    """The last line in the log of a seed: how many tasks are learned, and what the summary of the run needs."""
    learner, info = plan.learner, plan.stream.info
    names, claimed, head = [task.name for task in info.tasks], learner.claimed(), plan.vault.ledger.head
    return {
        "finished": last == len(names),
        "claimed": None if claimed is None else asdict(claimed),
        "claim": learner.claim,
        "private": learner.private,
        "sequential": learner.sequential,
        "accuracy_from": plan.evaluation.source,
        "accuracy_noise": plan.evaluation.noise,
        "task_id": info.task_id,
        "caveats": caveats(plan.config.data),
        "learners": [list(tasks) for tasks in learner.groups()],
        "held": plan.held_out.summary(plan.vault, plan.folder.path),
        "tasks": names[:last],
        "left": names[last:],
        **({"weights": plan.weights} if set(plan.weights) != {1.0} else {}),
        "ledger": {"id": plan.vault.ledger.id, "head": {"seq": head.seq, "hash": head.hash}},
    }


def planned_learner(config: Config, folder: SeedFolder, stream: Stream) -> Learner:
    """The learner of a seed with the plans that it learns by, before its first task: releases are loaded into it."""
    with Ledger.throwaway() as ledger:
        plan = SeedPlan(config, folder, stream, Vault(ledger))
        plan.fit_budget()
    return plan.learner
