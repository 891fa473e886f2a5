"""Alignment of tasks whose records differ by the order of their entries, from released class sums. It costs no privacy.

An entry of a record (a pixel, a column) is described by its noisy sum for each label. Entries of two tasks are matched
one to one so that the squared distances of these descriptions add up to the least (an assignment problem). A network
moves from one task to the other by moving the columns of its first layer. Entries that look alike may be exchanged,
which changes what the network computes little: the sums that tell them apart are small.
"""

import math
from collections.abc import Sequence

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from tacit.errors import LearnerError
from tacit.learners.base.inference import answering
from tacit.learners.base.weights import State


def matching(old: Tensor, new: Tensor) -> Tensor:
    """For each entry of the new task's records, the entry of the old task's that it matches.

    Args:
        old: Noisy sums of the old task, (labels, entries).
        new: Those of the new task.

    Returns:
        Positions among the old entries: a permutation.
    """
    square = torch.cdist(new.T.double(), old.T.double()).square()
    return torch.as_tensor(linear_sum_assignment(square.cpu().numpy())[1])


def moved(state: State, first: str, order: Tensor) -> State:
    """The trained weights for records whose entries are in another order.

    Args:
        state: Trained weights.
        first: Name of the first layer's weight, (units, entries).
        order: For each entry of the new records, its entry in the old ones.

    Returns:
        New tensors: a release holds no tensor twice.
    """
    return {name: value[:, order.to(value.device)] if name == first else value.clone() for name, value in state.items()}


def first_layer(model: nn.Module, shape: Sequence[int]) -> str:
    """The name of the weight that reads the entries of a record.

    Raises:
        LearnerError: The network looks at the order of entries in another way than by one fully connected layer.
    """
    entries = math.prod(shape)
    name, weight = next((one for one in model.named_parameters() if one[1].requires_grad), ("", torch.zeros(0)))
    draw = torch.Generator().manual_seed(0)
    x, order = torch.rand(3, entries, generator=draw).to(weight.device), torch.randperm(entries, generator=draw)
    if weight.dim() == 2 and weight.shape[1] == entries:
        reordered = x[:, order.to(x.device)].view(3, *shape)
        with answering(model):
            here = model(x.view(3, *shape))
            there = torch.func.functional_call(model, {name: weight[:, order.to(weight.device)]}, (reordered,))
        if torch.allclose(here, there, rtol=1e-3, atol=1e-4):
            return name
    raise LearnerError(
        "start_from='aligned' reorders the entries of records, which this network does not read by one fully connected "
        "first layer; use mlp or linear, or start_from='initial'"
    )
