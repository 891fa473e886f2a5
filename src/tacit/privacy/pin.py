"""The hash of a piece of work: what a grant was billed for, so that it cannot serve for anything else (rule 14)."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


def pin(**parts: Any) -> str:
    """A hash of JSON values, modules (parameters, buffers and layout) and functions (name and code)."""
    body = json.dumps({name: _describe(part) for name, part in parts.items()}, sort_keys=True)
    return hashlib.sha256(body.encode()).hexdigest()


def checksum(parameters: list[Tensor]) -> tuple[int, int]:
    """Two fast sums over the bits of the parameters; any change by an update changes them."""
    first = second = 0
    for place, parameter in enumerate(parameters, start=1):
        bits = parameter.detach().view(
            torch.uint8 if parameter.element_size() not in (2, 4, 8) else _BITS[parameter.element_size()]
        )
        total = int(bits.sum(dtype=torch.int64))
        first = (first + total) % _MODULUS
        second = (second + place * total + parameter.numel()) % _MODULUS
    return first, second


_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_MODULUS = (1 << 61) - 1


def _describe(part: Any) -> Any:
    if isinstance(part, nn.Module):
        return [str(part), state_hash(part)]
    if isinstance(part, Mapping):
        return {str(key): _describe(value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [_describe(item) for item in part]
    if part is None or isinstance(part, str | int | float | bool):
        return part
    if callable(part):
        code = getattr(part, "__code__", None)
        body = hashlib.sha256(code.co_code + repr(code.co_consts).encode()).hexdigest() if code else ""
        return [getattr(part, "__module__", ""), getattr(part, "__qualname__", type(part).__qualname__), body]
    return repr(part)


def state_hash(module: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    for name, parameter in module.named_parameters():
        digest.update(f"{name}{parameter.requires_grad}".encode())
    return digest.hexdigest()
