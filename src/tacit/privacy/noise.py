"""Gaussian noise from a cipher: the one source of noise of every exit of the vault.

Guarantee: independent normals of the stated standard deviation, as unpredictable as the cipher of `cipher.py`; the
tail is not cut (the radius has 62 random bits: 9.3 sigma). Arithmetic is floating point: what that leaks about the
low-order bits of a sum is listed in the certificate as not accounted for.
"""

import math
import threading

import torch
from torch import Tensor

from tacit.gradients.fusion import fused
from tacit.privacy.ahead import Ahead
from tacit.privacy.cipher import chacha, chacha_head, words

CIPHER_CPU = "AES-256-CTR, Box-Muller, float32"
CIPHER_GPU = "ChaCha20, Box-Muller, float32"

_local = threading.local()
_RARE = 1 << 7  # a radius word below this gets 31 more bits: it happens once in 2²⁴
_COPIED = 1 << 21  # for a GPU: up to so many normals are drawn on the CPU
_CHUNK = 1 << 18  # pairs
_TURN = 2.0 * math.pi * 2.0**-32
_SECOND = 1 << 63  # where the additional bits lie; steps are counted below it


def gaussian_(out: Tensor, key: bytes, counter: int, std: float) -> Tensor:
    """Overwrite `out` with N(0, std²), independent for every element and every (key, counter)."""
    n = out.numel()
    half = (n + 1) // 2
    if out.is_cuda:
        heads = (chacha_head(key, counter, out.device), chacha_head(key, counter | _SECOND, out.device))
        return out.copy_(fused(_chacha_normals, any_size=True)(*heads, half)[:n].view(out.shape)).mul_(std)
    whole = out.dtype == torch.float32 and out.is_contiguous() and n == 2 * half
    flat = out.view(-1) if whole else torch.empty(2 * half)
    for start in range(0, half, _CHUNK):  # what is worked on stays in the cache
        _pairs(flat[2 * start : 2 * min(start + _CHUNK, half)], key, counter, 2 * start, std)
    return out if whole else out.copy_(flat[:n].view(out.shape))


def _pairs(out: Tensor, key: bytes, counter: int, first: int, std: float) -> None:
    """Box–Muller on the words from `first` on: half of them for radii, half for angles."""
    half = out.numel() // 2
    bits = words(key, counter, 2 * half, first, _scratch(8 * half))
    small = bits[:half] & 0x7FFFFFFF
    rare = int(small.min()) < _RARE
    radius = _uniform(small, words(key, counter | _SECOND, half, first) if rare else None)
    radius.log_().mul_(-2.0).sqrt_().mul_(std)
    angle = bits[half:].to(torch.float32).mul_(_TURN)
    torch.cos(angle, out=out[:half]).mul_(radius)
    torch.sin(angle, out=out[half:]).mul_(radius)


def _scratch(size: int) -> bytearray:
    """Memory of this thread that is used again: new pages at every step would cost more than the cipher."""
    held: bytearray | None = getattr(_local, "scratch", None)
    if held is None or len(held) < size:
        held = _local.scratch = bytearray(size)
    return held


def _uniform(small: Tensor, more: Tensor | None) -> Tensor:
    """31 random bits as a number in (0, 1]; the smallest get 31 bits more, or the tail would be cut at 6.6 sigma."""
    uniform = small.to(torch.float32)
    if more is None:
        return uniform.add_(1.0).mul_(2.0**-31)
    fraction = ((more & 0x7FFFFFFF).to(torch.float32) + 1.0) * 2.0**-31
    return torch.where(small < _RARE, uniform + fraction, uniform + 1.0) * 2.0**-31


def _chacha_normals(head: Tensor, second: Tensor, half: int) -> Tensor:
    """The same on the device of `head`; whether bits are rare is not asked there, it would cost a synchronisation."""
    bits = chacha(head, 2 * half)
    radius = (_uniform(bits[:half] & 0x7FFFFFFF, chacha(second, half)).log() * -2.0).sqrt()
    angle = bits[half:].to(torch.float32) * _TURN
    return torch.cat([torch.cos(angle) * radius, torch.sin(angle) * radius])


class NoiseAhead:
    """The noise of a grant, step by step; the next step's is drawn on a second thread meanwhile.

    What `take(step)` holds depends on the key, the step and the kind of device alone. The buffer may be written to and
    is valid until the next call but one. For a GPU, little noise is drawn on the CPU and copied (it costs the GPU
    nothing), much of it on the GPU.
    """

    def __init__(self, like: Tensor, key: bytes, std: float) -> None:
        self._key, self._std = key, std
        self._out = [torch.empty_like(like), torch.empty_like(like)]
        copied = like.is_cuda and like.numel() <= _COPIED
        self._drawn = (
            [torch.empty(like.shape, dtype=like.dtype, pin_memory=True) for _ in "ab"] if copied else self._out
        )
        self._ahead = Ahead(self._draw)

    def take(self, step: int, *, last: bool = False) -> Tensor:
        """The noise of `step`; unless it is the last one, that of the next step is begun."""
        on_gpu = self._drawn[0].is_cuda  # a queue of its own: nothing to gain from a second thread
        noise = self._draw(step) if on_gpu else self._ahead.take(step, last=last)
        out = self._out[step % 2]
        return out if noise is out else out.copy_(noise)

    def _draw(self, step: int) -> Tensor:
        return gaussian_(self._drawn[step % 2], self._key, step, self._std)
