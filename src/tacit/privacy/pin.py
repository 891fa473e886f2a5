"""The hash of a piece of work: what a grant was billed for, so that it cannot serve for anything else (rule 14)."""

import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.errors import VaultError
from tacit.gradients.compiled import compiled


def pin(**parts: Any) -> str:
    """A hash of JSON values, modules (parameters, buffers and layout) and functions (name and code)."""
    body = json.dumps({name: _describe(part) for name, part in parts.items()}, sort_keys=True)
    return hashlib.sha256(body.encode()).hexdigest()


def checksum(result: Tensor) -> tuple[int, int]:
    """A fast sum over the bits of a tensor, and its size: another gradient under the same noise changes it."""
    raw = result.detach().contiguous().view(-1).view(torch.uint8)
    even = raw.numel() - raw.numel() % 8
    words, rest = raw[:even].view(torch.int64), raw[even:]
    total = int(words.sum()) if words.is_cuda else int(_sum(words.numpy()))
    return total ^ int.from_bytes(bytes(rest.tolist()), "little"), raw.numel()


@compiled()
def _sum(words: NDArray[np.int64]) -> np.int64:
    total = np.int64(0)
    for i in range(len(words)):
        total += words[i]
    return total


def keyed_hash(tensors: Iterable[Tensor], secret: Tensor) -> int:
    """32 bits that depend on every bit of the tensors: two different sets of tensors share them with a chance of 2⁻³²
    over the secret, a random 64-bit number for every 32 bits or fewer (multilinear hashing)."""
    total = place = 0
    for tensor in tensors:
        bits = tensor.detach().reshape(-1).view(torch.int16 if tensor.itemsize == 2 else torch.int32)
        some, place = secret[place : place + len(bits)], place + len(bits)
        if len(some) != len(bits):
            raise VaultError("the parameters have another size or type than when the grant was made; ask for a new one")
        total += int((bits * some).sum()) if bits.is_cuda else int(_products(bits.numpy(), some.numpy()))
    return (total >> 32) & 0xFFFFFFFF


@compiled()
def _products(bits: NDArray[np.signedinteger[Any]], secret: NDArray[np.int64]) -> np.int64:
    total = np.int64(0)
    for i in range(len(bits)):
        total += np.int64(bits[i]) * secret[i]
    return total


def _describe(part: Any) -> Any:
    if isinstance(part, nn.Module):
        settings = [[name, _settings(module)] for name, module in part.named_modules()]
        return [str(part), settings, state_hash(part)]
    if isinstance(part, Mapping):
        return {str(key): _describe(value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [_describe(item) for item in part]
    if part is None or isinstance(part, str | int | float | bool):
        return part
    if isinstance(part, Tensor):
        return tensor_hash(part)
    if isinstance(part, partial):
        return [_describe(part.func), _describe(part.args), _describe(part.keywords)]
    if inspect.ismethod(part):
        return [_describe(part.__func__), _owner(part.__self__)]
    if callable(part) and not hasattr(part, "__code__") and not isinstance(part, type):
        return [type(part).__module__, getattr(part, "__qualname__", ""), _owner(part)]
    if callable(part):
        return [getattr(part, "__module__", ""), getattr(part, "__qualname__", type(part).__qualname__), _code(part)]
    return repr(part)


def _owner(thing: Any) -> Any:
    """The plain values, tensors and modules that an object holds: two objects of one class are not the same work."""
    if isinstance(thing, nn.Module | type):
        return _describe(thing)
    plain = (str, int, float, bool, type(None), Tensor, nn.Module, list, tuple, Mapping)
    held = {
        name: _describe(value) for name, value in getattr(thing, "__dict__", {}).items() if isinstance(value, plain)
    }
    return [type(thing).__qualname__, held]


def _code(function: Any) -> Any:
    """What a function computes: its code, the names it uses, its defaults, and the values it closed over."""
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    closed = [cell.cell_contents for cell in (getattr(function, "__closure__", None) or ())]
    cells = ["itself" if value is function else _describe(value) for value in closed]
    constants = [_describe(c) if not hasattr(c, "co_code") else c.co_code.hex() for c in code.co_consts]
    return [
        code.co_code.hex(),
        list(code.co_names),
        constants,
        _describe(getattr(function, "__defaults__", None)),
        cells,
    ]


def _settings(module: nn.Module) -> dict[str, Any]:
    """What `str` may leave out, such as label smoothing."""
    return {k: v for k, v in vars(module).items() if v is None or isinstance(v, str | int | float | bool)}


def tensor_hash(tensor: Tensor) -> str:
    """SHA-256 of the bits of a tensor."""
    raw = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
    return hashlib.sha256(raw.numpy().tobytes()).hexdigest()


def state_hash(module: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor_hash(tensor).encode())
    for name, parameter in module.named_parameters():
        digest.update(f"{name}{parameter.requires_grad}".encode())
    return digest.hexdigest()
