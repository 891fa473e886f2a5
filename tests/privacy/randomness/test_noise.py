"""The noise is normal, of the stated scale, unpredictable without the key, never cut, and known to any precision."""

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from scipy import stats

from tacit import GradientPlan, LabelPlan, SumPlan
from tacit.errors import PlanError
from tacit.gradients.exact import ROOM, ExactSum
from tacit.privacy.randomness import cipher, grid, noise
from tacit.privacy.randomness.keys import KeyRing
from tacit.privacy.randomness.noise import ERROR, HIGH, LOW, Normals
from tacit.privacy.vault.exits.plans import LEAST_NOISE, MOST_NOISE

KEY = bytes(range(32))
N = 200_000
D = torch.float64


def draw(n: int, counter: int, scale: float = 1.0, key: bytes = KEY) -> torch.Tensor:
    return Normals(key, counter, n).fill_(torch.empty(n, dtype=D), scale)


def scale_is(values: torch.Tensor, std: float, confidence: float = 1e-6) -> bool:
    """Two-sided chi-square test on the variance; fails at ±30 % with certainty for n in the hundreds."""
    x = values.double()
    statistic = float((x**2).sum()) / std**2
    return stats.chi2.ppf(confidence / 2, x.numel()) < statistic < stats.chi2.ppf(1 - confidence / 2, x.numel())


def test_it_is_normal_of_the_stated_scale_and_a_wrong_scale_is_caught() -> None:
    drawn = draw(N, 7, 2.5)
    assert scale_is(drawn, 2.5)
    assert not scale_is(drawn, 2.5 * 1.3)
    assert not scale_is(drawn, 2.5 * 0.7)
    assert stats.kstest(drawn.numpy() / 2.5, "norm").pvalue > 1e-6
    assert abs(float(drawn.mean())) < 5 * 2.5 / math.sqrt(N)


def test_both_halves_of_a_pair_are_independent() -> None:
    drawn = draw(1 << 16, 3)  # one lot: the first half are cosines, the second sines of the same pairs
    a, b = drawn[: 1 << 15], drawn[1 << 15 :]
    for left, right in ((a, b), (a.abs(), b.abs()), (a[1:], a[:-1])):
        assert abs(float(torch.corrcoef(torch.stack([left, right]))[0, 1])) < 5 / math.sqrt(1 << 15)


def test_the_same_place_gives_the_same_noise_and_any_other_place_another() -> None:
    first = draw(1001, 1)
    assert torch.equal(first, draw(1001, 1))
    for other in (draw(1001, 2), draw(1001, 1, key=bytes(32))):
        assert abs(float(torch.corrcoef(torch.stack([first, other]))[0, 1])) < 0.2


def test_the_seed_of_torch_never_reaches_it() -> None:
    torch.manual_seed(0)
    first = draw(10, 1)
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    assert torch.equal(first, draw(10, 1))
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("count", [1, 2, 7, 1000, (1 << 16) + 1, (1 << 17) - 3])
@pytest.mark.parametrize("cuda", [False, True])
def test_floats_are_within_the_stated_error_of_the_real_number(
    count: int, cuda: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also across lots, at the ends, and for the cipher and the layout of a GPU (run on the CPU)."""
    monkeypatch.setattr(noise, "fused", lambda function, any_size: function)
    normals = Normals(KEY, 5, count, cuda=cuda)
    drawn = normals.fill_(torch.empty(count, dtype=D), 1.0)
    places = {0, count - 1, count // 2, count // 3, min(count - 1, 1 << 15), min(count - 1, (1 << 16) - 1)}
    for place in sorted(places | set(range(0, count, 1 + count // 50))):
        low, high = normals.bounds(place, 200)
        assert low <= high and high - low < Fraction(1, 2**180)
        assert abs(Fraction(float(drawn[place])) - low) < Fraction(ERROR)


def test_digits_only_ever_narrow_the_number_down() -> None:
    normals = Normals(KEY, 2, 100)
    for place in range(0, 100, 7):
        before = normals.bounds(place, 40)
        for digits in (63, 64, 90, 128, 300, 500):
            low, high = normals.bounds(place, digits)
            assert before[0] <= low <= high <= before[1]
            before = low, high


ENDS = [LOW, 2.0**-29, 2.0**-20, 0.1, 0.5 - 2.0**-40, math.sqrt(0.5), 0.75, 1 - 2.0**-20, HIGH - 2.0**-40]


@pytest.mark.parametrize("u", ENDS)
@pytest.mark.parametrize("turn", [0.0, 2.0**-40, 0.125 - 2.0**-50, 0.125, 0.25, 0.3, 0.5, 0.6, 0.875, 1 - 2.0**-53])
@pytest.mark.parametrize("cuda", [False, True])
def test_the_error_holds_at_the_ends_of_every_series(
    u: float, turn: float, cuda: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chosen radii and angles, of either sign."""
    forced(monkeypatch, int(u * 2.0**63) + 12345, int(turn * 2.0**64) + 678)
    normals = Normals(KEY, 4, 4, cuda=cuda)
    drawn = normals.fill_(torch.empty(4, dtype=D), 1.0)
    for place in range(4):
        assert abs(Fraction(float(drawn[place])) - normals.bounds(place, 250)[0]) < Fraction(ERROR)


@pytest.mark.parametrize("radius", [0, 1, 1 << 20, 1 << 32, (1 << 63) - 1, (1 << 63) - (1 << 32)])
@pytest.mark.parametrize("cuda", [False, True])
def test_the_tail_is_not_cut(radius: int, cuda: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Radii so long or so short that their first digits do not tell them well come from more digits."""
    forced(monkeypatch, radius, 1 << 60)
    terms = [(2.0**8, Normals(KEY, 4, 4, cuda=cuda))]
    assert grid.combined(terms).isnan().all()
    found = grid.released(grid.ExactNumbers([0] * 4, 1.0), 1.0, grid.combined(terms), terms)
    assert found.tolist() == [rounded_by_hand(0.0, place, terms) for place in range(4)]
    if radius == 0:
        assert float((found[:2] ** 2 + found[2:] ** 2).sqrt().min()) > 9.3 * 2.0**8  # where 63 digits would end


def forced(monkeypatch: pytest.MonkeyPatch, radius: int, angle: int) -> None:
    """All pairs have these first digits; every second radius is held by its complement, a negative number."""

    def signed(number: int) -> int:
        return number - (1 << 64) if number >= 1 << 63 else number

    def digits(self: Normals, start: int, count: int) -> tuple[Any, Any]:
        radii = [radius if k % 2 else ~radius for k in range(count)]
        return np.array(radii), np.full(count, signed(angle))

    def stream(head: Any, n: int) -> torch.Tensor:
        radii, angles = digits(None, 0, n // 4)  # type: ignore[arg-type]
        return torch.from_numpy(np.concatenate([radii, angles])).view(torch.int32)

    monkeypatch.setattr(noise, "fused", lambda function, any_size: function)
    monkeypatch.setattr(Normals, "_digits", digits)
    monkeypatch.setattr(noise, "chacha", stream)
    monkeypatch.setattr(Normals, "_first_digits", lambda self, pair: (radius, angle))


def test_chacha_is_chacha20() -> None:
    """The GPU's cipher, checked on the CPU against `cryptography`, across block and step boundaries."""
    for counter in (0, 5, (1 << 63) + 12345):
        head = cipher.chacha_head(KEY, counter, torch.device("cpu"))
        nonce = bytes(8) + counter.to_bytes(8, "little")
        stream = Cipher(algorithms.ChaCha20(KEY, nonce), mode=None).encryptor().update(bytes(4 * 1003))
        true = torch.frombuffer(bytearray(stream), dtype=torch.int32)
        assert torch.equal(cipher.chacha(head, 1003), true)
        for place in (0, 1, 7, 8, 9, 500):
            assert cipher.chacha_int64(KEY, counter, place) == int(true[2 * place : 2 * place + 2].view(torch.int64))


@pytest.mark.parametrize("std", [1e-30, 1e-20, 1e20, 1e30])
def test_extreme_scales_do_not_vanish(std: float) -> None:
    assert scale_is(draw(20_000, 3, std) / std, 1.0)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_small_sizes(n: int) -> None:
    assert draw(n, 0).shape == (n,)


def test_sampler_and_noise_keys_differ_and_every_context_has_its_own() -> None:
    ring = KeyRing.create(None)
    keys = [ring.derive(p, 1, g, b) for p in ("sampler", "noise") for g in ("g1", "g2") for b in ("b1", "b2")]
    assert len(set(keys)) == 8
    assert KeyRing.subkey(KEY, "ab", "c") != KeyRing.subkey(KEY, "a", "bc")
    assert ring.derive("noise", 1, "g") != KeyRing.create(None).derive("noise", 1, "g")


def test_noise_drawn_ahead_is_the_same_noise_in_any_order() -> None:
    ahead = noise.NoiseAhead(999, KEY, 2.0, torch.device("cpu"))
    for step in (0, 1, 2, 3, 1, 7, 8):  # in turn, and after a seek
        assert torch.equal(ahead.take(step).double(), draw(999, step, 2.0))


def test_drawing_ahead_keeps_the_number_of_threads() -> None:
    before = torch.get_num_threads()
    noise.NoiseAhead(9, KEY, 1.0, torch.device("cpu")).take(0)
    assert torch.get_num_threads() == before


def test_the_normals_of_the_gpu_are_normal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code, run on the CPU."""
    monkeypatch.setattr(noise, "fused", lambda function, any_size: function)
    drawn = Normals(KEY, 3, N, cuda=True).fill_(torch.empty(N, dtype=D), 1.0)
    assert scale_is(drawn, 1.0) and not scale_is(drawn, 1.3) and not scale_is(drawn, 0.7)
    assert stats.kstest(drawn.numpy(), "norm").pvalue > 1e-6


def test_lots_of_one_draw_do_not_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "_PAIRS", 64)
    drawn = draw(128 * 8, 1).view(8, 128)
    assert len({tuple(row.tolist()) for row in drawn}) == 8
    assert scale_is(drawn.flatten(), 1.0)
    assert torch.equal(cipher.words(KEY, 5, 16, first=48), cipher.words(KEY, 5, 64)[48:])


def rounded_by_hand(fraction: float, place: int, terms: list[grid.Term]) -> int:
    value = Fraction(fraction)
    for weight, normals in terms:
        value += Fraction(weight) * normals.bounds(place, 400)[0]
    return math.floor(value + Fraction(1, 2))


@pytest.mark.parametrize("several", [1, 3])
def test_rounding_is_right_in_every_coordinate(several: int) -> None:
    n, std = 3000, 1.3
    terms = [(std * 2.0**8 / (k + 1), Normals(KEY, k, n)) for k in range(several)]
    multiples = torch.randint(-(2**50), 2**50, (n,), generator=torch.Generator().manual_seed(0)).tolist()
    total = grid.ExactNumbers(multiples, 2.0**-10)
    found = grid.released(total, 1.0, grid.combined(terms), terms)
    for place, multiple in enumerate(multiples):
        assert int(found[place]) - multiple // 2**10 == rounded_by_hand(multiple % 2**10 / 2**10, place, terms)


def test_rounding_is_right_where_float64_cannot_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fractions that put the sum within 2⁻⁴³ of a boundary: floats alone are wrong for some, the result for none."""
    n, weight = 400, 1.7 * 2.0**8
    terms = [(weight, Normals(KEY, 11, n))]
    known = grid.combined(terms)
    true = [float(Fraction(weight) * terms[0][1].bounds(place, 200)[0] % 1) for place in range(n)]
    offsets = torch.linspace(-(2.0**-43), 2.0**-43, n, dtype=D)
    fraction = (0.5 - torch.tensor(true, dtype=D)).remainder(1.0).add(offsets).remainder(1.0)
    right = [rounded_by_hand(float(fraction[place]), place, terms) for place in range(n)]
    settled = []
    real = grid._settled
    monkeypatch.setattr(grid, "_settled", lambda *args: settled.append(1) or real(*args))
    exact = SimpleNamespace(over=lambda grid, some: (torch.zeros(n, dtype=D)[some], 1.0, fraction[some].clone()))
    found = grid.released(exact, 1.0, known, terms)  # type: ignore[arg-type]
    assert found.tolist() == right and settled
    assert (known + fraction).round().tolist() != right


def test_whether_the_sum_or_its_fraction_carries_a_part_makes_no_difference() -> None:
    """What leaves depends on the exact sum alone, however it is held."""
    n, terms = 50, [(3.1 * 2.0**8, Normals(KEY, 1, 50))]
    one = grid.ExactNumbers([7 * k for k in range(n)], 2.0**-10)
    two = grid.ExactNumbers([7 * k << 20 for k in range(n)], 2.0**-30)
    out = [grid.released(held, 2.0**-5, grid.combined(terms), terms) for held in (one, two)]
    assert torch.equal(*out)


@pytest.mark.parametrize("noise_", [LEAST_NOISE, 1e-3, 1.0, MOST_NOISE])
@pytest.mark.parametrize("clip", [0.7, 1.0, 1.5])
def test_totals_are_exact_over_the_grid_of_every_noise_that_a_plan_may_have(noise_: float, clip: float) -> None:
    """Also where they are held as integers."""
    for units in (1, ROOM, ROOM + 1, 5 * ROOM):
        total = ExactSum(4, clip)
        for _ in range(-(-units // ROOM)):
            total.reserve(min(units, ROOM))
            total.flat += torch.tensor([2.0**52 - 1, 1 - 2.0**52, 12345.0, -1.0], dtype=D)
        gamma = grid.grid_for(noise_ * clip)
        base, ratio, fraction = total.over(gamma, slice(None))
        whole = total.flat.to(torch.int64) + (0 if total._moved is None else total._moved)
        for place, multiple in enumerate(whole.tolist()):
            part = 0.0 if fraction is None else float(fraction[place])
            assert 0 <= part < 1
            found = Fraction(float(base[place])) * Fraction(ratio) + Fraction(part)
            assert found == Fraction(multiple) * Fraction(total.step) / Fraction(gamma)


@pytest.mark.parametrize("noise_", [LEAST_NOISE / 2, MOST_NOISE * 2])
def test_other_noise_is_refused(noise_: float) -> None:
    for make in (GradientPlan, SumPlan, LabelPlan):
        with pytest.raises(PlanError, match="noise must be between 1e-07 and 2e"):
            make(noise=noise_, **({"rate": 0.1, "steps": 1} if make is GradientPlan else {}))  # type: ignore[arg-type]
