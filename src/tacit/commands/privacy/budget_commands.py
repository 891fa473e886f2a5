"""`tacit budget`: the ε of a plan, and the noise or steps that a budget allows, computed before any record is read."""

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from tacit.commands.console import out
from tacit.commands.options import Json
from tacit.errors import PlanError
from tacit.privacy.accounting.budget import Adjacency, Budget, Unit
from tacit.words import counted, rounded_up

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

budget = typer.Typer(
    no_args_is_help=True, help="Plan ahead: the ε of a plan; the noise, steps or tasks that a budget allows."
)

Epsilon = Annotated[float, typer.Option(help="The largest privacy loss of one unit, > 0.")]
Delta = Annotated[float, typer.Option(help="Between 0 and 1; less than 1 / (number of units).")]
Rate = Annotated[float, typer.Option(help="Sampling rate: the probability that a unit is in a step, in (0, 1].")]
Noise = Annotated[float, typer.Option(help="Noise multiplier: standard deviation / clipping norm, > 0.")]
Steps = Annotated[int, typer.Option(help="Number of noisy gradient steps, >= 1.")]
Neighbours = Annotated[Adjacency, typer.Option(help="Which data sets count as neighbours.")]

MOST_STEPS = 10**15
MOST_TASKS = 10**9
MOST_NOISE = 1e12
"""Beyond these limits the accountants lose all precision; no realistic plan comes near them."""
MOST_SEARCHED = 10**9 - 1
"""The largest number of steps that is searched for a budget."""

Inputs = dict[str, float | int | str | None]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What `--json` prints: the same keys for every command, null where a value does not apply or is not finite."""

    epsilon: float | None
    """The smaller of `rdp` and `pld`."""
    rdp: float | None
    pld: float | None
    noise: float
    steps: int | None
    inputs: Inputs

    def show(self, text: str, *, as_json: bool) -> None:
        """Prints the text, or all values as JSON."""
        if as_json:
            out.print_json(data=asdict(self), allow_nan=False)
        else:
            out.print(text)

    @property
    def bounds(self) -> str:
        if self.epsilon is None:
            return f"no finite ε at δ = {self.inputs['delta']:g}, {self.inputs['adjacency']}"
        known = [("PLD", self.pld), ("RDP", self.rdp)]
        shown = ", ".join(f"{name} {value:.4g}" for name, value in known if value is not None)
        return f"ε = {self.epsilon:.4g} at δ = {self.inputs['delta']:g}, {self.inputs['adjacency']} ({shown})"


@budget.command("epsilon")
def epsilon_of(
    rate: Rate,
    noise: Noise,
    steps: Steps,
    delta: Delta = 1e-5,
    adjacency: Neighbours = Adjacency.ADD_OR_REMOVE,
    as_json: Json = False,
) -> None:
    """Print the ε of a plan of noisy clipped gradients with Poisson sampling."""
    from tacit.privacy.vault import GradientPlan

    _check_range(steps=steps, delta=delta, noise=noise)
    plan = GradientPlan(rate=rate, steps=steps, noise=noise)
    inputs: Inputs = {"rate": rate, "noise": noise, "steps": steps, "delta": delta, "adjacency": str(adjacency)}
    answer = _answer(plan.event, delta, adjacency, noise, steps, inputs)
    answer.show(answer.bounds, as_json=as_json)


@budget.command("noise")
def noise_for(
    epsilon: Epsilon,
    rate: Rate,
    steps: Steps,
    delta: Delta = 1e-5,
    adjacency: Neighbours = Adjacency.ADD_OR_REMOVE,
    as_json: Json = False,
) -> None:
    """Print the smallest noise multiplier that keeps a plan within a budget."""
    from tacit.privacy.vault import GradientPlan

    total = Budget(epsilon=epsilon, delta=delta, adjacency=adjacency)
    _check_range(steps=steps)
    plan = GradientPlan.for_budget(total, rate=rate, steps=steps)
    inputs: Inputs = {"epsilon": epsilon, "rate": rate, "steps": steps, "delta": delta, "adjacency": str(adjacency)}
    answer = _answer(plan.event, delta, adjacency, plan.noise, steps, inputs)
    answer.show(f"noise {rounded_up(answer.noise)} is enough: {answer.bounds}", as_json=as_json)


@budget.command("steps")
def steps_for(
    epsilon: Epsilon,
    rate: Rate,
    noise: Noise,
    delta: Delta = 1e-5,
    adjacency: Neighbours = Adjacency.ADD_OR_REMOVE,
    as_json: Json = False,
) -> None:
    """Print the largest number of steps that a budget allows."""
    from tacit.privacy.accounting import calibrate
    from tacit.privacy.vault import GradientPlan

    total = Budget(epsilon=epsilon, delta=delta, adjacency=adjacency)
    _check_range(noise=noise)
    plan = GradientPlan(rate=rate, steps=1, noise=noise)
    if not calibrate.fits(plan.event, total):
        least = calibrate.gradient_noise(total, rate, 1)
        raise PlanError(
            f"not even one step at rate {rate:g} with noise {noise:g} meets {total}; "
            f"noise {rounded_up(least)} allows one, and a smaller rate needs less"
        )
    plan = replace(plan, steps=calibrate.gradient_steps(total, rate, noise))
    inputs: Inputs = {"epsilon": epsilon, "rate": rate, "noise": noise, "delta": delta, "adjacency": str(adjacency)}
    answer = _answer(plan.event, delta, adjacency, noise, plan.steps, inputs)
    bound, verb = "at least " if plan.steps >= MOST_SEARCHED else "", "fits" if plan.steps == 1 else "fit"
    answer.show(f"{bound}{counted(plan.steps, 'step')} {verb}: {answer.bounds}", as_json=as_json)


@budget.command("stream")
def stream(
    tasks: Annotated[int, typer.Option(help="Number of tasks in the stream, such as months.")],
    per_person: Annotated[int, typer.Option(help="The largest number of tasks that one person may be in.")],
    epsilon: Epsilon,
    delta: Delta = 1e-5,
    rate: Annotated[float | None, typer.Option(help="With --steps: each task is DP-SGD at this sampling rate.")] = None,
    steps: Annotated[int | None, typer.Option(help="With --rate: the number of steps of each task.")] = None,
    adjacency: Neighbours = Adjacency.ADD_OR_REMOVE,
    as_json: Json = False,
) -> None:
    """Print what each task may spend if a person is in a limited number of them.

    Without --rate and --steps, each task is one release with Gaussian noise.
    """
    if not 1 <= tasks <= MOST_TASKS:
        raise PlanError(f"tasks must be a whole number from 1 to {MOST_TASKS:,}, got {tasks}")
    if steps is not None:
        _check_range(steps=steps)
    if not 1 <= per_person <= tasks:
        raise PlanError(f"--per-person must be between 1 and the {tasks} tasks of the stream, got {per_person}")
    if (rate is None) != (steps is None):
        raise PlanError("give both --rate and --steps for tasks of gradient steps, or neither for one release per task")
    total = Budget(epsilon=epsilon, delta=delta, unit=Unit.PERSON, adjacency=adjacency)
    event, noise = _task(total, rate, steps, per_person)
    inputs: Inputs = {"tasks": tasks, "per_person": per_person, "epsilon": epsilon, "delta": delta}
    inputs |= {"rate": rate, "steps": steps, "adjacency": str(adjacency)}
    answer = _answer(event, delta, adjacency, noise, steps, inputs)
    if as_json:
        return answer.show("", as_json=True)
    share = replace(total, epsilon=epsilon / per_person, delta=delta / per_person)
    _, plain = _task(share, rate, steps, 1)
    table = Table("each task", "ε", "δ", "noise multiplier", box=None)
    table.add_row("by the accountant", f"{answer.epsilon:.4g}", f"{delta:g}", rounded_up(noise))
    table.add_row("by basic composition", f"{share.epsilon:.4g}", f"{share.delta:.3g}", rounded_up(plain))
    out.print(table)
    out.print(
        f"In total at most {total}, for a person in at most {per_person} of the {tasks} tasks. A task costs only the "
        "people in it, so the number of tasks is not limited."
    )


def _task(total: Budget, rate: float | None, steps: int | None, times: int) -> "tuple[DpEvent, float]":
    """The event and noise of one task if `times` such tasks use up the budget."""
    from tacit.privacy.accounting import calibrate, events
    from tacit.privacy.vault import GradientPlan

    if rate is None or steps is None:
        noise = calibrate.gaussian_noise(total, times)
        return events.gaussian(noise), noise
    plan = GradientPlan.for_budget(total, rate=rate, steps=steps, tasks_per_unit=times)
    return plan.event, plan.noise


def _answer(
    event: "DpEvent", delta: float, adjacency: Adjacency, noise: float, steps: int | None, inputs: Inputs
) -> Answer:
    from tacit.privacy.accounting.epsilon import Method, epsilon

    values = [epsilon(event, delta, adjacency, how) for how in (Method.BEST, Method.RDP, Method.PLD)]
    best, rdp, pld = (value if math.isfinite(value) else None for value in values)
    return Answer(epsilon=best, rdp=rdp, pld=pld, noise=noise, steps=steps, inputs=inputs)


def _check_range(*, steps: int = 1, delta: float = 0.5, noise: float = 1.0) -> None:
    """Refuses numbers out of range, by the names of the options."""
    if steps > MOST_STEPS:
        raise PlanError(f"steps must be at most {MOST_STEPS:,}, got {steps}")
    if not 0 <= delta < 1:
        raise PlanError(f"delta must be between 0 and 1, got {delta}; use less than 1 / (number of units)")
    if not noise > 0:
        raise PlanError(f"noise must be > 0, got {noise:g}; without noise no finite ε holds")
    if math.isfinite(noise) and noise > MOST_NOISE:
        raise PlanError(f"noise must be at most {MOST_NOISE:g}, got {noise:g}; it is a multiple of the clipping norm")
