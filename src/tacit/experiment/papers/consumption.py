"""How many records a memory takes in and retires: Fig. 11 of Hassanpour et al. 2022, from plans alone.

The paper counts samples that it replaces in its memory, by a rule that has no finite bound (`tacit audit
replacement-cascade`). Here a remembered record is retired once it has been read in as many tasks as the budget of one
learner allows (`stay_for`), with each block of the memory read by itself. All counts follow from public sizes and
plans, so that nothing is trained and no data is opened; a run of the same settings writes the same counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path

from tacit.data.stream import StreamInfo
from tacit.errors import ConfigError
from tacit.experiment.papers.accounting_figure import BENCHMARKS
from tacit.experiment.papers.accumulation import checked_tasks, write_points
from tacit.experiment.papers.accumulation_figure import CERTIFIED, blank, dressed
from tacit.experiment.progress import OnEvent, ignore, notify
from tacit.learners.pool.pool import Pool
from tacit.memory import stay_for
from tacit.privacy.accounting.budget import Budget
from tacit.words import counted


@dataclass(frozen=True, kw_only=True)
class ConsumptionSetting:
    """One data set and its budget."""

    name: str
    records: int
    """Of a task."""
    memory_share: float
    epsilon: float
    """What one record may lose: the paper's budget of one learner that never halts."""


@dataclass(frozen=True, kw_only=True)
class ConsumptionPoint:
    """The memory of one plan after one task; expected numbers of records, from public facts."""

    data: str
    learners: int
    noise: float
    stay: int
    """The number of later tasks that may read a remembered record."""
    task: int
    admitted: float
    """In this task, as is the number of reads."""
    read: float
    held: float
    """While the task is learned."""
    retired: float
    """In all tasks so far."""


def counts(
    setting: ConsumptionSetting, noise: float, tasks: int, batch: int, tasks_per_learner: int | None, delta: float
) -> list[ConsumptionPoint]:
    """The memory after each task, with one learner, or with learners in turn of which each starts a task early."""
    info = StreamInfo.uniform(
        setting.name, labels=range(2), shape=(2,), size=setting.records, tasks=tasks, task_id="given"
    )
    pool = Pool(
        budget=Budget(epsilon=setting.epsilon, delta=delta), network="linear", memory="each", noise=noise,
        memory_noise=noise, steps=None, epochs=1, batch=batch, memory_batch=batch, memory_share=setting.memory_share,
        tasks_per_learner=tasks_per_learner, early_start=tasks_per_learner is not None, stay=1,
    )  # fmt: skip
    pool.start(info)
    schedule = pool.memory_.schedule
    schedule = replace(schedule, stay=stay_for(pool.budget, schedule))
    uses = [schedule.expected(task) for task in range(tasks)]
    retired = accumulate(use.retired for use in uses)
    return [
        ConsumptionPoint(
            data=setting.name, learners=len(pool.learner_schedule_.spans), noise=noise, stay=schedule.stay or 0,
            task=task, admitted=use.admitted, read=use.read, held=use.held, retired=gone,
        )
        for task, (use, gone) in enumerate(zip(uses, retired, strict=True), start=1)
    ]  # fmt: skip


def run(
    folder: Path,
    *,
    tasks: int = 17,
    noises: tuple[float, ...] = (2.0, 4.0, 8.0),
    batch: int = 10,
    pmnist: int = 60_000,
    scifar: int = 2_500,
    pmnist_memory: float = 0.02,
    scifar_memory: float = 0.1,
    pmnist_epsilon: float = 2.0,
    scifar_epsilon: float = 4.0,
    tasks_per_learner: int = 9,
    delta: float = 1e-5,
    progress: OnEvent = ignore,
) -> dict[str, object]:
    """Compute all counts, write `consumption.csv` and `consumption.png`, and return the totals; some ten seconds.

    `pmnist`, `scifar`: records of a task; `…_memory`: the share of them that is remembered, which the paper does not
    print; `…_epsilon`: what one record may lose. `tasks_per_learner`: of two learners in turn.
    """
    checked_tasks(tasks)
    if not noises:
        raise ConfigError("consumption needs at least one noise, such as noises=[2, 4, 8]")
    settings = (
        ConsumptionSetting(name="PMNIST", records=pmnist, memory_share=pmnist_memory, epsilon=pmnist_epsilon),
        ConsumptionSetting(name="SCIFAR", records=scifar, memory_share=scifar_memory, epsilon=scifar_epsilon),
    )
    points: list[ConsumptionPoint] = []
    for setting in settings:
        for each in (None, tasks_per_learner):
            notify(progress, f"planning {setting.name} with {'one learner' if each is None else 'learners in turn'}")
            for noise in noises:
                points += counts(setting, noise, tasks, batch, each, delta)
    table, picture = folder / "consumption.csv", folder / "consumption.png"
    write_points(table, points, "read")
    draw(points, picture)
    return {
        "tasks": tasks,
        "settings": [asdict(setting) for setting in settings],
        "totals": totals(points),
        "files": [str(table), str(picture)],
    }


def totals(points: Sequence[ConsumptionPoint]) -> list[Mapping[str, object]]:
    """Of each plan: the records that enter and leave the memory in all tasks, and the most that it holds."""
    plans: dict[tuple[str, int, float], list[ConsumptionPoint]] = {}
    for point in points:
        plans.setdefault((point.data, point.learners, point.noise), []).append(point)
    return [
        {
            "data": data, "learners": learners, "noise": noise, "stay": own[0].stay,
            "admitted": round(sum(point.admitted for point in own)), "retired": round(own[-1].retired),
            "held": round(max(point.held for point in own)), "read": round(sum(point.read for point in own)),
        }
        for (data, learners, noise), own in plans.items()
    ]  # fmt: skip


def draw(points: Sequence[ConsumptionPoint], file: Path) -> None:
    """Draw the records that were retired so far: a panel for each data set and number of learners, as in Fig. 11."""
    figure = blank(file, (11, 7.5))
    data = list(dict.fromkeys(point.data for point in points))
    learners = sorted({point.learners for point in points})
    for row, name in zip(figure.subplots(len(data), len(learners), squeeze=False), data, strict=True):
        for axes, count in zip(row, learners, strict=True):
            mine = [point for point in points if (point.data, point.learners) == (name, count)]
            for place, noise in enumerate(sorted({point.noise for point in mine})):
                own = [point for point in mine if point.noise == noise]
                axes.plot(
                    [point.task for point in own], [point.retired for point in own], marker="o", markersize=3.5,
                    linewidth=4.5 - 1.5 * place, color=CERTIFIED[place % len(CERTIFIED)],
                    label=f"σ = {noise:g}, a record stays {counted(own[0].stay, 'task')}",
                )  # fmt: skip
            axes.set_title(f"{BENCHMARKS.get(name, name)}, {count} learner{'s' if count > 1 else ''}", fontsize=11)
            axes.set_xlabel("tasks learned")
            axes.set_ylabel("records retired from the memory")
            axes.legend(fontsize=9, edgecolor="none")
            dressed(axes)
    figure.savefig(file, dpi=140)
