"""FiLM adapters in bf16 on a GPU: `PEFTEnsemble` with another precision, for `film.yaml`.

It needs a GPU, CIFAR-100 and the weights of the backbone. `method: PEFTEnsemble` does the same in float32, more slowly.

    tacit run film.yaml --out runs/film
"""

from dataclasses import dataclass

import torch

from tacit import PEFTEnsemble
from tacit.models import backbones

backbones.GPU_ROWS = 512  # pictures at a time: 21 GB in bf16


@dataclass(kw_only=True, eq=False)
class FilmInHalf(PEFTEnsemble):
    def build(self):
        return super().build().to(memory_format=torch.channels_last)

    def train(self, task, block, vault, plan, loss):
        with torch.autocast(self.device, torch.bfloat16):
            return super().train(task, block, vault, plan, loss)
