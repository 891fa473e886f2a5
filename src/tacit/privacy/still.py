"""Passes over private records leave nothing behind in a module, and their dice can be thrown again.

Guarantee: after `unchanged`, every buffer of the modules is what it was; a module that wrote one (running statistics
are raw sums of records) is put back and refused. Inside `dice`, torch's generators start from a secret seed of the
step, whatever the module is, so that a step with dropout or a noise layer gives the same result when it is redone after
a crash. The seed must be secret: the coins of a row depend on its place in the batch, so with known coins one record
more or less would change the gradients of others.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn

from tacit.errors import VaultError


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
    """Around a step: what is random in it draws from a seed of (key, step), and the caller's generators stay as they
    are. For every module: whether one throws dice (RReLU, a function's dropout, a skipped block) cannot be seen."""
    devices = sorted({t.device.index or 0 for t in chain(module.parameters(), module.buffers()) if t.is_cuda})
    seed = int.from_bytes(key[:8], "big") + step
    with torch.random.fork_rng(devices=devices):
        # One by one: torch.manual_seed would also leave the seed in the generators of devices that are not put back.
        for generator in (torch.default_generator, *(torch.cuda.default_generators[device] for device in devices)):
            generator.manual_seed(seed)
        yield
