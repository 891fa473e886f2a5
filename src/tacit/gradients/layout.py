"""The layout of the trained parameters in one flat buffer, so that noise and update are one operation each."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.errors import UnsupportedModel


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Names, shapes and sizes of the trained parameters, in the order of `named_parameters` (tied ones once)."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    sizes: tuple[int, ...]
    dtype: torch.dtype

    @staticmethod
    def of(model: nn.Module) -> "Layout":
        trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        if not trained:
            raise UnsupportedModel("the model has no trainable parameter; set requires_grad on the part to train")
        dtypes = {p.dtype for _, p in trained}
        if len(dtypes) > 1 or next(iter(dtypes)) not in (torch.float32, torch.float64):
            found = ", ".join(sorted(str(d) for d in dtypes))
            raise UnsupportedModel(
                f"trained parameters must all be float32 or all float64, got {found}; use autocast for low precision"
            )
        return Layout(
            names=tuple(name for name, _ in trained),
            shapes=tuple(p.shape for _, p in trained),
            sizes=tuple(p.numel() for _, p in trained),
            dtype=dtypes.pop(),
        )

    @property
    def total(self) -> int:
        """The length of the flat buffer."""
        return sum(self.sizes)

    def views(self, flat: Tensor) -> list[Tensor]:
        """The parameters' parts of a flat buffer, with their shapes; no copies."""
        return [part.view(shape) for part, shape in zip(torch.split(flat, list(self.sizes)), self.shapes, strict=True)]
