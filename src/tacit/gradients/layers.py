"""Rules for per-example gradients of the parameters of each kind of layer.

A rule gets the layer, its input `a` and the gradient `b` of the summed loss with respect to its output, both with
the examples in the first dimension. It returns rows for each of the `wanted` parameters.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.gradients.compiled import can_fuse, fused
from tacit.gradients.convolution import weight_rows
from tacit.gradients.interval_layers import (
    CopiesConv2d,
    CopiesLinear,
    IntervalConv2d,
    IntervalLinear,
    WorstCase,
    convolution_rows,
    copies_convolution_rows,
    copies_linear_rows,
    linear_rows,
    worst_case_rows,
)
from tacit.gradients.rows import Dense, Indexed, Rows, wide
from tacit.gradients.sequence import Outer, Tokens

CHUNK = 64  # examples
Rule = Callable[[nn.Module, Tensor, Tensor, Collection[str]], dict[str, Rows]]


def linear(layer: nn.Module, a: Tensor, b: Tensor, wanted: Collection[str]) -> dict[str, Rows]:
    """y = x Wᵀ + c. The gradient of W is Σ_t b_t a_tᵀ, that of c is Σ_t b_t, over the middle dimensions t."""
    rows: dict[str, Rows] = {}
    if a.dim() > 3:
        a, b = a.flatten(1, -2), b.flatten(1, -2)
    bias = Dense(b if b.dim() == 2 else _sum(b, 1)) if b.dim() == 2 or "bias" in wanted else None
    if "weight" in wanted:
        rows["weight"] = Outer(a, bias) if bias is not None and a.dim() == 2 else Tokens(a, b)
    if "bias" in wanted and bias is not None:
        rows["bias"] = bias
    return rows


def convolution(layer: nn.Module, a: Tensor, b: Tensor, wanted: Collection[str]) -> dict[str, Rows]:
    assert isinstance(layer, nn.Conv1d | nn.Conv2d)
    rows: dict[str, Rows] = {}
    if "weight" in wanted:
        rows["weight"] = weight_rows(layer, a, b)
    if "bias" in wanted:
        rows["bias"] = Dense(_sum(b.flatten(2), 2))
    return rows


def group_norm(layer: nn.Module, a: Tensor, b: Tensor, wanted: Collection[str]) -> dict[str, Rows]:
    assert isinstance(layer, nn.GroupNorm)
    normal = partial(F.group_norm, a, layer.num_groups, None, None, layer.eps)
    return _scale_shift(normal, b.flatten(2) if b.dim() > 2 else b.unsqueeze(2), 2, wanted)


def layer_norm(layer: nn.Module, a: Tensor, b: Tensor, wanted: Collection[str]) -> dict[str, Rows]:
    assert isinstance(layer, nn.LayerNorm)
    places = b.reshape(b.shape[0], -1, layer.weight.numel())
    if a.is_cuda and can_fuse():
        both = _in_chunks(a.reshape(places.shape), places, layer.eps)
        return {name: Dense(rows) for name, rows in zip(("weight", "bias"), both, strict=True) if name in wanted}
    normal = partial(F.layer_norm, a, list(layer.normalized_shape), None, None, layer.eps)
    return _scale_shift(normal, places, 1, wanted)


def _in_chunks(a: Tensor, b: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The fused kernel on chunks of one size, whatever the batch; what is left over without it."""
    whole = len(a) - len(a) % CHUNK
    parts = [
        fused(_layer_norm_sums, any_size=False)(a[i : i + CHUNK], b[i : i + CHUNK], eps) for i in range(0, whole, CHUNK)
    ]
    if whole < len(a):
        parts.append(_layer_norm_sums(a[whole:], b[whole:], eps))
    return torch.cat([weight for weight, _ in parts]), torch.cat([bias for _, bias in parts])


def _layer_norm_sums(a: Tensor, b: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Σ b∘n and Σ b over the places, for one kernel that reads `a` and `b` and writes no tensor of their size."""
    a, b = a.float(), b.float()
    mean = a.mean(2, keepdim=True)
    scale = torch.rsqrt((a - mean).square().mean(2, keepdim=True) + eps)
    return (b * ((a - mean) * scale)).sum(1), b.sum(1)


def batch_norm(layer: nn.Module, a: Tensor, b: Tensor, wanted: Collection[str]) -> dict[str, Rows]:
    """Only with frozen statistics: then it is a scale and a shift of each example by itself."""
    assert isinstance(layer, nn.modules.batchnorm._BatchNorm)
    normal = partial(F.batch_norm, a, layer.running_mean, layer.running_var, None, None, False, 0.0, layer.eps)
    return _scale_shift(normal, b.flatten(2) if b.dim() > 2 else b.unsqueeze(2), 2, wanted)


def embedding(layer: nn.Module, a: Tensor, b: Tensor, wanted: Collection[str]) -> dict[str, Rows]:
    assert isinstance(layer, nn.Embedding)
    # The padding line is never trained.
    index = a if layer.padding_idx is None else torch.where(a == layer.padding_idx, -1, a)
    b = b.reshape(a.shape[0], -1, layer.embedding_dim)
    return {"weight": Indexed(index.reshape(a.shape[0], -1), b, layer.num_embeddings)}


def rule_for(layer: nn.Module) -> Rule | None:
    """The analytic rule of this very type of layer; a subclass may compute anything, so it has none."""
    if "forward" in vars(layer) or not set(layer._parameters) <= {"weight", "bias"}:
        return None
    if isinstance(layer, nn.Conv1d | nn.Conv2d) and layer.padding_mode != "zeros":
        return None
    if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse):
        return None  # max_norm rewrites the weight in the forward pass, scale_grad_by_freq looks at the whole batch
    return RULES.get(type(layer))


RULES: Mapping[type[nn.Module], Rule] = {
    nn.Linear: linear,
    nn.modules.linear.NonDynamicallyQuantizableLinear: linear,
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    nn.GroupNorm: group_norm,
    nn.LayerNorm: layer_norm,
    nn.BatchNorm1d: batch_norm,
    nn.BatchNorm2d: batch_norm,
    nn.BatchNorm3d: batch_norm,
    nn.Embedding: embedding,
    IntervalLinear: linear_rows,
    IntervalConv2d: convolution_rows,
    WorstCase: worst_case_rows,
    CopiesLinear: copies_linear_rows,
    CopiesConv2d: copies_convolution_rows,
}


def _scale_shift(normal: Callable[[], Tensor], b: Tensor, places: int, wanted: Collection[str]) -> dict[str, Rows]:
    """y = w∘n + c with n = normal(): the gradient of w is Σ b∘n and that of c is Σ b, over dimension `places`."""
    rows: dict[str, Rows] = {}
    if "weight" in wanted:
        n = normal()
        if torch.promote_types(n.dtype, b.dtype) == n.dtype:  # n is ours: no third tensor of this size
            product = n.reshape(b.shape).mul_(b)
        else:
            product = b * n.reshape(b.shape)
        rows["weight"] = Dense(_sum(product, places))
    if "bias" in wanted:
        rows["bias"] = Dense(_sum(b, places))
    return rows


def _sum(t: Tensor, dim: int) -> Tensor:
    """A sum that is added up in float32 at least."""
    return t.sum(dim, dtype=torch.promote_types(t.dtype, torch.float32)) if t.shape[dim] != 1 else wide(t.squeeze(dim))
