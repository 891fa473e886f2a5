"""The presets of certified robustness: what they compare, and that they certify in short."""

from pathlib import Path
from typing import Any

import pytest

from support.preset_cells import cells
from tacit.experiment.attacks.attacked import attack_run
from tacit.experiment.config.attack_section import AttackSection
from tacit.experiment.config.changes import override
from tacit.experiment.config.config import Config
from tacit.experiment.runs.runner import run

BOUNDS, PEER = "hassanpour2022/attacks-ibp", "hassanpour2022/smoothing-peer"
SMALL: dict[str, Any] = {
    "seeds": [0], "threads": 1, "data.source": "digits", "data.limit": 300, "budget.epsilon": 200.0,
    "learner.batch": 100,
}  # fmt: skip


def in_short(name: str, place: int, **changes: Any) -> Config:
    sets = SMALL | {key.replace("__", "."): value for key, value in changes.items()}
    return Config.of(override(cells(name)[place].config.plain(), list(sets.items())))


def test_what_they_compare() -> None:
    found = [(cell.config.model.network, cell.config.budget.epsilon) for cell in cells(BOUNDS)]
    assert sorted(found) == sorted((network, eps) for network in ("interval", "mlp") for eps in (1.0, 2.0, 8.0))
    assert all(cell.config.data.options["tasks"] - cell.config.data.held == 17 for cell in cells(BOUNDS))
    assert [cell.config.model.options["std"] for cell in cells(PEER)] == [0.25, 0.5, 1.0]
    assert {cell.config.model.options["copies"] for cell in cells(PEER)} == {2}


def test_routed_experts_are_certified_where_the_task_is_hidden(tmp_path: Path) -> None:
    config = in_short(
        BOUNDS, 0, data__tasks=4, data__held=1, data__records=None, learner__steps=40, model__options={"hidden": [32]},
        model__radius=0.05,
    )  # fmt: skip
    run(config, tmp_path / "r", processes=1)
    section = AttackSection(kinds=("pgd",), radius=0.05, bound="ibp", rows=60, range=(0.0, 1.0))
    found = attack_run(tmp_path / "r", section)
    certified, under_attack = found.last("certified").mean, found.last("pgd").mean
    assert 0.1 < certified <= under_attack <= found.last("clean").mean


def test_the_peer_is_certified_by_smoothing(tmp_path: Path) -> None:
    config = in_short(
        PEER, 0, learner__epochs=10, model__wraps="mlp", model__options={"hidden": [16]}, model__draws=4,
        data__classes_per_task=10, data__tasks=1,
    )  # fmt: skip
    run(config, tmp_path / "r", processes=1)
    section = AttackSection(
        kinds=("fgsm",), norm="l2", radius=0.05, bound="smoothing", votes="hard", error=0.01, certificates=100, rows=60
    )
    found = attack_run(tmp_path / "r", section)
    assert 0.1 < found.last("certified").mean <= found.last("clean").mean + 0.05
    assert "at 99% a record" in found.certificate()


@pytest.mark.parametrize(("name", "method"), [(BOUNDS, "NaiveDPSGD"), (BOUNDS, "Pool"), (PEER, "Pool")])
def test_other_learners_take_the_same_networks(name: str, method: str, tmp_path: Path) -> None:
    model = cells(name)[0].config.model
    config = Config.of(
        {
            "name": "other", "seeds": 1, "threads": 1,
            "data": {"source": "digits", "scenario": "permuted", "tasks": 2, "limit": 300},
            "learner": {"method": method, "steps": 4, "batch": 60},
            "model": {"network": model.network, **model.options, "wraps": "mlp", "options": {"hidden": [8]}},
            "budget": {"epsilon": 20.0, "delta": 1e-4},
        }
    )  # fmt: skip
    found = run(config, tmp_path / "r", processes=1)
    assert found.metrics["average_accuracy"] is not None and found.metrics["epsilon_certified"] is not None
