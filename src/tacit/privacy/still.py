"""Passes over private records leave nothing behind in a module, and their dice can be thrown again.

Guarantee: after `unchanged`, every buffer of the modules is what it was; a module that wrote one (running statistics
are raw sums of records) is put back and refused. Inside `dice`, torch's generators start from a secret seed of the
step, so that a step with dropout gives the same result when it is redone after a crash.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tacit.errors import VaultError


def frozen(through: nn.Module) -> None:
    """Refuse a feature map that is, wholly or in part, in training mode."""
    if any(module.training for module in through.modules()):
        raise VaultError("the feature map is in training mode; call .eval() on it, a map inside the vault is frozen")


def beside(module: object, rows: Tensor) -> Tensor:
    """The rows on the device of a module's parameters."""
    parameter = next(module.parameters(), None) if isinstance(module, nn.Module) else None
    return rows if parameter is None else rows.to(parameter.device)


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
    """Around a step: random layers draw from a seed of (key, step), and the caller's generators stay as they are."""
    if not any("drop" in type(one).__name__.lower() or getattr(one, "dropout", 0) for one in module.modules()):
        yield
        return
    devices = list({p.device.index or 0 for p in module.parameters() if p.is_cuda})
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(int.from_bytes(key[:8], "big") + step)
        yield
