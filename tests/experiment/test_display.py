"""What a person sees: lines or bars while it runs, then the table."""

import io
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tacit.experiment.display import display
from tacit.experiment.progress import Event
from tacit.experiment.runs.run_summary import RunSummary
from tacit.experiment.sweeps.table import show
from tacit.metrics import Summary as Spread
from tacit.words import accuracy_percent

STORY = (
    Event(kind="notice", name="this run is charged to [data].ledger"),
    Event(kind="begin", seed=3, tasks=2),
    Event(kind="step", seed=3, tasks=2, name="june", step=0, of=10),
    Event(kind="step", seed=3, tasks=2, name="june", step=5, of=10, epsilon=0.5),
    Event(kind="task", seed=3, tasks=2, name="june", accuracy=0.75, epsilon=0.5),
    Event(kind="task", seed=3, tasks=2, task=1, name="july", epsilon=math.inf),
    Event(kind="done", seed=3, tasks=2, task=2),
)


def shown(*, terminal: bool, quiet: bool = False) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=140, markup=False, highlight=False)
    with display(console, quiet=quiet) as progress:
        for said in STORY:
            progress(said)
    return file.getvalue()


def test_lines_where_there_is_no_terminal() -> None:
    assert shown(terminal=False).splitlines() == [
        "this run is charged to [data].ledger",
        "seed 3: 2 tasks",
        "seed 3: task 1/2 june released, accuracy on tasks so far 75.0%, ε committed 0.5",
        "seed 3: task 2/2 july released, not private",
    ]


def test_a_stream_without_end_says_so() -> None:
    file = io.StringIO()
    with display(Console(file=file, width=140), quiet=False) as progress:
        progress(Event(kind="begin", seed=0, task=4))
    assert file.getvalue() == "seed 0: learning from an endless stream, going on after task 4\n"


def test_bars_on_a_terminal_and_nothing_when_quiet() -> None:
    found = shown(terminal=True)
    assert "seed 3" in found and "done" in found and "[data].ledger" in found
    assert shown(terminal=True, quiet=True) == ""


def test_what_is_not_private_is_red() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system="standard", width=140, markup=False, highlight=False)
    with display(console, quiet=False) as progress:
        progress(Event(kind="step", seed=3, tasks=2, name="june", step=5, of=10, epsilon=math.inf))
    assert "\x1b[1;31mnot private" in file.getvalue()
    shown = io.StringIO()
    bound = {"epsilon_certified": None, "epsilon_certified_reason": "one draw of noise"}
    table(Console(file=shown, force_terminal=True, color_system="standard", width=160, markup=False), **bound)
    assert "\x1b[1;31mno finite epsilon is certified: one draw of noise" in shown.getvalue()


def figure(mean: float) -> dict[str, Any]:
    return {"mean": mean, "std": 0.01, "per_seed": [mean, mean]}


def table(console: Console | None = None, **changes: Any) -> str:
    metrics = {
        "method": "DPCL", "tasks": 2, "seeds": [0, 1], "task_id": "given", "accuracy": "public test set",
        "average_accuracy": figure(0.5), "forgetting": figure(0.1), "worst_forgetting": figure(0.2),
        "lca": {"paper": figure(0.3), "trapezium": figure(0.3), "beta": 10},
        "epsilon_claimed": {"per_task": 2.32, "total": 39.4, "delta": 1e-4},
        "epsilon_certified": {"per_record": 1.0, "task_wise": 1.0, "all_tasks": 3.0, "delta": 1e-5, "unit": "record"},
        "epsilon_certified_reason": "a unit that is in one task only",
        **changes,
    }  # fmt: skip
    spread = Spread(mean=0.25, std=0.02, seeds=2)
    file = io.StringIO()
    summary = RunSummary(
        folder=Path("r"), metrics=metrics, tasks=("june", "july"), last_row=(spread, spread), claim="Lemma 2",
        private=True, certificate=Path("r/c.json"),
    )  # fmt: skip
    show(summary, console or Console(file=file, width=160, markup=False, highlight=False))
    return file.getvalue()


def test_the_table_says_what_people_ask() -> None:
    found = table()
    for words in ("DPCL, 2 tasks, 2 seeds", "june", "25.0% ± 2.0%", "task given at test", "50.0% ± 1.0%"):
        assert words in found
    assert "2.32 per task, 39.4 in all, δ = 0.0001 (the paper's own, not certified; Lemma 2)" in found
    assert "1 per record, δ = 1e-05 (a unit that is in one task only; 3 for one that is in every task)" in found


@pytest.mark.parametrize("key", ["average_accuracy", "lca", "forgetting"])
def test_what_was_not_measured_is_said(key: str) -> None:
    assert "not measured" in table(**{key: None})


def test_a_noisy_accuracy_is_printed_within_its_bounds() -> None:
    """A charged query can lie outside; a forgetting below 0 is a gain."""
    found = table(average_accuracy=figure(-0.489), forgetting=figure(-0.2), accuracy_noise=0.6)
    assert "0.0% ± 1.0%" in found and "-48.9%" not in found and "-20.0%" in found
    assert "printed within 0–100 %, and in metrics.json and accuracy.csv as released" in " ".join(found.split())
    assert [accuracy_percent(value) for value in (-0.1, 0.5, 1.3)] == ["0.0%", "50.0%", "100.0%"]
    file = io.StringIO()
    with display(Console(file=file, width=140, markup=False, highlight=False), quiet=False) as progress:
        progress(Event(kind="task", seed=3, tasks=2, name="june", accuracy=-0.489, epsilon=0.5))
    assert "accuracy on tasks so far 0.0%" in file.getvalue()


def test_no_privacy_is_said() -> None:
    found = table(epsilon_certified=None, epsilon_certified_reason="records were let out raw", epsilon_claimed=None)
    assert "no finite epsilon is certified: records were let out raw" in found
