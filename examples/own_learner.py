"""A learner of your own, in one file.

A learner sees public facts and a handle to the private records (a block), never the records. Whatever it computes from
the vault's releases is post-processing, so it cannot weaken the guarantee.

This one is DP-SGD that restarts from a running average of its earlier weights at each task. Run it like the built-in
learners:

    tacit run quickstart --method examples/own_learner.py:AveragedDPSGD --seeds 1
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from tacit import Block, TaskInfo, Vault, run
from tacit.learners import GradientLearner


@dataclass(kw_only=True, eq=False)
class AveragedDPSGD(GradientLearner):
    """DP-SGD, started in each task from a running average of the released weights.

    Reference: this example.
    Claim: none.
    Certified: for a record, the DP-SGD plan of its own task, since the average is post-processing.
    """

    earlier: float = 0.5
    """Weight of the earlier average. Settings are dataclass fields, and `--set learner.earlier=0.9` changes one."""

    reference: ClassVar[str] = "this example"
    certifies: ClassVar[str] = "a record: the DP-SGD plan of its own task, once"

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        before = [parameter.detach().clone() for parameter in self.model_.parameters()]

        # One grant bills all steps of the task before the first record is read.
        grant = vault.grant(block, self.plan(task), self.model_, self.loss_, work=self.settings())
        optimizer = self.optimizer(task)
        for _ in self.training_steps(grant, task):
            self.update(optimizer, grant.gradient())  # Poisson sample, clip, sum, noise; then a step

        # Post-processing of released weights is free.
        if task.number > 0:
            with torch.no_grad():
                for parameter, old in zip(self.model_.parameters(), before, strict=True):
                    parameter.lerp_(old, self.earlier)
        vault.drop(block)


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "own-learner")
    config = {
        "name": "own-learner",
        "data": {"source": "digits", "scenario": "permuted", "tasks": 3},
        "learner": {"method": f"{Path(__file__).resolve()}:AveragedDPSGD", "steps": 60, "batch": 200, "lr": 0.5},
        "budget": {"epsilon": 2.0, "delta": 1e-5},
        "seeds": 1,
    }
    summary = run(config, folder)
    print(f"average accuracy {summary.metrics['average_accuracy']['mean']:.1%}; results: {summary.folder}")
