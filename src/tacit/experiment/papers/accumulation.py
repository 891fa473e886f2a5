"""How a privacy loss grows with the number of tasks: Fig. 2a of Desai et al. 2021, and what can be certified.

Claimed: totals over all tasks by Lemma 1 (DP-AGEM, O(T²)) and Lemma 2 (DP-CL, O(T)), and what they say of one task. The
paper draws ε_i and ε'_i from N(1, 0.02); the plan of its experiments gives them by the moments accountant.
Certified: what one record of the first task loses, by how the memory is read and by what an observer sees. A record is
either trained on or in the memory, so it loses the larger of the two; tasks that it is not part of add nothing.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from dp_accounting.dp_event import DpEvent

from tacit.certificate.claims import Claim, desai_dp_agem, desai_dp_cl, moments_accountant
from tacit.errors import ConfigError
from tacit.experiment.files import write_csv
from tacit.experiment.papers.accumulation_figure import CurvePoint, Kind, Scope, draw
from tacit.experiment.progress import OnEvent, ignore, notify
from tacit.privacy.accounting.epsilon import Method, epsilon
from tacit.privacy.accounting.events import coin_flip, compose, poisson_gaussian, repeat

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, kw_only=True)
class CurveSetting:
    """The plan of Desai et al. 2021 on permuted MNIST: batch 100 of 55,000, reference batch 50 of 5,500."""

    train: float = 100 / 55_000
    memory: float = 50 / 5_500
    noise: float = 1.0
    steps: int = 301
    delta: float = 1e-4


CLAIMS: Mapping[str, Callable[[float, float, float, int, int], Claim]] = {
    "DP-AGEM, Lemma 1": desai_dp_agem,
    "DP-CL, Lemma 2": desai_dp_cl,
}


MEMORIES: Mapping[str, Callable[[CurveSetting, int], DpEvent]] = {
    "DP-CL, union-Poisson memory": (
        lambda plan, task: poisson_gaussian(plan.memory / (task - 1), plan.noise, plan.steps)
    ),
    "DP-CL, one public random block a step": (
        lambda plan, task: repeat(coin_flip(1 / (task - 1), poisson_gaussian(plan.memory, plan.noise)), plan.steps)
    ),
    # Averaged over T − 1 blocks, the noise has std σβ/√(T−1) and a record moves it by β/(T−1).
    "DP-AGEM, only the average is seen": (
        lambda plan, task: poisson_gaussian(plan.memory, plan.noise * math.sqrt(task - 1), plan.steps)
    ),
    "DP-AGEM, every reference is seen": lambda plan, task: poisson_gaussian(plan.memory, plan.noise, plan.steps),
}
"""What a record in the memory of task 1 goes through in a later task."""


def drawn(tasks: int, seed: int) -> tuple[list[float], list[float]]:
    """ε_i and ε'_i of every task from N(1, 0.02), as for the paper's figure."""
    train, reference = np.random.default_rng(seed).normal(1.0, 0.02, size=(2, tasks))
    return train.tolist(), reference.tolist()


def total(
    claim: Callable[[float, float, float, int, int], Claim],
    train: Sequence[float],
    reference: Sequence[float],
    tasks: int,
) -> float:
    """ε_all after `tasks` tasks as the lemma states it: the sum over tasks i of ε_i(T)."""
    return math.fsum(claim(train[i], reference[i], 0.0, i + 1, tasks).epsilon for i in range(tasks))


def claimed(tasks: int, seed: int, plan: CurveSetting) -> Iterator[CurvePoint]:
    """Every claim, for T = 1 … tasks."""
    own = [moments_accountant(rate, plan.noise, plan.steps, plan.delta) for rate in (plan.train, plan.memory)]
    sources = {"drawn from N(1, 0.02)": drawn(tasks, seed), "moments accountant": ([own[0]] * tasks, [own[1]] * tasks)}
    for name, claim in CLAIMS.items():
        for source, (train, reference) in sources.items():
            for t in range(1, tasks + 1):
                yield _point(name, "claimed", "all tasks", t, total(claim, train, reference, t), plan, source)
        for t in range(1, tasks + 1):
            one = claim(own[0], own[1], plan.delta, 1, t).epsilon
            yield _point(name, "claimed", "record of task 1", t, one, plan, "moments accountant")


def _point(
    curve: str, kind: Kind, scope: Scope, tasks: int, epsilon: float, plan: CurveSetting, accountant: str
) -> CurvePoint:
    return CurvePoint(
        tasks=tasks, curve=curve, kind=kind, scope=scope, epsilon=epsilon, delta=plan.delta, accountant=accountant
    )


def certified(memory: str, tasks: int, plan: CurveSetting) -> CurvePoint:
    """What a record of task 1 has lost after `tasks` tasks: the larger of its two fates, trained on or remembered."""
    fates = (
        poisson_gaussian(plan.train, plan.noise, plan.steps),
        compose(MEMORIES[memory](plan, task) for task in range(2, tasks + 1)),
    )
    value, accountant = max(priced(event, plan.delta) for event in fates)
    return _point(memory, "certified", "record of task 1", tasks, value, plan, accountant)


def priced(event: DpEvent, delta: float) -> tuple[float, str]:
    """ε at δ by the smaller of two bounds, and by which."""
    best = epsilon(event, delta)
    return best, "RDP" if best == epsilon(event, delta, method=Method.RDP) else "PLD"


def measured_at(tasks: int) -> list[int]:
    """The T at which bounds are computed, about a factor √2 apart: a distribution of many tasks takes seconds."""
    steps = [2**k * part // 2 for k in range(tasks.bit_length() + 1) for part in (2, 3)]
    return sorted({1, tasks, *(1 + step for step in steps if 1 + step < tasks)})


def run(
    folder: Path,
    *,
    tasks: int = 17,
    seed: int = 0,
    train: float = CurveSetting.train,
    memory: float = CurveSetting.memory,
    noise: float = CurveSetting.noise,
    steps: int = CurveSetting.steps,
    delta: float = CurveSetting.delta,
    progress: OnEvent = ignore,
) -> dict[str, object]:
    """Compute all curves, write `accumulation.csv` and `accumulation.png`, and return the values after the last task.

    `seed` is for the figure's ε_i and ε'_i; the other settings are those of `CurveSetting`. 17 tasks take some ten
    seconds, 129 about a minute.
    """
    checked_tasks(tasks)
    plan = CurveSetting(train=train, memory=memory, noise=noise, steps=steps, delta=delta)
    points = list(claimed(tasks, seed, plan))
    for number, name in enumerate(MEMORIES, start=1):
        notify(progress, f"computing what is certified for {name}, 1 to {tasks} tasks ({number} of {len(MEMORIES)})")
        points += [certified(name, t, plan) for t in measured_at(tasks)]
    files = write(folder, points)
    return {
        "tasks": tasks,
        "seed": seed,
        "plan": asdict(plan),
        "curves": [asdict(point) for point in points if point.tasks == tasks],
        "files": [str(file) for file in files],
    }


def checked_tasks(tasks: int) -> None:
    """Refuse what is no number of tasks."""
    if isinstance(tasks, bool) or not isinstance(tasks, int) or tasks < 1:
        raise ConfigError(f"tasks must be a whole number >= 1, got {tasks!r}")


def write_points(table: Path, points: "Sequence[DataclassInstance]", rounded: str) -> None:
    """A CSV with one row a point, the field `rounded` to six digits."""
    table.parent.mkdir(parents=True, exist_ok=True)
    rows = [asdict(point) | {rounded: f"{getattr(point, rounded):.6g}"} for point in points]
    write_csv(table, [rows[0].keys(), *(row.values() for row in rows)])


def write(folder: Path, points: Sequence[CurvePoint]) -> tuple[Path, Path]:
    """`accumulation.csv`, one row a point, then `accumulation.png`, which needs the extra `plots`."""
    table, picture = folder / "accumulation.csv", folder / "accumulation.png"
    write_points(table, points, "epsilon")
    draw(points, picture)
    return table, picture
