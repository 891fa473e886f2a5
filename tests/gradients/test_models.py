"""Whole models: shared weights, frozen parts, groups, residual networks, attention."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from support.reference import agree, by_hand, compare, cross_entropy, flat
from tacit.gradients import Automatic, Clipper, Flat, PerLayer, clipped_sum, sequence

D = torch.float64


def draw(*shape, seed=1):
    return torch.randn(*shape, dtype=D, generator=torch.Generator().manual_seed(seed))


def labels(n, classes=3):
    return torch.arange(n) % classes


class Block(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.GroupNorm(2, b)
        self.c2, self.n2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.GroupNorm(2, b)
        self.skip = nn.Identity() if a == b else nn.Conv2d(a, b, 1, stride, bias=False)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        h = self.n2(self.c2(self.relu(self.n1(self.c1(x)))))
        h += self.skip(x)
        return self.relu(h)


def resnet():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.GroupNorm(2, 4), nn.ReLU(inplace=True),
        Block(4, 4, 1), Block(4, 8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
    ).double()  # fmt: skip


class Transformer(nn.Module):
    """Own attention, raw parameters at the root, embedding tied to the output layer."""

    def __init__(self, words=7, width=8, length=5):
        super().__init__()
        self.word = nn.Embedding(words, width, padding_idx=0)
        self.position = nn.Parameter(0.1 * torch.randn(length, width))
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.word.weight

    def forward(self, x):
        h = self.word(x) + self.position
        q, k, v = self.qkv(self.n1(h)).chunk(3, -1)
        h = h + self.out(F.scaled_dot_product_attention(q, k, v))
        h = h + self.down(F.gelu(self.up(self.n2(h))))
        return self.head(h).mean(1)


def words(n, length=5, seed=0):
    return torch.randint(0, 7, (n, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("batch", [1, 6])
def test_small_resnet(batch):
    compare(resnet(), draw(batch, 3, 8, 8), labels(batch), loss=cross_entropy)


def test_small_transformer_with_tied_embedding():
    torch.manual_seed(0)
    compare(Transformer().double(), words(6), labels(6), loss=cross_entropy)


def test_raw_parameters_of_a_users_module():
    class Mine(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.shift = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(()))

        def forward(self, x):
            return (x * self.scale + self.shift).tanh()

    torch.manual_seed(0)
    compare(nn.Sequential(nn.Linear(3, 4), Mine(), nn.Linear(4, 2)).double(), draw(5, 3))


class Twice(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(self.layer(x).tanh())


@pytest.mark.parametrize(
    "layer, shape",
    [
        (nn.Linear(4, 4), (4,)),
        (nn.Linear(4, 4), (3, 4)),
        (nn.Conv2d(2, 2, 3, padding=1), (2, 4, 4)),
        (nn.LayerNorm(4), (3, 4)),
        (nn.PReLU(3), (3,)),
    ],
)
def test_a_module_used_twice_has_cross_terms(layer, shape):
    compare(Twice(layer).double(), draw(5, *shape))


def test_frozen_parts_cost_nothing_and_are_not_named():
    model = resnet()
    for name, p in model.named_parameters():
        p.requires_grad_("n1" in name or name.startswith("7.bias"))
    compare(model, draw(5, 3, 8, 8), labels(5), loss=cross_entropy)
    assert all("n1" in n or n == "7.bias" for n in Clipper(model, cross_entropy, 1.0).names)


def test_a_parameter_without_gradient_gets_zero():
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused, self.dead = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x):
            self.dead(x)
            return self.used(x)

    model = Partly().double()
    compare(model, draw(4, 3))
    assert not clipped_sum(model, lambda o, y: o.sum(1), draw(4, 3), labels(4), clip=1.0)["dead.weight"].any()


@pytest.mark.parametrize("which", ["mlp", "tokens", "resnet", "words", "big"])
@pytest.mark.parametrize("groups", [[0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 0, 1], [3, 1, 0, 2, 4, 5], [2, 0, 2, 2, 0, 5]])
def test_groups_are_added_before_the_clip(which, groups, monkeypatch):
    torch.manual_seed(0)
    if which == "big":  # pretend that nothing fits in memory
        monkeypatch.setitem(sequence.KEPT, False, 0)
    model, x = {
        "mlp": lambda: (nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), draw(6, 4)),
        "tokens": lambda: (nn.Sequential(nn.Linear(4, 3), nn.Flatten(), nn.Linear(9, 3)), draw(6, 3, 4)),
        "big": lambda: (nn.Sequential(nn.Linear(4, 3), nn.Flatten(), nn.Linear(9, 3)), draw(6, 3, 4)),
        "resnet": lambda: (resnet(), draw(6, 3, 8, 8)),
        "words": lambda: (nn.Sequential(nn.Embedding(7, 3, padding_idx=1), nn.Flatten(), nn.Linear(15, 3)), words(6)),
    }[which]()
    compare(model.double(), x, labels(6), groups=torch.tensor(groups), loss=cross_entropy, clip=0.7)


def test_empty_groups_do_no_harm():
    torch.manual_seed(0)
    model, x, y = nn.Linear(3, 2).double(), draw(4, 3), labels(4, 2)
    groups = torch.tensor([0, 0, 7, 7])
    got = clipped_sum(model, cross_entropy, x, y, clip=0.3, groups=groups, num_groups=20)
    agree(got, by_hand(model, cross_entropy, x, y, flat(0.3), groups))


@pytest.mark.parametrize("kept", [0, 1 << 24])
@pytest.mark.parametrize("chunk", [1, 200, 1 << 21])
def test_chunks_change_nothing(kept, chunk, monkeypatch):
    monkeypatch.setitem(sequence.KEPT, False, kept)
    monkeypatch.setitem(sequence.CHUNK, False, chunk)
    compare(resnet(), draw(5, 3, 8, 8), labels(5), loss=cross_entropy)


def with_filling(clipper: Clipper, x, y, filled: int):
    total = clipper.total()
    clipper.add(total, x, y, filled=filled)
    return clipper.views(total.values())


@pytest.mark.parametrize("value", [0.0, 3.0, float("nan")])
@pytest.mark.parametrize("rule", [Flat(norm=0.4), Automatic(norm=0.4), PerLayer(norms=0.4)])
def test_rows_that_fill_up_a_batch_add_nothing(value, rule):
    model, x, y = resnet(), draw(5, 3, 8, 8), labels(5)
    plain = clipped_sum(model, cross_entropy, x, y, clip=rule)
    rest, none = torch.full((3, 3, 8, 8), value, dtype=D), torch.zeros(3, dtype=torch.long)
    agree(with_filling(Clipper(model, cross_entropy, rule), torch.cat([x, rest]), torch.cat([y, none]), 3), plain)


def test_a_batch_of_one_can_be_filled_up_too():
    model, x, y = resnet(), draw(1, 3, 8, 8), labels(1)
    rest, none = torch.zeros(15, 3, 8, 8, dtype=D), torch.zeros(15, dtype=torch.long)
    filled = with_filling(Clipper(model, cross_entropy, 0.4), torch.cat([x, rest]), torch.cat([y, none]), 15)
    agree(filled, clipped_sum(model, cross_entropy, x, y, clip=0.4))


def test_empty_batch_is_zero_and_runs_nothing():
    model = resnet()
    out = clipped_sum(model, cross_entropy, torch.empty(0, 3, 8, 8, dtype=D), torch.empty(0).long(), clip=1.0)
    assert list(out) == [n for n, _ in model.named_parameters()]
    assert all(not t.any() for t in out.values())


def test_a_total_is_the_same_to_the_last_bit_however_the_batch_is_cut():
    model, x, y = resnet(), draw(6, 3, 8, 8), labels(6)
    clipper = Clipper(model, cross_entropy, 0.5)
    whole, parts = clipper.total(), clipper.total()
    clipper.add(whole, x, y)
    agree(clipper.views(whole.values()), by_hand(model, cross_entropy, x, y, flat(0.5)))
    for some in (slice(4, 6), slice(0, 1), slice(0, 0), slice(1, 4)):
        clipper.add(parts, x[some], y[some])
    assert torch.allclose(whole.values(), parts.values(), atol=1e-9)  # the network's own rounding may differ


def test_dropout_is_allowed():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)).double()
    got = clipped_sum(model, cross_entropy, draw(5, 4), labels(5), clip=0.1)
    assert 0 < float(torch.cat([t.flatten() for t in got.values()]).norm()) <= 0.5
