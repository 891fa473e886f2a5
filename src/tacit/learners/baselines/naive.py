"""Fine-tuning with DP-SGD, task after task: the lower bound of every table."""

from dataclasses import dataclass
from typing import ClassVar

from tacit.data.stream import TaskInfo
from tacit.learners.base.gradient import GradientLearner
from tacit.privacy.vault import Block, Vault


@dataclass(kw_only=True, eq=False)
class NaiveDPSGD(GradientLearner):
    """Fine-tuning with DP-SGD, task after task, without a memory: it forgets.

    Reference: Abadi et al. 2016.
    Claim: none over tasks.
    Certified: each task's records lose what their own plan costs (Poisson-sampled Gaussian), and nothing later; over
    tasks by the declared number of tasks per unit.
    Sharp edges: nothing keeps what earlier tasks taught, so it forgets nearly all of it where tasks conflict.
    """

    reference: ClassVar[str] = "Abadi et al. 2016, task after task"
    supports_endless: ClassVar[bool] = True
    remembers: ClassVar[bool] = False
    certifies: ClassVar[str] = "a record: the DP-SGD plan of its own task, once"

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        grant = vault.grant(block, self.plan(task), self.model_, self.loss_, work=self.settings())
        optimizer = self.optimizer(task)
        for _ in self.training_steps(grant, task, optimizer):
            self.update(optimizer, grant.gradient())
        vault.drop(block)

    def on_saved(self, block: Block, vault: Vault) -> None:
        if self.stream_.endless:  # nothing reads them again, and they would pile up
            vault.retire(block)
