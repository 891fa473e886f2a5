"""The quickstart with test keys gives the accuracies, the charges and the released tensors that it always gave."""

import copy
import json
from pathlib import Path

import pytest

from support import golden
from support.shell import tacit

STORED = Path(__file__).parents[2] / "golden"
SHORT = ("seeds=1", "data.tasks=3", "learner.steps=30")


@pytest.mark.parametrize(
    "name, changes, within",  # rounding grows over the steps: the weights of AGEM moved by 0.3 % on another processor
    [("quickstart-short", SHORT, 1e-3), pytest.param("quickstart", (), 0.02, marks=pytest.mark.slow)],
    ids=["short", "whole"],
)
def test_the_quickstart_gives_its_golden_values(
    name: str, changes: tuple[str, ...], within: float, tmp_path: Path
) -> None:
    settings = [word for change in ("repeatable_noise=true", "threads=1", *changes) for word in ("--set", change)]
    tacit("run", "quickstart", *settings, "--processes", 1, "--out", tmp_path)
    golden.assert_equal(golden.values(tmp_path), json.loads((STORED / f"{name}.json").read_text()), within)


def test_on_other_machines_golden_values_are_compared_within_rounding() -> None:
    stored = json.loads((STORED / "quickstart-short.json").read_text())
    cell = "method=DPCL"
    other = copy.deepcopy(stored) | {"machine": {}}
    releases = other["cells"][cell]["releases"]
    release = next(iter(releases.values()))
    release["sha256"] = ""
    key = next(iter(release["norms"]))
    release["norms"][key] *= 1 + 1e-5
    golden.assert_equal(other, stored)
    with pytest.raises(AssertionError):
        golden.assert_equal(other | {"machine": stored["machine"]}, stored)
    release["norms"][key] *= 1.01
    with pytest.raises(AssertionError, match=key):
        golden.assert_equal(other, stored)
