"""The committee of a learner: the networks with noise layers whose expected scores determine its predictions.

`committee` returns all that a learner's predictions depend on, or the reason why it cannot be certified. Let F_l(x) be
the expected scores of member l over its own noise. A change of the record within radius L keeps each label's score
between e^{−ε}(F_l − δ) and e^ε F_l + δ. A mean with fixed weights and a maximum over members preserve both sides, so a
committee is as stable as one member: its prediction depends on expectations only, each over one member's noise, and
nothing composes. A prediction from one joint draw of k members, such as a router that trusts a member by what it drew,
would be k releases of the record with noise σ/√k; such learners are refused.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tacit.data.stream import TaskInfo
from tacit.errors import ConfigError
from tacit.learners.base.learner import Learner
from tacit.learners.base.weights import State, put, trained
from tacit.learners.baselines.centralised import Centralised
from tacit.learners.experts.ensemble import PEFTEnsemble
from tacit.learners.experts.experts import RoutedExperts
from tacit.learners.pool.pool import Pool
from tacit.models.lipschitz import check_layer
from tacit.models.noisy import Noisy, Randomised
from tacit.models.smoothed import Smoothed

Rule = Literal["mean", "largest"]
"""`mean`: the mean of all members' scores. `largest`: the maximum over the members that know the label."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """A network with a noise layer."""

    network: nn.Module
    labels: Tensor
    """The indices of the labels that it predicts."""
    state: State | None = None
    """Its trained weights; None for the network's current ones."""

    @property
    def noise_layer(self) -> Randomised:
        """The network, where it has noise."""
        assert isinstance(self.network, Randomised), "no_noise_layer() has refused other networks"
        return self.network

    @contextmanager
    def loaded(self) -> Iterator[nn.Module]:
        """The network with the member's weights; its own are restored afterwards."""
        before = trained(self.network) if self.state is not None else None
        try:
            put(self.network, self.state or {})
            yield self.network
        finally:
            put(self.network, before or {})


@dataclass(frozen=True, kw_only=True)
class Committee:
    """Members whose combined expected scores decide; the label with the largest is predicted."""

    members: tuple[Member, ...]
    rule: Rule = "mean"

    @property
    def labels(self) -> Tensor:
        """The indices of the labels that any member predicts."""
        return torch.tensor(sorted({index for member in self.members for index in member.labels.tolist()}))


def no_noise_layer(model: nn.Module) -> str | None:
    """Why the change of a record is not bounded where the noise is added; None if it is."""
    if isinstance(model, Smoothed):
        return None
    if not isinstance(model, Noisy):
        return "its network has no noise layer (model: {network: noisy})"
    try:
        check_layer(model.first)
    except ConfigError as error:
        return str(error)
    return None


def committee(
    learner: Learner, task: TaskInfo | None = None, check: Callable[[nn.Module], str | None] = no_noise_layer
) -> Committee | str:
    """The committee for records, of this task if it is given; or the reason why nothing can be certified.

    Args:
        learner: The learner.
        task: The records' task, if it is given at test time.
        check: Why a network cannot be certified; None if it can.

    Returns:
        The committee, or one sentence.
    """
    if not learner.has_network:
        return f"{type(learner).__name__} has no network that could be certified"
    for home, (methods, ask) in READERS.items():
        if isinstance(learner, home):
            if any(getattr(type(learner), name) is not getattr(home, name) for name in methods):
                break
            return check(learner.model_) or ask(learner, task)
    return f"{type(learner).__name__} predicts in a way of its own, which may bypass its noise layer"


def member_of(
    learner: Learner, task: TaskInfo | None, state: State | None = None, *, own: Tensor | None = None
) -> Member:
    """The learner's network with these weights, restricted to the labels of a given task."""
    allowed = torch.ones(len(learner.labels_), dtype=torch.bool) if task is None else learner.mask(task)
    if own is not None:
        allowed = allowed & torch.zeros_like(allowed).index_fill(0, own, True)
    return Member(network=learner.model_, labels=allowed.nonzero().squeeze(1), state=state)


def _alone(learner: Learner, task: TaskInfo | None, state: State | None = None) -> Committee:
    return Committee(members=(member_of(learner, task, state),))


def _centralised(learner: Centralised, task: TaskInfo | None) -> Committee:
    own = learner.scope == "task" and task is not None and task.number < len(learner.alone_)
    return _alone(learner, task, learner.alone_[task.number] if own and task is not None else None)


def _experts(learner: RoutedExperts, task: TaskInfo | None) -> Committee | str:
    if learner.learning_ or not learner.experts_:
        return _alone(learner, task)
    if task is not None:
        known = task.number < len(learner.of_task_)
        return _alone(learner, task, learner.experts_[learner.of_task_[task.number]] if known else learner.start_)
    if len(learner.of_task_) == 1:
        return _alone(learner, learner.tasks_[0], learner.experts_[0])
    if learner.router == "scores":
        return "RoutedExperts weighs experts by confidence, so more than expected scores decides; give the task at test"
    return "the router of RoutedExperts reads the record without noise; give the task at test"


def _ensemble(learner: PEFTEnsemble, task: TaskInfo | None) -> Committee | str:
    asked = list(zip(learner.tasks_, learner.experts_, strict=False))
    if learner.learning_ is not None:
        asked.append((learner.learning_, trained(learner.model_)))
    if task is not None:
        asked = [one for one in asked if one[0].number == task.number]
    if not asked:
        return _alone(learner, task, learner.start_)
    if len(asked) > 1 and learner.aggregate != "argmax":
        return (
            f"PEFTEnsemble with aggregate = {learner.aggregate!r} weighs or shifts a model's scores by its other "
            "scores, so more than expected scores decides; use aggregate = 'argmax', or give the task at test"
        )
    members = (member_of(learner, task, state, own=learner.positions(one.labels)) for one, state in asked)
    return Committee(members=tuple(members), rule="largest")


def _pool(learner: Pool, task: TaskInfo | None) -> Committee | str:
    own = None if task is None else learner.answers_for(task)
    asked = [learner.pool_[own]] if own is not None else [*learner.pool_.values()] or [trained(learner.model_)]
    if len(asked) > 1 and learner.vote != "mean":
        return (
            f"the learners of a Pool with vote = {learner.vote!r} are chosen by their confidence, so more than "
            "expected scores decides; use vote = 'mean', or give the task at test"
        )
    if len(asked) > 1 and task is not None and not bool(learner.mask(task).all()):
        return (
            "the learner of this task is gone, and the vote of a Pool over some of the labels divides each learner's "
            "scores by their sum; keep more finished learners"
        )
    return Committee(members=tuple(member_of(learner, task, state) for state in asked))


Reader = tuple[tuple[str, ...], Callable[[Any, TaskInfo | None], Committee | str]]
READERS: dict[Any, Reader] = {
    PEFTEnsemble: (("scores", "together", "outputs"), _ensemble),
    RoutedExperts: (("scores", "answers", "outputs", "logits"), _experts),
    Pool: (("scores", "_together", "answers_for"), _pool),
    Centralised: (("scores", "logits"), _centralised),
    Learner: (("scores", "logits"), _alone),
}
"""For each kind of learner: the methods that determine its predictions, and its committee. A learner that overrides one
of these methods is refused."""
