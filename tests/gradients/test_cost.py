"""What book-keeping promises, without a clock: one forward, one backward, no weight gradient, nothing (B, p)."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from support.reference import agree, by_hand, cross_entropy, flat
from tacit.gradients import Clipper, sequence
from tacit.gradients.record_inputs import differentiate, record


class Watch(TorchDispatchMode):
    """The operations and the largest tensor that was made."""

    def __init__(self):
        super().__init__()
        self.made, self.largest = [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, tuple | list) else (out,):
            if isinstance(t, torch.Tensor):
                self.made.append((str(func), tuple(t.shape)))
                self.largest = max(self.largest, t.numel())
        return out


def test_the_backward_pass_makes_no_weight_gradient():
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 11), nn.Tanh(), nn.Linear(11, 3))
    clipper = Clipper(model, cross_entropy, 1.0)
    losses, uses = record(clipper._sites, model, cross_entropy, torch.randn(4, 5), torch.zeros(4).long())
    with Watch() as seen:
        differentiate(losses, uses)
    weights = {(7, 5), (5, 7), (7, 11), (11, 7), (3, 11), (11, 3)}
    made = {shape for name, shape in seen.made if "aten.mm" in name or "addmm" in name}
    assert made and not made & weights
    assert all(use.gradients[0] is not None for use in uses)


@pytest.mark.parametrize("middle", [(), (3,)])
def test_a_big_linear_layer_is_never_materialised(middle, monkeypatch):
    """Without tokens never; with tokens, one example at a time where the rows are too many to keep."""
    monkeypatch.setitem(sequence.KEPT, False, 0)
    monkeypatch.setitem(sequence.CHUNK, False, 1)
    model = nn.Linear(300, 200)
    x, y = torch.randn(16, *middle, 300), torch.zeros(16)
    clipper = Clipper(model, lambda o, y: o.square().flatten(1).sum(1), 1.0)
    clipper.sum(x, y)
    with Watch() as seen:
        clipper.sum(x, y)
    assert seen.largest <= max(300 * 200 + 200, x.numel())  # the result, or the input


def test_one_forward_and_one_backward():
    calls = []
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    model.register_forward_pre_hook(lambda m, a: calls.append("forward"))
    model.register_full_backward_hook(lambda m, a, b: calls.append("backward"))
    clipper = Clipper(model, cross_entropy, 1.0)
    x, y = torch.randn(4, 5), torch.zeros(4).long()
    clipper.sum(x, y)  # looks at the model first
    calls.clear()
    clipper.sum(x, y)
    assert calls.count("forward") == 1 and calls.count("backward") <= 1


def test_channels_last_is_the_same():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 3, 3, stride=2))
    x = torch.randn(5, 3, 7, 7)
    loss = lambda o, y: o.square().flatten(1).sum(1)  # noqa: E731
    want = by_hand(model, loss, x, torch.zeros(5), flat(1.0))
    model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    agree(Clipper(model, loss, 1.0).sum(x, torch.zeros(5)), want, 1e-4)
