"""What the README and the pages on learners, vault and ledger show runs as it is shown."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tacit
from tacit.gradients.losses import cross_entropy

ROOT = Path(__file__).parents[1]


def shown(page: str, language: str = "python") -> list[str]:
    """The examples of a page."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.slow
def test_the_first_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    names: dict[str, Any] = {"x": rng.normal(size=(200, 784)).astype(np.float32), "y": rng.integers(0, 10, 200)}
    exec(shown("docs/vault.md")[0], names)
    assert "PRIVACY CERTIFICATE" in capsys.readouterr().out
    assert tacit.Certificate.load("january.json").epsilon == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize(("page", "number"), [("README.md", 0), ("docs/choosing-a-learner.md", 1)])
def test_a_learner_by_itself(page: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    names: dict[str, Any] = {"x": rng.normal(size=(1400, 64)).astype(np.float32), "y": rng.integers(0, 10, 1400)}
    names["budget"] = tacit.Budget(epsilon=2.0, delta=1e-5)
    exec(shown(page)[number], names)
    assert names["learner"].certificate_.epsilon == pytest.approx(2.0, abs=0.01)
    assert names["learner"].predict(names["x"]).shape == (1400,)


@pytest.mark.slow
def test_a_learner_on_a_backbone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    names: dict[str, Any] = {"images": rng.random((6, 3, 32, 32)).astype(np.float32), "labels": rng.integers(0, 10, 6)}
    exec(shown("docs/choosing-a-learner.md")[0], names)
    assert names["learner"].certificate_.epsilon == pytest.approx(1.0, abs=0.01)
    assert names["learner"].predict(names["images"][:2]).shape == (2,)
    february = rng.integers(0, 256, (6, 3, 32, 32)).astype(np.uint8)
    names["learner"].partial_fit(february, names["labels"])
    assert [task.name for task in names["learner"].tasks_] == ["task-1", "task-2"]
    assert names["learner"].certificate_.epsilon == pytest.approx(1.0, abs=0.01)


def test_a_policy(tmp_path: Path) -> None:
    (text,) = shown("docs/ledger.md", "toml")
    (tmp_path / "policy.toml").write_text(text, encoding="utf-8")
    policy = tacit.Policy.load(tmp_path / "policy.toml")
    assert policy.may_raise == ("officer",) and not policy.allow_unsafe and not policy.allow_uncharged_tuning
    assert policy.cap == tacit.Budget(epsilon=3.0, delta=1e-6, unit="person")


def test_the_other_exits(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with tacit.Ledger(tmp_path / "ledger") as ledger:
        vault, budget = tacit.Vault(ledger), tacit.Budget(epsilon=9.0, delta=1e-5)

        def admit(task: str, labels: Any = range(10)) -> tacit.Block:
            facts = tacit.Declared(stream="s", task=task, budget=budget, size=60, labels=labels)
            return vault.admit((rng.normal(size=(60, 8)), rng.integers(0, 10, 60)), facts)

        plan = tacit.GradientPlan(rate=0.1, steps=100, noise=20.0)
        names: dict[str, Any] = {"vault": vault, "budget": budget, "cross_entropy": cross_entropy}
        names |= {"ids": rng.integers(0, 9, 60)}
        names |= {"x": rng.normal(size=(60, 8)).astype(np.float32), "y": rng.integers(0, 10, 60)}
        names |= {"model": torch.nn.Linear(8, 10), "backbone": torch.nn.Linear(8, 4).eval(), "plan": plan}
        names |= {"block": admit("may"), "july": admit("july", None), "august": admit("august")}
        names |= {"trial": lambda rng: (float(rng.uniform()), None)}
        exec(
            shown("docs/vault.md")[1].replace(
                "plan = GradientPlan.for_budget(person", "person_plan = GradientPlan.for_budget(person"
            ),
            names,
        )
    assert names["s"].shape == (10, 4) and names["m"].shape == (4, 4)
    assert names["best"].score is not None and names["grant"].expected_batch > 0


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150
