"""A ball of changes of a record, and certificates that no change in it alters the prediction, by one of three bounds.

pixeldp, smoothing: of a network with noise, from draws; right with a probability for each record
(`certified_accuracy`).
ibp: of a network without noise, by interval arithmetic (`interval_certificates`). A ball of another norm is within the
L∞ ball of the same radius, so that the certificate holds for it too.
auto: smoothing where there is noise, ibp where there is none.
"""

from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from tacit.data.stream import TaskInfo
from tacit.errors import ConfigError
from tacit.learners.base.learner import Learner
from tacit.models.lipschitz import Norm, ball
from tacit.robustness.certified_accuracy import CertifiedRadii, Votes, certify, largest_radius, why_not
from tacit.robustness.interval_certificates import holds, uncertifiable

Bound = Literal["pixeldp", "smoothing", "ibp", "auto"]
SAID = {"pixeldp": "PixelDP's bound", "smoothing": "randomised smoothing", "ibp": "interval bounds"}


@dataclass(frozen=True, kw_only=True)
class CertifiedBall:
    """A ball, and the settings of the certificates that no change within it alters the prediction."""

    norm: Norm
    radius: float
    bound: Bound = "pixeldp"
    draws: int = 1000
    """Draws of the noise; interval bounds draw nothing."""
    votes: Votes = "soft"
    error: float = 0.05
    """The probability that a record's certificate is wrong; interval bounds are right."""
    range: tuple[float, float] | None = None
    """The public range of features, which interval bounds do not leave. None: all numbers."""

    def describe(self) -> str:
        by = SAID.get(self.bound, "randomised smoothing, or interval bounds where there is no noise")
        sentence = f"no change of {ball(self.norm, self.radius)} turns the right answer, by {by}"
        if self.bound == "ibp":
            cut = "" if self.range is None else f", features in [{self.range[0]:g}, {self.range[1]:g}]"
            return f"{sentence}{cut}; it holds for the whole predictor as it is released, and nothing is drawn"
        return f"{sentence}, at {1 - self.error:.0%} a record; it is about the mean over all noise"

    def resolved(self, learner: Learner, task: TaskInfo | None = None) -> "CertifiedBall":
        """The same with a bound for this learner instead of `auto`."""
        if self.bound != "auto":
            return self
        return replace(self, bound="smoothing" if why_not(learner, task) is None else "ibp")

    def why_not(self, learner: Learner, task: TaskInfo | None = None) -> str | None:
        """Why the learner's predictions cannot be certified by this bound; None if they can."""
        if self.resolved(learner, task).bound == "ibp":
            return uncertifiable(learner, task)
        return why_not(learner, task)

    def certify(self, learner: Learner, x: Tensor, task: TaskInfo | None = None) -> CertifiedRadii:
        """The predictions, with a radius each: what the draws allow or, by interval bounds, that of the ball or 0."""
        asked = self.resolved(learner, task)
        if asked.bound == "ibp":
            found = certify_by_intervals(learner, x, task, radius=self.radius, range=self.range)
            return replace(found, norm=self.norm)
        assert asked.bound != "auto"
        return certify(
            learner, x, task,
            norm=self.norm, draws=self.draws, error=self.error, votes=self.votes, bound=asked.bound,
        )  # fmt: skip

    def largest_radius(self, learner: Learner, task: TaskInfo | None = None) -> float | None:
        """An upper bound of every radius that can be certified, which noise and draws set; None without noise."""
        asked = self.resolved(learner, task)
        if asked.bound == "ibp" or asked.bound == "auto":
            return None
        return largest_radius(
            learner, task,
            norm=self.norm, draws=self.draws, error=self.error, votes=self.votes, bound=asked.bound,
        )  # fmt: skip


def certify_by_intervals(
    learner: Learner,
    x: Tensor,
    task: TaskInfo | None = None,
    *,
    radius: float = 0.1,
    range: tuple[float, float] | None = (0.0, 1.0),
) -> CertifiedRadii:
    """Predict each record, and certify by interval bounds that the prediction is the same in a whole L∞ ball.

    Args:
        learner: A learner of networks that are sequences of linear and monotone layers, such as network 'interval'.
        x: The records.
        task: The records' task, if it is given at test time.
        radius: The radius of the ball.
        range: The public range of features, which the ball does not leave where the record is within; None: all
            numbers.

    Returns:
        The predictions, each with `radius` where it is certified, otherwise 0.

    Raises:
        ConfigError: The learner cannot be certified, or the radius is not positive.
    """
    if (reason := uncertifiable(learner, task)) is not None:
        raise ConfigError(f"nothing can be certified: {reason}; the learner can still be attacked")
    if not 0 < radius < float("inf"):
        raise ConfigError(f"radius must be a number > 0, got {radius}")
    predicted = learner.scores(x, task).argmax(1).cpu()
    certified = holds(learner, x, predicted, task, radius, range)
    return CertifiedRadii(predicted=predicted, radius=certified.double() * radius, norm="linf")
