"""The state that user code can write to: what a model, loss, rule or predictor reaches when it runs.

Formal guarantees: none. The checks that use it (`isolation.py`, `grant.py`) catch accidents, not hostile programs:
state in objects without attributes of their own (iterators, objects of extension modules) is not seen.

Reached are modules, tensors, numbers and containers, through closures, defaults, globals that a function names,
partials, bound methods and attributes. Objects of torch and of the vault are not looked into.
"""

import hashlib
import types
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.errors import VaultError
from tacit.privacy.vault.intake.fingerprint import HASHED, hashed_text

_CARRIERS = (Tensor, np.ndarray, int, float, complex)
_MOST = 20_000
"""Objects that are looked at."""
_LONGEST = 4096
_FOREIGN = ("torch", "numpy", "transformers", "builtins")
_INTERNAL = frozenset(vars(nn.Module())) - {"training"}


class Reached:
    """The state that some code reaches now.

    Args:
        code: Modules and functions; None is left out.
    """

    def __init__(self, *code: Any) -> None:
        self._tensors: list[tuple[str, Tensor, bool]] = []
        self._places: list[tuple[str, Any, dict[Any, Any], bool]] = []
        self._seen: dict[int, Any] = {}
        self._found: deque[tuple[str, Any, bool]] = deque((str(n), one, True) for n, one in enumerate(code))
        while self._found and len(self._seen) < _MOST:
            path, one, pinned = self._found.popleft()
            if id(one) not in self._seen and one is not None:
                self._seen[id(one)] = one
                self._look(path, one, pinned)

    def _look(self, path: str, one: Any, pinned: bool) -> None:
        if isinstance(one, Tensor):
            self._tensors.append((path, one, pinned))
        elif isinstance(one, nn.Module):
            own = {name: value for name, value in vars(one).items() if name not in _INTERNAL}
            self._place(f"{path}.{type(one).__name__}", vars(one), own, pinned)
            for kind in ("_parameters", "_buffers"):
                self._place(f"{path}.{type(one).__name__}.", vars(one)[kind], dict(vars(one)[kind]), pinned)
            self._found.extend((f"{path}.{name}", child, pinned) for name, child in one._modules.items())
        elif isinstance(one, types.FunctionType):
            if one.__module__ is not None and one.__module__.partition(".")[0] in _FOREIGN:
                return
            for name, cell in zip(one.__code__.co_freevars, one.__closure__ or (), strict=False):
                self._place(f"{path}.{name}", _Cell(cell), dict(_Cell(cell)), pinned)
            used = {name: one.__globals__[name] for name in one.__code__.co_names if name in one.__globals__}
            plain = {name: value for name, value in used.items() if _is_state(value, one)}
            self._place(f"{path}.{one.__name__}", one.__globals__, plain, pinned)
            self._found.append((path, [*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()], pinned))
        elif isinstance(one, types.MethodType):
            self._found.extend((path, part, pinned) for part in (one.__func__, one.__self__))
        elif isinstance(one, partial):
            self._found.extend((path, part, pinned) for part in (one.func, list(one.args), one.keywords))
        elif isinstance(one, dict | list | tuple) and len(one) <= _LONGEST:
            items = one.items() if isinstance(one, dict) else enumerate(one)
            self._place(path, one, dict(items), pinned)
        elif _is_looked_into(one, pinned):
            ours = _is_ours(one)  # learners, which change between one try and the next
            self._place(path, None if ours else vars(one), dict(vars(one)), pinned and not ours)

    def _place(self, path: str, place: Any, values: dict[Any, Any], pinned: bool) -> None:
        self._places.append((path, place, values, pinned))
        self._found.extend((f"{path}.{name}", value, pinned) for name, value in values.items())

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restores what was written inside it, and refuses the code that wrote it. Parameters are not copied: one that
        was written is set to zero.

        Raises:
            VaultError: Something was written.
        """
        kept = [
            (path, tensor, None if isinstance(tensor, nn.Parameter) else tensor.detach().clone(), _version(tensor))
            for path, tensor, _ in self._tensors
            if tensor.layout == torch.strided
        ]
        try:
            yield
        except BaseException:
            self._restore(kept)
            raise
        if written := self._restore(kept):
            owner, _, name = written.replace("..", ".").rpartition(".")
            raise VaultError(
                f"{owner.rpartition('.')[2] or 'this code'} writes to its buffer {name!r} when it runs and would carry "
                "records out of the vault; put it in eval mode or use a layer without running statistics"
            )

    def _restore(self, kept: list[tuple[str, Tensor, Tensor | None, int]]) -> str:
        """Puts everything back; returns the path of something that was written, or an empty text."""
        written = ""
        for path, place, values, _ in self._places:
            if place is not None and (name := _changed(place, values)) is not None:
                written = f"{path}.{name}"
                _put_back(place, values)
        for path, tensor, before, version in kept:
            if (_version(tensor) != version) if before is None else not _same_bits(tensor, before):
                written = path
                with torch.no_grad():
                    tensor.zero_() if before is None else tensor.copy_(before)
        return written

    def marks(self) -> tuple[Any, ...]:
        """Changes with most writes; cheap."""
        tensors = [
            (path, tensor.data_ptr(), _version(tensor)) for path, tensor, _ in self._tensors if _is_fixed(tensor)
        ]
        return (*tensors, *self._plain())

    def keyed_hash(self, key: bytes) -> int:
        """A keyed 31-bit hash, never 0, of all tensors but trainable parameters, and of all plain values."""
        total = hashlib.blake2b(key=key, digest_size=4)
        for path, tensor, pinned in self._tensors:
            if pinned and _is_fixed(tensor):
                total.update(f"{path}{tuple(tensor.shape)}{tensor.dtype}".encode())
                total.update(_bits(tensor).cpu().numpy().data)
        total.update(repr(self._plain()).encode())
        return int.from_bytes(total.digest(), "big") % (2**31 - 1) + 1

    def _plain(self) -> list[tuple[str, Any]]:
        return [
            (f"{path}.{name}", plain)
            for path, _, values, pinned in self._places
            for name, value in values.items()
            if pinned and (plain := _as_plain(value)) is not None
        ]


def _as_plain(value: Any) -> bool | int | float | complex | str | None:
    """The value, or a hash of its content; None for what is neither plain nor hashed."""
    if isinstance(value, HASHED):
        return hashed_text(value)
    if isinstance(value, bool | int | float | complex | str):
        return value
    if isinstance(value, list | tuple) and len(value) > _LONGEST:  # its items are not looked at one by one
        return hashlib.sha256("\n".join(map(repr, value)).encode()).hexdigest()
    return None


def unchanged(*code: Any) -> Any:
    """A context that restores and refuses what modules and functions write inside it; see `Reached.restored`."""
    return Reached(*code).restored()


class _Cell(MutableMapping[str, Any]):
    """The content of a closure's cell, under one name."""

    def __init__(self, cell: types.CellType) -> None:
        self._cell = cell

    def __getitem__(self, name: str) -> Any:
        return self._cell.cell_contents

    def __setitem__(self, name: str, value: Any) -> None:
        self._cell.cell_contents = value

    def __delitem__(self, name: str) -> None:
        del self._cell.cell_contents

    def __iter__(self) -> Iterator[str]:
        try:
            self._cell.cell_contents  # noqa: B018
        except ValueError:  # it is empty
            return
        yield "content"

    def __len__(self) -> int:
        return len(list(iter(self)))


def _is_state(value: Any, function: Callable[..., Any]) -> bool:
    """Whether a global that a function names may hold state: not what it imports."""
    if isinstance(value, types.FunctionType):
        return value.__globals__ is function.__globals__
    return isinstance(value, (nn.Module, list, dict, *_CARRIERS))


def _is_looked_into(one: Any, pinned: bool) -> bool:
    """Whether an object's attributes are reached. Beyond a learner only what belongs to learners is."""
    home = type(one).__module__
    if isinstance(one, type | types.ModuleType) or home.startswith("tacit.privacy.") or not hasattr(one, "__dict__"):
        return False
    if not pinned and (not _is_ours(one) or home.startswith("tacit.experiment.")):
        return False
    return home.partition(".")[0] not in _FOREIGN


def _is_ours(one: Any) -> bool:
    return any(base.__module__.startswith("tacit.") for base in type(one).__mro__)


def _changed(place: Any, values: dict[Any, Any]) -> Any:
    """The name of a tensor or number that is not what it was."""
    now = dict(enumerate(place)) if isinstance(place, list | tuple) else place
    names = [*values, *(() if len(now) == len(values) or "__builtins__" in now else set(now) - set(values) - _INTERNAL)]
    for name in names:
        before, after = values.get(name), now.get(name) if name in now else None
        if before is not after and (isinstance(before, _CARRIERS) or isinstance(after, _CARRIERS)):
            return name
    return None


def _put_back(place: Any, values: dict[Any, Any]) -> None:
    if isinstance(place, list):
        place[:] = values.values()
        return
    if isinstance(place, dict) and "__builtins__" not in place:
        for name in set(place) - set(values) - _INTERNAL:
            del place[name]
    for name, value in values.items():
        place[name] = value


def _is_fixed(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and not (isinstance(tensor, nn.Parameter) and tensor.requires_grad)


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().resolve_conj().contiguous().view(-1).view(torch.uint8)


def _same_bits(tensor: Tensor, before: Tensor) -> bool:
    same = tensor.shape == before.shape and tensor.dtype == before.dtype and tensor.device == before.device
    return same and torch.equal(_bits(tensor), _bits(before))
