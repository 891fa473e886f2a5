"""Gaussian noise from a cipher, known to as many digits as are asked for: the one source of noise of every exit.

Formal guarantees
  * The normals of a (key, counter) are real numbers: the Box–Muller transform of uniform numbers whose binary digits
    are the key stream of a cipher, without end. Their law is the normal law exactly, as far as the cipher's stream
    cannot be told from coin tosses; nothing is cut or rounded.
  * `fill_` gives each of them wrong by at most `error`, `closer` some of them wrong by at most `CLOSE`, and `bounds`
    encloses a single one as tightly as one likes. `grid.py` uses all three, so that what leaves the vault is the
    correct rounding of a sum plus the real numbers.

How: 31 digits for the radius and 32 for the angle are drawn for every pair, and 63 and 64 on a GPU, where float64 is
fast. The digits that follow are drawn for the pairs that need them: some in a hundred, then nearly none.
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

from tacit.gradients.fusion import fused
from tacit.privacy.ahead import Ahead
from tacit.privacy.cipher import chacha, chacha_head, chacha_int64, encrypted, words, words_at
from tacit.privacy.keys import KeyRing

CIPHER_CPU = "AES-256-CTR, Box-Muller to any precision, exact rounding to a grid"
CIPHER_GPU = "ChaCha20, Box-Muller to any precision, exact rounding to a grid"

FINE = 2.0**-18
"""Error of a normal in float32, where its uniform number u is between LOW and HIGH. The radius, computed in float64
from 31 digits, is then below 4.3 and right to 2⁻²⁰, and to 2⁻²² more in float32; the angle is right to 2⁻²², its cosine
and sine to 2⁻²² (numpy promises 2⁻²³), and the product to 2⁻²²: together 0.9 of this. Pairs with another u are drawn
closer at once."""
CLOSE = 2.0**-41
"""Error in float64, from 95 digits (63 on a GPU) for the radius and 96 (64) for the angle."""
LOW, HIGH = 2.0**-13, 1 - 2.0**-18
LOW_GPU, HIGH_GPU = 2.0**-20, 1 - 2.0**-21
MORE = 16
"""Further 32-bit words of digits for each radius and each angle: 512 digits."""

_PAIRS = 1 << 16  # at a time: what is worked on stays in the cache
_local = threading.local()
_intervals = threading.Lock()  # mpmath's precision is one for all threads


class Normals:
    """`count` independent standard normals, named by a key and a counter (a step, say)."""

    def __init__(self, key: bytes, counter: int, count: int, *, cuda: bool = False) -> None:
        self.key, self.counter, self.count, self.cuda = key, counter, count, cuda
        self.pairs = (count + 1) // 2
        self.error = CLOSE if cuda else FINE
        self.dtype = torch.float64 if cuda else torch.float32
        self._lot = max(1, self.pairs) if cuda else _PAIRS
        self._first = 63 if cuda else 31
        """Digits of a radius that are drawn for every pair; an angle has one more."""

    def fill_(self, out: Tensor, scale: float) -> Tensor:
        """Overwrite `out` (flat, of `dtype`) with scale · normals, each wrong by at most scale · `error`."""
        if self.cuda:
            return self._fill_cuda(out, scale)
        rare: list[int] = []
        for start in range(0, self.pairs, self._lot):
            count = min(self._lot, self.pairs - start)
            room = out[2 * start : 2 * (start + count)]
            both = room if len(room) == 2 * count else torch.empty(2 * count)
            radius, angle = self._digits(start, count)
            rare += [start + pair for pair in _pairs(both, radius, angle, scale)]
            if both is not room:
                room.copy_(both[: len(room)])
        self._rewrite(out, rare, scale)
        return out

    def closer(self, places: Tensor) -> Tensor:
        """The normals at these places in float64, wrong by at most `CLOSE`."""
        pairs, sine = self._pairs_of(places.cpu().numpy())
        radius, angle, missing = self._more_digits(pairs)
        more = (radius[1].astype(np.float64) + 0.5) * 2.0**-64
        # Small numbers are held well by u itself, those next to 1 by what is missing to 1.
        u, short = (radius[0] + more) * 2.0**-self._first, (missing + (1 - more)) * 2.0**-self._first
        turn = (angle[0] + (angle[1].astype(np.float64) + 0.5) * 2.0**-64) * 2.0 ** -(self._first + 1)
        length = np.sqrt(-2.0 * np.where(u < 0.5, np.log(np.maximum(u, 2.0**-200)), np.log1p(-short)))
        return torch.from_numpy(length * np.where(sine, np.sin(2 * math.pi * turn), np.cos(2 * math.pi * turn)))

    def bounds(self, place: int, digits: int) -> tuple[Fraction, Fraction]:
        """Two numbers that enclose the normal at `place`, from `digits` binary digits of its radius and angle."""
        from mpmath import iv

        pairs, sines = self._pairs_of(np.array([place]))
        radius, angle = self._long_digits(int(pairs[0]))
        with _intervals:
            iv.prec = digits + 64
            u = _interval(iv, radius, self._first + 32 * MORE, digits)
            turn = _interval(iv, angle, self._first + 1 + 32 * MORE, digits) * 2 * iv.pi
            found = iv.sqrt(-2 * iv.log(u)) * (iv.sin(turn) if sines[0] else iv.cos(turn))
            return _fraction(found.a), _fraction(found.b)

    def _pairs_of(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The pair of each place, and whether it is its sine: within a lot, cosines come first."""
        lot, within = np.divmod(places, 2 * self._lot)
        count = np.minimum(self._lot, self.pairs - lot * self._lot)
        return lot * self._lot + within % count, within >= count

    def _digits(self, start: int, count: int) -> tuple[Tensor, Tensor]:
        """The first digits of radii and angles, as signed 32-bit integers: radii first, within each lot."""
        bits = words(self.key, self.counter, 2 * count, 2 * start, _scratch("bits", 8 * self._lot))
        return bits[:count], bits[count:]

    def _first_digits(self, pair: int) -> tuple[int, int]:
        """The digits of a pair that are drawn for every pair, as whole numbers ≥ 0."""
        if not self.cuda:
            radius, angle = (int(some[0]) for some in self._first_of(np.array([pair]))[:2])
            return radius, angle
        radius, angle = (chacha_int64(self.key, self.counter, place) for place in (pair, self.pairs + pair))
        return (radius if radius >= 0 else ~radius), angle % (1 << 64)

    def _more_digits(self, pairs: NDArray[np.int64]) -> tuple[tuple[Any, Any], tuple[Any, Any], NDArray[np.float64]]:
        """(first, next 64 digits) of the radii and of the angles of some pairs; and what radii lack of being ones."""
        first = self._first_of(pairs)
        more = self._further(pairs, 0)
        return (first[0], more[:, 0]), (first[1], more[:, 1]), first[2]

    def _first_of(self, pairs: NDArray[np.int64]) -> tuple[NDArray[np.float64], ...]:
        """The first digits of radii and of angles, and of what radii lack of being ones: whole numbers."""
        if self.cuda:
            found = [self._first_digits(int(pair)) for pair in pairs]
            whole = [(radius, angle, 2**self._first - 1 - radius) for radius, angle in found]
            return tuple(np.array(some, dtype=np.float64) for some in zip(*whole, strict=True)) or (np.zeros(0),) * 3
        start = pairs - pairs % self._lot
        places = start + pairs  # 2·start for the lots before, and the place within the lot
        signed = words_at(self.key, self.counter, places).astype(np.int64)
        radius = np.where(signed >= 0, signed, ~signed).astype(np.float64)
        angle = words_at(self.key, self.counter, places + np.minimum(self._lot, self.pairs - start)).astype(np.int64)
        return radius, (angle % (1 << 32)).astype(np.float64), 2.0**31 - 1 - radius

    def _further(self, pairs: NDArray[np.int64], block: int) -> NDArray[np.uint64]:
        """128 further digits of each pair, 64 of the radius and 64 of the angle: AES of (counter, pair, block)."""
        key = KeyRing.subkey(self.key, "further digits", self.counter.to_bytes(8, "big"))
        names = np.zeros((len(pairs), 2), dtype=np.uint64)
        names[:, 0], names[:, 1] = pairs, block
        return np.frombuffer(encrypted(key, names.tobytes()), dtype=np.uint64).reshape(-1, 2)

    def _long_digits(self, pair: int) -> tuple[int, int]:
        """All digits of one pair, as whole numbers: the first ones and 512 more."""
        radius, angle = self._first_digits(pair)
        for block in range(MORE // 2):
            more = self._further(np.array([pair]), block)[0]
            radius, angle = radius << 64 | int(more[0]), angle << 64 | int(more[1])
        return radius, angle

    def _rewrite(self, out: Tensor, pairs: list[int], scale: float) -> None:
        """Write the normals of pairs whose radius the first digits do not hold well enough."""
        if not pairs:
            return
        lots = torch.tensor(pairs)
        lot = lots // self._lot
        first = lots + lot * self._lot
        places = torch.cat([first, first + (self.pairs - lot * self._lot).clamp(max=self._lot)])
        places = places[places < self.count]
        out[places.to(out.device)] = (scale * self.closer(places)).to(out.device, out.dtype)

    def _fill_cuda(self, out: Tensor, scale: float) -> Tensor:
        head = chacha_head(self.key, self.counter, out.device)
        both, rare = fused(_chacha_normals, any_size=True)(head, *_table(out.device), self.pairs)
        torch.mul(both[: self.count], scale, out=out)
        self._rewrite(out, torch.nonzero(rare).view(-1).tolist(), scale)
        return out


def _pairs(out: Tensor, radius: Tensor, angle: Tensor, scale: float) -> list[int]:
    """Box–Muller: the first half of `out` gets cosines, the second sines. Returns the pairs to be drawn closer.

    Radii in float64, because numpy's logarithm is as fast as torch's in float32; the angles in float32."""
    count = len(radius)
    u, turn = _held("u", count, torch.float64), _held("turn", count, torch.float32)
    u.copy_(radius).abs_().mul_(2.0**-31)
    low, high = (float(end) for end in u.aminmax())
    values = u.numpy()
    rare = np.flatnonzero(values < LOW).tolist() if low < LOW else []
    rare += np.flatnonzero(values > HIGH).tolist() if high > HIGH else []
    if low == 0.0:
        u.clamp_(min=LOW)
    np.log(values, out=values)
    u.mul_(-2.0 * scale * scale)
    np.sqrt(values, out=values)
    turn.copy_(angle).mul_(2.0 * math.pi * 2.0**-32)
    cosine, sine = out[:count], out[count:]
    np.cos(turn.numpy(), out=cosine.numpy())  # twice as fast as torch's
    np.sin(turn.numpy(), out=sine.numpy())
    length = turn.copy_(u)
    if scale < 0:
        length.neg_()
    cosine.mul_(length)
    sine.mul_(length)
    return rare


def _chacha_normals(head: Tensor, cos_table: Tensor, sin_table: Tensor, pairs: int) -> tuple[Tensor, Tensor]:
    """The same on the device of `head` in float64, with which pairs are to be drawn closer.

    Cosine and sine come from a table of 2¹⁶ angles and the first terms of a series: what is left out is below 2⁻⁴⁵."""
    bits = chacha(head, 4 * pairs).view(torch.int64)
    u = bits[:pairs].double().abs() * 2.0**-63
    radius = (u.log() * -2.0).sqrt()
    angle = bits[pairs:]
    b = (angle & (2**48 - 1)).double() * (2.0 * math.pi * 2.0**-64) - math.pi * 2.0**-16
    place = (angle >> 48) + (1 << 15)
    c, s = cos_table[place], sin_table[place]
    even, odd = (1.0 - 0.5 * b * b) * radius, b * radius
    return torch.cat([c * even - s * odd, s * even + c * odd]), (u < LOW_GPU) | (u > HIGH_GPU)


@cache
def _table(device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine of 2π(k + ½)/2¹⁶, from k = −2¹⁵ on."""
    k = np.arange(-(1 << 15), 1 << 15)
    angles = (k + 0.5) * (2.0 * math.pi * 2.0**-16)
    return torch.from_numpy(np.cos(angles)).to(device), torch.from_numpy(np.sin(angles)).to(device)


def _interval(iv: Any, number: int, length: int, digits: int) -> Any:
    """The numbers that begin with the first `digits` of `length` binary digits of a fraction."""
    low = number >> (length - digits)
    return iv.mpf([low, low + 1]) / iv.mpf(2) ** digits


def _fraction(end: Any) -> Fraction:
    """The end of an interval of mpmath, exactly."""
    sign, mantissa, exponent, _ = end._mpi_[0]
    size = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    return -size if sign else size


def _scratch(name: str, size: int) -> bytearray:
    """Memory of this thread that is used again: new pages at every step would cost more than the cipher."""
    held: bytearray | None = getattr(_local, name, None)
    if held is None or len(held) < size:
        held = bytearray(size)
        setattr(_local, name, held)
    return held


def _held(name: str, count: int, dtype: torch.dtype) -> Tensor:
    return torch.frombuffer(_scratch(name, 8 * _PAIRS), dtype=dtype, count=count)


class NoiseAhead:
    """The noise of a grant, step by step; on a CPU the next step's is drawn on a second thread meanwhile.

    What `take(step)` holds depends on the key, the step and the kind of device alone. It may be written to and is valid
    until the next call but one.
    """

    def __init__(self, count: int, key: bytes, scale: float, device: torch.device) -> None:
        self._key, self._scale, self._count = key, scale, count
        self._cuda = device.type == "cuda"  # with a queue of its own: nothing to gain from a second thread
        self._out = [torch.empty(count, dtype=self.normals(0).dtype, device=device) for _ in "ab"]
        self._ahead = Ahead(self._draw)

    def normals(self, step: int) -> Normals:
        """The numbers behind the noise of a step."""
        return Normals(self._key, step, self._count, cuda=self._cuda)

    def take(self, step: int, *, last: bool = False) -> Tensor:
        """scale · normals of `step`; unless it is the last one, that of the next step is begun."""
        return self._draw(step) if self._cuda else self._ahead.take(step, last=last)

    def _draw(self, step: int) -> Tensor:
        return self.normals(step).fill_(self._out[step % 2], self._scale)
