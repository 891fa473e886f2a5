"""Learns from a private CSV file: one task a month, one release after each, people protected.

The same with commands instead of Python:

    tacit data declare visits.csv
    tacit run visits.yaml --ledger visits.ledger --epsilon 2
"""

import sys
from pathlib import Path

import numpy as np
import yaml

from tacit import Certificate, run

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "own-csv")
folder.mkdir(parents=True, exist_ok=True)

# A private file: in practice yours. A line is a visit of a patient in a month.
rng = np.random.default_rng(0)
lines = ["patient,month,age,pressure,diagnosis"]
for month in ("2026-01", "2026-02", "2026-03"):
    for patient in rng.choice(2000, size=400, replace=False):
        sick = rng.random() < 0.5
        age, pressure = (rng.normal(60, 8), rng.normal(150, 10)) if sick else (rng.normal(40, 8), rng.normal(120, 10))
        lines.append(f"{patient},{month},{age:.0f},{pressure:.0f},{'sick' if sick else 'well'}")
(folder / "visits.csv").write_text("\n".join(lines) + "\n")

# The declaration: public facts that you know without looking at the data. Nothing is inferred from the file.
declaration = {
    "name": "visits",  # the ledger finds the budget of the data by this name
    "files": {"train": "visits.csv"},
    "columns": {"label": "diagnosis", "task": "month", "person": "patient"},
    "features": ["age", "pressure"],
    "scaling": {"age": [0, 100], "pressure": [80, 200]},  # public bounds; values outside are clipped
    "labels": ["well", "sick"],
    "tasks": [{"name": f"2026-0{n}", "size": 400} for n in (1, 2, 3)],  # expected numbers of patients
    "unit": "person",
    "tasks_per_unit": 3,  # a patient may come in every month, at most once in each
}
(folder / "visits.yaml").write_text(yaml.safe_dump(declaration))

# The configuration. Accuracy is a charged query, because there is no public test file.
config = {
    "name": "visits",
    "data": {"source": str(folder / "visits.yaml")},
    "learner": {"method": "MomentsClassifier"},
    "budget": {"epsilon": 2.0, "delta": 1e-5, "unit": "person"},
    "seeds": 1,
}
summary = run(config, folder / "run", ledger=folder / "visits.ledger")

# Every task has a release: model.safetensors, release.json and certificate.json.
for release in sorted((folder / "run").glob("seeds/*/releases/*")):
    certificate = Certificate.load(release / "certificate.json")
    print(f"{release.name}: certified ε = {certificate.epsilon:.3g} for a person")
print(f"results and releases: {summary.folder}")
