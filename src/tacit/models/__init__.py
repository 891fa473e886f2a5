"""Networks that can be trained privately: plain PyTorch, no BatchNorm, every example by itself.

`build("mlp", shape, classes)` makes one by its name; a module of your own does as well. Names, shapes and numbers of
classes are public facts of a stream, never read from records.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from tacit.errors import ConfigError
from tacit.models.convolutional import cnn, cnn1d, cnn_patches, har_cnn
from tacit.models.dense import linear, mlp, tabular_mlp
from tacit.models.residual import reduced_resnet18, resnet18_lai

__all__ = [
    "NETWORKS",
    "build",
    "cnn",
    "cnn1d",
    "cnn_patches",
    "har_cnn",
    "linear",
    "mlp",
    "reduced_resnet18",
    "resnet18_lai",
    "tabular_mlp",
]

NETWORKS: Mapping[str, Callable[..., nn.Module]] = {
    made.__name__: made
    for made in (linear, mlp, tabular_mlp, cnn, cnn_patches, reduced_resnet18, resnet18_lai, har_cnn, cnn1d)
}
"""Every network by its name: a function of (shape of one record, number of classes, options)."""


def build(name: str, shape: Sequence[int], classes: int, **options: Any) -> nn.Module:
    """The network of this name for records of this shape, initialised by torch's generator.

    A wrong name, option or shape is refused in one sentence that names what would be right.
    """
    if name not in NETWORKS:
        raise ConfigError(f"there is no network {name!r}; did you mean {_nearest(name, NETWORKS)!r}? {_list(NETWORKS)}")
    make = NETWORKS[name]
    known = [key for key, one in inspect.signature(make).parameters.items() if one.kind is one.KEYWORD_ONLY]
    for key in options:
        if key not in known:
            way_out = f"did you mean {_nearest(key, known)!r}? {_list(known)}" if known else "it has none"
            raise ConfigError(f"{name} has no option {key!r}; {way_out}")
    return make(shape, classes, **options)


def _nearest(name: str, names: Sequence[str] | Mapping[str, object]) -> str:
    return difflib.get_close_matches(str(name), list(names), n=1, cutoff=0.0)[0]


def _list(names: Sequence[str] | Mapping[str, object]) -> str:
    return f"(known: {', '.join(names)})"
