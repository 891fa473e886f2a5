"""`tacit ledger blocks`: blocks and readers, from public facts of the ledger."""

import json
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn

from support.shell import tacit
from tacit import Budget, Declared, GradientPlan, Ledger, SumPlan, Vault
from tacit.certificate.claims import LEARNER_ORDER, moments_accountant
from tacit.certificate.spending import describe
from tacit.privacy.vault import FilterPlan

BUDGET = Budget(epsilon=2.0, delta=1e-5)
PLAN = GradientPlan(rate=0.1, steps=5, noise=4.0)


def sum_loss(output: Tensor, y: Tensor) -> Tensor:
    return output.sum(1)


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """Two learners: the first reads two tasks, the second the last of them too; a third task is metered."""
    path = tmp_path / "pool"
    with Ledger(path) as ledger:
        vault = Vault(ledger)
        x = np.random.default_rng(0).normal(size=(10, 2)).astype(np.float32)
        a, b, c = (
            vault.admit((x + n, np.zeros(10)), Declared(stream="s", task=name, budget=BUDGET, size=10, labels=[0]))
            for n, name in enumerate("abc")
        )
        vault.commit({b: [PLAN, PLAN]})
        for block, reader in ((a, "learner 1"), (b, "learner 1"), (b, "learner 2")):
            grant = vault.grant(block, PLAN, nn.Linear(2, 1), sum_loss, reader=reader)
            for _ in grant:
                grant.gradient()
        look = SumPlan(noise=10.0)
        plan = FilterPlan.for_budget(BUDGET, beside=[look])
        vault.commit({c: [plan, look]})
        meter = vault.individual_filter(c, plan)
        meter.gradient(nn.Linear(2, 1), sum_loss, noise=1.0, clip=1.0)
        meter.noisy_units_left(look)
        vault.retire(a)
    return path


def test_blocks_and_readers(pool: Path) -> None:
    shown = tacit("ledger", "blocks", "s", "--ledger", pool).output
    for words in ("retired", "live", "learner 2", "5 × noise 4", "meter: each unit", "claimed"):
        assert words in shown
    found = json.loads(tacit("ledger", "blocks", "s", "--ledger", pool, "--json").output)
    a, b, c = found["blocks"]
    assert (a["task"], a["state"], len(a["charges"])) == ("a", "retired", 1)
    assert [one["reader"] for one in b["charges"]] == ["learner 1", "learner 2"]
    assert [one["kind"] for one in c["charges"]] == ["meter", "count"] and c["charges"][0]["reader"] is None
    assert b["epsilon"] > a["epsilon"] > 0 and c["epsilon"] == pytest.approx(2.0, abs=1e-3)
    for block in (a, b, c):
        assert block["left"] == pytest.approx(2.0 - block["epsilon"], abs=1e-9)
    first, second = found["readers"]
    assert first["tasks"] == ["a", "b"] and second["tasks"] == ["b"]
    for one, steps in ((first, 10), (second, 5)):
        assert one["claimed"] == pytest.approx(moments_accountant(0.1, 4.0, steps, 1e-5, LEARNER_ORDER))
        assert one["certified"] == b["epsilon"]


def test_a_reader_is_in_the_plan_and_not_in_the_price(pool: Path) -> None:
    with Ledger(pool) as ledger:
        grants = ledger.statement(1).grants
        assert [grant.plan.get("reader") for grant in grants[:3]] == ["learner 1", "learner 1", "learner 2"]
        assert len({event for grant in grants[:3] for _, event in grant.reads}) == 1
        ledger.verify()


def test_the_table_is_short(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        vault = Vault(ledger)
        for task in "abc":
            x = np.random.default_rng(ord(task)).normal(size=(10, 2)).astype(np.float32)
            said = Declared(stream="s", task=task, budget=BUDGET, size=10, labels=[0])
            one, _ = vault.split(vault.admit((x, np.zeros(10)), said), {"train": 0.5, "memory": 0.5})
            other = GradientPlan(rate=0.1, steps=7, noise=4.0)
            vault.commit({one: [PLAN, other]})
            for plan in (PLAN, other):
                vault.grant(one, plan, nn.Linear(2, 1), sum_loss, reader="learner 1").gradient()
    shown = tacit("ledger", "blocks", "s", "--ledger", tmp_path / "ledger", "--last", "2").output
    rows = [line.split() for line in shown.splitlines()]
    assert [row[0] for row in rows if row and "/" in row[0]] == ["b/train", "b/memory", "c/train", "c/memory"]
    assert shown.count("gradient ×2") == 2 and "/all" not in shown and "split" not in shown
    memory = next(row for row in rows if row and row[0] == "b/memory")
    assert memory[1:4] == ["live", "0", "2"] and memory[-3:] == ["no", "charge", "yet"]
    assert "without memory reads" in " ".join(shown.split())


def test_an_unknown_stream_is_one_sentence(pool: Path) -> None:
    assert "has no stream 'x'; it has s" in tacit("ledger", "blocks", "x", "--ledger", pool, code=1).output


def test_events_in_words() -> None:
    gaussian = {"type": "gaussian", "noise": 2.0}
    assert describe({"type": "composed", "events": [gaussian, {"type": "laplace", "noise": 1}]}) == (
        "noise 2 + Laplace noise 1"
    )
    assert describe({"type": "not-private"}) == "not-private"
