"""Certificates: the bounds by brute force, a linear model whose answer is known, and no attack that beats one."""

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from support.fixed_models import around, separable, small, trained_noisy
from support.small_world import whole_run
from tacit.errors import ConfigError
from tacit.models.lipschitz import Norm
from tacit.models.noisy import Noisy
from tacit.robustness.attacks import Attack, attack
from tacit.robustness.balls import anywhere
from tacit.robustness.certified_accuracy import (
    DELTAS,
    Bound,
    Votes,
    bounds,
    certify,
    largest_radius,
    pixeldp,
    smoothing,
    why_not,
)


def test_the_formula_of_the_noise_holds_for_every_delta_that_is_tried() -> None:
    """Against the exact privacy profile of the Gaussian mechanism (Balle & Wang 2018)."""
    for delta in DELTAS:
        for epsilon in np.linspace(0.01, 1, 34):
            reach = epsilon / math.sqrt(2 * math.log(1.25 / delta))  # sensitivity over standard deviation
            exact = stats.norm.cdf(reach / 2 - epsilon / reach)
            exact -= math.exp(epsilon) * stats.norm.cdf(-reach / 2 - epsilon / reach)
            assert exact <= delta


def test_the_largest_radius_is_that_of_a_search() -> None:
    rng = np.random.default_rng(0)
    lower, upper = rng.uniform(0, 1, 60), rng.uniform(0, 0.5, 60) ** 2
    best = np.zeros(60)
    for delta in DELTAS:
        for epsilon in np.linspace(1e-3, 1, 200):
            held = lower >= math.exp(2 * epsilon) * upper + (1 + math.exp(epsilon)) * delta
            best = np.maximum(best, held * epsilon / math.sqrt(2 * math.log(1.25 / delta)))
    found = pixeldp(lower, upper)
    assert np.all(found >= best - 1e-12) and np.all(found <= best + 0.01)
    assert np.all(found[lower <= upper] == 0) and found.max() > 0.2
    assert np.all(smoothing(lower, upper) >= found)  # the tight bound of the same noise


def test_bounds_hold_as_often_as_they_say() -> None:
    """Both sides of all labels together, for shares of votes and for means."""
    rng = np.random.default_rng(1)
    truth = np.array([0.93, 0.05, 0.02])
    votes = rng.multinomial(100, truth, size=4000)
    soft = rng.beta(truth, 1 - truth, size=(100, 4000, 3)).sum(0)
    for sums, how in ((votes, "hard"), (soft, "soft")):
        low, high = bounds(sums.astype(float), 100, 0.2, how)  # type: ignore[arg-type]
        assert float(((low <= truth) & (truth <= high)).all(1).mean()) >= 0.8
        assert float((high - low).max()) < 0.4
    low, high = bounds(np.array([[100.0, 0.0, 40.0]]), 100, 0.3, "hard")
    for place, count in enumerate((100, 0, 40)):
        exact = stats.binomtest(count, 100).proportion_ci(0.9, method="exact")  # 0.3 over three labels and two sides
        assert (low[0, place], high[0, place]) == pytest.approx((exact.low, exact.high))


def exact_linear(norm: Norm = "l2") -> tuple[Any, torch.Tensor]:
    """Label 0 where v·x > 0, with W = (v, −v)/√2: the distance to the other label is v·x, in L2."""
    v = torch.tensor([0.6, 0.0, 0.8])
    layer = nn.Linear(3, 2)
    layer.load_state_dict({"weight": torch.stack([v, -v]) / math.sqrt(2), "bias": torch.zeros(2)})
    made = Noisy(nn.Sequential(layer), norm=norm, radius=0.3, epsilon=1.0, delta=0.05, draws=4)
    return around(made, (3,), 2), v


def test_on_a_linear_model_the_radius_is_the_distance() -> None:
    learner, v = exact_linear()
    lengths = torch.tensor([0.2, 0.5, 0.9, -0.4])
    found = certify(learner, lengths[:, None] * v, norm="l2", draws=20_000, votes="hard", bound="smoothing")
    assert found.predicted.tolist() == [0, 0, 0, 1]
    assert bool((found.radius <= lengths.abs()).all()) and bool((found.radius >= 0.85 * lengths.abs()).all())
    published = certify(learner, lengths[:, None] * v, norm="l2", draws=20_000, votes="hard")
    assert bool((published.radius <= found.radius).all()) and float(published.radius.min()) > 0
    assert found.accuracy(torch.tensor([0, 0, 0, 0]), 0.15) == 0.75
    assert found.accuracy(torch.tensor([0, 0, 0, 0]), 0.45) == 0.25 or found.radius[1] >= 0.45
    assert found.accuracy(torch.tensor([1, 1, 1, 0]), 0.0) == 0


def test_another_norm_is_a_smaller_or_larger_ball() -> None:
    learner, v = exact_linear()
    rows = 0.8 * v[None]
    radius = {n: float(certify(learner, rows, norm=n, votes="hard").radius) for n in ("l1", "l2", "linf")}
    assert radius["l1"] == radius["l2"] > 0 and radius["linf"] == pytest.approx(radius["l2"] / math.sqrt(3))


def test_no_radius_is_larger_than_the_largest() -> None:
    """Of two labels, all draws for one of them: by hand, and reached by a record far from the other label."""
    learner, v = exact_linear()
    sigma, each = learner.model_.std, 0.05 / 4
    reach = math.sqrt(math.log(1 / each) / 400)
    soft = sigma * (stats.norm.ppf(1 - reach) - stats.norm.ppf(reach)) / 2
    assert largest_radius(learner, norm="l2", draws=200, bound="smoothing") == pytest.approx(soft)
    low = each ** (1 / 200)  # Clopper–Pearson of 200 in 200
    hard = sigma * (stats.norm.ppf(low) - stats.norm.ppf(1 - low)) / 2
    for bound, size in (("smoothing", hard), ("pixeldp", None)):
        most = largest_radius(learner, norm="l2", draws=200, votes="hard", bound=bound)  # type: ignore[arg-type]
        far = certify(learner, 50 * v[None], norm="l2", draws=200, votes="hard", bound=bound)  # type: ignore[arg-type]
        assert float(far.radius) == pytest.approx(most) and (size is None or most == pytest.approx(size))
        near = certify(learner, 0.5 * v[None], norm="l2", draws=200, votes="hard", bound=bound)  # type: ignore[arg-type]
        assert 0 < float(near.radius) < most
    assert largest_radius(learner, norm="linf") == pytest.approx(largest_radius(learner, norm="l2") / math.sqrt(3))
    plain = around(nn.Linear(3, 2), (3,), 2)
    with pytest.raises(ConfigError, match="nothing can be certified: its network has no noise layer"):
        largest_radius(plain)


CERTIFICATES: list[tuple[Norm, Votes, Bound]] = [
    ("l2", "soft", "pixeldp"),
    ("l2", "hard", "pixeldp"),
    ("l2", "soft", "smoothing"),
    ("l2", "hard", "smoothing"),
    ("l1", "hard", "smoothing"),
    ("linf", "hard", "pixeldp"),
]


@pytest.mark.parametrize(("norm", "votes", "bound"), CERTIFICATES)
def test_no_attack_within_its_radius_beats_a_certificate(norm: Norm, votes: Votes, bound: Bound) -> None:
    learner = trained_noisy(norm, radius={"l2": 0.3, "l1": 0.3, "linf": 0.1}[norm])
    x, y = separable(120, 7)
    found = certify(learner, x, norm=norm, votes=votes, bound=bound, draws=1000)
    assert found.accuracy(y, 0.0) > 0.8, "there is something to beat"
    radius = float(found.radius[found.radius > 0].median())
    held = found.radius >= radius
    changed = [attack(learner, x, y, Attack(norm=norm, radius=radius, steps=15, draws=4, range=None))]
    changed += [x + anywhere(x, radius, norm, torch.Generator().manual_seed(seed)) for seed in range(3)]
    for rows in changed:
        answered = certify(learner, rows, norm=norm, votes=votes, bound=bound, draws=1000, seed=1).predicted
        assert torch.equal(answered[held], found.predicted[held])
    far = attack(learner, x, y, Attack(norm=norm, radius=30 * radius, steps=15, draws=4, range=None))
    beaten = certify(learner, far, norm=norm, votes=votes, draws=200, seed=1).predicted
    assert not torch.equal(beaten[held], found.predicted[held]), "an attack that is large enough does"


def test_certified_accuracy_is_below_that_under_attack() -> None:
    learner = trained_noisy(radius=0.3)
    x, y = separable(120, 8)
    found = certify(learner, x, norm="l2", votes="hard")
    for radius in (0.02, 0.1, 0.2):
        hit = attack(learner, x, y, Attack(norm="l2", radius=radius, draws=4))
        with learner.seeded_randomness(9):
            empirical = float((learner.scores(hit).argmax(1) == y).float().mean())
        assert found.accuracy(y, radius) <= empirical
    assert found.accuracy(y, 0.02) > 0.5


def test_a_given_task_leaves_its_labels_only() -> None:
    from dataclasses import replace

    learner = trained_noisy()
    x, _ = separable(40, 3)
    task = replace(learner.stream_.tasks[0], labels=(1, 2))
    assert set(certify(learner, x, task, draws=50).predicted.tolist()) == {1, 2}


def test_the_mode_and_the_dice_are_as_before() -> None:
    learner = trained_noisy()
    x, _ = separable(5, 3)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, other, another = (certify(learner, x, draws=20, seed=seed).radius for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before) and learner.model_.training
    assert torch.equal(one, other) and not (torch.equal(one, another) and float(one.max()) > 0)
    assert len(certify(learner, x[:0], draws=5).predicted) == 0


def test_what_cannot_be_certified_says_why() -> None:
    learner, x, _ = small()
    assert why_not(learner) == "its network has no noise layer (model: {network: noisy})"
    with pytest.raises(ConfigError, match="nothing can be certified: its network has no noise layer"):
        certify(learner, x)
    for name, words in (
        ("experts", "its network has no noise layer"),
        ("cosine", "CosineClassifier has no network that could be certified"),
        ("lifelong", "LifelongDP has no network"),
        ("ensemble", "its network has no noise layer"),
    ):
        assert words in str(why_not(whole_run(name)[0]))
    assert why_not(trained_noisy()) is None
    for wrong, words in (
        ({"draws": 0}, "draws must be a whole number >= 1, got 0"),
        ({"error": 1.0}, "error must be between 0 and 1, got 1.0"),
        ({"votes": "some"}, "votes must be 'soft' or 'hard', got 'some'"),
        ({"bound": "best"}, "bound must be 'pixeldp' or 'smoothing', got 'best'"),
        ({"norm": "l0"}, "norm must be one of l1, l2, linf, got 'l0'"),
    ):
        with pytest.raises(ConfigError, match=re.escape(words)):
            certify(trained_noisy(), separable(2, 0)[0], **wrong)  # type: ignore[arg-type]
