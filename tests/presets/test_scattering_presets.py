"""The presets on scattering features: what they hold. Runs on few records are in tests/experiment/features."""

from support.preset_cells import cells
from tacit.models.backbones import NAMES

CIFAR, MNIST = "desai2021/split-cifar100-scattering", "lai2022/split-mnist-scattering"


def test_the_tasks_are_those_of_the_paper() -> None:
    paper = cells("desai2021/split-cifar100-paper")[0].config.data
    for cell in cells(CIFAR):
        assert (cell.config.data.options, cell.config.data.held) == (paper.options, paper.held)


def test_what_they_compare() -> None:
    ours = [cell.config for cell in cells(CIFAR)]
    moments = [config for config in ours if config.learner.method == "MomentsClassifier"]
    rows = {(config.data.features, config.budget.epsilon) for config in moments}
    assert rows >= {("scattering-mirrored", epsilon) for epsilon in (0.5, 1.0, 2.0, 8.0, 1e4)}
    assert rows >= {(features, 1.0) for features in ("efficientnet-lite0", "scattering")}
    (heads,) = [config for config in ours if config.learner.method == "PEFTEnsemble"]
    assert heads.tuned.how == "none" and heads.budget.epsilon == 1
    digits = [cell.config for cell in cells(MNIST)]
    kinds = {(config.budget.epsilon, config.data.options["task_id"]) for config in digits}
    assert kinds == {(epsilon, known) for epsilon in (0.5, 1.0, 1e4) for known in ("given", "hidden")}
    for config in (*ours, *digits):
        assert len(config.seeds) == 5 and config.budget.delta == 1e-5 and config.data.features in NAMES
