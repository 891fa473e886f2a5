"""Checks before any gradient is computed: modules that mix examples, and unsupported models, are refused.

`check_independent` tests a model on synthetic inputs. `refuse_mixing` knows the modules of torch that mix examples.
Neither puts a value of a private record into an error message.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from tacit.errors import UnsupportedModel
from tacit.gradients.record_inputs import Loss, record

BatchNorm = nn.modules.batchnorm._BatchNorm
InstanceNorm = nn.modules.instancenorm._InstanceNorm


def mixers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The modules that mix examples in some mode."""
    return [(name, m) for name, m in model.named_modules() if isinstance(m, BatchNorm | InstanceNorm)]


def refuse_mixing(modules: Sequence[tuple[str, nn.Module]]) -> None:
    """Refuse statistics of the batch. Cheap: called before every pass, because `train()` can be called at any time."""
    for name, module in modules:
        if isinstance(module, InstanceNorm):
            if module.track_running_stats and module.training:
                raise UnsupportedModel(
                    f"{name!r} keeps running statistics of private examples; use track_running_stats=False"
                )
        elif isinstance(module, BatchNorm) and (module.training or module.running_mean is None):
            raise UnsupportedModel(
                f"{name!r} ({type(module).__name__}) mixes the examples of a batch; use nn.GroupNorm, "
                "or put it in eval mode with frozen statistics"
            )


def check_independent(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> None:
    """Refuses a model or a loss that treats an example differently because of the others in its batch.

    Tests the loss on synthetic inputs with the shapes and dtypes of x and y, drawn from a private generator. The global
    random state, the model's mode and its buffers are left as they were.

    Args:
        model: The model, in the mode in which it will be trained.
        loss: A function of the model's output and the targets that returns one loss per row.
        x: A batch of inputs, of which the shape, the dtype and, for integers, the largest value are used.
        y: Its targets, likewise.

    Raises:
        UnsupportedModel: The loss of one example depends on another example, or on how many there are; or the model
            keeps statistics of its inputs.
    """
    refuse_mixing(mixers(model))
    draw = torch.Generator().manual_seed(0x7AC17)
    n = max(2, min(len(x), 6))
    xs, ys = _synthetic(x, n, draw), _synthetic(y, n, draw)
    other_x, other_y = _synthetic(x, n, draw), _synthetic(y, n, draw)
    other_x[1:], other_y[1:] = xs[1:], ys[1:]

    before = {name: b.detach().clone() for name, b in model.named_buffers()}
    try:
        reference = _look(model, loss, xs, ys)
        changed_first = _look(model, loss, other_x, other_y)
        for name, buffer in model.named_buffers():
            if not torch.equal(buffer, before[name]):
                raise UnsupportedModel(
                    f"the forward pass writes to the buffer {name!r}, which would keep private statistics; "
                    "use eval mode or a layer without running statistics"
                )
        reseeded = _look(model, loss, xs, ys, seed=1)
        fewer = _look(model, loss, xs[1:], ys[1:]) if n > 1 else None
    finally:
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(before[name])
    if not _same([t[1:] for t in reference], [t[1:] for t in changed_first], 1e-5):
        raise UnsupportedModel(
            "the loss or output gradient of one example depends on another example; "
            "use layers and losses that treat each example by itself (no batch statistics, no mean over the batch)"
        )
    # A model with dropout gives other numbers to a smaller batch, which says nothing.
    if fewer is not None and _same(reference, reseeded, 1e-5) and not _same([t[1:] for t in reference], fewer, 1e-3):
        raise UnsupportedModel(
            "the loss of one example depends on how many examples are in the batch; "
            "use a loss that does not divide by the batch size (reduction='none')"
        )


def _look(model: nn.Module, loss: Loss, x: Tensor, y: Tensor, seed: int = 0) -> list[Tensor]:
    """Losses and output gradients, with a fixed seed for dropout."""
    recorded: list[Any] = []

    def watched(output: Any, target: Tensor) -> Tensor:
        recorded.append(output)
        return loss(output, target)

    devices = [x.device] if x.is_cuda else []
    with torch.random.fork_rng(devices=devices), torch.enable_grad():
        # One by one: torch.manual_seed also notes a stack trace for every kind of device that is not in use.
        torch.default_generator.manual_seed(seed)
        for device in devices:
            torch.cuda.default_generators[device.index].manual_seed(seed)
        losses, _ = record([], model, watched, x, y)
    outputs = [t for t in tree_leaves(recorded) if isinstance(t, Tensor) and t.requires_grad]
    output_gradients = (
        torch.autograd.grad(losses.sum(), outputs, allow_unused=True) if outputs and losses.requires_grad else ()
    )
    rows = [g for g in output_gradients if g is not None and g.dim() and g.shape[0] == x.shape[0]]
    return [losses.detach(), *rows]


def _same(some: Sequence[Tensor], other: Sequence[Tensor], tolerance: float) -> bool:
    if len(some) != len(other):
        return False
    for a, b in zip(some, other, strict=True):
        scale = float(a.abs().max()) if a.numel() else 0.0
        if a.shape != b.shape or not torch.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            return False
    return True


def _synthetic(t: Tensor, n: int, draw: torch.Generator) -> Tensor:
    """Random numbers of the shape and dtype of t; integers no larger than those of t, which index something."""
    shape = (n, *t.shape[1:])
    if t.dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=draw).bool().to(t.device)
    if t.is_floating_point() or t.is_complex():
        return torch.randn(shape, generator=draw).to(device=t.device, dtype=t.dtype)
    top = int(t.max()) + 1 if t.numel() else 1
    return torch.randint(0, max(top, 1), shape, generator=draw).to(device=t.device, dtype=t.dtype)
