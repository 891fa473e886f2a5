"""Rows of modules without a rule of their own: vector-Jacobian products per example, vectorised by torch.func.

The module is run again on its recorded inputs, so it must be a function of them: a module that draws random numbers or
changes its own state is refused.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from tacit.errors import UnsupportedModel
from tacit.gradients.record_inputs import Use
from tacit.gradients.rows import Dense, Rows

Gradients = dict[str, Tensor]


def generic(use: Use, examples: int, roles: dict[str, list[bool]]) -> dict[str, Rows]:
    """Rows of all parameters that the site owns. `roles` remembers which inputs hold one line for each example."""
    module, name = use.site.module, use.site.name
    leaves, spec = tree_flatten((use.args, use.kwargs))
    leaves = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    batched = _batched(use, leaves, examples, roles)
    own = dict(module.named_parameters(remove_duplicate=False))
    wanted = {local: own[local].detach() for local in use.site.owned}
    used = [(i, g) for i, g in zip(use.outputs, use.gradients, strict=True) if g is not None]

    def one(lines: list[Tensor], gradients: list[Tensor]) -> Gradients:
        """The gradient of one example: `lines` are its inputs, `gradients` those of its outputs."""
        mine = iter(lines)
        full = [next(mine).unsqueeze(_axis(module, i)) if batched[i] else leaf for i, leaf in enumerate(leaves)]
        args, kwargs = tree_unflatten(full, spec)

        def run(parameters: Gradients) -> list[Tensor]:
            found = torch.func.functional_call(module, parameters, args, kwargs)
            outputs = [t for t in tree_leaves(found) if isinstance(t, Tensor)]
            return [outputs[i].squeeze(_axis(module, i)).to(g.dtype) for i, g in used]

        pull = torch.func.vjp(run, wanted)[1]
        result: Gradients = pull(gradients)[0]
        return result

    lines = [leaf.movedim(_axis(module, i), 0) for i, leaf in enumerate(leaves) if batched[i]]
    with torch.no_grad():
        rows = _run(name, one, lines, [g.movedim(_axis(module, i), 0) for i, g in used])
    return {local: Dense(row) for local, row in rows.items()}


def _run(name: str, one: Callable[..., Gradients], lines: list[Tensor], gradients: list[Tensor]) -> Gradients:
    """All examples at once; one after the other where torch has no batching rule for what the module does."""
    try:
        together: Gradients = torch.func.vmap(one)(lines, gradients)
        return together
    except Exception as error:
        if "random" in str(error):
            raise _random(name) from None
    before = torch.get_rng_state()
    try:
        each = [one([t[i] for t in lines], [g[i] for g in gradients]) for i in range(gradients[0].shape[0])]
    except Exception as error:
        raise UnsupportedModel(
            f"torch.func cannot differentiate {name!r} for one example ({type(error).__name__}); "
            "build it from nn.Linear, nn.Conv2d, nn.GroupNorm, nn.LayerNorm or freeze it"
        ) from error
    if not torch.equal(before, torch.get_rng_state()):
        raise _random(name)
    return {local: torch.stack([row[local] for row in each]) for local in each[0]}


def _axis(module: nn.Module, place: int) -> int:
    """Where the examples are in input or output number `place`; torch's recurrent states have them second."""
    return 1 if isinstance(module, nn.RNNBase) and place > 0 else 0


def _batched(use: Use, leaves: list[Any], examples: int, roles: dict[str, list[bool]]) -> list[bool]:
    """Which inputs have one line for each example; decided on the first call, enforced afterwards."""
    module = use.site.module

    def fits(shape: torch.Size, place: int) -> bool:
        axis = _axis(module, place)
        return len(shape) > axis and shape[axis] == examples

    now = [isinstance(t, Tensor) and fits(t.shape, i) for i, t in enumerate(leaves)]
    known = roles.setdefault(use.site.name, now)
    outputs = zip(use.outputs, use.gradients, strict=True)
    if (
        not any(known)
        or len(known) != len(now)
        or any(k and not n for k, n in zip(known, now, strict=True))
        or not all(fits(g.shape, i) for i, g in outputs if g is not None)
    ):
        raise not_first(use)
    return known


def not_first(use: Use) -> UnsupportedModel:
    """The error for a module whose input or output does not have the examples in the first dimension."""
    return UnsupportedModel(
        f"{use.site.name!r} ({type(use.site.module).__name__}) does not have the examples in the first dimension "
        "of its input and output; keep them there (batch_first=True, expand shared inputs to the batch)"
    )


def _random(name: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"{name!r} draws random numbers inside a module that is run twice; set its dropout to 0 or move it out"
    )
