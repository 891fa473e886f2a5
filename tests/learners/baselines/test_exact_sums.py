"""RanPAC and FeCAM: exact sums, the same whatever the order of tasks, against plain formulas; never on private data."""

from typing import Any

import numpy as np
import pytest
import torch

from support.small_world import facts, fixed, learn
from tacit import StreamInfo
from tacit.errors import LearnerError, TacitError
from tacit.learners import FeCAM, RanPAC

WIDTH, LABELS = 6, 3


def info() -> StreamInfo:
    return StreamInfo.uniform("s", labels=range(LABELS), shape=(WIDTH,), size=150, tasks=2, public=True)


def scattered(seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, LABELS, 150)
    x = np.random.default_rng(9).uniform(0, 3, (LABELS, WIDTH))[y] + rng.normal(size=(150, WIDTH)) * (1 + y[:, None])
    return x.astype(np.float32), y


def learned(kind: Any, order: list[int], **settings: Any) -> Any:
    learner = kind(**settings)
    learner.start(info())
    learn(learner, fixed(), order, scattered)
    return learner


def unit(x: Any) -> Any:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_ranpac_is_ridge_regression_on_random_features() -> None:
    learner = learned(RanPAC, [0, 1], width=40)
    x, y = (np.concatenate(parts) for parts in zip(scattered(0), scattered(1), strict=True))
    projection = learner.projection_.numpy().astype(np.float64)
    h = np.maximum(unit(x.astype(np.float64)) @ projection, 0)
    gram, targets = h.T @ h, h.T @ np.eye(LABELS)[y]
    assert learner.gram_.numpy() == pytest.approx(gram, rel=1e-4, abs=1e-3)
    test = np.maximum(unit(scattered(5)[0].astype(np.float64)) @ projection, 0)
    found = learner.scores(torch.from_numpy(scattered(5)[0])).numpy()
    errors = []
    for ridge in 10.0 ** np.arange(-4, 7):
        weights = np.linalg.solve(gram + ridge * np.eye(40), targets)
        errors.append(np.abs(test @ weights - found).max())
    assert min(errors) < 0.02 and errors[0] > 0.02  # one of the candidates, and not the smallest
    assert learner.score(*scattered(5)) > 0.5


@pytest.mark.parametrize("covariance", ["class", "shared"])
def test_fecam_is_the_mahalanobis_distance(covariance: str) -> None:
    learner = learned(FeCAM, [0, 1], covariance=covariance)
    x, y = (np.concatenate(parts) for parts in zip(scattered(0), scattered(1), strict=True))
    root, test = (unit(np.sign(one) * np.sqrt(np.abs(one))) for one in (unit(x), unit(scattered(5)[0])))
    own = [root[y == label] for label in range(LABELS)]
    covariances = [np.cov(rows.T, bias=True) for rows in own]
    if covariance == "shared":
        covariances = [sum(len(rows) * one for rows, one in zip(own, covariances, strict=True)) / len(root)] * LABELS
    expected = np.empty((len(test), LABELS))
    for label, (rows, sigma) in enumerate(zip(own, covariances, strict=True)):
        off = ~np.eye(WIDTH, dtype=bool)
        shrunk = sigma + np.diag(sigma).mean() * np.eye(WIDTH) + sigma[off].mean() * off
        scale = np.sqrt(np.diag(shrunk))
        inverse = np.linalg.inv(shrunk / np.outer(scale, scale) + 1e-3 * np.eye(WIDTH))
        away = test - rows.mean(0) / np.linalg.norm(rows.mean(0))
        expected[:, label] = -np.einsum("ni,ij,nj->n", away, inverse, away)
    assert learner.scores(torch.from_numpy(scattered(5)[0])).numpy() == pytest.approx(expected, rel=1e-3, abs=1e-3)
    assert learner.score(*scattered(5)) > 0.5


@pytest.mark.parametrize(("kind", "settings"), [(RanPAC, {"width": 40}), (FeCAM, {})])
def test_private_records_are_refused(kind: Any, settings: dict[str, Any]) -> None:
    learner = kind(**settings)
    learner.start(facts(2, public=False))
    with pytest.raises(TacitError, match="polic"):
        learn(learner, fixed(), [0])


def test_a_covariance_of_another_kind_is_refused() -> None:
    with pytest.raises(LearnerError, match="covariance must be 'class' or 'shared'"):
        FeCAM(covariance="diagonal").start(facts(2))  # type: ignore[arg-type]
