"""Base class of learners with one model per task: one network in memory, and the trained weights of each task."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from tacit.data.stream import StreamInfo, TaskInfo
from tacit.learners.base import weights
from tacit.learners.base.frozen_features import split
from tacit.learners.base.gradient import GradientLearner
from tacit.learners.base.inference import answering
from tacit.learners.base.weights import State, put, trained, under
from tacit.privacy.vault import Block, GradientPlan, Loss, Vault


@dataclass(kw_only=True, eq=False)
class PerTaskModels(GradientLearner):
    """Trains every task's model from the same released initial weights. Frozen weights are stored once."""

    def start(self, stream: StreamInfo) -> None:
        super().start(stream)
        self.start_ = trained(self.model_)
        self.experts_: list[State] = []
        self.learning_: TaskInfo | None = None

    def train(self, task: TaskInfo, block: Block, vault: Vault, plan: GradientPlan, loss: Loss) -> State:
        """Run DP-SGD from the initial weights and return the trained weights.

        Meanwhile `learning_` is the task that `model_` is trained on.
        """
        put(self.model_, self.start_)
        self.learning_ = task
        grant = vault.grant(block, plan, self.model_, loss, work=self.settings())
        optimizer = self.optimizer(task)
        for _ in self.training_steps(grant, task, optimizer):
            self.update(optimizer, grant.gradient())
        self.learning_ = None
        return trained(self.model_)

    def outputs(self, x: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """The logits of the model with these trained weights."""
        return outputs(self.model_, x, state)

    def tensors(self) -> State:
        """The initial network and the trained weights of every task's model."""
        start = weights.released(self.model_) | {name: value.cpu().clone() for name, value in self.start_.items()}
        tensors = {f"base.{name}": value for name, value in start.items()}
        for i, expert in enumerate(self.experts_):
            tensors |= {f"expert.{i}.{name}": value.cpu() for name, value in expert.items()}
        return tensors

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.learning_ = None
        self.model_ = self.skeleton()
        weights.load(self.model_, under(tensors, "base."))
        self.start_ = trained(self.model_)
        self.experts_ = weights.each(tensors, "expert", self.device)

    def skeleton(self) -> nn.Module:
        """A network with the structure of the released weights."""
        return self.build()


def outputs(model: nn.Module, x: Tensor, state: Mapping[str, Tensor]) -> Tensor:
    """The logits of a model with the trained weights replaced by `state`."""
    ask = partial(torch.func.functional_call, model, dict(state))
    with answering(model):
        return torch.cat([ask((rows,)) for rows in split(model, x)])
