"""`tacit budget`: what a plan costs and what a budget buys, before any record is read."""

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from tacit.commands._shared import Json, out, sentences
from tacit.errors import PlanError
from tacit.privacy.budget import Adjacency, Budget, Unit
from tacit.words import counted

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

budget = typer.Typer(
    no_args_is_help=True, help="Plan ahead: the epsilon of a plan; the noise, the steps or the months of a budget."
)

Epsilon = Annotated[float, typer.Option(help="The most that one unit may lose, > 0.")]
Delta = Annotated[float, typer.Option(help="Between 0 and 1; less than one over the number of units.")]
Rate = Annotated[float, typer.Option(help="Chance of a unit to be in a step: expected batch over units, in (0, 1].")]
Noise = Annotated[float, typer.Option(help="Noise multiplier: standard deviation over the clip, > 0.")]
Steps = Annotated[int, typer.Option(help="Noisy gradient steps, >= 1.")]
Neighbours = Annotated[Adjacency, typer.Option(help="Which change of the data is hidden.")]

MOST_STEPS = 10**15
MOST_TASKS = 10**9
MOST_NOISE = 1e12
"""Beyond these the accountants have no digits left; no plan comes near."""
SEARCHED = 10**9 - 1
"""The most steps that are looked for when a budget is turned into steps."""

Inputs = dict[str, float | int | str | None]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What `--json` prints: these keys in every command, null where one does not apply or is not finite."""

    epsilon: float | None
    """The smaller of the two bounds that follow."""
    rdp: float | None
    pld: float | None
    noise: float
    steps: int | None
    inputs: Inputs

    def print_json(self) -> None:
        out.print_json(json.dumps(asdict(self), allow_nan=False))

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
    """The ε of a plan: noisy clipped gradients, each unit drawn by its own secret coin."""
    from tacit.privacy.plan import GradientPlan

    with sentences():
        _possible(steps=steps, delta=delta, noise=noise)
        plan = GradientPlan(rate=rate, steps=steps, noise=noise)
        inputs: Inputs = {"rate": rate, "noise": noise, "steps": steps, "delta": delta, "adjacency": str(adjacency)}
        found = _answer(plan.event, delta, adjacency, noise, steps, inputs)
    if as_json:
        return found.print_json()
    out.print(found.bounds)


@budget.command("noise")
def noise_for(
    epsilon: Epsilon,
    rate: Rate,
    steps: Steps,
    delta: Delta = 1e-5,
    adjacency: Neighbours = Adjacency.ADD_OR_REMOVE,
    as_json: Json = False,
) -> None:
    """The least noise that keeps a plan within a budget."""
    from tacit.privacy.plan import GradientPlan

    with sentences():
        whole = Budget(epsilon=epsilon, delta=delta, adjacency=adjacency)
        _possible(steps=steps)
        plan = GradientPlan.for_budget(whole, rate=rate, steps=steps)
        inputs: Inputs = {"epsilon": epsilon, "rate": rate, "steps": steps, "delta": delta, "adjacency": str(adjacency)}
        found = _answer(plan.event, delta, adjacency, plan.noise, steps, inputs)
    if as_json:
        return found.print_json()
    out.print(f"noise {_rounded_up(found.noise)} is enough: {found.bounds}")


@budget.command("steps")
def steps_for(
    epsilon: Epsilon,
    rate: Rate,
    noise: Noise,
    delta: Delta = 1e-5,
    adjacency: Neighbours = Adjacency.ADD_OR_REMOVE,
    as_json: Json = False,
) -> None:
    """The most steps that a budget allows."""
    from tacit.privacy import calibrate
    from tacit.privacy.plan import GradientPlan

    with sentences():
        whole = Budget(epsilon=epsilon, delta=delta, adjacency=adjacency)
        _possible(noise=noise)
        plan = GradientPlan(rate=rate, steps=1, noise=noise)
        if not calibrate.fits(plan.event, whole):
            least = calibrate.gradient_noise(whole, rate, 1)
            raise PlanError(
                f"not even one step at rate {rate:g} with noise {noise:g} meets {whole}; "
                f"noise {_rounded_up(least)} allows one, and a smaller rate needs less"
            )
        plan = replace(plan, steps=calibrate.gradient_steps(whole, rate, noise))
        inputs: Inputs = {"epsilon": epsilon, "rate": rate, "noise": noise, "delta": delta, "adjacency": str(adjacency)}
        found = _answer(plan.event, delta, adjacency, noise, plan.steps, inputs)
    if as_json:
        return found.print_json()
    bound = "at least " if plan.steps >= SEARCHED else ""
    out.print(f"{bound}{counted(plan.steps, 'step')} fit{'s' if plan.steps == 1 else ''}: {found.bounds}")


@budget.command("stream")
def stream(
    tasks: Annotated[int, typer.Option(help="Tasks of the stream, months say.")],
    per_person: Annotated[int, typer.Option(help="In how many of them one person may be at most.")],
    epsilon: Epsilon,
    delta: Delta = 1e-5,
    rate: Annotated[float | None, typer.Option(help="With --steps: each task is DP-SGD at this rate.")] = None,
    steps: Annotated[int | None, typer.Option(help="With --rate: steps of each task.")] = None,
    adjacency: Neighbours = Adjacency.ADD_OR_REMOVE,
    as_json: Json = False,
) -> None:
    """What each task may spend when a person is in at most so many of them.

    Without --rate and --steps each task is one release with Gaussian noise.
    """
    with sentences():
        if tasks < 1:
            raise PlanError(f"tasks must be a whole number >= 1, got {tasks}")
        if tasks > MOST_TASKS:
            raise PlanError(f"tasks must be at most {MOST_TASKS:,}, got {tasks}")
        if steps is not None:
            _possible(steps=steps)
        if not 1 <= per_person <= tasks:
            raise PlanError(f"per-person must be between 1 and the {tasks} tasks of the stream, got {per_person}")
        if (rate is None) != (steps is None):
            raise PlanError("a task of gradient steps needs both --rate and --steps; leave out both for one release")
        whole = Budget(epsilon=epsilon, delta=delta, unit=Unit.PERSON, adjacency=adjacency)
        event, noise = _task(whole, rate, steps, per_person)
        inputs: Inputs = {"tasks": tasks, "per_person": per_person, "epsilon": epsilon, "delta": delta}
        inputs |= {"rate": rate, "steps": steps, "adjacency": str(adjacency)}
        found = _answer(event, delta, adjacency, noise, steps, inputs)
        if as_json:
            return found.print_json()
        share = replace(whole, epsilon=epsilon / per_person, delta=delta / per_person)
        _, plain = _task(share, rate, steps, 1)
    table = Table("each task", "ε", "at δ", "noise", box=None)
    table.add_row("by the accountant", f"{found.epsilon:.4g}", f"{delta:g}", _rounded_up(noise))
    table.add_row("by basic composition", f"{share.epsilon:.4g}", f"{share.delta:.3g}", _rounded_up(plain))
    out.print(table)
    out.print(
        f"Together at most {whole}, for a person in at most {per_person} of the {tasks} tasks: the accountant composes "
        "what those do together, and tasks without a person cost that person nothing, so the stream may go on for ever."
    )


def _task(whole: Budget, rate: float | None, steps: int | None, times: int) -> "tuple[DpEvent, float]":
    """One task's event and noise, if `times` of them fill the budget."""
    from tacit.privacy import calibrate, events
    from tacit.privacy.plan import GradientPlan

    if rate is None or steps is None:
        noise = calibrate.gaussian_noise(whole, times)
        return events.gaussian(noise), noise
    plan = GradientPlan.for_budget(whole, rate=rate, steps=steps, tasks_per_unit=times)
    return plan.event, plan.noise


def _answer(
    event: "DpEvent", delta: float, adjacency: Adjacency, noise: float, steps: int | None, inputs: Inputs
) -> Answer:
    from tacit.privacy.accounting import Method, epsilon

    best, rdp, pld = (_finite(epsilon(event, delta, adjacency, how)) for how in (Method.BEST, Method.RDP, Method.PLD))
    return Answer(epsilon=best, rdp=rdp, pld=pld, noise=noise, steps=steps, inputs=inputs)


def _possible(*, steps: int = 1, delta: float = 0.5, noise: float = 1.0) -> None:
    """Refuse numbers that no plan has, by the names that the options have."""
    if steps > MOST_STEPS:
        raise PlanError(f"steps must be at most {MOST_STEPS:,}, got {steps}")
    if not 0 <= delta < 1:
        raise PlanError(f"delta must be between 0 and 1, got {delta}; use less than one over the number of units")
    if math.isfinite(noise) and noise > MOST_NOISE:
        raise PlanError(f"noise must be at most {MOST_NOISE:g}, got {noise:g}; it is a multiple of the clip")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _rounded_up(noise: float) -> str:
    """Four digits, and never less noise than was found: what a person copies must still fit."""
    digit = 10.0 ** (math.floor(math.log10(noise)) - 3)
    return f"{math.ceil(noise / digit) * digit:.4g}"
