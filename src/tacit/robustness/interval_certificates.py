"""Certificates by interval bounds: the released predictor gives every record of the L∞ ball the same label.

What is certified is all that decides: the networks, how their answers are put together, and the router of
`RoutedExperts`. Nothing is drawn, so a certificate is not right with some probability, but right.

A router compares ⟨x, m_t⟩/‖x‖ of the tasks, where the m_t are released. Over the ball, ⟨x, m_t − m_s⟩ has an exact
minimum, and ‖x‖ an interval, so that the weight of task s is at most v_s of the weight of the task t that is chosen for
the record. With d_s(j) a lower bound of p_y − p_j of expert s, the label y holds if d_t(j) + Σ v_s·min(0, d_s(j)) > 0
for all other j. Where every expert that can get a weight gives the label y, the sum is d_t(j). Where the weights of
others can be so large that the mixture leaves expert t out, all of them must give the label y.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from tacit.data.stream import TaskInfo
from tacit.learners.base.inference import answering
from tacit.learners.base.learner import Learner
from tacit.learners.closed_form.routing import NEGLIGIBLE
from tacit.learners.experts.experts import RoutedExperts
from tacit.models.interval import box
from tacit.robustness.committee import Committee, Member, committee, member_of
from tacit.robustness.interval_bounds import DOUBLE, SINGLE, above, plain_layers, tf32

SLACK = 1e-5
"""More than float32 changes a probability or a weight of the router, relative to the largest."""
ROWS = 1024


def uncertifiable(learner: Learner, task: TaskInfo | None = None) -> str | None:
    """Why interval bounds cannot certify the learner's predictions (for a given task); None if they can."""
    if _is_routed(learner, task):
        return _no_bounds(learner.model_)
    voters = committee(learner, task, _no_bounds)
    if isinstance(voters, Committee) and voters.rule == "largest" and len(voters.members) > 1:
        return "the largest logit of several networks decides, of which interval bounds say nothing; give the task"
    return voters if isinstance(voters, str) else None


def holds(
    learner: Learner,
    x: Tensor,
    label: Tensor,
    task: TaskInfo | None,
    radius: float,
    span: tuple[float, float] | None,
) -> Tensor:
    """For which records the learner, as deployed, predicts the label for every record of the L∞ ball.

    Args:
        learner: A learner for which `uncertifiable` returns None.
        x: The records.
        label: The index of a label for each record.
        task: The records' task, if it is given at test time.
        radius: The radius of the ball.
        span: The public range of features, which a changed record does not leave where the record is within; None: the
            ball is not cut.

    Returns:
        A mask.
    """
    masks = []
    with torch.no_grad(), answering(learner.model_):
        for rows, labels in zip(torch.split(x, ROWS), torch.split(label, ROWS), strict=True):
            rows, labels = rows.to(learner.device).double(), labels.to(learner.device)
            low, high = enlarged(*box(rows, radius, span))
            if _is_routed(learner, task):
                assert isinstance(learner, RoutedExperts)
                margins = _routed(learner, rows, low, high, labels)
            else:
                voters = committee(learner, task, _no_bounds)
                assert isinstance(voters, Committee), "the caller has asked uncertifiable()"
                member_gaps = [gaps(one, low, high, labels) for one in voters.members]
                margins = torch.stack(member_gaps).mean(0)
            others = margins.scatter(1, labels[:, None], torch.inf)
            masks.append((others > SLACK).all(1).cpu())
    return torch.cat(masks) if masks else torch.zeros(0, dtype=torch.bool)


def enlarged(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Boxes with all records that float32 makes of the records of these boxes."""
    width = high - low
    return low - 2 * SINGLE * (low.abs() + width), high + 2 * SINGLE * (high.abs() + width)


def gaps(member: Member, low: Tensor, high: Tensor, label: Tensor) -> Tensor:
    """Lower bounds, over the boxes, of the label's probability minus that of each other: (records, labels). A label
    that the member does not know has probability 0."""
    with member.loaded() as network:
        layers = plain_layers(network)
        assert not isinstance(layers, str)
        bounds = above(layers, low, high, label)
    known = torch.zeros(bounds.shape[1], dtype=torch.bool, device=bounds.device)
    known[member.labels.to(bounds.device)] = True
    excess = bounds.masked_fill(~known, -torch.inf)
    smallest_probability = 1 / excess.exp().sum(1, keepdim=True)  # p_y = 1 / Σ exp(z_k − z_y)
    differences = torch.where(
        excess < 0, smallest_probability * (1 - excess.exp()), -torch.tanh(excess.clamp(min=0) / 2)
    )
    unknown = torch.where(known, -1.0, 0.0).to(differences).expand_as(differences)
    return torch.where(known[label][:, None], differences, unknown)


def _no_bounds(model: torch.nn.Module) -> str | None:
    layers = plain_layers(model)
    return layers if isinstance(layers, str) else None


def _is_routed(learner: Learner, task: TaskInfo | None) -> bool:
    """Whether several experts and a router answer."""
    if type(learner) is not RoutedExperts or task is not None or learner.learning_:
        return False
    return len(learner.of_task_) > 1


def _routed(learner: RoutedExperts, x: Tensor, low: Tensor, high: Tensor, label: Tensor) -> Tensor:
    """Lower bounds of the label's share of the mixture minus that of each other, relative to the chosen expert's."""
    chosen = learner.trust(x.to(next(learner.model_.parameters()).dtype)).argmax(1)
    total = torch.zeros(len(x), len(learner.labels_), dtype=torch.float64, device=x.device)
    asked = partial(_expert, learner)
    for task in sorted(set(chosen.tolist())):
        rows = (chosen == task).nonzero().squeeze(1)
        weights = router_weights(learner, task, low[rows], high[rows])
        # Where the chosen expert itself could be left out of the mixture, its own part counts for nothing. The weights
        # that are 0 here are below NEGLIGIBLE, and count.
        left_out = ((weights.sum(1) + weights.shape[1] * NEGLIGIBLE) * NEGLIGIBLE >= 1 - SLACK).unsqueeze(1)
        weights[left_out & (weights > 0)] = torch.inf
        total[rows] = gaps(asked(task), low[rows], high[rows], label[rows])
        for other in (weights > 0).any(0).nonzero().squeeze(1).tolist():
            if other == task:
                continue
            some = weights[:, other] > 0
            mine = rows[some]
            lost = (gaps(asked(other), low[mine], high[mine], label[mine]) - SLACK).clamp(max=0)
            share = weights[some, other][:, None]
            total[mine] += torch.where(lost < 0, share * lost, 0.0)  # infinity times 0 is 0 here
    return total


def _expert(learner: RoutedExperts, number: int) -> Member:
    """The expert of a task, over the labels of the task."""
    return member_of(learner, learner.tasks_[number], learner.experts_[learner.of_task_[number]])


def router_weights(learner: RoutedExperts, task: int, low: Tensor, high: Tensor) -> Tensor:
    """Upper bounds, over the boxes, of the router's weight of each task relative to that of `task`; 0 where the mixture
    leaves the task out everywhere."""
    count = len(learner.of_task_)
    if learner.router == "scores":
        weights = low.new_full((len(low), count), torch.inf)
    else:
        apart = _least_difference(learner.directions(), task, low.flatten(1), high.flatten(1))
        weights = (-learner.sharpness * apart).exp() * (1 + SLACK)
        if count * NEGLIGIBLE < 1:  # then the largest weight is above what is negligible
            weights = torch.where(weights < NEGLIGIBLE * (1 - SLACK), 0.0, weights)
    weights[:, task] = 1.0
    return weights


def _least_difference(directions: Sequence[Tensor], task: int, low: Tensor, high: Tensor) -> Tensor:
    """Lower bounds of the cosine with `task` minus that with every task, as deployed: (records, tasks)."""
    centre, radius = (high + low) / 2, (high - low) / 2
    largest = torch.maximum(low.abs(), high.abs()).norm(dim=1)
    least = torch.where((low <= 0) & (high >= 0), 0.0, torch.minimum(low.abs(), high.abs())).norm(dim=1)
    own = directions[task].to(centre)
    best = own[(centre @ own.T).argmax(1)]  # of several prototypes, one gives a lower bound
    apart = []
    for other in directions:
        means = other.to(centre)
        pairs = best.unsqueeze(1) - means.unsqueeze(0)
        least_product = torch.einsum("bpk,bk->bp", pairs, centre) - torch.einsum("bpk,bk->bp", pairs.abs(), radius)
        apart.append(least_product.amin(1))
    width = low.shape[1]
    product = torch.stack(apart, 1) - 8 * (width + 8) * DOUBLE * largest[:, None]
    length = torch.where(product >= 0, largest[:, None] * (1 + 1e-12), least[:, None] * (1 - 1e-12)).clamp(min=1e-12)
    rounded = 4 * (width + 8) * SINGLE / (1 - 4 * (width + 8) * SINGLE) + 4 * tf32(low.is_cuda)
    found: Tensor = (product / length).clamp(min=-3.0) - rounded
    return found
