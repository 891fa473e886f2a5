"""The published replacement rule: no record overspends, and one record still changes everything; tags do not."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit.audit import replacement_cascade
from tacit.audit.membership import most
from tacit.audit.replacement_cascade import audit, by_tag, counterexample, unsafe_replacement
from tacit.cli import app
from tacit.errors import PlanError


def test_the_next_one_takes_the_place() -> None:
    assert unsafe_replacement([1.0, 2.0, 3.0, 4.0], 1, 2, 6).tolist() == [1, 1, 2, 2, 3, 3]
    assert unsafe_replacement([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], 2, 1, 2).tolist() == [3, 12]


def test_one_record_more_shifts_all_later_ones_and_only_itself_under_tags() -> None:
    others = [-1.0, 1.0] * 6
    there, gone = (unsafe_replacement(stream, 1, 1, 10) for stream in ([1.0, *others], others))
    assert np.all(np.abs(there - gone) == 2)
    tags = [0.2, 0.9] * 6
    there, gone = (by_tag([first, *others], [0.1, *tags], 0.5, 3, 10) for first in (1.0, 0.0))
    assert np.flatnonzero(there - gone).tolist() == [0, 1, 2]
    assert np.all(by_tag([1.0, *others], [0.6, *tags], 0.5, 3, 10) == gone)  # its tag keeps it out


@pytest.mark.parametrize(("noise", "uses", "epsilon"), [(2.0, 60, 62.2), (4.0, 200, 54.4), (8.0, 500, 38.7)])
def test_the_audit_refutes_the_bookkeeping_and_not_the_certificate(noise: float, uses: int, epsilon: float) -> None:
    published, valid = audit(noises=[noise], runs=1000)
    assert published.uses == valid.uses == uses and published.exact == pytest.approx(epsilon, abs=0.05)
    assert published.refuted and published.certified is None
    assert published.claimed is not None and published.claimed < 1 < 4 < published.at_least <= most(1000)
    assert not valid.refuted and valid.certified is not None
    assert valid.at_least <= valid.certified == pytest.approx({2: 1.993, 4: 0.926, 8: 0.434}[noise], abs=1e-3)


def test_the_audit_can_tell_too_little_noise_from_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the noise, under the certificate of the whole: it is above it."""
    rng = np.random.default_rng(0)
    there, gone = np.array([1.0, 0.0]), np.zeros(2)
    enough, little = (replacement_cascade._lower_bound(there, gone, noise, 8000, rng) for noise in (2.0, 0.4))
    assert 0.4 < enough < 1.993 < little
    assert replacement_cascade._lower_bound(gone, gone, 2.0, 8000, rng) < 0.2


def test_efficient_memory_as_published_is_decided_by_others() -> None:
    assert counterexample() == (9, 9, 0)


def test_more_uses_more_loss_without_end() -> None:
    found = [audit(noises=[8.0], uses=uses, runs=100)[0].exact for uses in (10, 100, 1000)]
    assert found == sorted(found) and found[-1] > 60
    with pytest.raises(PlanError, match="runs must be"):
        audit(runs=10)
    with pytest.raises(PlanError, match="uses must be"):
        audit(uses=0)


def test_the_command() -> None:
    shown = CliRunner().invoke(app, ["audit", "replacement-cascade", "--runs", "400"])
    assert shown.exit_code == 0, shown.output
    assert shown.output.count("REFUTED") == shown.output.count("consistent") == 3
    assert "9 of 9 records are admitted, but 0 of 9" in shown.output
    found = json.loads(CliRunner().invoke(app, ["audit", "replacement-cascade", "--runs", "400", "--json"]).output)
    assert [one["refuted"] for one in found["findings"]] == [True, False] * 3
    assert all(math.isfinite(one["at_least"]) for one in found["findings"])
    assert found["efficient_memory"] == {"records": 9, "enter": 9, "enter_beside_one_more": 0}
    wrong = CliRunner().invoke(app, ["audit", "replacement-cascade", "--runs", "1"])
    assert wrong.exit_code == 1 and wrong.output.count("\n") == 1
