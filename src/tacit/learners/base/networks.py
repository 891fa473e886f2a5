"""A network by its name and options: what a configuration says, and what a release can hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from tacit import models
from tacit.data.stream import StreamInfo


@dataclass(frozen=True, kw_only=True)
class NamedNetwork:
    """Makes the network of this name for a stream; it stands where a learner's `network` may be a function."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, info: StreamInfo) -> nn.Module:
        return models.build(self.name, info.shape, len(info.labels), **self.options)
