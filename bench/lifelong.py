"""What a task costs LifelongDP as the stream grows: time and stored bytes of a task, in a stream of 1,000.

    python bench/lifelong.py [TASKS]

500 records a task, 64 numbers each, 10 labels, 100 random features, the same labels in all tasks (`routed`). `learn`:
admit, bill, two releases, the task's classifier, retire; `certificate`: issued from the ledger; `predict`: 1,000 rows,
task not given. Medians over the last tenth of the tasks so far, as ratios to the first row too.
"""

import statistics
import sys
import time

import numpy as np
import torch

from tacit import Budget, Ledger, LifelongDP, StreamInfo, Vault
from tacit.learners.base.task_loop import admit

RECORDS, SIZE, LABELS = 500, 64, 10


def main(tasks: int) -> None:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    info = StreamInfo.uniform("s", labels=range(LABELS), shape=(SIZE,), size=RECORDS, tasks=tasks, public=True)
    learner = LifelongDP(budget=Budget(epsilon=1.0, delta=1e-5), width=100, combine="routed")
    learner.start(info)
    learned: list[float] = []
    first: list[float] = []
    with Ledger.throwaway() as ledger:
        vault = Vault(ledger)
        for number, task in enumerate(info.tasks):
            x, y = rng.normal(size=(RECORDS, SIZE)).astype(np.float32), rng.integers(0, LABELS, RECORDS)
            begun = time.perf_counter()
            block = admit(vault, (x, y), info, task, learner.budget)
            learner.fit(task, block, vault)
            learner.on_saved(block, vault)
            learned.append(time.perf_counter() - begun)
            learner.tasks_ = (*learner.tasks_, task)
            done = number + 1
            if done not in (10, 30, 100, 300, 1000, tasks):
                continue
            begun = time.perf_counter()
            learner.certify(block, vault)
            certified = time.perf_counter()
            learner.scores(torch.from_numpy(rng.normal(size=(1000, SIZE)).astype(np.float32)))
            asked = time.perf_counter()
            stored = sum(value.numel() * value.element_size() for value in learner.tensors().values())
            now = [statistics.median(learned[-max(5, done // 10) :]), certified - begun, asked - certified]
            first = first or now
            said = ", ".join(
                f"{what} {1000 * value:7.1f} ms ({value / start:4.2f})"
                for what, value, start in zip(("learn", "certificate", "predict"), now, first, strict=True)
            )
            print(f"{done:5} tasks: {said}, stored {stored / done / 1e3:6.1f} kB a task", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
