"""No record decides how others are read: types, shapes and ids follow from the declaration, or from an array's type."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tacit import Budget, Declared, GradientPlan, Ledger, SumPlan, Vault
from tacit.errors import VaultError
from tacit.gradients.losses import cross_entropy
from tacit.models.dense import mlp
from tacit.models.lowrank import adapted
from tacit.privacy.randomness.keys import KeyRing
from tacit.privacy.vault import LabelPlan
from tacit.privacy.vault.intake.records import Records

WIDE = Budget(epsilon=1e9, delta=1e-5)
PERSON = Budget(epsilon=1e9, delta=1e-5, unit="person")
HALVES = [[0.5, 0.25, 0.5]] * 6
IMAGES = [np.full((1, 2, 2), 51, dtype=np.uint8)] * 6
ODD: list[Any] = [
    [0, 0, 0], np.zeros(3, dtype=np.float16), np.zeros(4), np.zeros(3, dtype=np.uint8),
    torch.zeros(3, dtype=torch.bool), "text", None, [1, [2]], np.zeros(3, dtype=complex),
]  # fmt: skip


def admitted(source: Any, **said: Any) -> tuple[Vault, Records]:
    vault = Vault(Ledger.throwaway(keys=KeyRing.for_tests(0)))
    facts = {"stream": "s", "task": "t", "budget": WIDE, "size": 6, "labels": (0, 1), "public": True} | said
    block = vault.admit(source, Declared(**facts))
    return vault, vault._admission.records(block)


def held(source: Any, **said: Any) -> list[list[float]]:
    """The features of all records, in an order of their own."""
    records = admitted(source, **said)[1]
    return sorted(records.features(torch.arange(len(records.rows))).flatten(1).tolist())


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("lists", [True, False])
def test_a_record_of_another_type_or_shape_changes_no_other(odd: Any, first: bool, lists: bool) -> None:
    rows = [odd, *HALVES] if first else [*HALVES, odd]
    source = (rows, [0] * 7) if lists else [(row, 0) for row in rows]
    found = held(source, shape=(3,))
    assert len([row for row in found if row == [0.5, 0.25, 0.5]]) == 6
    assert [row for row in found if row != [0.5, 0.25, 0.5]] in ([], [[0.0, 0.0, 0.0]])


@pytest.mark.parametrize("odd", [np.zeros((1, 2, 2), dtype=np.float32), np.zeros((1, 2, 2), dtype=np.int64)])
@pytest.mark.parametrize("lists", [True, False])
def test_bytes_of_an_image_are_scaled_whatever_the_others_are(odd: Any, lists: bool) -> None:
    for images in (IMAGES, [odd, *IMAGES], [*IMAGES, odd]):
        y = [0] * len(images)
        found = held((images, y) if lists else list(zip(images, y, strict=True)), shape=(1, 2, 2))
        assert np.allclose(found[-6:], 0.2)


@pytest.mark.parametrize("saturated", [True, False])
def test_a_record_without_a_gradient_is_no_error(saturated: bool) -> None:
    """A model whose gradients vanish on the synthetic rows (low-rank updates that start at zero), and a record whose
    gradient vanishes too: the comparison with autograd is never made on private rows."""
    torch.manual_seed(0)
    model = adapted(mlp((300,), 5, hidden=(200,)), 4, 0).train()
    rows = 1e4 * torch.from_numpy(np.random.default_rng(0).normal(size=(60, 300)).astype(np.float32))
    with torch.no_grad():
        logits = model(rows)
    sure = logits.sort(1).values.diff(dim=1)[:, -1] > 200
    x, y = rows[sure][:1].numpy(), logits.argmax(1)[sure][:1].numpy()
    vault = Vault(Ledger.throwaway(keys=KeyRing.for_tests(0)))
    declared = Declared(stream="s", task="t", budget=WIDE, size=1, labels=range(5), public=True)
    block = vault.admit((x, y if saturated else (y + 1) % 5), declared)
    grant = vault.grant(block, GradientPlan(rate=1.0, steps=1, noise=1.0, clip=1.0), model, cross_entropy)
    assert all(bool(value.isfinite().all()) for value in grant.gradient().values())


def test_tokens_are_declared() -> None:
    tokens: list[tuple[Any, int]] = [([1, 2, 3], 0)] * 4
    for odd in ([0.5, 1.0, 1.0], [1, 2], "x"):
        _, records = admitted([(odd, 0), *tokens], shape=(3,), integers=True)
        rows = records.features(torch.arange(len(records.rows)))
        assert rows.dtype == torch.int64 and rows.tolist() == [[1, 2, 3]] * 4


@pytest.mark.parametrize("source", [[([1.0], 0)], ([[1.0]], [0]), iter([([1.0], 0)]), []])
def test_what_tells_no_shape_is_refused_whatever_it_holds(source: Any) -> None:
    with pytest.raises(VaultError, match=r"declare it with Declared\(shape=…\)"):
        admitted(source)


def test_the_first_record_does_not_decide_whether_there_are_ids() -> None:
    named: list[Any] = [(row, 0, "p") for row in HALVES]
    for first in ([], [(HALVES[0], 0)], [(HALVES[0], 0, None)]):
        said = {"shape": (3,), "budget": PERSON, "size": 1, "records_per_unit": 2}
        _, records = admitted(first + named, **said)
        assert records.has_ids and records.units == 1 and len(records.rows) == 2
        _, records = admitted(first + named, shape=(3,), ids=True)
        assert records.has_ids and records.units == 1
    for first in ([], [(HALVES[0], 0, "q")]):
        _, records = admitted([*first, *((row, 0) for row in HALVES)], shape=(3,))
        assert not records.has_ids and records.units == 6 + len(first)


@pytest.mark.parametrize("odd", ["a", None, [1], pytest.param(10**400, id="huge"), 3, float("nan")])
def test_a_target_of_another_kind_refuses_nothing_and_changes_no_other(odd: Any) -> None:
    """Whether a grant is refused costs nothing, so it must not depend on a record."""
    seen = []
    for y in ([0.5] * 5, [0.5] * 5 + [odd]):
        vault, records = admitted((np.zeros((len(y), 3), dtype=np.float32), y), labels=None, budget=WIDE)
        block = vault.find("s", "t")
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        plan = GradientPlan(rate=1.0, steps=1, noise=1e-4, clip=0.1)
        grant = vault.grant(block, plan, model, lambda out, t: (out[:, 0] - t).square())
        seen.append(grant.gradient()["bias"] * 60)
        assert records.y.dtype == object
    assert float((seen[0] - seen[1]).abs().max()) <= 1.01


def test_kept_targets_are_read_one_by_one_again(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        vault = Vault(ledger, tmp_path / "store")
        facts = Declared(stream="s", task="t", budget=WIDE, size=3)
        block = vault.admit((np.eye(3, dtype=np.float32), [1, 0.5, "a"]), facts)
        before = vault._admission.records(block)
        vault.keep(block)
        after = vault._admission.records(Vault(ledger, tmp_path / "store").reopen(block))
        assert after.digest == before.digest
        assert [type(value) for value in after.y.tolist()] == [type(value) for value in before.y.tolist()]


def test_a_label_is_not_released_as_the_first_record_spells_it() -> None:
    for first in ([0.0], [0], []):
        y = first + [0] * 20
        x = np.arange(3.0 * len(y)).reshape(-1, 3)
        vault, _ = admitted((x, y), labels=None)
        found = vault.label_set(vault.find("s", "t"), LabelPlan(noise=0.5, delta=1e-6))
        assert repr(found) == "(0,)"


SEVEN = ["7", " 7", "7.0", "7 ", 7, 7.0]
LETTER = ["e\u0301", "\u00e9", " \u00e9"]


@pytest.mark.parametrize("ids", [SEVEN, LETTER, np.asarray(SEVEN[:4]), np.asarray(LETTER)])
@pytest.mark.parametrize("lists", [True, False])
def test_one_person_has_the_bounds_of_one_however_ids_come_in(ids: Any, lists: bool) -> None:
    n = len(ids)
    x = np.ones((n, 2), dtype=np.float32)
    source = (x, [0] * n, ids) if not lists else [(row, 0, name) for row, name in zip(x, ids, strict=True)]
    vault, records = admitted(source, budget=PERSON, shape=(2,), size=1)
    assert records.units == 1 and len(records.rows) == 1
    assert float(vault.sums(vault.find("s", "t"), SumPlan(noise=1e-4, clip=1.0))[0].norm()) < 1.01


def test_a_person_is_in_as_many_tasks_as_declared_however_it_is_spelled() -> None:
    vault = Vault(Ledger.throwaway())
    units = []
    for task, name in enumerate(["7", " 7", "7.0", "8"]):
        facts = Declared(stream="s", task=f"t{task}", budget=PERSON, size=1, labels=(0,), public=True)
        block = vault.admit((np.full((1, 2), task), [0], np.asarray([name])), facts)
        units.append(vault._admission.records(block).units)
    assert units == [1, 0, 0, 1]
