# %% [markdown]
# # Monthly releases under one budget
#
# A hospital ships a new model every month. Each month a *new process* opens the last release, learns the new records and
# saves the next release. The ledger outlives the processes: it holds what was charged, and refuses whatever exceeds the
# budget of the whole stream.

# %%
from pathlib import Path

_ = Path("month.py").write_text('''
import sys
from pathlib import Path

import numpy as np

from tacit import Budget, MomentsClassifier, StreamInfo

MONTHS = ["2026-01", "2026-02", "2026-03"]
# Public facts: labels, shape of a record, expected number of records, number of tasks to come.
INFO = StreamInfo.uniform("scans", labels=range(5), shape=16, size=500, tasks=len(MONTHS))


def records(month):
    """Private records of a month: in practice yours."""
    rng = np.random.default_rng(MONTHS.index(month))
    labels = rng.integers(0, 5, size=500)
    centres = np.random.default_rng(99).normal(size=(5, 16))
    return (centres[labels] + rng.normal(size=(500, 16))).astype(np.float32), labels


def learn(month):
    number = MONTHS.index(month)
    kept = {"ledger": "scans.ledger", "store": "private"}
    if number == 0:
        learner = MomentsClassifier(stream=INFO, budget=Budget(epsilon=1.0, delta=1e-5), backbone=None, **kept)
    else:
        learner = MomentsClassifier.from_release(MONTHS[number - 1], **kept)
    learner.partial_fit(*records(month))
    learner.save(month)  # model.safetensors, release.json, certificate.json: safe to publish


if __name__ == "__main__":
    learn(sys.argv[1])
''')

# %% [markdown]
# Three months, three processes:

# %%
import subprocess
import sys

from tacit import Certificate

for month in ("2026-01", "2026-02", "2026-03"):
    subprocess.run([sys.executable, "month.py", month], check=True)
    certificate = Certificate.load(f"{month}/certificate.json")
    print(f"{month}: certified ε = {certificate.epsilon:.3g} for a record of any month")

# %% [markdown]
# ε does not grow with the months, because a record is in one month only (*parallel composition*), and the certificate says
# that this was declared. Where people recur, declare `tasks_per_unit`, as in [your own CSV file](own_csv.md).
#
# Anybody can use the last release without the ledger and without the records:

# %%
import numpy as np

from month import records
from tacit import MomentsClassifier

learner = MomentsClassifier.from_release("2026-03")
x, y = records("2026-01")
print(f"accuracy on records of January: {np.mean(learner.predict(x) == y):.1%}")

# %% [markdown]
# And an auditor can check that the model belongs to the certificate, and the certificate to the ledger:

# %%
# !tacit certificate verify 2026-03 --ledger scans.ledger

# %% [markdown]
# With commands, for a file that grows: `tacit run visits.yaml … --until 2026-01`, and a month later
# `tacit run RUN --resume --arrived 2026-02` ([resume a run](../how-to/resume.md)).
