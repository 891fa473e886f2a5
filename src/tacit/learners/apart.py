"""What learners share that have a model for every task: one network in memory, and what each task changes in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.learners import weights
from tacit.learners.core import answering
from tacit.learners.features import split
from tacit.learners.gradient import GradientLearner
from tacit.learners.weights import State, put, trained, under
from tacit.privacy.declared import Block, Loss
from tacit.privacy.plan import GradientPlan
from tacit.privacy.vault import Vault


@dataclass(kw_only=True, eq=False)
class Apart(GradientLearner):
    """Every task's model is trained from the same released start. Frozen weights are there once, for all of them."""

    def start(self, stream: StreamInfo) -> None:
        super().start(stream)
        self.start_ = trained(self.model_)
        self.experts_: list[State] = []
        self.learning_: TaskInfo | None = None

    def train(self, task: TaskInfo, block: Block, vault: Vault, plan: GradientPlan, loss: Loss) -> State:
        """DP-SGD from the start; what came of it. While it runs, `learning_` says whose model `model_` is."""
        put(self.model_, self.start_)
        self.learning_ = task
        grant = vault.grant(block, plan, self.model_, loss, work=self.settings())
        optimizer = self.optimizer(task)
        for _ in self.turns(grant, task):
            self.update(optimizer, grant.gradient())
        self.learning_ = None
        return trained(self.model_)

    def outputs(self, x: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """The logits of the model with these trained weights."""
        return outputs(self.model_, x, state)

    def tensors(self) -> State:
        """The network at its start, and every expert's trained weights."""
        start = weights.released(self.model_) | {name: value.cpu().clone() for name, value in self.start_.items()}
        kept = {f"base.{name}": value for name, value in start.items()}
        for i, expert in enumerate(self.experts_):
            kept |= {f"expert.{i}.{name}": value.cpu() for name, value in expert.items()}
        return kept

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.learning_ = None
        self.model_ = self.skeleton()
        weights.load(self.model_, under(tensors, "base."))
        self.start_ = trained(self.model_)
        self.experts_ = weights.each(tensors, "expert", self.device)

    def skeleton(self) -> nn.Module:
        """The network that a release's weights fit in."""
        return self.build()


def outputs(model: nn.Module, x: Tensor, state: Mapping[str, Tensor]) -> Tensor:
    """The logits of a model with other trained weights than its own."""
    ask = partial(torch.func.functional_call, model, dict(state))
    with answering(model):
        return torch.cat([ask((rows,)) for rows in split(model, x)])
