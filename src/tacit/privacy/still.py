"""Passes over private records leave nothing behind in a module, and their dice can be thrown again.

Guarantee: after `unchanged`, every buffer of the modules is what it was; a module that wrote one (running statistics
are raw sums of records) is put back and refused. Inside `dice`, torch's generators start from a secret state of the
step, whatever the module is, so that a step with dropout or a noise layer gives the same result when it is redone after
a crash. The state must be secret: the coins of a row depend on its place in the batch, so with known coins one record
more or less would change the gradients of others.

On the CPU the whole state of the generator (19,937 bits of Mersenne Twister) comes from the cipher under a 256-bit key:
`manual_seed` would keep 32 bits of it. A CUDA generator is Philox with a 64-bit key, and has no larger one: there the
coins of a step have 64 secret bits. Neither generator is itself a cipher, and their outputs are not released.
"""

import hashlib
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn

from tacit.errors import VaultError
from tacit.privacy.cipher import words

_TWISTER = 624
"""Words of the state of Mersenne Twister."""


def frozen(through: nn.Module) -> None:
    """Refuse a feature map that is, wholly or in part, in training mode, or that is never twice the same."""
    if any(module.training for module in through.modules()):
        raise VaultError("the feature map is in training mode; call .eval() on it, a map inside the vault is frozen")
    if is_random(through):
        raise VaultError("the feature map has a noise layer; use one that gives a record the same features every time")


def is_random(module: nn.Module) -> bool:
    """Whether some layer throws dice in evaluation mode too, and says so by `throws_dice`."""
    return any(getattr(one, "throws_dice", False) for one in module.modules())


def beside(module: object, rows: Tensor) -> Tensor:
    """The rows on the device of a module's parameters, or of its buffers where it has none."""
    held = next(chain(module.parameters(), module.buffers()), None) if isinstance(module, nn.Module) else None
    return rows if held is None else rows.to(held.device)


@contextmanager
def unchanged(*modules: nn.Module | None) -> Iterator[None]:
    """Around user code that sees private records."""
    kept = [
        (owner, name, buffer, buffer._version, buffer.clone())
        for module in modules
        if module is not None
        for owner in module.modules()
        for name, buffer in owner._buffers.items()
        if buffer is not None
    ]
    try:
        yield
    finally:
        written = [one for one in kept if one[0]._buffers.get(one[1]) is not one[2] or one[2]._version != one[3]]
        for owner, name, buffer, _, before in written:
            with torch.no_grad():
                owner._buffers[name] = buffer.copy_(before)
        if written:
            raise VaultError(
                f"{type(written[0][0]).__name__} writes to its buffer {written[0][1]!r} when it runs and would carry "
                "records out of the vault; put it in eval mode or use a layer without running statistics"
            )


@contextmanager
def dice(module: nn.Module, key: bytes, step: int) -> Iterator[None]:
    """Around a step: what is random in it draws from a secret state of (key, step), and the caller's generators stay as
    they are. For every module: whether one throws dice (RReLU, a function's dropout, a skipped block) cannot be seen.
    """
    devices = sorted({t.device.index or 0 for t in chain(module.parameters(), module.buffers()) if t.is_cuda})
    own = hashlib.blake2b(b"coins of a module", key=key, digest_size=32).digest()
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.set_state(twister_state(own, step))
        # One by one: torch.manual_seed would also leave the seed in the generators of devices that are not put back.
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(philox_seed(own, step))
        yield


def twister_state(key: bytes, step: int) -> Tensor:
    """The state of torch's CPU generator at a step: every word of it from the cipher.

    torch keeps, as bytes: the seed (unused from here on), how many words are left before the next twist, whether it was
    seeded, the next place, the words (64 bits each, 32 in use), and normals that wait to be used (none)."""
    drawn = words(key, step, _TWISTER).to(torch.int64) & 0xFFFFFFFF
    head = struct.pack("<QiiQ", 0, 1, 1, 0)
    like = torch.default_generator.get_state()
    state = torch.zeros_like(like)
    body = head + drawn.numpy().astype("<u8").tobytes()
    state[: len(body)] = torch.frombuffer(bytearray(body), dtype=torch.uint8)
    return state


def philox_seed(key: bytes, step: int) -> int:
    """The key of a CUDA generator at a step: all of its 64 bits, from other words than those of the CPU's state."""
    drawn = words(key, step, 4, first=_TWISTER)
    return int.from_bytes(drawn[:2].numpy().tobytes(), "little")
