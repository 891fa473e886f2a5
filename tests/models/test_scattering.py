"""The scattering transform: its definition by slow sums over pixels, and the properties that make it a feature map."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from tacit.errors import ConfigError
from tacit.models.backbones import backbone
from tacit.models.scattering import ANGLES, MAPS, Scattering, morlet

SPREAD = 0.8


def gabor(size: tuple[int, int], scale: int, angle: float) -> Tensor:
    """ψ on the pixels of a periodic picture, by its formula in space: a wave under an oblong window, less its mean."""
    height, width = size
    spread, frequency = SPREAD * 2**scale, 3 * math.pi / 4 / 2**scale
    wave, window = torch.zeros(size, dtype=torch.complex128), torch.zeros(size, dtype=torch.float64)
    for down, right in product((-2, -1, 0, 1, 2), repeat=2):
        v = torch.arange(height, dtype=torch.float64)[:, None] + down * height
        h = torch.arange(width, dtype=torch.float64)[None, :] + right * width
        along = h * math.cos(angle) + v * math.sin(angle)
        across = v * math.cos(angle) - h * math.sin(angle)
        bell = (-(along.square() + (across / 2).square()) / (2 * spread**2)).exp() / (4 * math.pi * spread**2)
        window += bell
        wave += bell * torch.exp(1j * frequency * along)
    return wave - wave.sum() / window.sum() * window


def convolved(signal: Tensor, filter: Tensor) -> Tensor:
    """The circular convolution, pixel by pixel."""
    out = torch.zeros(signal.shape, dtype=torch.complex128)
    for row, column in product(range(filter.shape[0]), range(filter.shape[1])):
        out += filter[row, column] * torch.roll(signal, (row, column), (0, 1))
    return out


def slow(picture: Tensor, angles: tuple[int, ...]) -> Tensor:
    """S₀, S₁, and S₂ of these first angles, of one channel: (maps, cells, cells), by sums over pixels in float64."""
    height, width = picture.shape
    padded = torch.nn.functional.pad(picture[None, None].double(), (4, 4, 4, 4), mode="reflect")[0, 0]
    size = (height + 8, width + 8)
    filters = [[gabor(size, scale, k * math.pi / ANGLES) for k in range(ANGLES)] for scale in (0, 1)]

    def cells(signal: Tensor, step: int) -> Tensor:
        """The mean of signal ∗ φ over cells, the convolution summed over every `step`-th pixel."""
        down, right = (torch.arange(n, dtype=torch.float64) for n in size)
        out = torch.zeros(height, width, dtype=torch.float64)
        for row, column in product(range(height), range(width)):
            v, h = ((at + 4 - grid[::step]) for at, grid in ((row, down), (column, right)))
            v, h = (torch.remainder(far + n // 2, n) - n // 2 for far, n in ((v, size[0]), (h, size[1])))
            weight = (-(v[:, None].square() + h[None].square()) / (2 * (2 * SPREAD) ** 2)).exp()
            out[row, column] = (weight * signal).sum() / weight.sum()
        return torch.nn.functional.adaptive_avg_pool2d(out[None], (height // 4, width // 4))[0]

    fine = [convolved(padded, wavelet).abs() for wavelet in filters[0]]
    maps = [cells(padded, 1), *(cells(wave, 1) for wave in fine)]
    maps += [cells(convolved(padded, wavelet).abs()[::2, ::2], 2) for wavelet in filters[1]]
    maps += [
        cells(convolved(wave, wavelet).abs()[::2, ::2], 2)
        for wave in (fine[k] for k in angles)
        for wavelet in filters[1]
    ]
    return torch.stack(maps)


def pictures(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def test_it_is_what_its_definition_says() -> None:
    x = pictures(1, 2, 8, 12)
    found = Scattering(2, 8, 12).maps(x)[0].view(2, MAPS, 2, 3)
    for channel, angles in ((0, (0, 3)), (1, (6,))):
        expected = slow(x[0, channel], angles)
        second = [17 + ANGLES * first + other for first in angles for other in range(ANGLES)]
        assert float(expected[9:].std()) > 1e-3  # the maps differ by far more than the tolerance
        assert torch.allclose(found[channel, [*range(17), *second]].double(), expected, atol=2e-6)


def test_features_are_normalised_maps_of_length_one() -> None:
    transform = Scattering(3, 16, 16)
    x = pictures(2, 3, 16, 16)
    maps, features = transform.maps(x), transform(x).view(2, 27, -1)
    groups = maps.view(2, 27, -1)
    centred = groups - groups.mean(2, keepdim=True)
    expected = centred / (groups.var(2, unbiased=False, keepdim=True) + 1e-5).sqrt()
    assert torch.allclose(features, expected / expected.flatten(1).norm(dim=1)[:, None, None], atol=1e-5)
    assert torch.allclose(features.flatten(1).norm(dim=1), torch.ones(2))


@pytest.mark.parametrize("size", [(16, 16), (36, 36), (16, 40)])
def test_no_energy_is_gained(size: tuple[int, int]) -> None:
    """Littlewood-Paley: |φ̂|² + ½ Σ (|ψ̂(ω)|² + |ψ̂(−ω)|²) ≤ 1, and most frequencies are covered."""
    wavelets = torch.stack([morlet(*size, scale, k * math.pi / ANGLES) for scale in (0, 1) for k in range(ANGLES)])
    down, right = (2 * math.pi * torch.fft.fftfreq(n, dtype=torch.float64) for n in size)
    window = (-0.5 * (2 * SPREAD) ** 2 * (down[:, None].square() + right[None].square())).exp()
    energy = wavelets.square().sum(0)
    mirrored = energy.flip((0, 1)).roll((1, 1), (0, 1))
    total = window.square() + (energy + mirrored) / 2
    assert float(total.max()) <= 1.0 and float(total.mean()) > 0.4
    assert float(wavelets[:, 0, 0].abs().max()) < 1e-12  # wavelets do not see a constant


def test_distances_do_not_grow() -> None:
    """On periodic pictures; |a − b| of moduli is at most that of the waves, which Littlewood-Paley bounds."""
    x, y = pictures(2, 24, 24).double()
    wavelets = [[morlet(24, 24, scale, k * math.pi / ANGLES) for k in range(ANGLES)] for scale in (0, 1)]

    def moduli(waves: list[Tensor], filters: list[Tensor]) -> list[Tensor]:
        return [torch.fft.ifft2(torch.fft.fft2(wave) * one).abs() for wave in waves for one in filters]

    def apart(one: list[Tensor], other: list[Tensor]) -> float:
        return sum(float((a - b).square().sum()) for a, b in zip(one, other, strict=True))

    first = [[moduli([picture], filters) for filters in wavelets] for picture in (x, y)]
    assert sum(apart(first[0][scale], first[1][scale]) for scale in (0, 1)) <= apart([x], [y])
    second = [moduli(fine, wavelets[1]) for fine, _ in first]
    assert 0 < apart(*second) <= apart(first[0][0], first[1][0])


def test_a_small_shift_moves_features_less_than_pixels() -> None:
    """Low frequencies move features little, and the modulus makes low frequencies of high ones."""
    wide = pictures(8, 3, 40, 40)
    x, moved = wide[:, :, 4:36, 4:36], wide[:, :, 4:36, 5:37]
    found = Scattering(3, 32, 32)
    apart = (found(x) - found(moved)).norm(dim=1) / found(x).norm(dim=1)
    others = (found(x) - found(x.roll(1, 0))).norm(dim=1)
    centred = x - x.mean((1, 2, 3), keepdim=True)
    pixels = (x - moved).flatten(1).norm(dim=1) / centred.flatten(1).norm(dim=1)
    assert float(apart.max()) < 0.4 * float(pixels.min()) and float(apart.max()) < 0.5 * float(others.min())


def test_a_turned_picture_has_turned_paths() -> None:
    """A quarter turn moves every angle by four places; grids are not quite symmetric, hence the tolerance."""
    x = pictures(1, 1, 32, 32)
    maps, turned = (Scattering(1, 32, 32).maps(one)[0].mean((1, 2)) for one in (x, x.rot90(1, (2, 3))))
    places = [0, *(1 + scale * 8 + (k + 4) % 8 for scale in (0, 1) for k in range(8))]
    places += [17 + 8 * ((k + 4) % 8) + (n + 4) % 8 for k in range(8) for n in range(8)]
    assert torch.allclose(maps[places], turned, rtol=0.1)
    assert not torch.allclose(maps, turned, rtol=0.1)


def test_mirrored_features_are_the_mean_with_the_mirror_image() -> None:
    """Half the features; a picture and its mirror image have the same, up to half a pixel in coarse paths."""
    x = torch.nn.functional.interpolate(pictures(4, 3, 12, 12), 32, mode="bicubic")
    plain, mirrored = (backbone(name, shape=(3, 32, 32)) for name in ("scattering", "scattering-mirrored"))
    assert mirrored.width == plain.width // 2 == 1944
    features, images = mirrored(x), mirrored(x.flip(3))
    assert torch.allclose(features.norm(dim=1), torch.ones(4))
    assert float((features - images).norm(dim=1).max()) < 0.2 < float((plain(x) - plain(x.flip(3))).norm(dim=1).min())
    assert float((features - mirrored(x.flip(2))).norm(dim=1).min()) > 0.2  # upside down is another picture
    symmetric = (plain(x) + plain(x.flip(3))) / 2
    ours, theirs = features @ features.T, torch.nn.functional.normalize(symmetric, dim=1)
    assert torch.allclose(ours, theirs @ theirs.T, atol=0.02)


def test_a_record_is_treated_by_itself_and_always_alike() -> None:
    found = backbone("scattering", shape=(3, 20, 28))
    x = pictures(5, 3, 20, 28)
    together = found(x)
    assert torch.equal(together, found(x)) and torch.equal(together, backbone("scattering", shape=(3, 20, 28))(x))
    for row in range(5):
        assert torch.allclose(found(x[row : row + 1]), together[row : row + 1], atol=1e-6)
    x[0] = math.nan
    assert torch.allclose(found(x)[1:], together[1:], atol=1e-6) and not torch.isfinite(found(x)[0]).any()


def test_float32_under_autocast_and_gradients_of_attacks() -> None:
    found = backbone("scattering", shape=(1, 16, 16))
    x = pictures(2, 1, 16, 16)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(found(x), found(x.clone())) and found(x).dtype == torch.float32
        half = found(x)
    assert torch.equal(half, found(x))
    x[1] = 0.0  # no mean and no waves: its features are 0
    assert float(found(x)[1].abs().max()) == 0
    x.requires_grad_(True)
    found(x)[:, :40].sum().backward()
    assert x.grad is not None and bool(torch.isfinite(x.grad).all()) and float(x.grad[0].abs().max()) > 0


@pytest.mark.parametrize(
    ("shape", "width"),
    [((3, 32, 32), 3888), ((1, 28, 28), 1296), ((1, 8, 8), 324), ((2, 9, 37), 2 * 81 * 2 * 4), ((4, 64, 33), 5184)],
)
def test_any_size_and_number_of_channels(shape: tuple[int, int, int], width: int) -> None:
    found = backbone("scattering", shape=shape)
    features = found(pictures(2, *shape))
    assert found.width == width and features.shape == (2, width) and float((features[0] - features[1]).norm()) > 0.05


def test_keys_and_what_is_refused() -> None:
    small, large = backbone("scattering", shape=(1, 8, 8)), backbone("scattering", shape=(1, 8, 12))
    assert small.key != large.key == backbone("scattering", shape=[1, 8, 12]).key
    assert not list(small.parameters())
    for options, sentence in (
        ({}, "scattering needs the shape of a picture"),
        ({"shape": (64,)}, r"scattering reads pictures of shape \(channels, height, width\) .* got records of shape"),
        ({"shape": (3, 32, 4)}, "at least 8 × 8 pixels"),
        ({"shape": (3, 32, 32), "size": 64}, "reads pictures of any size as they are, got size = 64; leave size out"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            backbone("scattering", **options)
    with pytest.raises(ConfigError, match=r"'scatering' is not a backbone.*did you mean scattering"):
        backbone("scatering")
