"""What a stream without end does, as a typed value: the sections of a run, and what is kept of the past."""

from typing import Literal, Self

from pydantic import Field, model_validator

from tacit.errors import ConfigError
from tacit.experiment.config.config import Config


class Endless(Config):
    """A stream without end, in one go or in many: it stops when it is told to, or when nothing more may be spent."""

    kind: Literal["endless"]
    keep: int = Field(default=3, ge=1)
    """So many of the last releases are kept; older ones are deleted."""
    window: int = Field(default=5, ge=1)
    """After each task, accuracy is measured on the public test sets of so many last tasks."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.seeds) != 1 or self.per_seed:
            raise ConfigError(f"a stream without end has one seed, got seeds = {list(self.seeds)}; give one")
        if self.evaluation.test == "charged":
            raise ConfigError(
                "evaluation.test = 'charged' would ask about every task for ever, and no budget lasts for ever; use "
                "'public' or 'none'"
            )
        if self.data.held or self.data.shuffled:
            raise ConfigError(
                "a stream without end is learned from its first task on, in its own order; leave out data.held and "
                "data.shuffled"
            )
        if self.data.label_space != "task" or self.data.prior_missing or self.data.outside == "remap":
            raise ConfigError(
                "the tasks of a stream without end have the labels that it declares; leave out data.label_space, "
                "data.prior_missing and data.outside"
            )
        return self
