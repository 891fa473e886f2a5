"""Callbacks hear of every task and step, receive public values only, and change nothing that is learned."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from support.small_world import facts, fixed, learn, make, records, same, started
from tacit.certificate.certificate import Certificate
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.learners.base.callbacks import Callback, Callbacks, Step


class Heard(Callback):
    """Keeps all that it is given, and draws from every global generator."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def on_task_start(self, task: TaskInfo) -> None:
        self._hear("start", task)

    def on_step(self, step: Step) -> None:
        self._hear("step", step)

    def on_task_end(self, task: TaskInfo, certificate: Certificate) -> None:
        self._hear("end", (task, certificate))

    def _hear(self, kind: str, value: Any) -> None:
        self.calls.append((kind, value))
        torch.manual_seed(random.randrange(1000))
        torch.rand(3)
        torch.set_grad_enabled(True)


def dropped(info: StreamInfo) -> nn.Module:
    """A network that draws from torch's global generator."""
    return nn.Sequential(nn.Dropout(0.5), nn.Linear(info.shape[0], len(info.labels)))


def test_a_callback_hears_of_every_task_and_step(tmp_path: Path) -> None:
    learner = make("NaiveDPSGD", stream=facts(2), steps=3)
    learner.callback = heard = Heard()
    for number in (0, 1):
        learner.partial_fit(*records(number))
    kinds = [kind for kind, _ in heard.calls]
    assert kinds == ["start", "step", "step", "step", "step", "end"] * 2
    assert [step.step for kind, step in heard.calls if kind == "step"] == [0, 1, 2, 3] * 2
    ends = [value for kind, value in heard.calls if kind == "end"]
    assert [task.name for task, _ in ends] == [task.name for task in learner.stream_.tasks]
    assert ends[-1][1] == learner.certificate_


@pytest.mark.parametrize("method", ["NaiveDPSGD", "AGEM"])
def test_a_callback_cannot_change_what_is_learned(method: str) -> None:
    settings: dict[str, Any] = {"network": dropped} if method == "AGEM" else {}
    ends = []
    for callback in (Callback(), Callbacks([Heard(), Heard()])):
        learner = started(method, facts(2), **settings)
        learner.callback = callback
        torch.manual_seed(0)
        ends.append(learn(learner, fixed(), [0, 1])[-1].tensors)
        assert torch.is_grad_enabled()
    assert same(*ends)


def test_values_that_a_callback_receives_are_frozen() -> None:
    learner = started("NaiveDPSGD", facts(1))
    learner.callback = heard = Heard()
    learn(learner, fixed(), [0])
    for _, value in heard.calls:
        with pytest.raises(AttributeError):
            value.step = 0
        assert not any(isinstance(inner, torch.Tensor | np.ndarray) for inner in vars(value).values())


def test_a_callback_is_no_setting() -> None:
    learner = started("NaiveDPSGD", facts(1))
    before = learner.get_params(), learner.settings()
    learner.callback = Heard()
    assert (learner.get_params(), learner.settings()) == before
