"""The summary table of a run: accuracy per task, forgetting, ε claimed, ε certified."""

import math
import shlex
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit.experiment.runs import record_counts
from tacit.experiment.runs.arrival import FILE as ARRIVED
from tacit.experiment.runs.run_summary import RunSummary
from tacit.metrics import Summary
from tacit.words import counted, within_bounds


def show(summary: RunSummary, console: Console) -> None:
    """Print the results of a run, and for one with tasks left how to continue it."""
    found = summary.metrics
    seeds = len(found["seeds"])
    console.print()
    tasks = counted(found["tasks"] + len(summary.left), "task")
    if summary.left:
        tasks = f"{found['tasks']} of {tasks}"
    console.print(Text(f"{found['method']}, {tasks}, {counted(seeds, 'seed')}", style="bold"))
    if summary.last_row:
        console.print(_accuracies(summary))
    console.print(_figures(summary))
    if (noise := found.get("accuracy_noise")) is not None:
        console.print(
            f"accuracies are charged queries with a standard deviation of up to {noise:.1%}, from the noise and the "
            "random test split; printed within 0–100 %, and in metrics.json and accuracy.csv as released",
            style="dim",
        )
    for caveat in found.get("caveats", ()):
        console.print(caveat, style="dim")
    console.print()
    console.print(f"certificate  {summary.certificate}")
    console.print(f"run folder   {summary.folder}")
    if summary.left:
        more = f"tacit run {shlex.quote(str(summary.folder))} --resume"
        next_one, private = shlex.quote(summary.left[0]), (summary.folder / ARRIVED).exists()
        way = f"--arrived {next_one}" if private else f"--until {next_one}, or without --until for all remaining tasks"
        console.print(f"learned up to {summary.tasks[-1]}; when the data of {summary.left[0]} are there: {more} {way}")


def _accuracies(summary: RunSummary) -> Table:
    known = "task given at test" if summary.metrics["task_id"] == "given" else "task not given at test"
    how = f"{summary.metrics['accuracy']}, {known}"
    table = Table("task", f"accuracy after the last task ({how})", box=None, padding=(0, 2, 0, 0))
    for name, value in zip(summary.tasks, summary.last_row, strict=True):
        table.add_row(name, accuracy(value))
    return table


def _figures(summary: RunSummary) -> Table:
    found = summary.metrics
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(overflow="fold")
    lca = found["lca"]
    table.add_row("average accuracy", of_accuracy(found["average_accuracy"]))
    table.add_row("forgetting", of(found["forgetting"]))
    table.add_row("worst forgetting", of(found["worst_forgetting"]))
    table.add_row(
        f"learning curve area, {lca['beta']} steps" if lca else "learning curve area", of((lca or {}).get("paper"))
    )
    if (records := found.get("consumption")) is not None:
        table.add_row("records, expected", record_counts.sentence(records))
    table.add_row("ε claimed", _claimed(found["epsilon_claimed"], summary.claim))
    table.add_row("ε certified", _certified(summary))
    return table


def _claimed(claimed: Mapping[str, float] | None, formula: str) -> str:
    if claimed is None:
        return "none: the method has no formula for ε"
    return (
        f"{claimed['per_task']:.3g} per task, {claimed['total']:.3g} in all, δ = {claimed['delta']:g} "
        f"(the paper's own, not certified; {formula})"
    )


def _certified(summary: RunSummary) -> Text:
    certified, reason = summary.metrics["epsilon_certified"], summary.metrics["epsilon_certified_reason"]
    if certified is None:
        return Text(f"no finite epsilon is certified: {reason}", style="bold red")
    every = certified["all_tasks"]
    more = "" if every is None else f"; {every:.3g} for one that is in every task"
    return Text(
        f"{certified['per_record']:.3g} per {certified['unit']}, δ = {certified['delta']:g} ({reason}{more})",
        style="green",
    )


def of(figure: Mapping[str, Any] | None) -> str:
    """A figure of `metrics.json`, with its spread over seeds."""
    if figure is None:
        return "not measured"
    return share(figure["mean"], math.nan if figure["std"] is None else figure["std"])


def of_accuracy(figure: Mapping[str, Any] | None) -> str:
    """A figure of `metrics.json` that is an accuracy, with its spread over seeds; printed from 0 to 100 %."""
    return of(None if figure is None else {**figure, "mean": within_bounds(figure["mean"])})


def accuracy(value: Summary) -> str:
    """An accuracy as a percentage from 0 to 100, with its spread over seeds."""
    return share(within_bounds(value.mean), value.std)


def percent(value: Summary) -> str:
    """A share as a percentage, with its spread over seeds."""
    return share(value.mean, value.std)


def share(mean: float, std: float) -> str:
    """A share as a percentage, with its spread over seeds."""
    if math.isnan(mean):
        return "not measured"
    return f"{mean:.1%}" if math.isnan(std) else f"{mean:.1%} ± {std:.1%}"
