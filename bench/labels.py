"""Time and memory of the moments classifier against the number of labels and of tasks.

    python bench/labels.py

512 features, 20,000 records in all, ε = 1. Each row in a process of its own; peak memory is that of the process above
the records. `learn`: admit, two releases, bill; `classifier`: from what was released to weights, after the last task.
"""

import multiprocessing
import resource
import time

import numpy as np
import torch

from tacit import Budget, Ledger, MomentsClassifier, StreamInfo, Vault
from tacit.learners.base.task_loop import admit

WIDTH, RECORDS = 512, 20_000


def measure(labels: int, tasks: int) -> None:
    torch.set_num_threads(2)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(RECORDS, WIDTH)).astype(np.float32), rng.integers(0, labels, RECORDS)
    info = StreamInfo.uniform(
        "s", labels=range(labels), shape=(WIDTH,), size=RECORDS // tasks, tasks=tasks, public=True
    )
    learner = MomentsClassifier(budget=Budget(epsilon=1.0, delta=1e-5))
    learner.start(info)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.perf_counter()
    with Ledger.throwaway() as ledger:
        vault = Vault(ledger)
        for number, task in enumerate(info.tasks):
            block = admit(vault, (x[number::tasks], y[number::tasks]), info, task, learner.budget)
            learner.fit(task, block, vault)
    learned = time.perf_counter()
    learner.classifier()
    made = time.perf_counter()
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    size = sum(value.numel() * value.element_size() for value in learner.tensors().values()) / 1e6
    print(
        f"{labels:6} labels, {tasks:3} tasks: learn {(learned - begun) / tasks:6.2f} s a task, "
        f"classifier {made - learned:6.2f} s, release {size:7.1f} MB, peak {more:6.0f} MB",
        flush=True,
    )


if __name__ == "__main__":
    for labels, tasks in ((100, 10), (1_000, 10), (10_000, 10), (100, 2), (100, 50), (100, 100)):
        process = multiprocessing.get_context("spawn").Process(target=measure, args=(labels, tasks))
        process.start()
        process.join()
