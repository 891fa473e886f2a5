"""What a stream of tasks costs: Figs. 3 and 4 of Hassanpour et al. 2022, in three readings.

Printed: the global privacy budgets (GPB) that the text prints for learners that halt after given numbers of tasks; its
figures are pictures, and nothing is read off them. Formula: the moments accountant at the settings that the text
states, batch 10 in one pass: of a learner over all its tasks, and of a record over those that read it (block
composition). Certified: what one record loses, by the smaller of two accountants, for the batches that the accountant
assumes and for those of Algorithm 2 (one pass in a known order; Lines 11 and 12 clip the whole batch, so that a record
moves it by two clips).

The printed values do not follow from the stated settings. About 17 passes a task in place of one would give them; that
curve is a fit, and is labelled as one.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from dp_accounting.dp_event import DpEvent

from tacit.certificate.claims import LEARNER_ORDER, moments_delta, stream_wide
from tacit.errors import ConfigError
from tacit.experiment.files import read
from tacit.experiment.papers.accounting_figure import AccountingPoint, draw
from tacit.experiment.papers.accumulation import checked_tasks, priced, write_points
from tacit.experiment.progress import OnEvent, ignore, notify
from tacit.presets import PRESETS, REFERENCE
from tacit.privacy.accounting import epsilon as accounting
from tacit.privacy.accounting.events import gaussian, poisson_gaussian

CAPTION_DELTA = 1e-5
"""Of the printed budgets, by the caption of Fig. 6; the text beside it says 5e-4."""
GPB = "GPB of a learner that halts here"
LEARNER = "a learner, and a record that it reads in every task"
ONE = "a record of one task"
FITTED = "a learner, {passes} passes a task (a fit)"
NOTES = (
    "The printed values do not follow from the stated settings: the formula gives less, and {passes} passes a task (a "
    "fit, not stated) come near them.",
    "Poisson batches, which the formula assumes, are not one pass in a known order: that has no amplification, and "
    "with the batch clipped as in Algorithm 2 one use of a record costs more than every printed budget.",
    "The memory's reads are not in it: the paper does not say how large its memory is.",
)
"""What follows from the points."""
WORDS = (
    "printed: as the text prints it. formula: moments accountant, one pass, batch {batch}, {sizes}. certified: what a "
    "record loses.",
    "known order: the batches are cut from the data in an order that is no secret, so that chance hides no record.",
    "whole batch clipped: the batch's mean gradient is clipped, not each record's, so that one record moves it by two "
    "clips.",
)
"""What the lines of the tables mean."""


@dataclass(frozen=True, kw_only=True)
class AccountingSetting:
    """One data set as the paper trains on it."""

    name: str
    records: int
    batch: int

    @property
    def rate(self) -> float:
        return self.batch / self.records

    @property
    def steps(self) -> int:
        """Of one task, in one pass."""
        return self.records // self.batch


CERTIFIED: Mapping[str, Callable[[AccountingSetting, float, int], DpEvent]] = {
    ONE: lambda plan, noise, tasks: poisson_gaussian(plan.rate, noise, plan.steps),
    "a record of every task": lambda plan, noise, tasks: poisson_gaussian(plan.rate, noise, plan.steps * tasks),
    "a record of every task, whole batch clipped": (
        lambda plan, noise, tasks: poisson_gaussian(plan.rate, noise / 2, plan.steps * tasks)
    ),
    "a record of one task, known order": lambda plan, noise, tasks: gaussian(noise),
    "a record of one task, known order, whole batch clipped": lambda plan, noise, tasks: gaussian(noise / 2),
}
"""The event of a record after a number of tasks."""


def printed(data: str) -> Iterator[AccountingPoint]:
    """The budgets that the text prints."""
    found = read(PRESETS / "hassanpour2022" / f"{REFERENCE}.yaml")["budgets"][data]
    for tasks, budgets in found.items():
        for noise, value in budgets.items():
            yield AccountingPoint(
                data=data, noise=noise, tasks=tasks, reading="printed", curve=GPB, of="epsilon", at=CAPTION_DELTA,
                value=value, accountant="the text",
            )  # fmt: skip


def formula(
    plan: AccountingSetting, noise: float, tasks: int, passes: int, at: Sequence[float], epsilon: float
) -> list[AccountingPoint]:
    """The moments accountant after `tasks` tasks, ε at each of these δ and δ at this ε."""
    steps = {LEARNER: tasks * plan.steps, ONE: plan.steps, FITTED.format(passes=passes): passes * tasks * plan.steps}
    found = []
    for curve, count in steps.items():
        point = partial(
            AccountingPoint,
            data=plan.name,
            noise=noise,
            tasks=tasks,
            reading="formula",
            curve=curve,
            accountant="moments",
        )
        for delta in at:
            value = stream_wide(plan.rate, noise, count, delta).epsilon
            found.append(point(of="epsilon", at=delta, value=value))
        found.append(
            point(of="delta", at=epsilon, value=moments_delta(plan.rate, noise, count, epsilon, LEARNER_ORDER))
        )
    return found


def certified(
    plan: AccountingSetting, noise: float, tasks: int, at: Sequence[float], epsilon: float
) -> list[AccountingPoint]:
    """What a record may have lost after `tasks` tasks."""
    found = []
    for curve, event_of in CERTIFIED.items():
        event = event_of(plan, noise, tasks)
        point = partial(AccountingPoint, data=plan.name, noise=noise, tasks=tasks, reading="certified", curve=curve)
        for delta in at:
            value, by = priced(event, delta)
            found.append(point(of="epsilon", at=delta, value=value, accountant=by))
        value = accounting.delta(event, epsilon)
        found.append(point(of="delta", at=epsilon, value=value, accountant="the smaller of PLD and RDP"))
    return found


def halts_after(plan: AccountingSetting, noise: float, budget: float) -> int:
    """How many tasks a learner learns within a budget, by the formula at the stated settings; at most a million."""
    tasks = range(1, 10**6)

    def cost(count: int) -> float:
        return stream_wide(plan.rate, noise, count * plan.steps, CAPTION_DELTA).epsilon

    return bisect_right(tasks, budget, key=cost)


def run(
    folder: Path,
    *,
    tasks: int = 17,
    noises: tuple[float, ...] = (2.0, 4.0, 8.0),
    batch: int = 10,
    pmnist: int = 60_000,
    scifar: int = 2_500,
    passes: int = 17,
    epsilon: float = 2.0,
    delta: float = 1e-4,
    progress: OnEvent = ignore,
) -> dict[str, object]:
    """Compute all curves, write `accounting.csv` and `accounting.png`, and return what the tables need; about a minute.

    `pmnist`, `scifar`: records that a task is trained on. (The paper has 2,500 in a task of SCIFAR, "whose 20% are
    allocated for testing": taken as 500 more, as CIFAR-100 has them; with 2,000 the fit is worse.) `passes`: of the
    fit. `epsilon`, `delta`: where Figs. 3 and 4 are drawn.
    """
    checked_tasks(tasks)
    if not noises or passes < 1 or not 1 <= batch <= min(pmnist, scifar):
        raise ConfigError(
            f"accounting needs one noise or more, passes ≥ 1 and a batch within a task's records, got noises={noises}, "
            f"passes={passes}, batch={batch}, pmnist={pmnist} and scifar={scifar}"
        )
    at = tuple(dict.fromkeys((delta, CAPTION_DELTA)))
    plans = [
        AccountingSetting(name=name, records=n, batch=batch) for name, n in (("PMNIST", pmnist), ("SCIFAR", scifar))
    ]
    points: list[AccountingPoint] = []
    for plan in plans:
        points += printed(plan.name)
        for noise in noises:
            notify(progress, f"computing {plan.name} with noise {noise:g}, 1 to {tasks} tasks")
            for count in range(1, tasks + 1):
                points += formula(plan, noise, count, passes, at, epsilon)
            for count in measured_at(tasks):
                points += certified(plan, noise, count, at, epsilon)
    files = write(folder, points)
    sizes = ", ".join(f"{plan.records:,} records a task of {plan.name}" for plan in plans)
    return {
        "tasks": tasks,
        "plans": [asdict(plan) | {"rate": plan.rate, "steps": plan.steps} for plan in plans],
        "points": [asdict(point) for point in points],
        "halts": [_halt(plan, point) for plan in plans for point in printed(plan.name)],
        "notes": [note.format(passes=passes) for note in NOTES],
        "words": [note.format(batch=batch, sizes=sizes) for note in WORDS],
        "files": [str(file) for file in files],
    }


def measured_at(tasks: int) -> list[int]:
    """Where certified bounds are computed: where learners begin and halt, and at the ends."""
    return sorted({1, tasks, *(count for count in (3, 6, 9, 12) if count < tasks)})


def write(folder: Path, points: Sequence[AccountingPoint]) -> tuple[Path, Path]:
    """`accounting.csv`, one row a point, then `accounting.png`, which needs the extra `plots`."""
    table, picture = folder / "accounting.csv", folder / "accounting.png"
    write_points(table, points, "value")
    draw(points, picture)
    return table, picture


def _halt(plan: AccountingSetting, point: AccountingPoint) -> dict[str, object]:
    by_formula = halts_after(plan, point.noise, point.value)
    return {
        "data": plan.name, "noise": point.noise, "budget": point.value, "printed": point.tasks, "formula": by_formula
    }  # fmt: skip
