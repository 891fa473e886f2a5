"""One unit never changes how another one is computed, and pays for all that it adds."""

import math

import numpy as np
import pytest
import torch
from made_up import admit_to
from torch import nn

from tacit import Budget, Declared, GradientPlan, Ledger, Vault
from tacit.errors import VaultError
from tacit.gradients import ExactSum
from tacit.gradients.rows import Indexed
from tacit.privacy import exits
from tacit.privacy.keys import KeyRing
from tacit.privacy.meter import FULL, MeterPlan

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
        records = v._of(block)
        total = (
            exits.second_moment(records, None, 1.0, 100)
            if what == "second moment"
            else exits.label_sums(records, (0,), None, 1.0, 100)
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
    total = exits.second_moment(v._of(block), None, 1.0, 4096).values()
    assert 0 < float(total[0]) <= 1.0
    for size in (1e80, 1e200):
        rows = torch.full((3, 2), size, dtype=torch.float64)
        norms = exits._several(rows, rows.square().sum(1), torch.zeros(3, dtype=torch.long), 1.0, 2.0**-19)
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
    meter = v.meter(block, MeterPlan(rho=1e8))
    noise = 1e-13
    got = meter.gradient(Scale(width), lambda o, y: o.sum(1), noise=noise, clip=clip)
    added = math.sqrt(width) * ExactSum(1, clip).step
    assert float(got["weight"].double().norm()) == pytest.approx(added, rel=0.2)
    paid = float(meter._spent[0]) / FULL * 1e8
    assert paid >= added**2 / (2 * noise**2 * clip**2)


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
