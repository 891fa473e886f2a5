"""Small problems: one thread is faster than two."""

import torch

torch.set_num_threads(1)
