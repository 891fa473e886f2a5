"""Experiments: configurations, runs, sweeps over settings, and tuning."""

from typing import TYPE_CHECKING

from tacit.lazy import attach

if TYPE_CHECKING:
    from tacit.experiment.config.config import Config, Sweep
    from tacit.experiment.config.endless_config import Endless
    from tacit.experiment.config.loading import load, presets
    from tacit.experiment.runs.endless import run_endless
    from tacit.experiment.runs.runner import run
    from tacit.experiment.sweeps.sweep import sweep
    from tacit.experiment.tuning.tuner import tune

__all__ = ["Config", "Endless", "Sweep", "load", "presets", "run", "run_endless", "sweep", "tune"]

__getattr__, __dir__ = attach(__name__, __file__)
