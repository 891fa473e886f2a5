"""Comparison of the recorded gradients with plain autograd, once for each Clipper, so that no hook fails silently.

On a few examples, the unclipped sum of every parameter and the norm of every example's gradient are compared with what
autograd computes from the same forward pass. The second comparison detects what the first cannot: examples in another
dimension than the first give the right sum and wrong norms.

Whether it raises depends on the examples, so the vault calls it with synthetic ones only (`Clipper.verify`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tacit.errors import UnsupportedModel
from tacit.gradients.record_inputs import Loss, Site, Use, differentiate, record
from tacit.gradients.rows import Rows

EXAMPLES = 4
FLOOR = 1e-5  # of the whole gradient: below it a parameter's gradient is rounding (a bias before a normalisation)
VANISHING = 1e-7
"""Norms below it are not compared: where numbers underflow, as they do with a saturated loss, the norms of recorded
rows are rounded up by up to 1e-10."""
RANDOM = (0.05, 0.3)
"""Standard deviations of the parameters that are tried where gradients vanish under the model's own."""


def agrees(
    model: nn.Module,
    loss: Loss,
    x: Tensor,
    y: Tensor,
    sites: Sequence[Site],
    rows_of: Callable[[list[Use], int], dict[str, Rows]],
) -> bool | None:
    """Whether the rows of every parameter are right.

    Returns:
        False: there are too few finite examples to tell. None: right so far, but some gradient vanishes, which it
        would by a wrong rule too (layers under a head that starts at zero).

    Raises:
        UnsupportedModel: If the rows of a parameter are wrong.
    """
    x, y = x[:EXAMPLES].detach().requires_grad_(x.requires_grad), y[:EXAMPLES]
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):  # dropout's coins are spent twice otherwise
        for _ in range(2):
            losses, uses = record(sites, model, loss, x, y)
            differentiate(losses, uses, keep_graph=True)
            with torch.no_grad():
                rows = rows_of(uses, len(x))
                with torch.autocast(x.device.type, enabled=False):
                    squared = {name: r.plain_squares() for name, r in rows.items()}
            fine = losses.detach().isfinite()
            for norms in squared.values():
                fine &= norms.isfinite()
            if bool(fine.all()):
                break
            x, y = x.detach()[fine].requires_grad_(x.requires_grad), y[fine]
            if not len(x):
                return False
    told = _compare(losses, trained, rows, squared)
    return (told or None) if len(x) > 1 else False


def _compare(
    losses: Tensor, trained: Mapping[str, Tensor], rows: Mapping[str, Rows], squared: Mapping[str, Tensor]
) -> bool:
    """Whether every gradient was there to be compared."""
    if not losses.requires_grad:
        return True
    each = [_gradients(losses, i, trained) for i in range(len(losses))]
    lengths = {name: [float(g[name].norm()) for g in each] for name in trained}
    whole = max(sum(values) for values in lengths.values())
    tolerance = _tolerance(losses)
    totals = _backward(losses, trained)
    for name, parameter in trained.items():
        found = torch.zeros_like(parameter, requires_grad=False)
        if name in rows:
            with torch.no_grad(), torch.autocast(parameter.device.type, enabled=False):
                found = rows[name].dense().sum(0).to(parameter.dtype).view_as(parameter)
            bound = tolerance * sum(lengths[name]) + FLOOR * whole
        else:
            bound = 0.0  # no hook fired for it: then autograd must find nothing at all
        if not float((found - totals[name]).norm()) <= bound:
            raise UnsupportedModel(
                f"the gradient of {name!r} is not what its layer saw, so it is used outside its module's forward "
                "or drawn at random; call the module itself (not F.linear on its weight), with the examples first "
                "(batch_first=True) and without checkpointing"
            )
        if name in rows:
            norms = squared[name].clamp(min=0).sqrt().tolist()
            for mine, true in zip(norms, lengths[name], strict=True):
                if not abs(mine - true) <= tolerance * max(lengths[name]) + FLOOR * whole + FLOOR * VANISHING:
                    raise UnsupportedModel(
                        f"the layer of {name!r} does not have the examples in the first dimension of its input; "
                        "keep them there (batch_first=True)"
                    )
    return all(max(values) > VANISHING for values in lengths.values())


@contextmanager
def random_parameters(model: nn.Module, std: float) -> Iterator[None]:
    """Inside it, all trained parameters are random numbers, the same in every call; on exit they are as they were."""
    before = {p: p.data for p in model.parameters() if p.requires_grad}
    generator = torch.Generator().manual_seed(0)
    try:
        for p in before:
            p.data = (std * torch.randn(p.shape, generator=generator)).to(p)
        yield
    finally:
        for p, values in before.items():
            p.data = values


def _gradients(losses: Tensor, example: int, trained: Mapping[str, Tensor]) -> dict[str, Tensor]:
    only = torch.zeros_like(losses)
    only[example] = 1.0
    found = torch.autograd.grad(losses, list(trained.values()), only, retain_graph=True, allow_unused=True)
    pairs = zip(trained, found, trained.values(), strict=True)
    return {name: torch.zeros_like(p) if g is None else g.detach() for name, g, p in pairs}


def _backward(losses: Tensor, trained: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The gradient of the summed loss by the way every trainer takes, `backward()`, which also sees what custom
    functions (checkpointing) put into `.grad` behind the graph's back. The parameters' own `.grad` are put back."""
    before = {name: p.grad for name, p in trained.items()}
    try:
        for p in trained.values():
            p.grad = None
        torch.autograd.backward(losses, torch.ones_like(losses), retain_graph=True)
        return {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in trained.items()}
    finally:
        for name, p in trained.items():
            p.grad = before[name]


def _tolerance(losses: Tensor) -> float:
    if losses.dtype == torch.float64:
        return 1e-6
    low = losses.dtype != torch.float32 or torch.is_autocast_enabled(losses.device.type)
    return 0.1 if low else 2e-3
