"""The noise is normal, of the stated scale, unpredictable without the key, and never cut at the tail."""

import math

import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from scipy import stats

from tacit.privacy import cipher, noise
from tacit.privacy.keys import KeyRing

KEY = bytes(range(32))
N = 200_000


def draw(n: int, counter: int) -> torch.Tensor:
    return noise.gaussian_(torch.empty(n), KEY, counter, 1.0)


def scale_is(values: torch.Tensor, std: float, confidence: float = 1e-6) -> bool:
    """Two-sided chi-square test on the variance; fails at ±30 % with certainty for n in the hundreds."""
    x = values.double()
    statistic = float((x**2).sum()) / std**2
    return stats.chi2.ppf(confidence / 2, x.numel()) < statistic < stats.chi2.ppf(1 - confidence / 2, x.numel())


def test_it_is_normal_of_the_stated_scale_and_a_wrong_scale_is_caught() -> None:
    drawn = noise.gaussian_(torch.empty(N), KEY, 7, 2.5)
    assert scale_is(drawn, 2.5)
    assert not scale_is(drawn, 2.5 * 1.3)
    assert not scale_is(drawn, 2.5 * 0.7)
    assert stats.kstest(drawn.double().numpy() / 2.5, "norm").pvalue > 1e-3
    assert abs(float(drawn.mean())) < 5 * 2.5 / math.sqrt(N)


def test_both_halves_of_a_pair_are_independent() -> None:
    drawn = draw(N, 3).double()
    a, b = drawn[: N // 2], drawn[N // 2 :]
    for left, right in ((a, b), (a.abs(), b.abs()), (a[1:], a[:-1])):
        assert abs(float(torch.corrcoef(torch.stack([left, right]))[0, 1])) < 5 / math.sqrt(N // 2)


def test_the_same_place_gives_the_same_noise_and_any_other_place_another() -> None:
    first = draw(1001, 1)
    assert torch.equal(first, draw(1001, 1))
    for other in (draw(1001, 2), noise.gaussian_(torch.empty(1001), bytes(32), 1, 1.0)):
        assert abs(float(torch.corrcoef(torch.stack([first, other]))[0, 1])) < 0.2


def test_the_seed_of_torch_never_reaches_it() -> None:
    torch.manual_seed(0)
    first = draw(10, 1)
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    assert torch.equal(first, draw(10, 1))
    assert torch.equal(state, torch.random.get_rng_state())


def test_the_tail_is_not_cut_at_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the smallest radius word the draw reaches past 6.6 sigma, as a true normal does."""

    def smallest(key: bytes, counter: int, n: int, first: int, scratch: object = None) -> torch.Tensor:
        return torch.zeros(n, dtype=torch.int32)

    monkeypatch.setattr(noise, "words", smallest)
    assert float(draw(2, 0).abs().max()) == pytest.approx(math.sqrt(2 * 62 * math.log(2)))


def test_chacha_is_chacha20() -> None:
    """The GPU's cipher, checked on the CPU against `cryptography`, across block and step boundaries."""
    for counter in (0, 5, (1 << 63) + 12345):
        mine = cipher.chacha(cipher.chacha_head(KEY, counter, torch.device("cpu")), 1003)
        nonce = bytes(8) + counter.to_bytes(8, "little")
        stream = Cipher(algorithms.ChaCha20(KEY, nonce), mode=None).encryptor().update(bytes(4 * 1003))
        assert torch.equal(mine, torch.frombuffer(bytearray(stream), dtype=torch.int32))


@pytest.mark.parametrize("std", [1e-30, 1e-20, 1e20, 1e30])
def test_extreme_scales_do_not_vanish(std: float) -> None:
    assert scale_is(noise.gaussian_(torch.empty(20_000), KEY, 3, std).double() / std, 1.0)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_small_sizes(n: int) -> None:
    assert noise.gaussian_(torch.empty(n), KEY, 0, 1.0).shape == (n,)


def test_other_dtypes_and_shapes_get_the_same_noise() -> None:
    drawn = noise.gaussian_(torch.empty(5, 7, dtype=torch.float64), KEY, 9, 3.0)
    assert torch.allclose(drawn.float().view(-1), noise.gaussian_(torch.empty(35), KEY, 9, 3.0))


def test_sampler_and_noise_keys_differ_and_every_context_has_its_own() -> None:
    ring = KeyRing.create(None)
    keys = [ring.derive(p, 1, g, b) for p in ("sampler", "noise") for g in ("g1", "g2") for b in ("b1", "b2")]
    assert len(set(keys)) == 8
    assert KeyRing.subkey(KEY, "ab", "c") != KeyRing.subkey(KEY, "a", "bc")
    assert ring.derive("noise", 1, "g") != KeyRing.create(None).derive("noise", 1, "g")


def test_noise_drawn_ahead_is_the_same_noise_in_any_order() -> None:
    ahead = noise.NoiseAhead(torch.empty(999), KEY, 2.0)
    for step in (0, 1, 2, 3, 1, 7, 8):  # in turn, and after a seek
        assert torch.equal(ahead.take(step), noise.gaussian_(torch.empty(999), KEY, step, 2.0))


def test_drawing_ahead_keeps_the_number_of_threads() -> None:
    before = torch.get_num_threads()
    noise.NoiseAhead(torch.empty(9), KEY, 1.0).take(0)
    assert torch.get_num_threads() == before


def test_the_normals_of_the_gpu_are_normal_too() -> None:
    """Its code, run on the CPU: scale, shape, and a tail of 9.3 sigma."""
    heads = [cipher.chacha_head(KEY, counter, torch.device("cpu")) for counter in (3, 3 | 1 << 63)]
    drawn = noise._chacha_normals(heads[0], heads[1], N // 2)
    assert scale_is(drawn, 1.0) and not scale_is(drawn, 1.3) and not scale_is(drawn, 0.7)
    assert stats.kstest(drawn.double().numpy(), "norm").pvalue > 1e-3
    smallest = noise._uniform(torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32))
    assert float(smallest) == 2.0**-62


def test_chunks_of_one_draw_do_not_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "_CHUNK", 64)
    drawn = noise.gaussian_(torch.empty(128 * 8), KEY, 1, 1.0).view(8, 128)
    assert len({tuple(row.tolist()) for row in drawn}) == 8
    assert scale_is(drawn.flatten(), 1.0)
    stream = cipher.words(KEY, 5, 64)
    assert torch.equal(cipher.words(KEY, 5, 16, first=48), stream[48:])
