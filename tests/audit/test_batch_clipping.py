"""Batch clipping: what the worst record changes, and what an attacker sees of it."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit.audit import batch_clipping
from tacit.audit.batch_clipping import CLIP, RULES, audit, change, each_record, tensor_by_tensor, whole_batch
from tacit.audit.membership import lower_bound, most
from tacit.cli import app
from tacit.errors import PlanError


def test_the_worst_record_turns_a_clipped_batch_around() -> None:
    assert change(each_record) == pytest.approx(CLIP)
    assert change(whole_batch) == pytest.approx(2 * CLIP)
    assert change(tensor_by_tensor) == pytest.approx(2 * CLIP * math.sqrt(6))


def test_published_rules_are_refuted_and_the_control_is_not() -> None:
    results = audit(runs=20_000)
    for found in results:
        assert found.refuted == (found.rule != "each record clipped")
        assert found.at_least <= min(found.exact, most(20_000))
        assert found.refuted or found.stated == pytest.approx(found.exact)
    accounted = [found.stated for found in results[:4]]
    assert accounted == pytest.approx([4.140, 4.140, 3.591, 3.591], abs=1e-3)
    table_1, corrected = results[4:6]
    assert table_1.multiplier == pytest.approx(0.0204, abs=1e-4) and table_1.exact > 1000
    assert corrected.multiplier == pytest.approx(0.204, abs=1e-3) and corrected.exact > 25
    one_pass = [found.exact for found in results[6:]]
    assert one_pass == pytest.approx([4.377, 1.993, 0.926], abs=1e-3)


def test_scores_of_equal_worlds_show_nothing_and_less_noise_shows_more() -> None:
    rng = np.random.default_rng(0)
    gone = rng.standard_normal(4000)
    assert lower_bound(rng.standard_normal(4000), gone) < 0.2
    assert lower_bound(rng.standard_normal(4000) + 1, gone) < lower_bound(rng.standard_normal(4000) + 3, gone)
    sampled = RULES[0]
    there, away = (batch_clipping._scores(mean, 0.5, sampled, 4000, rng) for mean in (0.5, 0.0))
    assert there.mean() > 0 > away.mean()  # the two divergences of a likelihood ratio


def test_the_command() -> None:
    shown = CliRunner().invoke(app, ["audit", "batch-clipping", "--runs", "20000"], env={"COLUMNS": "120"})
    assert shown.exit_code == 0, shown.output
    assert shown.output.count("consistent") == 2 and shown.output.count("REFUTED") == 7
    found = json.loads(CliRunner().invoke(app, ["audit", "batch-clipping", "--runs", "1000", "--json"]).output)
    assert len(found) == len(RULES) and all(math.isfinite(one["at_least"]) for one in found)
    with pytest.raises(PlanError, match="runs must be from 100"):
        audit(runs=10)
    with pytest.raises(PlanError, match="seed must be"):
        audit(seed=-1)
