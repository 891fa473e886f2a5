"""Every layer, many shapes, against one example at a time in float64."""

import pytest
import torch
from torch import nn

from support.reference import agree, by_hand, compare, each_gradient, flat, norm_of, square_loss
from tacit.gradients import Clipper, sequence

D = torch.float64


def make(build, seed=0):
    torch.manual_seed(seed)
    return build().double()


def draw(*shape):
    return torch.randn(*shape, dtype=D, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("batch", [1, 2, 7])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("middle", [(), (1,), (5,), (2, 3), (40,)])
def test_linear(batch, bias, middle):
    compare(make(lambda: nn.Linear(6, 4, bias=bias)), draw(batch, *middle, 6))


@pytest.mark.parametrize("sizes", [(3, 50), (50, 3), (40, 40)])
@pytest.mark.parametrize("places", [2, 30])
def test_linear_by_gram_and_by_forming(sizes, places):
    compare(make(lambda: nn.Linear(*sizes)), draw(5, places, sizes[0]))


CONV = [
    {},
    {"bias": False},
    {"stride": 2},
    {"padding": 1},
    {"padding": "same"},
    {"padding": "same", "kernel_size": 4},
    {"padding": "valid", "dilation": 2},
    {"padding": (2, 1), "stride": (1, 2), "kernel_size": (3, 2)},
    {"groups": 2},
    {"groups": 4, "stride": 2, "padding": 1},
    {"kernel_size": 1},
    {"kernel_size": 1, "stride": 2},
    {"kernel_size": 1, "padding": 1, "stride": 2},
    {"padding": 2, "dilation": 2, "stride": 3},
    {"padding": "same", "dilation": 3, "groups": 2},
]


@pytest.mark.parametrize("options", CONV)
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("size", [(6, 8), (9, 7)])
def test_conv2d(options, batch, size):
    compare(make(lambda: nn.Conv2d(4, 8, **{"kernel_size": 3, **options})), draw(batch, 4, *size))


@pytest.mark.parametrize("options", [o for o in CONV if not isinstance(o.get("kernel_size"), tuple)])
def test_conv1d(options):
    compare(make(lambda: nn.Conv1d(4, 8, **{"kernel_size": 3, **options})), draw(4, 4, 9))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_conv_other_padding_goes_the_generic_way(mode):
    compare(make(lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode=mode)), draw(4, 2, 5, 5))


@pytest.mark.parametrize("build", [lambda: nn.Conv3d(2, 3, 2), lambda: nn.ConvTranspose2d(2, 3, 2)])
def test_convolutions_without_a_rule(build):
    model = make(build)
    compare(model, draw(3, 2, *(4,) * (3 if isinstance(model, nn.Conv3d) else 2)))


def test_conv_many_places_and_wide_gram():
    compare(make(lambda: nn.Conv2d(24, 32, 3, padding=1)), draw(3, 24, 2, 2))  # Gram
    compare(make(lambda: nn.Conv2d(2, 3, 3, padding=1)), draw(3, 2, 12, 12))  # formed


@pytest.mark.parametrize("shape", [(6,), (6, 5), (6, 3, 4)])
def test_group_norm(shape):
    compare(_shaken(nn.GroupNorm(3, 6)), draw(5, *shape))


@pytest.mark.parametrize("shape", [(6,), (4, 6), (2, 3, 6)])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm(shape, bias):
    compare(_shaken(nn.LayerNorm(6, bias=bias)), draw(5, *shape))
    if len(shape) > 1:
        compare(_shaken(nn.LayerNorm(shape[-2:])), draw(5, *shape))


@pytest.mark.parametrize(
    "layer, shape", [(nn.BatchNorm1d, (6,)), (nn.BatchNorm1d, (6, 4)), (nn.BatchNorm2d, (6, 3, 4))]
)
def test_frozen_batch_norm(layer, shape):
    model = _shaken(layer(6)).eval()
    model.running_mean.uniform_(-1, 1)
    model.running_var.uniform_(0.5, 2)
    compare(model, draw(5, *shape))


@pytest.mark.parametrize("affine", [True])
def test_instance_norm_without_statistics(affine):
    compare(_shaken(nn.InstanceNorm2d(4, affine=affine)), draw(3, 4, 5, 5))


@pytest.mark.parametrize("padding", [None, 0, 3])
@pytest.mark.parametrize("shape", [(), (1,), (6,), (2, 5)])
def test_embedding(padding, shape):
    x = torch.randint(0, 5, (6, *shape), generator=torch.Generator().manual_seed(2))
    compare(make(lambda: nn.Embedding(5, 3, padding_idx=padding)), x)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("state", [True, False])
def test_recurrent(kind, state):
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = kind(3, 4, batch_first=True, num_layers=2), nn.Linear(4, 2)

        def forward(self, x):
            output, last = self.rnn(x)
            last = last[0] if isinstance(last, tuple) else last
            return self.head(last[-1] if state else output[:, -1])

    compare(make(Last), draw(4, 5, 3))


def test_attention_owns_the_weights_of_its_silent_child():
    class Attend(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x)[0]

    compare(make(Attend), draw(4, 5, 8))


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_transformer_encoder_layer(mode):
    model = make(lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True))
    compare(getattr(model, mode)(), draw(4, 5, 8))


@pytest.mark.parametrize("build", [lambda: nn.PReLU(4), lambda: nn.Bilinear(4, 4, 3), lambda: nn.RMSNorm(4)])
def test_other_torch_modules(build):
    layer = make(build)
    model = layer if not isinstance(layer, nn.Bilinear) else _Twice(layer)
    compare(model, draw(5, 4))


def test_weight_norm_parametrisation():
    compare(make(lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), nn.Tanh())), draw(5, 4))


class _Twice(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x, x.tanh())


def _shaken(module):
    """Scales and shifts that are not one and zero."""
    torch.manual_seed(3)
    module = module.double()
    for p in module.parameters():
        p.data.uniform_(-1, 2)
    return module


def test_the_loss_of_the_tests_sees_every_output():
    assert square_loss(draw(2, 3), torch.zeros(2)).shape == (2,)


@pytest.mark.parametrize("options", CONV)
@pytest.mark.parametrize("kept", [0, 1 << 24])
@pytest.mark.parametrize("batch", [1, 11])
def test_conv2d_in_float32_takes_another_way(options, kept, batch, monkeypatch):
    """oneDNN's grouped weight gradients, with channels that are and are not multiples of eight."""
    monkeypatch.setitem(sequence.KEPT, False, kept)
    for channels in ((4, 8), (16, 12)):
        torch.manual_seed(0)
        model = nn.Conv2d(*channels, **{"kernel_size": 3, **options}).double()
        x = draw(batch, channels[0], 7, 8)
        y = torch.arange(batch, dtype=D) % 3
        norms = sorted(norm_of(g) for g in each_gradient(model, square_loss, x, y))
        clip = 0.9 * norms[len(norms) // 2]
        want = by_hand(model, square_loss, x, y, flat(clip))
        got = Clipper(model.float(), square_loss, clip).sum(x.float(), y.float())
        agree({name: t.double() for name, t in got.items()}, want, 1e-4)
