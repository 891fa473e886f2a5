"""Weights that are written to a release, and loaded from one.

Public weights are not part of a release: below a `Backbone` only trained parameters are released, and the backbone's
key, which names its public weights and its preprocessing. Loading a release constructs the network again, with the
public weights; a backbone with another key is refused.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tacit.errors import LearnerError
from tacit.models.backbones import Backbone

State = dict[str, Tensor]

_KEY = "public backbone "


def trained(model: nn.Module) -> State:
    """A copy of the parameters that are trained."""
    return {name: value.detach().clone() for name, value in model.named_parameters() if value.requires_grad}


def put(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Set some of a model's parameters, in place."""
    with torch.no_grad():
        for name, value in state.items():
            model.get_parameter(name).copy_(value)


def under(tensors: Mapping[str, Tensor], prefix: str) -> State:
    """The tensors with this prefix, without the prefix."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def each(tensors: Mapping[str, Tensor], name: str, device: str) -> list[State]:
    """The states that were named `name.0.…`, `name.1.…` and so on, in their order."""
    count = len({one.split(".")[1] for one in tensors if one.startswith(f"{name}.")})
    return [{key: value.to(device) for key, value in under(tensors, f"{name}.{i}.").items()} for i in range(count)]


def released(model: nn.Module) -> State:
    """Non-public parameters and buffers, and the keys of public backbones."""
    public = _public(model)
    private_state = {
        name: value.detach().cpu().clone() for name, value in model.state_dict().items() if name not in public
    }
    return private_state | keys(model)


def load(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load the tensors that `released` returned for a model of the same structure."""
    check_keys(model, tensors)
    weights = {name: value for name, value in tensors.items() if not name.startswith(_KEY)}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    wrong = sorted({*missing} - _public(model)) + sorted(unexpected)
    if wrong:
        raise LearnerError(
            f"this release is not of this network: {wrong[0]!r} is in one of them only; give the network it was made of"
        )


def keys(model: nn.Module) -> State:
    """The keys of a model's public backbones, as bytes."""
    return {_KEY + path: torch.tensor(list(key.encode()), dtype=torch.uint8) for path, key in _backbones(model).items()}


def check_keys(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Raise a LearnerError if the release has another backbone. The paths of its files are ignored."""
    stored = {path: bytes(key.tolist()).decode() for path, key in under(tensors, _KEY).items()}
    here = _backbones(model)
    if {path: _placeless(key) for path, key in stored.items()} != {path: _placeless(key) for path, key in here.items()}:
        listed = [", ".join(map(repr, one.values())) or "no public backbone" for one in (stored, here)]
        raise LearnerError(f"this release was made with {listed[0]} and this learner has {listed[1]}; use the same one")


def _placeless(key: str) -> str:
    """A key without its name, which may be a path; the rest identifies weights, code and preprocessing."""
    return re.sub(r"^.* (?=[0-9a-f]{16} )", "", key)


def _backbones(model: nn.Module) -> dict[str, str]:
    """Path → key of the public backbones in a model."""
    return {path: module.key for path, module in model.named_modules() if isinstance(module, Backbone)}


def _public(model: nn.Module) -> set[str]:
    """Names of the weights and buffers below public backbones that are not trained."""
    paths = tuple(f"{path}." if path else "" for path in _backbones(model))
    trainable = {id(value) for value in model.parameters() if value.requires_grad}
    named = model.state_dict(keep_vars=True)
    return {name for name, value in named.items() if name.startswith(paths) and id(value) not in trainable}
