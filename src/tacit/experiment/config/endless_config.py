"""The configuration of an endless stream: that of a run, and how much of the past is kept."""

from typing import Literal, Self

from pydantic import Field, model_validator

from tacit.errors import ConfigError
from tacit.experiment.config.config import Config


class Endless(Config):
    """A run on an endless stream. It stops on request or when the budget is spent, and can be resumed."""

    kind: Literal["endless"]
    keep: int = Field(default=3, ge=1)
    """Number of most recent releases that are kept; older ones are deleted."""
    window: int = Field(default=5, ge=1)
    """Number of most recent tasks on whose public test sets accuracy is measured after each task."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.seeds) != 1 or self.per_seed:
            raise ConfigError(f"an endless stream has one seed, got seeds = {list(self.seeds)}; use one")
        if self.evaluation.test == "charged":
            raise ConfigError(
                "evaluation.test = 'charged' needs an unlimited number of charged queries on an endless stream; use "
                "'public' or 'none'"
            )
        if self.data.held or self.data.shuffled:
            raise ConfigError(
                "an endless stream is learned from its first task on, in its own order; omit data.held and "
                "data.shuffled"
            )
        if self.data.label_space != "task" or self.data.prior_missing or self.data.outside == "remap":
            raise ConfigError(
                "an endless stream has the labels that it declares; omit data.label_space, data.prior_missing and "
                "data.outside"
            )
        return self
