"""The small worlds of the learners' and the experiments' tests, and one thread: small problems are faster so."""

import sys
from pathlib import Path

import torch

for room in ("learners", "experiment"):
    sys.path.append(str(Path(__file__).parents[1] / room))
torch.set_num_threads(1)
