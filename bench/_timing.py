"""Paired rounds: every variant is timed in every round, next to the plain step it is compared with."""

import statistics
import time
from collections.abc import Callable

import torch

Step = Callable[[], object]


def rounds(steps: dict[str, Step], *, count: int, seconds: float, base: str) -> dict[str, dict[str, float]]:
    """Milliseconds and ratio to `base` of each step: medians over `count` rounds of about `seconds` for each step."""
    inner: dict[str, int] = {}
    for name, step in steps.items():
        step()
        step()
        start = time.perf_counter()
        step()
        inner[name] = max(1, int(seconds / max(time.perf_counter() - start, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(count):
        for name, step in steps.items():
            start = time.perf_counter()
            for _ in range(inner[name]):
                step()
            times[name].append((time.perf_counter() - start) / inner[name])
    return {
        name: {
            "ms": 1e3 * statistics.median(t),
            "ratio": statistics.median(a / b for a, b in zip(t, times[base], strict=True)),
        }
        for name, t in times.items()
    }


def peak_extra(step: Step) -> float:
    """Megabytes that torch's allocator holds at most during a step, above what it held before."""
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as found:
        step()
    results = found.profiler.kineto_results if found.profiler else None
    events = [] if results is None else [e for e in results.events() if e.name() == "[memory]"]
    held = top = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        top = max(top, held)
    return top / 1e6
