"""One unit never changes how another one is computed, and pays for all that it adds."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from support.made_up import admit_to
from tacit import Budget, Declared, GradientPlan, Ledger, SumPlan, Vault
from tacit.errors import VaultError
from tacit.gradients import Clipper, ExactSum
from tacit.gradients.losses import cross_entropy
from tacit.gradients.record_inputs import Loss
from tacit.gradients.rows import Indexed
from tacit.privacy.randomness.keys import KeyRing
from tacit.privacy.vault import FilterPlan
from tacit.privacy.vault.exits.filter_state import FULL
from tacit.privacy.vault.exits.second_moment import _unit_norms, second_moment
from tacit.privacy.vault.exits.sums import label_sums

WIDE = Budget(epsilon=1e9, delta=1e-5)


class Scale(nn.Module):
    """Its gradient is the record itself, held as it is."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def vault() -> Vault:
    return Vault(Ledger.throwaway(keys=KeyRing.for_tests(0)))


@pytest.mark.parametrize("what", ["second moment", "sums"])
def test_a_record_outside_the_label_set_changes_nothing(what: str) -> None:
    """It leaves an empty unit, which once sent all others another way."""
    x = np.random.default_rng(0).normal(size=(300, 24)).astype(np.float32)
    y = np.zeros(300, dtype=np.int64)
    found = []
    for odd in (False, True):
        v = vault()
        y[-1] = 7 if odd else 0
        block = admit_to(v, x if odd else x[:-1], y if odd else y[:-1], labels=[0], public=True, size=300)
        records = v._admission.records(block)
        total = (
            second_moment(records, None, 1.0, 100)
            if what == "second moment"
            else label_sums(records, (0,), None, 1.0, 100)
        )
        found.append(total.values())
    assert torch.equal(*found)


def test_persons_with_many_or_extreme_records_are_summed_like_others() -> None:
    """Neither a count nor an overflow of private records is an error."""
    v = vault()
    x = np.full((16_390, 2), 1e-3, dtype=np.float32)
    ids = np.array(["a"] * len(x))
    facts = {"stream": "s", "task": "t", "size": 1, "labels": [0], "public": True, "records_per_unit": 20_000}
    budget = Budget(epsilon=1e9, delta=1e-5, unit="person")
    block = v.admit((x, np.zeros(len(x)), ids), Declared(**facts, budget=budget))  # type: ignore[arg-type]
    total = second_moment(v._admission.records(block), None, 1.0, 4096).values()
    assert 0 < float(total[0]) <= 1.0
    for size in (1e80, 1e200):
        rows = torch.full((3, 2), size, dtype=torch.float64)
        norms = _unit_norms(rows, rows.square().sum(1), torch.zeros(3, dtype=torch.long), 1.0, 2.0**-19)
        assert bool((norms > 0).all())


def test_tokens_are_added_up_once() -> None:
    """What is added after masking is what was measured, even where adding up again would give something else."""
    rows = Indexed(torch.tensor([[0, 0], [1, 1]]), torch.randn(2, 2, 3), 2)
    rows.squared_norms()
    assert rows._used is not None
    unit, line, sums = rows._used
    rows._used = unit, line, sums + 1.0  # as if the second sum came out otherwise
    kept = rows.keep(torch.tensor([True, False]))
    assert isinstance(kept, Indexed) and kept._used is not None
    assert torch.equal(kept._used[2][0], sums[0] + 1.0) and not kept._used[2][1].any()


def test_a_meter_pays_for_what_rounding_adds() -> None:
    """Entries of half a step are rounded up: with a clip far above the gradient, that is longer than the gradient."""
    v = vault()
    width, clip = 4096, 1.0
    half = 0.51 * ExactSum(1, clip).step
    block = admit_to(v, np.full((1, width), half), [0.0], labels=None, public=True, size=1, budget=WIDE)
    rho, noise = 1e-4, 1e-7
    meter = v.individual_filter(block, FilterPlan(rho=rho))
    meter.gradient(Scale(width), lambda o, y: o.sum(1), noise=noise, clip=clip)
    got = Clipper(Scale(width), lambda o, y: o.sum(1), clip).sum(torch.full((1, width), half), torch.zeros(1))
    added = math.sqrt(width) * ExactSum(1, clip).step
    assert float(got["weight"].double().norm()) == pytest.approx(added, rel=0.2)
    paid = float(meter._spent[0]) / FULL * rho
    assert added**2 / (2 * noise**2 * clip**2) <= paid <= rho / 10


def test_a_step_is_not_redone_with_other_parameters() -> None:
    """Whether the result would be another one depends on the records, so it is refused before they are read."""
    for present in (False, True):
        v = vault()
        x = np.zeros((4, 3), dtype=np.float32)
        x[0, 0] = present
        block = admit_to(v, x, np.zeros(4), labels=[0], public=True, size=4)
        model = nn.Linear(3, 1, bias=False)
        grant = v.grant(block, GradientPlan(rate=1.0, steps=2, noise=100.0), model, lambda o, y: o.square().sum(1))
        first = grant.gradient()["weight"].clone()
        grant.seek(0)
        assert torch.equal(grant.gradient()["weight"], first)
        grant.seek(0)
        with torch.no_grad():
            model.weight[0, 0] += 1.0
        with pytest.raises(VaultError, match="was taken with other parameters"):
            grant.gradient()


def test_persons_without_records_are_no_error() -> None:
    """More units than a total has room for at a time, nearly all of them outside the label set."""
    v, n = vault(), 20_000
    x, y = np.stack([np.arange(n), np.ones(n)], 1).astype(np.float32), np.zeros(n, dtype=np.int64)
    y[:3] = y[-3:] = 1
    budget = Budget(epsilon=1e6, delta=1e-5, unit="person")
    facts = Declared(stream="s", task="t", budget=budget, size=n, records_per_unit=2, public=True, labels=[1])
    block, plan = v.admit((x, y, np.array([f"p{k}" for k in range(n)])), facts), SumPlan(noise=1.0)
    v.commit({block: [plan, plan]})
    assert v.sums(block, plan).shape == (1, 2)
    assert v.second_moment(block, plan).shape == (2, 2)


class Shared(nn.Sequential):
    """Its output has a part without a row for each example."""

    at_a_time = 64

    def __init__(self, rows: int) -> None:
        torch.manual_seed(0)
        super().__init__(nn.Linear(3, 4))
        self.prototypes = nn.Buffer(torch.randn(rows, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().forward(x), self.prototypes


class Strict(nn.Linear):
    """Takes no row of zeros."""

    at_a_time = 64

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool((x == 0).all(1).any()):
            raise ValueError("an empty record")
        return super().forward(x)


def to_prototypes(output: tuple[torch.Tensor, torch.Tensor], y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output[0] @ output[1].T, y, reduction="none")


@pytest.mark.parametrize("rows", [3, 20])
def test_filling_up_a_batch_leaves_shared_outputs_alone(rows: int) -> None:
    x, y = torch.randn(30, 3, generator=torch.Generator().manual_seed(1)), torch.arange(30) % 3
    clipper, totals = Clipper(Shared(rows), to_prototypes, 1.0), []
    for filled in (0, 2, 10):
        total = clipper.total()
        clipper.add(total, *(torch.cat([t, t.new_zeros(filled, *t.shape[1:])]) for t in (x, y)), filled=filled)
        totals.append(total.values())
    assert all(torch.allclose(one, totals[0], atol=1e-5) for one in totals)


@pytest.mark.parametrize(("model", "loss"), [(Strict(3, 2), cross_entropy), (Shared(5), to_prototypes)])
def test_a_model_that_minds_rows_of_zeros_is_refused_before_the_charge(model: nn.Module, loss: Loss) -> None:
    """Else whether a step fails would say how many were drawn. Five rows are four synthetic ones and one of zeros."""
    v = vault()
    x, y = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32), np.arange(20) % 2
    block = admit_to(v, x, y, labels=[0, 1], public=True, size=20, budget=WIDE)
    with pytest.raises((VaultError, ValueError), match=r"zeros|empty record"):
        v.grant(block, GradientPlan(rate=1.0, steps=1, noise=1.0), model, loss)
    assert not v.ledger.statement(1).grants


def test_parameters_of_another_type_are_refused_before_a_record_is_read() -> None:
    v = vault()
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    block = admit_to(v, x, np.arange(20) % 2, labels=[0, 1], public=True, size=20, budget=WIDE)
    model = nn.Linear(3, 2)
    grant = v.grant(block, GradientPlan(rate=1.0, steps=2, noise=1.0), model, cross_entropy)
    grant.gradient()
    model.double()
    with pytest.raises(VaultError, match="another size or type"):
        grant.gradient()
