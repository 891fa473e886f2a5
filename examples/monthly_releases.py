"""One release a month from separate processes, under one budget.

Each month a new process opens the last release, learns the new month and saves the next release. The ledger outlives
the processes: it belongs to the data, holds what was charged, and refuses whatever exceeds the budget.

    python examples/monthly_releases.py FOLDER              # all months, each in a process of its own
    python examples/monthly_releases.py FOLDER 2026-02      # one month, as a monthly job would call it
"""

import subprocess
import sys
from pathlib import Path

import numpy as np

from tacit import Budget, Certificate, MomentsClassifier, StreamInfo

MONTHS = ("2026-01", "2026-02", "2026-03")
BUDGET = Budget(epsilon=1.0, delta=1e-5)  # for each record, over the whole stream
# Public facts: labels, the shape of a record, the expected number of records, and the number of tasks to come.
INFO = StreamInfo.uniform("scans", labels=range(5), shape=16, size=500, tasks=len(MONTHS))


def records(month: str) -> tuple[np.ndarray, np.ndarray]:
    """Private records of a month: in practice yours."""
    rng = np.random.default_rng(MONTHS.index(month))
    labels = rng.integers(0, 5, size=500)
    centres = np.random.default_rng(99).normal(size=(5, 16))
    return (centres[labels] + rng.normal(size=(500, 16))).astype(np.float32), labels


def learn(folder: Path, month: str) -> None:
    """Learns one month and saves its release."""
    number = MONTHS.index(month)
    if number == 0:
        learner = MomentsClassifier(
            stream=INFO, budget=BUDGET, backbone=None, ledger=folder / "scans.ledger", store=folder / "private"
        )
    else:
        learner = MomentsClassifier.from_release(
            folder / MONTHS[number - 1], ledger=folder / "scans.ledger", store=folder / "private"
        )
    learner.partial_fit(*records(month))
    learner.save(folder / month)  # model.safetensors, release.json, certificate.json: safe to publish


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "monthly-releases")
    folder.mkdir(parents=True, exist_ok=True)
    if len(sys.argv) > 2:
        learn(folder, sys.argv[2])
        return
    for month in MONTHS:
        subprocess.run([sys.executable, __file__, str(folder), month], check=True)
        certificate = Certificate.load(folder / month / "certificate.json")
        print(f"{month}: certified ε = {certificate.epsilon:.3g}")
    learner = MomentsClassifier.from_release(folder / MONTHS[-1])
    x, y = records("2026-03")
    print(f"accuracy of the last release: {np.mean(learner.predict(x) == y):.1%}")


if __name__ == "__main__":
    main()
