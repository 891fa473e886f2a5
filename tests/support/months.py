"""A private table of visits that grows by a month at a time, its declaration, and runs on it."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml
from typer.testing import CliRunner, Result

from support.blobs import make_config
from tacit.cli import app
from tacit.experiment.config.config import Config
from tacit.experiment.runs.runner import run
from tacit.privacy.ledger import Ledger

MONTHS = ("2026-01", "2026-02", "2026-03")


HEADER = "patient,visit,month,age,pulse,diagnosis\n"


def rows(month: str) -> str:
    """Eighty patients; half of them come again in the next month."""
    number = int(month[-2:])
    rng = np.random.default_rng(number)
    ill = rng.integers(0, 2, 80)
    age, pulse = rng.uniform(20, 90, 80), 60 + 50 * ill + rng.uniform(-9, 9, 80)
    return "".join(
        f"{40 * number + n},{month}/{n},{month},{age[n]:.1f},{pulse[n]:.1f},{('well', 'sick')[ill[n]]}\n"
        for n in range(80)
    )


def declare(folder: Path, **changes: Any) -> Path:
    """A declaration of three months, and a table that has none of them yet."""
    facts: dict[str, Any] = {
        "name": "visits", "files": {"train": "visits.csv"},
        "columns": {"label": "diagnosis", "task": "month", "person": "patient"},
        "features": ["age", "pulse"], "scaling": {"age": [0, 100], "pulse": [30, 200]}, "labels": ["well", "sick"],
        "tasks": [{"name": month, "size": 80} for month in MONTHS], "unit": "person", "tasks_per_unit": 2,
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / "visits.csv").write_text(HEADER)
    (folder / "visits.yaml").write_text(yaml.safe_dump(facts | changes))
    return folder / "visits.yaml"


def grow(declared: Path, *months: str) -> None:
    with declared.with_name("visits.csv").open("a") as file:
        file.writelines(rows(month) for month in months)


def config_of(declared: Path, method: str, **changes: Any) -> Config:
    learner = {"method": method, "steps": 6, "batch": 20, "lr": 0.5}
    return make_config(data={"source": str(declared), "scenario": "declared"}, learner=learner, **changes)


def ends(folder: Path) -> dict[str, bytes]:
    """All that two runs must agree on."""
    found = {name: (folder / name).read_bytes() for name in ("metrics.json", "accuracy.csv")}
    return found | {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("model.safetensors")}


def in_one_go(folder: Path, method: str) -> dict[str, bytes]:
    declared = declare(folder, public=True)
    grow(declared, *MONTHS)
    run(config_of(declared, method), folder / "r")
    return ends(folder / "r")


def charged(ledger: Path) -> list[tuple[int, str, str, tuple[str, ...]]]:
    """Every grant: its number, kind and state, and the months that it read."""
    with Ledger(ledger) as book:
        book.verify()
        statement = book.statement(1)
        assert statement.epsilon <= 2.0
        months = {block.row.id: block.row.task for block in statement.blocks}
        return [
            (grant.id, grant.kind, grant.state, tuple(sorted({months[block] for block, _ in grant.reads})))
            for grant in statement.grants
        ]


def begun(folder: Path) -> tuple[Config, Path]:
    """A private run that has learned two months of three."""
    declared = declare(folder)
    grow(declared, *MONTHS[:2])
    config = config_of(declared, "NaiveDPSGD", repeatable_noise=False)
    run(config, folder / "r", ledger=folder / "visits.ledger", until=MONTHS[1])
    return config, folder / "r"


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def tacit(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))
