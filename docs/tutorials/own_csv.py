# %% [markdown]
# # Your own CSV file
#
# A private table with a label, a task and a person column becomes one released model a month, under one budget for each
# person. Everything below runs as it stands; the records are made up.
#
# **1. The private file.** In practice it is yours. A line is a visit of a patient in a month.

# %%
from pathlib import Path

import numpy as np

rng = np.random.default_rng(0)
lines = ["patient,month,age,pressure,diagnosis"]
for month in ("2026-01", "2026-02", "2026-03"):
    for patient in rng.choice(20_000, size=4000, replace=False):
        sick = rng.random() < 0.5
        age, pressure = (rng.normal(60, 8), rng.normal(150, 10)) if sick else (rng.normal(40, 8), rng.normal(120, 10))
        lines.append(f"{patient},{month},{age:.0f},{pressure:.0f},{'sick' if sick else 'well'}")
_ = Path("visits.csv").write_text("\n".join(lines) + "\n")
print("\n".join(lines[:4]))

# %% [markdown]
# **2. The declaration** holds public facts: what you know without looking at the data. tacit infers nothing from the file,
# since whatever it inferred would be a release. `tacit data declare visits.csv` asks for these facts on a terminal and
# writes the same file.
#
# A patient may come in each of the three months, so the unit is a *person* in up to three tasks.

# %%
_ = Path("visits.yaml").write_text("""
name: visits                 # the ledger finds the budget of the data by this name
files: {train: visits.csv}
columns: {label: diagnosis, task: month, person: patient}
features: [age, pressure]
scaling: {age: [0, 100], pressure: [80, 200]}   # public bounds; values outside are clipped
labels: [well, sick]
tasks:
  - {name: 2026-01, size: 4000}                 # the expected number of patients, not the true one
  - {name: 2026-02, size: 4000}
  - {name: 2026-03, size: 4000}
unit: person
tasks_per_unit: 3
""")
# !tacit data check visits.yaml

# %% [markdown]
# **3. The run.** The ledger belongs to the data: keep it, and use the same one for every run on the same people. It
# charges before a record is read, and refuses what exceeds the budget.

# %%
from tacit import run

config = {
    "name": "visits",
    "data": {"source": "visits.yaml"},
    "learner": {"method": "LifelongDP"},
    "budget": {"epsilon": 2.0, "delta": 1e-5, "unit": "person"},
    "seeds": 1,
}
summary = run(config, "run", ledger="visits.ledger")
print(f"average accuracy {summary.metrics['average_accuracy']['mean']:.1%}")

# %% [markdown]
# Without a public test file, some of the people are held out, and accuracy is a noisy query that is charged as well. The
# command does the same:
#
# ```sh
# tacit run visits.yaml --ledger visits.ledger --epsilon 2 --method LifelongDP
# ```
#
# **4. What was released.** Each task left a model with its certificate.

# %%
from tacit import Certificate

for release in sorted(Path("run").glob("seeds/*/releases/*")):
    certificate = Certificate.load(release / "certificate.json")
    print(f"{release.name}: certified ε = {certificate.epsilon:.3g} for a person")
print("files:", *sorted(file.name for file in release.iterdir()))

# %% [markdown]
# **5. What is left.** The ledger shows what a person may lose in all, and what each block was charged.

# %%
# !tacit ledger show --ledger visits.ledger

# %% [markdown]
# Next: [monthly releases](monthly_releases.md) when tasks arrive over time, [reading a certificate](reading_a_certificate.md),
# and [how to declare](../how-to/data.md) tables, pictures and arrays.
