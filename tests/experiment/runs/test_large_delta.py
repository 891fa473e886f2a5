"""δ above one over the declared number of units is refused, unless it is said twice; nothing is made before."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from tacit import Budget, Declared, Ledger, Vault
from tacit.cli import app
from tacit.data.stream import StreamInfo
from tacit.errors import PlanError
from tacit.learners.baselines.naive import NaiveDPSGD


def declared(folder: Path) -> Path:
    facts = {
        "name": "visits", "files": {"train": "visits.csv"}, "columns": {"label": "ill", "task": "month"},
        "features": ["a", "b"], "labels": [0, 1], "tasks": [{"name": "jan", "size": 300}, {"name": "feb", "size": 300}],
    }  # fmt: skip
    rng = np.random.default_rng(0)
    lines = [f"{m},{rng.random():.3f},{rng.random():.3f},{n % 2}\n" for m in ("jan", "feb") for n in range(300)]
    (folder / "visits.csv").write_text("month,a,b,ill\n" + "".join(lines))
    (folder / "visits.yaml").write_text(yaml.safe_dump(facts))
    return folder / "visits.yaml"


def test_a_delta_of_a_tenth_with_600_people_is_refused(tmp_path: Path) -> None:
    """It would print "ε certified 0"."""
    call = ["run", str(declared(tmp_path)), "--ledger", str(tmp_path / "l"), "--out", str(tmp_path / "r"), "--quiet"]
    call += ["--method", "NaiveDPSGD", "--set", "learner.steps=3", "--set", "learner.batch=50"]
    for delta in ("0.1", "0.0017"):
        refused = CliRunner().invoke(app, [*call, "--set", f"budget.delta={delta}"])
        assert refused.exit_code == 1 and "is above 1/600" in refused.output and "Traceback" not in refused.output
        assert not (tmp_path / "r").exists() and not (tmp_path / "l").exists()
    fine = CliRunner().invoke(app, [*call, "--set", "budget.delta=0.1", "--accept-large-delta", "--json"])
    assert fine.exit_code == 0, fine.output


def test_a_learner_refuses_it_too(tmp_path: Path) -> None:
    info = StreamInfo.uniform("visits", labels=[0, 1], shape=(2,), size=100, tasks=3, tasks_per_unit=3, unit="record")
    rows = np.zeros((4, 2), dtype=np.float32), [0, 1, 0, 1]
    with Ledger(tmp_path / "l") as book:
        said = {"epsilon": 1.0, "delta": 0.011}
        learner = NaiveDPSGD(budget=Budget(**said), stream=info, ledger=book, steps=2, batch=20, network="linear")
        with pytest.raises(PlanError, match="above 1/100, one over the number of units that 'visits' declares"):
            learner.partial_fit(*rows)
        assert book.streams() == []
        learner.budget = Budget(**said, accept_large_delta=True)
        learner.partial_fit(*rows)


def test_the_vault_refuses_it_for_private_data_only(tmp_path: Path) -> None:
    source = (np.zeros((2, 2)), [0, 1])
    facts = {"stream": "s", "task": "t", "size": 50, "labels": (0, 1), "budget": Budget(epsilon=1.0, delta=0.03)}
    with Ledger(tmp_path / "l") as book:
        with pytest.raises(PlanError, match="above 1/50"):
            Vault(book).admit(source, Declared(**facts))
        assert book.streams() == []
        Vault(book).admit(source, Declared(**facts, public=True))
    Budget(epsilon=1.0, delta=0.02).check_units(50, "it")


def test_what_was_said_twice_is_no_part_of_the_budget() -> None:
    assert Budget(epsilon=1.0, delta=0.5, accept_large_delta=True) == Budget(epsilon=1.0, delta=0.5)
