"""A run that is killed at any moment goes on to the same numbers, and is charged once."""

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from support.blobs import killed_at, make_blobs, make_config
from tacit.experiment.runs.folder import SeedFolder
from tacit.experiment.runs.runner import run
from tacit.learners.base.release import Release
from tacit.privacy.ledger import Ledger
from tacit.privacy.randomness.keys import KeyRing
from tacit.privacy.vault import Grant
from tacit.privacy.vault.exits.billing import Bill


@pytest.fixture(autouse=True)
def _keep_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished run throws its ledger away; here it is read first."""
    monkeypatch.setattr(SeedFolder, "clear", lambda self: None)


def ends(folder: Path) -> dict[str, Any]:
    """All that two runs must agree on."""
    seed = folder / "seeds" / "seed-0"
    with Ledger(seed / "private" / "throwaway.ledger", keys=KeyRing.for_tests(0)) as ledger:
        statement = ledger.statement(1)
        charged = sorted((grant.kind, grant.pin, grant.reads) for grant in statement.grants if grant.state != "VOID")
        spent = statement.epsilon
        ledger.verify()
    weights = load_file(seed / "releases" / "03-task-3" / "model.safetensors")
    return {
        "metrics": (folder / "metrics.json").read_bytes(),
        "accuracy": (folder / "accuracy.csv").read_bytes(),
        "weights": {name: value.tolist() for name, value in weights.items()},
        "charged": charged,
        "spent": spent,
    }


MOMENTS = {
    "in the first task": (Grant, "gradient", 5, True),
    "in the second task": (Grant, "gradient", 20, False),
    "at the last step of a task": (Grant, "gradient", 12, False),
    "between the last step and the release": (Release, "save", 2, True),
    "between the release and its evaluation": (Release, "save", 2, False),
    "while the accuracies are noted": (SeedFolder, "note", 3, True),
    "before finished work is marked": (Bill, "release", 1, True),
    "between two tasks": (SeedFolder, "note", 4, False),
    "at the very end": (SeedFolder, "note", 11, True),
}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return {}


CASES = [
    *(("DPCL", moment) for moment in MOMENTS),
    *(
        (method, moment)
        for method in ("RoutedExperts", "PEFTEnsemble")
        for moment in ("in the second task", "between the last step and the release")
    ),
    ("CosineClassifier", "between the last step and the release"),
    ("CosineClassifier", "between the release and its evaluation"),
    *((method, "in the second task") for method in ("DPAGEM", "DPER", "NaiveDPSGD")),
    *((method, "between the release and its evaluation") for method in ("AGEM", "Joint")),
]


STEPS: dict[str, Any] = {"steps": 12, "batch": 20, "lr": 0.2}
OWN: dict[str, dict[str, Any]] = {"CosineClassifier": {}, "PEFTEnsemble": STEPS | {"epochs": None}}
"""Settings of methods that take others."""


@pytest.mark.parametrize(("method", "moment"), CASES)
def test_a_kill_changes_nothing(
    method: str, moment: str, tmp_path: Path, uninterrupted: dict[str, dict[str, Any]]
) -> None:
    config = make_config(learner={"method": method, **OWN.get(method, STEPS)})
    if method not in uninterrupted:
        run(config, tmp_path / "whole", stream=make_blobs)
        uninterrupted[method] = ends(tmp_path / "whole")
    owner, name, count, before = MOMENTS[moment]
    folder = tmp_path / "killed"
    killed_at(owner, name, count, before=before, work=lambda: run(config, folder, stream=make_blobs))
    assert not (folder / "metrics.json").exists()
    run(config, folder, stream=make_blobs, resume=True)
    assert ends(folder) == uninterrupted[method]
