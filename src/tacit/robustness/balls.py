"""Balls in L∞, L2 and L1, row by row: the steepest step, the projection, and a uniform random point."""

import torch
from torch import Tensor

from tacit.models.lipschitz import Norm

TINY = 1e-12


def steepest(gradient: Tensor, size: float, norm: Norm, room: Tensor) -> Tensor:
    """The step of length `size` that increases a linear loss most.

    L∞: the sign of the gradient. L2: along the gradient. L1: the coordinates with the largest gradients, each as far as
    it has `room`, until the length is used up.
    """
    rows = gradient.flatten(1)
    if norm == "linf":
        return size * gradient.sign()
    if norm == "l2":
        return size * unit(gradient, 2)
    order = rows.abs().argsort(dim=1, descending=True, stable=True)
    free = torch.where(rows == 0, 0.0, room.flatten(1).clamp(min=0)).gather(1, order)
    used = free.cumsum(1) - free
    taken = torch.minimum(free, (size - used).clamp(min=0))
    return (torch.zeros_like(rows).scatter(1, order, taken) * rows.sign()).view_as(gradient)


def unit(gradient: Tensor, order: int) -> Tensor:
    """Each row divided by its norm of this order, also for tiny rows; zero rows stay zero."""
    rows = gradient.flatten(1)
    largest = rows.abs().amax(1, keepdim=True)
    even = torch.where(largest > 0, rows / largest, 0.0)  # squares of small numbers would underflow
    lengths: Tensor = even.norm(order, dim=1, keepdim=True)
    return (even / lengths.clamp(min=1)).view_as(gradient)


def inside(change: Tensor, radius: float, norm: Norm) -> Tensor:
    """The L2 projection of each change onto the ball."""
    if norm == "linf":
        return change.clamp(-radius, radius)
    rows = change.flatten(1)
    if norm == "l2":
        lengths: Tensor = rows.norm(dim=1, keepdim=True)
        return (rows * (radius / lengths.clamp(min=TINY)).clamp(max=1)).view_as(change)
    # Duchi et al. 2008: soft thresholding.
    sorted_ = rows.abs().sort(1, descending=True).values
    counts = torch.arange(1, rows.shape[1] + 1, device=rows.device)
    excess = (sorted_.cumsum(1) - radius) / counts
    last = (sorted_ > excess).sum(1, keepdim=True).clamp(min=1) - 1
    taken = excess.gather(1, last).clamp(min=0)
    return (rows.sign() * (rows.abs() - taken).clamp(min=0)).view_as(change)


def anywhere(rows_like: Tensor, radius: float, norm: Norm, generator: torch.Generator) -> Tensor:
    """A uniform random point of the ball, for each row."""
    rows = rows_like.flatten(1)
    count, size = rows.shape
    if norm == "linf":
        drawn = 2 * torch.rand(count, size, generator=generator) - 1
        return (radius * drawn).to(rows_like).view_as(rows_like)
    if norm == "l2":
        drawn = torch.nn.functional.normalize(torch.randn(count, size, generator=generator), dim=1)
        return (
            (radius * drawn * torch.rand(count, 1, generator=generator).pow(1 / size)).to(rows_like).view_as(rows_like)
        )
    # Exponential lengths with one extra coordinate: uniform in the L1 ball (Barthe et al. 2005).
    lengths = -torch.rand(count, size + 1, generator=generator).clamp(min=TINY).log()
    signs = torch.randint(0, 2, (count, size), generator=generator) * 2 - 1
    return (radius * signs * lengths[:, :size] / lengths.sum(1, keepdim=True)).to(rows_like).view_as(rows_like)


def distance(change: Tensor, norm: Norm) -> Tensor:
    """The norm of each row."""
    rows = change.flatten(1).abs()
    if norm == "linf":
        return rows.amax(1)
    lengths: Tensor = rows.norm(dim=1) if norm == "l2" else rows.sum(1)
    return lengths
