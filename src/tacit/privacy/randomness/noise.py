"""Gaussian noise from a cipher, to any number of digits: the only source of noise of every exit.

Formal guarantees
  * The normals of a (key, counter) are real numbers: the Box–Muller transform of uniform numbers whose binary digits
    are the key stream of a cipher. Their distribution is exactly normal, as far as the key stream cannot be
    distinguished from uniform bits; nothing is truncated or rounded.
  * `fill_` computes each of them with an error of at most `ERROR`, and `bounds` encloses a single one in an arbitrarily
    small interval. `grid.py` uses both, so that a release is the correct rounding of the sum plus these real numbers.

63 digits of the radius and 64 of the angle are drawn for every pair. Further digits are drawn for the pairs that need
them, about one in a million.
"""

import math
import threading
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.gradients.compiled import compiled, fused
from tacit.privacy.randomness.cipher import chacha, chacha_head, chacha_int64, words
from tacit.privacy.randomness.keys import KeyRing
from tacit.privacy.randomness.prefetch import Ahead

CIPHER_CPU = "AES-256-CTR, Box-Muller to any precision, exact rounding to a grid"
CIPHER_GPU = "ChaCha20, Box-Muller to any precision, exact rounding to a grid"

ERROR = 2.0**-35
"""The error of a normal whose uniform number u is between LOW and HIGH. A radius from 63 digits is wrong by at most
2⁻⁶³/(u·radius), largest at LOW: 2⁻³⁵·⁷. Near HIGH the rounding of u to float64 dominates: 2⁻⁵⁴/radius is 2⁻³⁹. Angle,
series and products in float64 add less than 2⁻⁴⁴. Pairs with another u are NaN: `grid.py` draws more digits."""
LOW, HIGH = 2.0**-30, 1 - 2.0**-30
MORE = 16
"""The number of further 32-bit words for each radius and each angle: 512 digits."""

_PAIRS = 1 << 15  # at a time: what is worked on stays in the cache
_LOG_2, _DIGIT = math.log(2.0), 2.0 * math.pi * 2.0**-64
_SQRT_HALF = int(np.float64(math.sqrt(0.5)).view(np.int64))
_C = [1.0 / math.factorial(k) for k in range(17)]
_COS, _SIN = (
    (1.0, -_C[2], _C[4], -_C[6], _C[8], -_C[10], _C[12], -_C[14]),
    (1.0, -_C[3], _C[5], -_C[7], _C[9], -_C[11], _C[13], -_C[15]),
)
_local = threading.local()
_intervals = threading.Lock()  # mpmath's precision is one for all threads


class Normals:
    """`count` independent standard normals: a function of a key and a counter (the step)."""

    def __init__(self, key: bytes, counter: int, count: int, *, cuda: bool = False) -> None:
        self.key, self.counter, self.count, self.cuda = key, counter, count, cuda
        self.pairs = (count + 1) // 2
        self._lot = max(1, self.pairs) if cuda else _PAIRS

    def fill_(self, out: Tensor, scale: float) -> Tensor:
        """Overwrites `out` (flat, float64) with scale · normals, each with an error of at most scale · `ERROR`.

        It is NaN where the first digits do not determine the normal so accurately.
        """
        if self.cuda:
            head = chacha_head(self.key, self.counter, out.device)
            both = fused(_chacha_normals, any_size=True)(head, *_table(out.device), self.pairs)
            return torch.mul(both[: self.count], scale, out=out)
        for start in range(0, self.pairs, self._lot):
            count = min(self._lot, self.pairs - start)
            room = out[2 * start : 2 * (start + count)]
            both = room if len(room) == 2 * count else torch.empty(2 * count, dtype=torch.float64)
            radius, angle = self._digits(start, count)
            _box_muller(radius, angle, scale, both[:count].numpy(), both[count:].numpy())
            if both is not room:
                room.copy_(both[: len(room)])
        return out

    def bounds(self, place: int, digits: int) -> tuple[Fraction, Fraction]:
        """An interval that contains the normal at position `place`, from `digits` binary digits of radius and angle."""
        from mpmath import iv

        pair, sine = self._pair_of(place)
        radius, angle = self._long_digits(pair)
        with _intervals:
            iv.prec = digits + 64
            u = _interval(iv, radius, 63 + 32 * MORE, digits)
            turn = _interval(iv, angle, 64 + 32 * MORE, digits) * 2 * iv.pi
            found = iv.sqrt(-2 * iv.log(u)) * (iv.sin(turn) if sine else iv.cos(turn))
            return _fraction(found.a), _fraction(found.b)

    def _pair_of(self, place: int) -> tuple[int, bool]:
        """The pair of a position, and whether the position is its sine. Within a lot, cosines come first."""
        lot, within = divmod(place, 2 * self._lot)
        count = min(self._lot, self.pairs - lot * self._lot)
        return lot * self._lot + within % count, within >= count

    def _digits(self, start: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first digits of the radii and angles of a lot of pairs, as signed numbers."""
        bits = words(self.key, self.counter, 4 * count, 4 * start, _scratch("bits", 16 * self._lot)).view(torch.int64)
        return bits[:count].numpy(), bits[count:].numpy()

    def _first_digits(self, pair: int) -> tuple[int, int]:
        """The first digits of one pair, as whole numbers ≥ 0: 63 of the radius and 64 of the angle."""
        if self.cuda:
            radius, angle = (chacha_int64(self.key, self.counter, place) for place in (pair, self.pairs + pair))
        else:
            start = pair - pair % self._lot
            places = start + pair, start + pair + min(self._lot, self.pairs - start)
            radius, angle = (self._int64(place) for place in places)
        return (radius if radius >= 0 else ~radius), angle % (1 << 64)

    def _int64(self, place: int) -> int:
        """The signed 64-bit number at position `place` of the stream; a block of the cipher holds two."""
        return int(words(self.key, self.counter, 4, place // 2 * 4).view(torch.int64)[place % 2])

    def _long_digits(self, pair: int) -> tuple[int, int]:
        """All digits of one pair, as whole numbers: the first digits and 512 more."""
        key = KeyRing.subkey(self.key, "further digits", self.counter.to_bytes(8, "big"))
        further = words(key, pair, 2 * MORE).numpy().tobytes()
        radius, angle = self._first_digits(pair)
        half = len(further) // 2
        more = [int.from_bytes(some, "big") for some in (further[:half], further[half:])]
        return radius << (8 * half) | more[0], angle << (8 * half) | more[1]


@compiled("contract")
def _box_muller(
    radius: NDArray[np.int64],
    angle: NDArray[np.int64],
    scale: float,
    cosines: NDArray[np.float64],
    sines: NDArray[np.float64],
) -> None:
    """Box–Muller by series of logarithm, cosine and sine, with truncation errors below 2⁻⁴⁸."""
    for i in range(len(radius)):
        digits = radius[i] if radius[i] >= 0 else ~radius[i]
        u = (np.float64(digits) + 0.5) * 2.0**-63
        # u = 2^exponent · m with m between √½ and √2, and log m = 2 artanh((m - 1)/(m + 1)).
        bits = np.float64(u).view(np.int64)
        exponent = (bits - _SQRT_HALF) >> 52
        m = np.int64(bits - (exponent << 52)).view(np.float64)
        s = (m - 1.0) / (m + 1.0)
        q = s * s
        series = q * (1 / 11 + q * (1 / 13 + q * (1 / 15 + q * (1 / 17 + q * (1 / 19)))))
        series = 1.0 + q * (1 / 3 + q * (1 / 5 + q * (1 / 7 + q * (1 / 9 + series))))
        length = scale * np.sqrt(-2.0 * (2.0 * s * series + np.float64(exponent) * _LOG_2))
        length = length if LOW <= u <= HIGH else np.nan
        # The angle is a whole number of quarter turns, plus or minus at most an eighth of a turn.
        quarters = (angle[i] + (1 << 61)) >> 62
        t = (np.float64(angle[i] - (quarters << 62)) + 0.5) * _DIGIT
        q = t * t
        cosine = q * (_COS[4] + q * (_COS[5] + q * (_COS[6] + q * _COS[7])))
        cosine = 1.0 + q * (_COS[1] + q * (_COS[2] + q * (_COS[3] + cosine)))
        sine = q * (_SIN[4] + q * (_SIN[5] + q * (_SIN[6] + q * _SIN[7])))
        sine = t * (1.0 + q * (_SIN[1] + q * (_SIN[2] + q * (_SIN[3] + sine))))
        swap = (quarters & 1) != 0
        c = sine if swap else cosine
        s = cosine if swap else sine
        cosines[i] = length * (-c if ((quarters + 1) & 2) != 0 else c)
        sines[i] = length * (-s if (quarters & 2) != 0 else s)


def _chacha_normals(head: Tensor, cos_table: Tensor, sin_table: Tensor, pairs: int) -> Tensor:
    """Box–Muller on the device of `head`.

    Cosine and sine come from a table of 2¹⁶ angles and the first terms of a series, with truncation errors below 2⁻⁴⁵.
    """
    bits = chacha(head, 4 * pairs).view(torch.int64)
    u = bits[:pairs].double().abs() * 2.0**-63
    radius = torch.where((u < LOW) | (u > HIGH), math.nan, (u.log() * -2.0).sqrt())
    angle = bits[pairs:]
    b = (angle & (2**48 - 1)).double() * (2.0 * math.pi * 2.0**-64) - math.pi * 2.0**-16
    place = (angle >> 48) + (1 << 15)
    c, s = cos_table[place], sin_table[place]
    even, odd = (1.0 - 0.5 * b * b) * radius, b * radius
    return torch.cat([c * even - s * odd, s * even + c * odd])


@cache
def _table(device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine of 2π(k + ½)/2¹⁶, from k = −2¹⁵ on."""
    k = np.arange(-(1 << 15), 1 << 15)
    angles = (k + 0.5) * (2.0 * math.pi * 2.0**-16)
    return torch.from_numpy(np.cos(angles)).to(device), torch.from_numpy(np.sin(angles)).to(device)


def _interval(iv: Any, number: int, length: int, digits: int) -> Any:
    """The interval of fractions that begin with the first `digits` of `length` binary digits."""
    low = number >> (length - digits)
    return iv.mpf([low, low + 1]) / iv.mpf(2) ** digits


def _fraction(end: Any) -> Fraction:
    """An end of an mpmath interval, exactly."""
    sign, mantissa, exponent, _ = end._mpi_[0]
    size = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    return -size if sign else size


def _scratch(name: str, size: int) -> bytearray:
    """Reusable memory of this thread: allocating pages at every step would cost more than the cipher."""
    held: bytearray | None = getattr(_local, name, None)
    if held is None or len(held) < size:
        held = bytearray(size)
        setattr(_local, name, held)
    return held


class NoiseAhead:
    """The noise of a grant, step by step. On a CPU, the noise of the next step is computed on a second thread.

    The result of `take(step)` is a function of the key, the step and the kind of device. It may be overwritten, and is
    valid until the second next call.
    """

    def __init__(self, count: int, key: bytes, scale: float, device: torch.device) -> None:
        self._key, self._scale, self._count = key, scale, count
        self._cuda = device.type == "cuda"  # runs asynchronously: a second thread gains nothing
        self._out = [torch.empty(count, dtype=torch.float64, device=device) for _ in "ab"]
        self._ahead = Ahead(self._draw)

    def normals(self, step: int) -> Normals:
        """The standard normals of a step."""
        return Normals(self._key, step, self._count, cuda=self._cuda)

    def take(self, step: int, *, last: bool = False) -> Tensor:
        """scale · normals of `step`; unless it is the last step, starts computing those of the next one."""
        return self._draw(step) if self._cuda else self._ahead.take(step, last=last)

    def _draw(self, step: int) -> Tensor:
        return self.normals(step).fill_(self._out[step % 2], self._scale)
