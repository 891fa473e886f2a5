"""What attacks on the releases of a run found: every accuracy, in a form that is kept and read back."""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from tacit import metrics
from tacit.errors import ConfigError
from tacit.robustness.attacks import Attack
from tacit.robustness.certified_ball import CertifiedBall

CLEAN, CERTIFIED = "clean", "certified"
LINE = ("seed", "after_task", "on_task", "attack", "norm", "radius", "accuracy")
"""Of a CSV file; tasks are counted from 1."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One accuracy."""

    seed: int
    after_task: int
    on_task: int
    attack: str
    """clean, certified, or the kind of attack."""
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class AttackResults:
    """All that was measured, and how."""

    measured: tuple[Measurement, ...]
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    columns: tuple[str, ...]
    attacks: tuple[Attack, ...]
    """As they were run."""
    answer_draws: int
    """Evaluations that one answer is the mean of, where there is a noise layer; 1: there is none."""
    flat: float
    """The share of test rows, after the last task, that are answered rightly and have no gradient to follow."""
    no_certificate: str | None
    """Why nothing is certified."""
    first: int = 0
    """The number of the first of the tasks: of an endless stream, the last ones are attacked."""
    certified: CertifiedBall | None = None
    """The ball of certified accuracy; None if nothing is certified, and in results of earlier versions, where it is
    that of the attacks."""
    largest_radius: float | None = None
    """An upper bound of every certified radius, which the noise and its draws set; None where it is not known."""

    def matrix(self, seed: int, column: str) -> np.ndarray:
        """Accuracy after each task on each task, NaN where it was not measured."""
        found = np.full((len(self.tasks), len(self.tasks)), np.nan)
        for one in self.measured:
            if one.seed == seed and one.attack == column:
                found[one.after_task - self.first, one.on_task - self.first] = one.accuracy
        return found

    def average(self, column: str, after: int) -> metrics.Summary:
        """Mean over the tasks learned by then, over seeds."""
        return metrics.summarise([float(self.matrix(seed, column)[after, : after + 1].mean()) for seed in self.seeds])

    @property
    def rows(self) -> list[int]:
        """The tasks after which something was measured, by their place."""
        return sorted({one.after_task - self.first for one in self.measured})

    def last(self, column: str) -> metrics.Summary:
        """The average after the last task."""
        return self.average(column, len(self.tasks) - 1)

    def forgetting(self, column: str) -> metrics.Summary:
        return metrics.summarise([metrics.forgetting(self.matrix(seed, column)) for seed in self.seeds])

    def notes(self) -> list[str]:
        """How the attacks were run and what they cannot tell, a sentence each."""
        said = [one.describe() for one in self.attacks]
        if self.answer_draws > 1:
            said.append(f"each evaluation is itself the mean of {self.answer_draws} draws of the noise layer")
        if self.flat > 0:
            said.append(
                f"{self.flat:.1%} of the test rows are answered rightly and have no gradient: that attacks fail there "
                "says nothing"
            )
        return said

    def certificate(self) -> str:
        """What certified accuracy says, in a sentence."""
        ball = self._ball()
        sentence = ball.describe()
        if self.largest_radius is not None and self.largest_radius < ball.radius:
            sentence += (
                f"; with this noise and {ball.draws} draws no radius above {self.largest_radius:.2g} can be certified, "
                "so it is 0 whatever was learned"
            )
        return sentence

    def _ball(self) -> CertifiedBall:
        first = self.attacks[0]
        return self.certified or CertifiedBall(norm=first.norm, radius=first.radius)

    def row(self) -> dict[str, float | None]:
        """One line of a table of runs: after the last task."""
        out: dict[str, float | None] = {}
        for column in self.columns:
            for title, value in (("accuracy", self.last(column)), ("forgetting", self.forgetting(column))):
                parts = {"mean": value.mean, "std": value.std}
                out |= {f"{title}_{column}_{name}": None if math.isnan(one) else one for name, one in parts.items()}
        return out

    def lines(self) -> Iterator[tuple[object, ...]]:
        """One for every accuracy, as `LINE` has it."""
        norm, radius = (self.attacks[0].norm, self.attacks[0].radius) if self.attacks else ("", "")
        for one in self.measured:
            ball = self._ball() if one.attack == CERTIFIED else None
            how = ("", "") if one.attack == CLEAN else (norm, radius) if ball is None else (ball.norm, ball.radius)
            yield (one.seed, one.after_task + 1, one.on_task + 1, one.attack, *how, one.accuracy)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """From the fields as JSON."""
        attacks = [one | {"range": one["range"] and tuple(one["range"])} for one in plain["attacks"]]
        lists = {key: tuple(plain[key]) for key in ("tasks", "seeds", "columns")}
        measured = tuple(Measurement(**one) for one in plain["measured"])
        ball = plain.get("certified")
        span = None if ball is None else ball.get("range")
        certified = None if ball is None else CertifiedBall(**ball | {"range": span and tuple(span)})
        made = {"measured": measured, "attacks": tuple(Attack(**one) for one in attacks), "certified": certified}
        return cls(**{**plain, **lists, **made})

    @classmethod
    def merged(cls, seeds: Sequence["AttackResults"]) -> "AttackResults":
        """Merges the seeds of one run, up to the last task that all of them have learned: in a run that is not
        finished, seeds may have learned different numbers of tasks."""
        learned_by_all = min(len(result.tasks) for result in seeds)
        return replace(
            seeds[0],
            measured=tuple(
                line for result in seeds for line in result.measured if line.after_task < result.first + learned_by_all
            ),
            seeds=tuple(seed for result in seeds for seed in result.seeds),
            tasks=seeds[0].tasks[:learned_by_all],
            flat=sum(result.flat for result in seeds) / len(seeds),
        )


def write(path: Path, cells: Mapping[str, AttackResults]) -> None:
    """A CSV file with a line for every accuracy; the cells of a sweep by their names, a single run under ""."""
    rows = [("cell", *LINE), *((name, *line) for name, results in cells.items() for line in results.lines())]
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows if list(cells) != [""] else (row[1:] for row in rows))
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
