"""Networks that can be trained privately: plain PyTorch, no statistics of a batch, every example by itself.

`build("mlp", shape, classes)` makes one by its name; a module of your own does as well. Names, shapes and numbers of
classes are public facts of a stream, never read from records.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from tacit.models.adapters import pretrained
from tacit.models.convolutional import cnn, cnn1d, cnn_ignatov, cnn_patches, cnn_strided, har_cnn
from tacit.models.dense import linear, mlp, tabular_mlp
from tacit.models.interval import interval
from tacit.models.noisy import noisy
from tacit.models.parts import construct
from tacit.models.recurrent import bilstm
from tacit.models.residual import reduced_resnet18, resnet18_lai
from tacit.models.smoothed import smoothed

__all__ = [
    "NETWORKS",
    "bilstm",
    "build",
    "cnn",
    "cnn1d",
    "cnn_ignatov",
    "cnn_patches",
    "cnn_strided",
    "har_cnn",
    "interval",
    "linear",
    "mlp",
    "noisy",
    "pretrained",
    "reduced_resnet18",
    "resnet18_lai",
    "smoothed",
    "tabular_mlp",
]

NETWORKS: Mapping[str, Callable[..., nn.Module]] = {
    made.__name__: made
    for made in (
        linear,
        mlp,
        tabular_mlp,
        cnn,
        cnn_patches,
        cnn_strided,
        reduced_resnet18,
        resnet18_lai,
        har_cnn,
        cnn1d,
        cnn_ignatov,
        bilstm,
        pretrained,
        noisy,
        interval,
        smoothed,
    )
}
"""Every network by its name: a function of (shape of one record, number of classes, options)."""


def build(name: str, shape: Sequence[int], classes: int, **options: Any) -> nn.Module:
    """The network of this name for records of this shape, initialised by torch's generator.

    Args:
        name: A name in `NETWORKS`.
        shape: Shape of one record.
        classes: Number of outputs.
        options: Options of the network, such as `hidden`.

    Returns:
        The network.

    Raises:
        ConfigError: The name, an option or the shape is not valid; the message says what would be.
    """
    return construct(NETWORKS, name, shape, classes, options)
