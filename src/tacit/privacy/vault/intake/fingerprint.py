"""Fingerprints of work: hashes of everything that determines what a grant computes.

Formal guarantees
  * A charge is bound to the fingerprint of its work: plan, blocks, records, model, loss, public configuration. Other
    work cannot resume it, so the same noise is never added to two different sums.
  * `checksum` and `keyed_hash` detect a step that is repeated with other results or parameters. They protect against
    accidents, not against forgery.

Conditions: code that a function calls is not part of its fingerprint, only the function's own code, constants and
closed-over values. Fingerprints outlive releases of tacit: see `_home`.
"""

import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.data.stream import StreamInfo
from tacit.errors import VaultError
from tacit.gradients.compiled import compiled
from tacit.privacy.accounting.budget import Budget


def fingerprint(**parts: Any) -> str:
    """A hash of JSON values, modules (parameters, buffers, structure) and functions (name and code), by keyword."""
    body = json.dumps({name: _describe(part) for name, part in parts.items()}, sort_keys=True)
    return hashlib.sha256(body.encode()).hexdigest()


def described_map(through: nn.Module | None) -> dict[str, str]:
    """What a plan states about the feature map that an exit applies."""
    return {} if through is None else {"through": fingerprint(map=through)}


def with_reads(name: str, reads: Any) -> str:
    """A fingerprint whose second half depends on what is read alone; see `same_reads`."""
    return name[:32] + fingerprint(reads=reads)[:32]


def same_reads(one: str, other: str) -> bool:
    """Whether two fingerprints of `with_reads` are of work on the same reads."""
    return one[32:] == other[32:]


def checksum(result: Tensor) -> tuple[int, int]:
    """A fast sum over the bits of a tensor, and its size in bytes."""
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
    """A 32-bit multilinear hash of tensors.

    Two different sets of tensors collide with probability 2⁻³² over the secret, which holds a random 64-bit number for
    every 32 bits or fewer.
    """
    total = start = 0
    for tensor in tensors:
        bits = tensor.detach().reshape(-1).view(torch.int16 if tensor.itemsize == 2 else torch.int32)
        part, start = secret[start : start + len(bits)], start + len(bits)
        if len(part) != len(bits):
            raise VaultError(
                "the parameters have another size or type than when the grant was made; ask for a new grant"
            )
        total += int((bits * part).sum()) if bits.is_cuda else int(_products(bits.numpy(), part.numpy()))
    return (total >> 32) & 0xFFFFFFFF


@compiled()
def _products(bits: NDArray[np.signedinteger[Any]], secret: NDArray[np.int64]) -> np.int64:
    total = np.int64(0)
    for i in range(len(bits)):
        total += np.int64(bits[i]) * secret[i]
    return total


HASHED = (np.ndarray, np.generic, bytes, set, frozenset)
"""Types that `hashed_text` describes by their whole content, which `repr` may shorten or leave in any order."""


def hashed_text(value: Any) -> str:
    """Type, shape and a hash of the content of a value of `HASHED`."""
    if isinstance(value, set | frozenset):
        content = "\n".join(sorted(repr(item) for item in value)).encode()
        return f"{type(value).__name__} {hashlib.sha256(content).hexdigest()}"
    if isinstance(value, bytes):
        return f"bytes {hashlib.sha256(value).hexdigest()}"
    array = np.asarray(value)
    content = repr(array.tolist()).encode() if array.dtype.hasobject else np.ascontiguousarray(array).tobytes()
    return f"{array.dtype} {array.shape} {hashlib.sha256(content).hexdigest()}"


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
    if isinstance(part, HASHED):
        return hashed_text(part)
    if isinstance(part, Tensor):
        return tensor_hash(part)
    if isinstance(part, partial):
        return [_describe(part.func), _describe(part.args), _describe(part.keywords)]
    if inspect.ismethod(part):
        return [_describe(part.__func__), _owner(part.__self__)]
    if callable(part) and not hasattr(part, "__code__") and not isinstance(part, type):
        return [_home(type(part)), getattr(part, "__qualname__", ""), _owner(part)]
    if callable(part):
        return [_home(part), getattr(part, "__qualname__", type(part).__qualname__), _code(part)]
    if isinstance(part, Budget | StreamInfo):  # their `repr` is shorter than in the fingerprints of earlier ledgers
        return _all_fields(part)
    return repr(part)


def _all_fields(value: Budget | StreamInfo) -> str:
    """What a dataclass writes as its own `repr`."""
    shown = (f"{one.name}={getattr(value, one.name)!r}" for one in fields(value) if one.repr)
    return f"{type(value).__qualname__}({', '.join(shown)})"


def _home(thing: Any) -> str:
    """The module of a function or class.

    Of tacit's own modules only the first folder and the file name count, and a renamed file keeps the name under which
    ledgers first recorded it. So a fingerprint stays valid when code moves.
    """
    module: str = getattr(thing, "__module__", "")
    if not module.startswith("tacit."):
        return module
    _, room, *_, file = module.split(".")
    return f"tacit.{room}.{_EARLIER_NAMES.get(file, file)}"


_EARLIER_NAMES = {
    "inference": "asking",
    "projection": "projected",
    "per_task_models": "apart",
    "individual_filter": "meter",
    "held_out_tasks": "pool_held",
    "record_inputs": "tape",
    "autoencoder_classifier": "stacked",
}


def _owner(thing: Any) -> Any:
    """The class of an object, and the plain values, tensors and modules among its attributes."""
    if isinstance(thing, nn.Module | type):
        return _describe(thing)
    plain = (str, int, float, bool, type(None), Tensor, nn.Module, list, tuple, Mapping, *HASHED)
    attributes = getattr(thing, "__dict__", {}).items()
    return [
        type(thing).__qualname__,
        {name: _describe(value) for name, value in attributes if isinstance(value, plain)},
    ]


def _code(function: Any) -> Any:
    """A function's bytecode, the names it uses, its constants and defaults, and the values it closes over."""
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    closed = [cell.cell_contents for cell in (getattr(function, "__closure__", None) or ())]
    cells = ["itself" if value is function else _describe(value) for value in closed]
    constants = [_describe(c) if not hasattr(c, "co_code") else c.co_code.hex() for c in code.co_consts]
    defaults = _describe(getattr(function, "__defaults__", None))
    return [code.co_code.hex(), list(code.co_names), constants, defaults, cells]


def _settings(module: nn.Module) -> dict[str, Any]:
    """Plain attributes that `str` of a module may leave out, such as label smoothing."""
    return {k: v for k, v in vars(module).items() if v is None or isinstance(v, str | int | float | bool)}


def tensor_hash(tensor: Tensor) -> str:
    """SHA-256 of the bits of a tensor."""
    raw = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
    return hashlib.sha256(raw.numpy().tobytes()).hexdigest()


def state_hash(module: nn.Module) -> str:
    """SHA-256 of a module's parameters and buffers, and of which parameters are trainable."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor_hash(tensor).encode())
    for name, parameter in module.named_parameters():
        digest.update(f"{name}{parameter.requires_grad}".encode())
    return digest.hexdigest()
