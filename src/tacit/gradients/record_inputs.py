"""A forward pass that records the inputs of the trained layers.

The hooks are removed when `record` returns or raises, and nothing is left on the module or its parameters.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils._pytree import tree_leaves

from tacit.errors import UnsupportedModel

Loss = Callable[[Any, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Site:
    """A module that owns trained parameters: `owned` maps their names in the module to their names in the model."""

    name: str
    module: nn.Module
    owned: Mapping[str, str]


@dataclass(slots=True)
class Use:
    """One call of a site's module: what went in, and the places of the graph where its outputs' gradients pass.

    Edges, not output tensors: an in-place activation would change which gradient belongs to the tensor.
    """

    site: Site
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    versions: list[int]
    edges: list[GradientEdge]
    outputs: list[int]  # which of the module's output tensors have an edge
    shapes: list[torch.Size]  # and their shapes
    gradients: list[Tensor | None] = field(default_factory=list)

    def check_inputs(self) -> None:
        """Inputs that were overwritten after the call would give another gradient, silently."""
        if [t._version for t in _tensors(self.args, self.kwargs)] != self.versions:
            raise UnsupportedModel(
                f"the input of {self.site.name!r} is overwritten in place after the layer has read it; "
                "use the out-of-place operation"
            )


def record(sites: Sequence[Site], model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> tuple[Tensor, list[Use]]:
    """Losses (B,) with their graph, and every use of the sites, in the order of the forward pass."""
    uses: list[Use] = []
    handles = []
    try:
        for site in sites:
            hook = _hook(site, uses)
            # First in line: a hook of the user may change the output, the layer's own output is what counts.
            handles.append(site.module.register_forward_hook(hook, with_kwargs=True, prepend=True))
        with torch.enable_grad():
            output = model(x)
            losses = loss(output, y)
    finally:
        for handle in handles:
            handle.remove()
    if not isinstance(losses, Tensor) or losses.shape != x.shape[:1]:
        # How many examples there are is private, so the sentence does not say.
        got = f"{losses.dim()} dimensions" if isinstance(losses, Tensor) else type(losses).__name__
        raise UnsupportedModel(f"the loss must be one value for each example, got {got}; use reduction='none'")
    return losses, uses


def differentiate(losses: Tensor, uses: Sequence[Use], *, keep_graph: bool = False) -> None:
    """One backward pass: fill in the gradient of the summed loss at the outputs of every use."""
    edges = [edge for use in uses for edge in use.edges]
    if not edges or not losses.requires_grad:
        return
    found = torch.autograd.grad(losses, edges, torch.ones_like(losses), keep_graph, allow_unused=True)
    start = 0
    for use in uses:
        use.gradients = list(found[start : start + len(use.edges)])
        start += len(use.edges)


def _hook(site: Site, uses: list[Use]) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Any], None]:
    def write_down(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        outputs = [output] if isinstance(output, Tensor) else [t for t in tree_leaves(output) if isinstance(t, Tensor)]
        which = [i for i, t in enumerate(outputs) if t.requires_grad]
        if which:
            versions = [t._version for t in _tensors(args, kwargs)]
            edges = [get_gradient_edge(outputs[i]) for i in which]
            uses.append(Use(site, args, kwargs, versions, edges, which, [outputs[i].shape for i in which]))

    return write_down


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    if len(args) == 1 and not kwargs and isinstance(args[0], Tensor):
        return [args[0]]
    return [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
