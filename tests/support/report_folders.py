"""Run folders for the tests of reports: a tiny trained sweep, and folders made by hand with any names and sizes."""

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tacit.experiment import Sweep, sweep
from tacit.experiment.attacks.attacked import attack_run
from tacit.experiment.config.attack_section import AttackSection

HOSTILE = "<script>window.hacked = 1</script>"
LONG = "x" * 10_000
RIGHT_TO_LEFT = "\u202eשלום \u202e<b>"

BASE: dict[str, Any] = {
    "name": "tiny",
    "data": {"source": "digits", "scenario": "permuted", "tasks": 3, "limit": 90},
    "learner": {"method": "DPCL", "steps": 4, "batch": 30, "lr": 0.5, "memory_share": 0.3, "memory_batch": 10},
    "model": {"network": "mlp", "hidden": [8]},
    "budget": {"epsilon": 2.0, "delta": 1e-3},
    "seeds": 2,
    "lca": 2,
    "threads": 1,
}
AGEM = {"learner.method": "AGEM", "learner.steps": None, "learner.lr": 0.1, "learner.memory_batch": 8}
CELLS = [AGEM, {"learner.method": "DPCL"}, {"learner.method": "RoutedExperts"}]


def tiny_sweep(folder: Path) -> Path:
    """Train three learners on three tiny tasks with two seeds, and attack the second."""
    plan = Sweep.model_validate(
        {"kind": "sweep", "name": "tiny", "description": "Three tiny learners.", "base": BASE, "cells": CELLS}
    )
    cells = sweep(plan, folder, processes=1)
    assert all(cell.status == "done" for cell in cells)
    attack_run(cells[1].folder.path, AttackSection(kinds=("fgsm",), rows=20, certificates=0), keep=True)
    return folder


def cell(folder: Path, method: str) -> Path:
    """The folder of a learner in the tiny sweep."""
    return next(path for path in folder.iterdir() if path.name.startswith(f"method={method}"))


def by_hand(folder: Path, like: Path, *, method: str, tasks: int, seeds: int = 3, level: float = 0.8) -> Path:
    """A run folder with made-up accuracies and the certificate of a real run."""
    names = [f"task-{number + 1}" for number in range(tasks)]
    folder.mkdir(parents=True)
    config = {"kind": "run", "name": "made up", "learner": {"method": method}, "seeds": [*range(seeds)]}
    (folder / "config.yaml").write_text(yaml.safe_dump(config, allow_unicode=True))
    certificate = next(like.rglob("certificate.json"))
    for seed in range(seeds):
        place = folder / "seeds" / f"seed-{seed}"
        (place / "releases" / "01-task").mkdir(parents=True)
        shutil.copy(certificate, place / "releases" / "01-task")
        lines: list[dict[str, Any]] = []
        for after in range(tasks):
            row = [level - 0.02 * (after - on) + 0.01 * math.sin(7 * seed + on) for on in range(after + 1)]
            lines.append({"task": after, "accuracy": [*row, *[None] * (tasks - after - 1)]})
        end = {"finished": True, "tasks": names, "left": [], "sequential": True, "accuracy_from": "public test set"}
        lines.append({**end, "claimed": None, "claim": "", "private": True, "task_id": "hidden", "caveats": []})
        (place / "progress.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def many(folder: Path, like: Path, runs: int, tasks: int) -> Path:
    """A folder of many runs made by hand."""
    for number in range(runs):
        by_hand(folder / f"run-{number:02d}", like, method="DPCL", tasks=tasks, level=0.5 + 0.4 * number / runs)
    return folder


def hostile(folder: Path, like: Path, methods: Sequence[str] = (HOSTILE, LONG, RIGHT_TO_LEFT)) -> Path:
    """A sweep whose runs, tasks and descriptions have hostile names."""
    for number, method in enumerate(methods):
        run = by_hand(folder / f"run-{number}", like, method=method, tasks=3)
        for log in run.rglob("progress.jsonl"):
            text = log.read_text().replace("task-1", "</script><img src=x onerror=alert(1)>")
            log.write_text(text.replace("public test set", method[:200].replace('"', "")))
    names = [{"learner.method": method} for method in methods]
    plan = {"kind": "sweep", "name": "bad", "description": methods[0], "base": {}, "cells": names}
    (folder / "sweep.yaml").write_text(yaml.safe_dump(plan, allow_unicode=True))
    from tacit.experiment.sweeps.sweep import cell_name

    for number, changes in enumerate(names):
        (folder / f"run-{number}").rename(folder / cell_name(changes))
    return folder
