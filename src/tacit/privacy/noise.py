"""Gaussian noise from a cipher, known to as many digits as are asked for: the one source of noise of every exit.

Formal guarantees
  * The normals of a (key, counter) are real numbers: the Box–Muller transform of uniform numbers whose binary digits
    are the key stream of a cipher, without end. Their law is the normal law exactly, as far as the cipher's stream
    cannot be told from coin tosses; nothing is cut or rounded.
  * `fill_` gives each of them in float64, wrong by at most `ERROR`; `bounds` encloses a single one as tightly as one
    likes. `grid.py` uses both, so that what leaves the vault is the correct rounding of a sum plus the real numbers.

How: 63 digits for the radius and 64 for the angle are drawn for every pair; the digits that follow are drawn for the
few pairs that need them. The angle's cosine and sine come from a table of 2¹⁶ angles and the first terms of a series,
which is twice as fast as torch's own functions and exact enough.
"""

import math
import threading
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.gradients.fusion import fused
from tacit.privacy.ahead import Ahead
from tacit.privacy.cipher import chacha, chacha_head, chacha_int64, words
from tacit.privacy.keys import KeyRing

CIPHER_CPU = "AES-256-CTR, Box-Muller to any precision, exact rounding to a grid"
CIPHER_GPU = "ChaCha20, Box-Muller to any precision, exact rounding to a grid"

LOW, HIGH = 2.0**-20, 1 - 2.0**-21
ERROR = 2.0**-41
"""Of a standard normal in float64. The uniform number u is right to 2⁻⁵² of itself and to the digits that were not
drawn, 2⁻⁶³. Between LOW and HIGH the radius is between 2⁻¹⁰ and 6, and so right to 2⁻⁴²; all other pairs are drawn to
more digits. Cosine and sine are right to 2⁻⁴⁵."""
MORE = 16
"""Further 32-bit words of digits for each radius and each angle: 512 digits."""

_PAIRS = 1 << 16  # at a time: what is worked on stays in the cache
_COPIED = 1 << 21  # for a GPU: up to so many normals are drawn on the CPU
_local = threading.local()
_intervals = threading.Lock()  # mpmath's precision is one for all threads


class Normals:
    """`count` independent standard normals, named by a key and a counter (a step, say)."""

    def __init__(self, key: bytes, counter: int, count: int, *, cuda: bool = False) -> None:
        self.key, self.counter, self.count, self.cuda = key, counter, count, cuda
        self.pairs = (count + 1) // 2
        self._lot = self.pairs if cuda else _PAIRS

    def fill_(self, out: Tensor, scale: float) -> Tensor:
        """Overwrite `out` (float64, `count` numbers) with scale · normals, each wrong by at most scale · ERROR."""
        flat = out.view(-1)
        if self.cuda:
            return self._fill_cuda(flat, scale).view(out.shape)
        rare: list[int] = []
        for start in range(0, self.pairs, self._lot):
            count = min(self._lot, self.pairs - start)
            room = flat[2 * start : 2 * (start + count)]
            both = room if len(room) == 2 * count else torch.empty(2 * count, dtype=torch.float64)
            radius, angle = self._digits(start, count)
            rare += [start + place for place in _pairs(both, radius, angle, scale)]
            if both is not room:
                room.copy_(both[: len(room)])
        self._refine(flat, rare, scale)
        return out

    def bounds(self, place: int, digits: int) -> tuple[Fraction, Fraction]:
        """Two numbers that enclose the normal at `place`, from `digits` binary digits of its radius and angle."""
        from mpmath import iv

        lot, within = divmod(place, 2 * self._lot)
        count = min(self._lot, self.pairs - lot * self._lot)
        pair, sine = lot * self._lot + within % count, within >= count
        radius, angle = self._long_digits(pair)
        with _intervals:
            iv.prec = digits + 64
            u = _interval(iv, radius, 63 + 32 * MORE, digits)
            turn = _interval(iv, angle, 64 + 32 * MORE, digits) * 2 * iv.pi
            found = iv.sqrt(-2 * iv.log(u)) * (iv.sin(turn) if sine else iv.cos(turn))
            return _fraction(found.a), _fraction(found.b)

    def _digits(self, start: int, count: int) -> tuple[Tensor, Tensor]:
        """The first digits of radii and angles, as 64-bit integers: radii first, within each lot."""
        if self.cuda:
            raise AssertionError("the digits of a GPU's lot are drawn there")
        held = _scratch("bits", 16 * self._lot)
        bits = words(self.key, self.counter, 4 * count, 4 * start, held).view(torch.int64)
        return bits[:count], bits[count:]

    def _long_digits(self, pair: int) -> tuple[int, int]:
        """All digits of one pair, as whole numbers of 63 and 64 binary digits and 512 more."""
        if self.cuda:
            first = [chacha_int64(self.key, self.counter, place) for place in (pair, self.pairs + pair)]
        else:
            start = pair - pair % self._lot
            radius, angle = self._digits(start, min(self._lot, self.pairs - start))
            first = [int(radius[pair - start]), int(angle[pair - start])]
        key = KeyRing.subkey(self.key, "further digits")
        more = words(key, self.counter, 2 * MORE, 2 * MORE * pair).numpy().astype(">u4").tobytes()
        half = len(more) // 2
        return (
            (first[0] if first[0] >= 0 else ~first[0]) << (32 * MORE) | int.from_bytes(more[:half], "big"),
            (first[1] & (2**64 - 1)) << (32 * MORE) | int.from_bytes(more[half:], "big"),
        )

    def _refine(self, flat: Tensor, pairs: list[int], scale: float) -> None:
        """Write the normals of pairs whose radius float64 does not hold well enough."""
        for pair in pairs:
            lot = pair // self._lot
            count = min(self._lot, self.pairs - lot * self._lot)
            first = 2 * lot * self._lot + pair % self._lot
            for place in (first, first + count):
                if place < self.count:
                    flat[place] = scale * float(self.bounds(place, 160)[0])

    def _fill_cuda(self, flat: Tensor, scale: float) -> Tensor:
        head = chacha_head(self.key, self.counter, flat.device)
        both, rare = fused(_chacha_normals, any_size=True)(head, *_table(flat.device), self.pairs)
        torch.mul(both[: self.count], scale, out=flat)
        self._refine(flat, torch.nonzero(rare).view(-1).tolist(), scale)
        return flat


def _pairs(out: Tensor, radius: Tensor, angle: Tensor, scale: float) -> list[int]:
    """Box–Muller: the first half of `out` gets cosines, the second sines. Returns the pairs to be drawn anew."""
    count = len(radius)
    cos_table, sin_table = _table(torch.device("cpu"))
    u, b, c, s = (_held(name, count) for name in "ubcs")
    u.copy_(radius).abs_().mul_(2.0**-63)
    low, high = (float(end) for end in u.aminmax())
    rare = [] if low >= LOW and high <= HIGH else torch.nonzero((u < LOW) | (u > HIGH)).view(-1).tolist()
    if rare:
        u.clamp_(LOW, HIGH)
    values = u.numpy()
    np.log(values, out=values)  # numpy's logarithm and root are twice as fast as torch's
    u.mul_(-2.0 * scale * scale)
    np.sqrt(values, out=values)
    if scale < 0:
        u.neg_()
    whole = c.view(torch.int64)
    torch.bitwise_and(angle, 2**48 - 1, out=whole)
    b.copy_(whole).mul_(2.0 * math.pi * 2.0**-64).sub_(math.pi * 2.0**-16)
    whole = _held("place", count).view(torch.int64)
    torch.bitwise_right_shift(angle, 48, out=whole).add_(1 << 15)  # the table begins at the angle −π
    torch.index_select(cos_table, 0, whole, out=c)
    torch.index_select(sin_table, 0, whole, out=s)
    # cos(A + b) and sin(A + b) for |b| ≤ π·2⁻¹⁶: what is left out of the series is below 2⁻⁴⁵.
    even = torch.mul(b, b, out=whole.view(torch.float64)).mul_(-0.5).add_(1.0).mul_(u)
    odd = b.mul_(u)
    torch.mul(c, even, out=out[:count]).addcmul_(s, odd, value=-1.0)
    torch.mul(s, even, out=out[count:]).addcmul_(c, odd)
    return rare


def _chacha_normals(head: Tensor, cos_table: Tensor, sin_table: Tensor, pairs: int) -> tuple[Tensor, Tensor]:
    """The same on the device of `head`, with which pairs are to be drawn anew."""
    bits = chacha(head, 4 * pairs).view(torch.int64)
    u = bits[:pairs].double().abs() * 2.0**-63
    radius = (u.log() * -2.0).sqrt()
    angle = bits[pairs:]
    b = (angle & (2**48 - 1)).double() * (2.0 * math.pi * 2.0**-64) - math.pi * 2.0**-16
    place = (angle >> 48) + (1 << 15)
    c, s = cos_table[place], sin_table[place]
    even, odd = (1.0 - 0.5 * b * b) * radius, b * radius
    return torch.cat([c * even - s * odd, s * even + c * odd]), (u < LOW) | (u > HIGH)


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


def _held(name: str, count: int) -> Tensor:
    return torch.frombuffer(_scratch(name, 8 * _PAIRS), dtype=torch.float64, count=count)


class NoiseAhead:
    """The noise of a grant, step by step, in float64; the next step's is drawn on a second thread meanwhile.

    What `take(step)` holds depends on the key, the step and the kind of device alone. It may be written to and is valid
    until the next call but one. For a GPU, little noise is drawn on the CPU and copied (it costs the GPU nothing), much
    of it on the GPU.
    """

    def __init__(self, count: int, key: bytes, scale: float, device: torch.device) -> None:
        self._key, self._scale, self._count = key, scale, count
        cuda = device.type == "cuda"
        self._on_gpu = cuda and count > _COPIED
        self._out = [torch.empty(count, dtype=torch.float64, device=device) for _ in "ab"]
        copied = cuda and not self._on_gpu
        self._drawn = [torch.empty(count, dtype=torch.float64, pin_memory=True) for _ in "ab"] if copied else self._out
        self._ahead = Ahead(self._draw)

    def normals(self, step: int) -> Normals:
        """The numbers behind the noise of a step."""
        return Normals(self._key, step, self._count, cuda=self._on_gpu)

    def take(self, step: int, *, last: bool = False) -> Tensor:
        """scale · normals of `step`; unless it is the last one, that of the next step is begun."""
        # A GPU has a queue of its own: nothing to gain from a second thread.
        noise = self._draw(step) if self._on_gpu else self._ahead.take(step, last=last)
        out = self._out[step % 2]
        return out if noise is out else out.copy_(noise)

    def _draw(self, step: int) -> Tensor:
        return self.normals(step).fill_(self._drawn[step % 2], self._scale)
