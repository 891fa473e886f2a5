"""A search space: for each key of a configuration, a range or a list of values, from a YAML file.

    learner.lr: {low: 1.0e-7, high: 1.0e-2, log: true}
    learner.batch: {low: 10, high: 500, whole: true}
    model.hidden: {choices: [[64], [128]]}

`draw` takes every value by itself from one fixed distribution, as private tuning needs it; `ask` lets a model-based
tuner choose, on public data.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import model_validator

from tacit.errors import ConfigError
from tacit.experiment.config.validation import FixedSection, validated
from tacit.experiment.files import read

if TYPE_CHECKING:
    from optuna.trial import Trial

Settings = dict[str, Any]
"""Key of a configuration → value."""
EXPECTED = "a search space is a mapping such as 'learner.lr: {low: 1, high: 2}'"


class SearchRange(FixedSection):
    """Numbers between two ends, or a list of values."""

    low: float | None = None
    high: float | None = None
    log: bool = False
    """Evenly in the logarithm."""
    whole: bool = False
    """Whole numbers only."""
    choices: tuple[Any, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.choices:
            if self.low is not None or self.high is not None or self.log or self.whole:
                raise ConfigError("a key of a search space has either choices, or low and high; this one has both")
            return self
        if self.low is None or self.high is None:
            raise ConfigError("a key of a search space needs low and high, or choices; give them")
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ConfigError(f"low must be below high, got low = {self.low:g} and high = {self.high:g}")
        if self.log and self.low <= 0:
            raise ConfigError(f"log=true needs low > 0, got low = {self.low:g}")
        if self.whole and not (self.low.is_integer() and self.high.is_integer()):
            raise ConfigError(f"whole=true needs integers, got low = {self.low:g} and high = {self.high:g}")
        return self

    @property
    def ends(self) -> tuple[Any, ...]:
        """The smallest and the largest value, or all choices."""
        return self.choices or (self._typed(self.low or 0.0), self._typed(self.high or 0.0))

    def draw(self, rng: np.random.Generator) -> Any:
        """Draws one value uniformly (uniformly in the logarithm with `log`)."""
        if self.choices:
            return self.choices[int(rng.integers(len(self.choices)))]
        assert self.low is not None and self.high is not None
        low, high = (self.low, self.high + 1) if self.whole else (self.low, self.high)
        value = math.exp(rng.uniform(math.log(low), math.log(high))) if self.log else float(rng.uniform(low, high))
        return self._typed(min(math.floor(value), self.high) if self.whole else value)

    def ask(self, name: str, trial: "Trial") -> Any:
        """Asks the tuner for one value."""
        if self.choices:
            return self.choices[trial.suggest_int(name, 0, len(self.choices) - 1)]
        assert self.low is not None and self.high is not None
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)

    def _typed(self, value: float) -> float | int:
        return int(value) if self.whole else float(value)


@dataclass(frozen=True, kw_only=True)
class Space:
    """All keys that are tuned together."""

    ranges: Mapping[str, SearchRange]

    @classmethod
    def of(cls, what: "str | Path | Mapping[str, Any] | Space") -> "Space":
        """The search space of a YAML file or of plain values."""
        if isinstance(what, Space):
            return what
        values = what if isinstance(what, Mapping) else read(Path(what), EXPECTED)
        if not values:
            raise ConfigError("a search space needs at least one key, such as learner.lr")
        return cls(ranges={str(key): _range(str(key), one) for key, one in values.items()})

    @property
    def keys(self) -> str:
        """The keys, separated by commas."""
        return ", ".join(self.ranges)

    def plain(self) -> dict[str, Any]:
        return {key: one.model_dump(mode="json") for key, one in self.ranges.items()}

    def draw(self, rng: np.random.Generator) -> Settings:
        return {key: one.draw(rng) for key, one in self.ranges.items()}

    def ask(self, trial: "Trial") -> Settings:
        return {key: one.ask(key, trial) for key, one in self.ranges.items()}


def _range(key: str, values: Any) -> SearchRange:
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"{key} = {values!r} is not a valid range; write {key}: {{low: 1, high: 2}} for the numbers between two "
            f"ends, or {key}: {{choices: {values if isinstance(values, list) else [values]}}} for these values only"
        )
    try:
        return validated(SearchRange, values)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None
