"""Low-rank adaptation of a frozen network (Hu et al. 2022): a few thousand trained parameters per task."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from tacit.errors import UnsupportedModel


class LowRank(nn.Module):
    """A frozen linear layer plus a trained low-rank product, initialised to zero."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + self.up(self.down(x))
        return out


def adapted(model: nn.Module, rank: int, seed: int = 0) -> nn.Module:
    """A copy with low-rank updates of its linear layers and a trained last linear layer; the rest is frozen."""
    made = deepcopy(model)
    linear = [name for name, module in made.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise UnsupportedModel("low-rank experts need a network with linear layers; use whole experts (rank=None)")
    device = next(made.parameters()).device
    made.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name in linear[:-1]:
            parent, _, leaf = name.rpartition(".")
            setattr(made.get_submodule(parent), leaf, LowRank(made.get_submodule(name), rank).to(device))  # type: ignore[arg-type]
    made.get_submodule(linear[-1]).requires_grad_(True)
    return made
