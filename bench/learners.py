"""A step of DP-CL over a step of A-GEM: both with batch 100 and reference batch 50, in the second task of a stream.

    python bench/learners.py

MLP 784-256-256-10, 55,000 records a task. Whole steps as a learner takes them: draw, gradients, projection, update; for
DP-CL also the cipher's coins and noise and the journal. Median over steps, alternating runs, one process.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import statistics
import time

import numpy as np
import torch

from tacit import AGEM, DPCL, Budget, Ledger, StreamInfo, Vault
from tacit.learners.base.callbacks import Callback, Step
from tacit.learners.base.learner import Learner
from tacit.learners.base.task_loop import admit

RECORDS, STEPS, ROUNDS = 55_000, 400, 5


def second_task(learner: Learner, info: StreamInfo, data: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Median seconds of a step in the second task."""
    stamps: list[float] = []

    class Stamps(Callback):
        def on_step(self, step: Step) -> None:
            if step.task.number == 1:
                stamps.append(time.perf_counter())

    learner.callback = Stamps()
    learner.start(info)
    with Ledger.throwaway() as ledger:
        vault = Vault(ledger)
        for task, source in zip(info.tasks, data, strict=True):
            learner.learn(task, admit(vault, source, info, task, learner.budget), vault)
    return statistics.median(np.diff(stamps)[20:])


def main() -> None:
    torch.set_num_threads(2)
    rng = np.random.default_rng(0)
    info = StreamInfo.uniform("s", labels=range(10), shape=(784,), size=RECORDS, tasks=2, public=True)
    data = [(rng.random((RECORDS, 784), dtype=np.float32), np.arange(RECORDS) % 10) for _ in info.tasks]
    budget = Budget(epsilon=8.0, delta=1e-5)
    times: dict[str, list[float]] = {"AGEM": [], "DPCL": []}
    for turn in range(ROUNDS):
        pair = {
            "AGEM": AGEM(batch=100, memory_batch=50, steps=STEPS, seed=turn),
            "DPCL": DPCL(batch=100, memory_batch=50, steps=STEPS, seed=turn, budget=budget),
        }
        for name, learner in pair.items():
            times[name].append(second_task(learner, info, data))
    ratios = [private / plain for private, plain in zip(times["DPCL"], times["AGEM"], strict=True)]
    print(f"A-GEM step {1000 * statistics.median(times['AGEM']):.2f} ms")
    print(f"DP-CL step ÷ A-GEM step: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
