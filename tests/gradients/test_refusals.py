"""What is refused, with the sentence that says what to do; and what is left behind: nothing."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from support.reference import compare, cross_entropy, square_loss
from tacit.errors import PlanError, UnsupportedModel
from tacit.gradients import Clipper, check_independent, clipped_sum

D = torch.float64


def draw(*shape):
    return torch.randn(*shape, dtype=D, generator=torch.Generator().manual_seed(1))


def labels(n):
    return torch.arange(n) % 3


class Model(nn.Module):
    """A model from a function of its layers and x."""

    def __init__(self, run, **layers):
        super().__init__()
        torch.manual_seed(0)
        self.run = run
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.double()

    def forward(self, x):
        return self.run(self, x)


def test_batch_norm_in_train_mode():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 3)).double()
    with pytest.raises(UnsupportedModel, match=r"'1' .*nn.GroupNorm"):
        Clipper(model, cross_entropy, 1.0)
    clipper = Clipper(model.eval(), cross_entropy, 1.0)
    clipper.sum(draw(4, 2, 4, 4), labels(4))
    model.train()  # a mode can change at any time, also with frozen scales
    for p in model[1].parameters():
        p.requires_grad_(False)
    with pytest.raises(UnsupportedModel, match="GroupNorm"):
        clipper.sum(draw(4, 2, 4, 4), labels(4))


def test_batch_statistics_in_eval_mode_and_running_instance_norm():
    with pytest.raises(UnsupportedModel, match="GroupNorm"):
        Clipper(nn.BatchNorm1d(3, track_running_stats=False).eval(), square_loss, 1.0)
    with pytest.raises(UnsupportedModel, match="track_running_stats=False"):
        Clipper(nn.InstanceNorm2d(3, affine=True, track_running_stats=True), square_loss, 1.0)


@pytest.mark.parametrize("init", [nn.init.zeros_, lambda w: nn.init.constant_(w, 1e6)], ids=["zero", "saturated"])
def test_what_lies_under_a_head_without_gradients_is_compared_under_random_parameters(init: Any):
    """The head hides the layers below: their gradients are zero by any rule."""
    outside = Model(lambda m, x: m.head(F.linear(x, m.a.weight)), a=nn.Linear(3, 4), head=nn.Linear(4, 3))
    inside = Model(lambda m, x: m.head(m.a(x)), a=nn.Linear(3, 4), head=nn.Linear(4, 3))
    for model in (outside, inside):
        init(model.head.weight)
        model.head.weight.data[1:] *= -1
    with pytest.raises(UnsupportedModel, match=r"'a.weight'"):
        clipped_sum(outside, cross_entropy, draw(4, 3), labels(4), clip=1.0)
    before = {name: (p.data_ptr(), p.clone()) for name, p in inside.named_parameters()}
    clipped_sum(inside, cross_entropy, draw(4, 3), labels(4), clip=1.0)
    for name, p in inside.named_parameters():
        assert p.data_ptr() == before[name][0] and torch.equal(p, before[name][1])


def test_rows_without_any_gradient_are_no_error():
    """The norms of recorded rows are rounded up where numbers underflow, those of autograd are zero."""
    model = nn.Sequential(nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 3)).double()
    x = 1e4 * draw(40, 30)
    with torch.no_grad():
        logits = model(x)
    sure = logits.sort(1).values.diff(dim=1)[:, -1] > 200
    x, y = x[sure][:4], logits.argmax(1)[sure][:4]
    assert len(x) == 4
    summed = clipped_sum(model, cross_entropy, x, y, clip=1.0)
    assert all(float(value.norm()) < 1e-6 for value in summed.values())


def test_after_verify_no_batch_is_compared():
    """Whether the comparison raises depends on the rows, so private rows are never compared."""
    clipper = Clipper(Model(lambda m, x: m.a(x), a=nn.Linear(3, 3)), cross_entropy, 1.0)
    clipper.verify(draw(4, 3), labels(4))
    clipper.model = Model(lambda m, x: m.a(x) * 0, a=nn.Linear(3, 3))  # would be refused
    clipper.sum(draw(4, 3), labels(4))


def test_a_weight_used_outside_its_module_is_never_silently_dropped():
    silent = Model(lambda m, x: F.linear(m.a(x), m.b.weight), a=nn.Linear(3, 4), b=nn.Linear(4, 3))
    with pytest.raises(UnsupportedModel, match=r"'b.weight'.*call the module itself"):
        clipped_sum(silent, cross_entropy, draw(4, 3), labels(4), clip=1.0)
    partly = Model(lambda m, x: m.a(x) + F.linear(x, m.a.weight), a=nn.Linear(3, 3))
    with pytest.raises(UnsupportedModel, match=r"'a.weight'"):
        clipped_sum(partly, cross_entropy, draw(4, 3), labels(4), clip=1.0)


def test_checkpointing_is_seen():
    from torch.utils.checkpoint import checkpoint

    model = Model(lambda m, x: m.b(checkpoint(m.a, x, use_reentrant=True)), a=nn.Linear(3, 4), b=nn.Linear(4, 3))
    with pytest.raises(UnsupportedModel):
        clipped_sum(model, cross_entropy, draw(4, 3).requires_grad_(), labels(4), clip=1.0)


@pytest.mark.parametrize("length", [3, 4])
def test_examples_in_the_second_dimension(length):
    """With as many places as examples the sum is right and every norm is wrong."""
    model = Model(lambda m, x: m.a(x.transpose(0, 1)).transpose(0, 1), a=nn.Linear(3, 4))
    with pytest.raises(UnsupportedModel, match="first dimension"):
        clipped_sum(model, square_loss, draw(4, length, 3), torch.zeros(4, dtype=D), clip=1.0)
    attention = Model(lambda m, x: m.a(x, x, x)[0], a=nn.MultiheadAttention(4, 2))
    with pytest.raises(UnsupportedModel, match="batch_first"):
        attention.run = _second
        clipped_sum(attention, square_loss, draw(4, length, 4), torch.zeros(4, dtype=D), clip=1.0)


def _second(m, x):
    x = x.transpose(0, 1)
    return m.a(x, x, x)[0].transpose(0, 1)


def test_a_shared_position_embedding_needs_the_batch():
    model = Model(lambda m, x: (m.a(x) + m.p(torch.arange(5))).flatten(1), a=nn.Linear(3, 4), p=nn.Embedding(5, 4))
    with pytest.raises(UnsupportedModel, match=r"'p' .*expand"):
        clipped_sum(model, square_loss, draw(3, 5, 3), torch.zeros(3, dtype=D), clip=1.0)
    model.run = lambda m, x: (m.a(x) + m.p(torch.arange(5).expand(len(x), 5))).flatten(1)
    compare(model, draw(3, 5, 3))


def test_random_modules_without_a_rule():
    model = Model(lambda m, x: m.a(x, x, x)[0], a=nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True))
    with pytest.raises(UnsupportedModel, match="dropout to 0"):
        clipped_sum(model, square_loss, draw(4, 3, 4), torch.zeros(4, dtype=D), clip=1.0)


def test_an_input_that_is_overwritten():
    def run(m, x):
        h = m.a(x)
        out = m.n(h)  # frozen weight: autograd does not keep h for it
        h += 1
        return out + h

    model = Model(run, a=nn.Linear(3, 4), n=nn.Linear(4, 4))
    model.a.requires_grad_(False)
    with pytest.raises((UnsupportedModel, RuntimeError), match=r"in place|inplace"):
        clipped_sum(model, square_loss, draw(4, 3), torch.zeros(4, dtype=D), clip=1.0)


@pytest.mark.parametrize("loss", [F.cross_entropy, lambda o, y: o, lambda o, y: 3.0])
def test_the_loss_has_one_value_for_each_example(loss):
    with pytest.raises(UnsupportedModel, match=r"each example, got .*reduction='none'"):
        clipped_sum(nn.Linear(3, 3).double(), loss, draw(4, 3), labels(4), clip=1.0)


def test_models_and_arguments_that_make_no_sense():
    with pytest.raises(UnsupportedModel, match="requires_grad"):
        Clipper(nn.Linear(3, 3).requires_grad_(False), cross_entropy, 1.0)
    with pytest.raises(UnsupportedModel, match="autocast"):
        Clipper(nn.Linear(3, 3).bfloat16(), cross_entropy, 1.0)
    clipper = Clipper(nn.Linear(3, 3).double(), cross_entropy, 1.0)
    for groups in (torch.zeros(3).long(), torch.zeros(4), torch.tensor([0, 1, -1, 0])):
        with pytest.raises(PlanError, match="groups must be"):
            clipper.sum(draw(4, 3), labels(4), groups)
    with pytest.raises(PlanError, match="number the groups"):
        clipper.sum(draw(4, 3), labels(4), torch.tensor([0, 1, 2, 0]), num_groups=2)


def test_nothing_is_left_behind_also_after_an_exception():
    model = Model(lambda m, x: m.b(m.a(x)), a=nn.Linear(3, 4), b=nn.Linear(4, 3))
    state = torch.get_rng_state()
    Clipper(model, cross_entropy, 1.0).sum(draw(4, 3), labels(4))

    def fails(output, y):
        raise KeyError("mine")

    with pytest.raises(KeyError):
        clipped_sum(model, fails, draw(4, 3), labels(4), clip=1.0)
    model.run = lambda m, x: m.b(m.a(x)) + m.nothing
    with pytest.raises(AttributeError):
        clipped_sum(model, cross_entropy, draw(4, 3), labels(4), clip=1.0)
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
    assert all(p.grad is None and not vars(p) for p in model.parameters())
    assert torch.equal(state, torch.get_rng_state())


def test_hooks_of_the_user_stay_and_work():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3)).double()
    model[0].register_forward_hook(lambda m, a, out: out * 2)
    compare(model, draw(5, 3))
    assert len(model[0]._forward_hooks) == 1


def test_no_grad_outside_does_not_matter():
    with torch.no_grad():
        got = clipped_sum(nn.Linear(3, 3).double(), cross_entropy, draw(4, 3), labels(4), clip=1.0)
    assert got["weight"].any()


class Mixes(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.layer = how, nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        if self.how == "mean":
            x = x - x.mean(0)
        elif self.how == "attention":
            x = F.scaled_dot_product_attention(x, x, x)
        elif self.how == "buffer":
            self.seen += x.detach().mean(0)
        elif self.how == "detached":
            x = x / (1 + x.detach().abs().max())
        elif self.how == "dropout":
            x = F.dropout(x, 0.5)
        return self.layer(x)


@pytest.mark.parametrize("how", ["mean", "attention", "buffer", "detached"])
def test_mixing_is_found_on_synthetic_inputs(how):
    model, state = Mixes(how), torch.get_rng_state()
    with pytest.raises(UnsupportedModel, match=r"depends on another|buffer 'seen'"):
        check_independent(model, cross_entropy, torch.full((5, 4), float("nan")), labels(5))
    assert torch.equal(state, torch.get_rng_state()) and not model.seen.any()


@pytest.mark.parametrize("how", ["nothing", "dropout"])
@pytest.mark.parametrize("n", [1, 2, 9])
def test_independent_models_pass(how, n):
    check_independent(Mixes(how), cross_entropy, torch.randn(n, 4), labels(n))
    check_independent(nn.Sequential(nn.Embedding(9, 4), Mixes(how)), _tokens, torch.randint(0, 9, (n, 5)), labels(n))


def _tokens(output, y):
    return cross_entropy(output.mean(1), y)


@pytest.mark.parametrize(
    "loss",
    [
        lambda o, y: F.cross_entropy(o, y).expand(len(y)),
        lambda o, y: cross_entropy(o, y) / len(y),
        lambda o, y: cross_entropy(o - o.mean(0), y),
    ],
)
def test_losses_over_the_batch_are_found(loss):
    with pytest.raises(UnsupportedModel, match="depends on"):
        check_independent(Mixes("nothing"), loss, torch.randn(4, 4), labels(4))
