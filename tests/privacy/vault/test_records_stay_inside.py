"""Private records are read inside the vault and nowhere else: by the import graph, and by who asks in a whole run."""

import ast
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from support.blobs import make_config
from support.import_graph import FILES, MODULES, ROOT
from support.made_up import BUDGET
from tacit import Declared, GradientPlan, Ledger, Vault
from tacit.experiment.owner import preview
from tacit.experiment.runs.runner import run
from tacit.gradients.losses import cross_entropy
from tacit.privacy.vault.intake.feature_map import FeatureMap
from tacit.privacy.vault.sources import csv_file

VAULT, OWNER = "tacit.privacy.vault.", "tacit.experiment.owner."
BUILDERS = {"from_arrays", "from_datasets", "from_frame", "open_declared", "refuse_unmatched", "cell_conversion"}
"""What other rooms use of the readers: functions that build streams, and read no record; a comparison of public rows
with their declaration (tests/experiment/owner/test_declaration_check.py: of private ones nothing is compared); and the
conversion of cells, which opens nothing and also reads the records that predictions are made for."""


def is_private(module: str) -> bool:
    """Whether a module reads private rows, or holds record sets."""
    return module.startswith(f"{VAULT}sources.") or module.rpartition(".")[2] == "records"


def test_only_the_vault_and_the_owners_tools_import_readers_and_record_sets() -> None:
    assert any(map(is_private, MODULES))
    for module, imported in MODULES.items():
        if module.startswith((VAULT, OWNER)):
            continue
        for other in filter(is_private, imported):
            assert names_imported(module, other) <= BUILDERS, f"{module} imports {other}"


def names_imported(module: str, other: str) -> set[str]:
    """The names that a module imports from another; the other's own name where it is imported as a whole."""
    names = set()
    for node in ast.walk(ast.parse(FILES[module].read_text())):
        if isinstance(node, ast.ImportFrom):
            found = {alias.name for alias in node.names}
            names |= found if node.module == other else {name for name in found if f"{node.module}.{name}" == other}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names if alias.name == other}
    return names


def test_only_the_command_that_the_owner_runs_imports_the_preview() -> None:
    assert {module for module, imported in MODULES.items() if preview.__name__ in imported} == {
        "tacit.commands.data_commands"
    }


def test_nothing_outside_the_vault_calls_the_records_of_a_task() -> None:
    """A task's `records` are handed to `admit`. Only those of a public benchmark are a function that can be called."""
    for module in (module for module in MODULES if not module.startswith(VAULT)):
        for node in ast.walk(ast.parse(FILES[module].read_text())):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".records")):
                continue
            unsafe = ast.unparse(node.func).endswith(".unsafe.records")  # a charged or public exit of the vault
            assert unsafe or module == "tacit.experiment.tuning.paper_protocol", (module, node.lineno)


Stack = list[traceback.FrameSummary]


def is_inside(stack: Stack) -> bool:
    """Whether the vault itself, and not only one of its readers, is among the callers."""
    files = (Path(frame.filename) for frame in stack)
    vault = ROOT / "privacy" / "vault"
    return any(file.is_relative_to(vault) and not file.is_relative_to(vault / "sources") for file in files)


def is_admission(stack: Stack) -> bool:
    return is_inside(stack) and any(frame.name == "admit" for frame in stack)


class Spy(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Notes the stack of every access to a record."""

    def __init__(self) -> None:
        self.stacks: list[Stack] = []

    def __len__(self) -> int:
        return 30

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        self.stacks.append(list(traceback.extract_stack()))
        return torch.randn(4, generator=torch.Generator().manual_seed(i)), i % 2


class SpyingMap(nn.Module):
    """Notes the stack of every batch that goes through it."""

    def __init__(self) -> None:
        super().__init__()
        self.stacks: list[Stack] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.stacks.append(list(traceback.extract_stack()))
        return x[:, :2]


def test_records_meet_a_feature_map_inside_the_vault() -> None:
    data, module = Spy(), SpyingMap().eval()
    through = FeatureMap(module, key="first two", width=2, shape=(4,))
    facts = Declared(stream="s", task="t", budget=BUDGET, size=30, labels=(0, 1), shape=(2,), public=True)
    with Ledger.throwaway() as ledger:
        vault = Vault(ledger)
        block = vault.admit(data, facts, through=through)
        assert data.stacks and all(map(is_admission, data.stacks))
        assert module.stacks and all(map(is_admission, module.stacks))
        data.stacks.clear()
        module.stacks.clear()
        grant = vault.grant(block, GradientPlan(rate=0.5, steps=1, noise=2.0), nn.Linear(2, 2), cross_entropy)
        grant.gradient()
    assert not data.stacks and not module.stacks  # features are computed once


@contextmanager
def openings(file: Path) -> Iterator[list[Stack]]:
    """The stack of every opening of a file in this process."""
    stacks: list[Stack] = []
    _WATCHED.append((str(file), stacks))
    try:
        yield stacks
    finally:
        _WATCHED.clear()


_WATCHED: list[tuple[str, list[Stack]]] = []


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and _WATCHED and str(args[0]) == _WATCHED[0][0]:
        _WATCHED[0][1].append(list(traceback.extract_stack()))


sys.addaudithook(_watch)  # it cannot be removed again, and does nothing while no file is watched

MODULE = """
from torch import nn
class Half(nn.Module):
    width = 2
    def forward(self, x):
        return x[:, :2] / 2
"""


@pytest.mark.parametrize("features", [None, "half.py:Half"])
def test_a_run_opens_a_private_file_inside_admission_only(features: str | None, tmp_path: Path) -> None:
    """Before admission it opens it for the column names in its first line, and for nothing else."""
    (tmp_path / "half.py").write_text(MODULE)
    rng = np.random.default_rng(0)
    rows = [[*rng.random(3).round(3).tolist(), int(rng.integers(2)), task] for task in ("a", "b") for _ in range(40)]
    table = tmp_path / "visits.csv"
    table.write_text("\n".join(",".join(map(str, row)) for row in [["u", "v", "w", "label", "task"], *rows]) + "\n")
    declaration = tmp_path / "visits.yaml"
    facts = {
        "name": "visits",
        "files": {"train": table.name},
        "columns": {"label": "label", "task": "task"},
        "labels": "0..1",
        "tasks": [{"name": name, "size": 40} for name in "ab"],
    }
    declaration.write_text(yaml.safe_dump(facts))
    config = make_config(
        data={
            "source": str(declaration),
            "scenario": "declared",
            "features": None if features is None else str(tmp_path / features),
        },
        learner={"method": "NaiveDPSGD", "steps": 2, "batch": 20},
        model={"network": "linear", "zero": True},
        repeatable_noise=False,
    )
    with openings(table) as stacks:
        run(config, tmp_path / "run", ledger=tmp_path / "visits.ledger")
    header = [stack for stack in stacks if any(frame.name == csv_file.csv_header.__name__ for frame in stack)]
    rest = [stack for stack in stacks if stack not in header]
    assert len(header) == 2  # when the run is planned, and when its seed begins
    assert len(rest) == 2 and all(map(is_admission, rest))  # each task is read once
