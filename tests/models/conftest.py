"""The float64 reference of the gradients' tests, and one thread: small problems are faster so."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "gradients"))
torch.set_num_threads(1)
