"""Fig. 2a of Desai 2021: the paper's totals by hand, certified curves against golden values, the files it leaves."""

import csv
import json
import math
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.errors import ConfigError, PlanError
from tacit.experiment.papers import accumulation
from tacit.experiment.papers.accumulation import (
    CLAIMS,
    MEMORIES,
    CurveSetting,
    certified,
    claimed,
    drawn,
    measured_at,
    run,
)
from tacit.experiment.progress import Event

UNION, BLOCK, AVERAGE, EVERY = MEMORIES
GOLDEN = {  # ε of a record in the first memory block, σ = 1, δ = 1e-4, 301 steps a task, q = 50/5500
    2: (0.756, 0.756, 0.756, 0.756),
    5: (0.872, 1.075, 0.952, 1.496),
    17: (0.911, 1.372, 1.131, 3.165),
}


@pytest.mark.parametrize("tasks", GOLDEN)
def test_certified_curves(tasks: int) -> None:
    points = [certified(memory, tasks, CurveSetting()) for memory in MEMORIES]
    assert [point.epsilon for point in points] == pytest.approx(GOLDEN[tasks], abs=1.5e-3)
    assert {point.accountant for point in points} == {"PLD"}


def test_many_tasks() -> None:
    assert certified(EVERY, 129, CurveSetting()).epsilon == pytest.approx(10.91, abs=0.01)
    assert certified(UNION, 33, CurveSetting()).epsilon < 0.93  # and it hardly grows any more


def test_more_tasks_than_distributions_can_hold_are_priced_by_renyi() -> None:
    found = certified(BLOCK, 401, CurveSetting())
    assert found.accountant == "RDP" and found.epsilon == pytest.approx(2.2, abs=0.01)


def test_before_any_memory_a_record_loses_what_training_costs() -> None:
    points = {certified(memory, 1, CurveSetting()).epsilon for memory in MEMORIES}
    assert len(points) == 1 and points.pop() == pytest.approx(0.122, abs=1e-3)


def test_every_curve_grows_and_the_memories_keep_their_order() -> None:
    small = CurveSetting(steps=50)
    rows = [[certified(memory, tasks, small).epsilon for memory in MEMORIES] for tasks in (2, 3, 6)]
    for before, after in pairwise(rows):
        assert all(a < b for a, b in zip(before, after, strict=True))
    for union, block, average, every in rows[1:]:
        assert union < block < every and average < block


def test_claims_of_the_paper_by_hand() -> None:
    train, reference = drawn(4, seed=3)
    points = list(claimed(4, 3, CurveSetting()))

    def of(curve: str, source: str) -> list[float]:
        found = [p for p in points if p.curve == curve and p.accountant.startswith(source) and p.scope == "all tasks"]
        assert [p.tasks for p in found] == [1, 2, 3, 4]
        return [p.epsilon for p in found]

    agem, cl = CLAIMS
    weights = [3, 2, 1, 0]  # a task before T is read once in each later task
    by_hand = sum(train) + sum(w * e for w, e in zip(weights, reference, strict=True))
    assert of(agem, "drawn")[-1] == pytest.approx(by_hand)
    assert of(cl, "drawn")[-1] == pytest.approx(sum(train) + sum(reference))
    own, other = 0.85, 1.4978
    assert of(agem, "moments") == pytest.approx([t * own + t * (t - 1) / 2 * other for t in (1, 2, 3, 4)], abs=1e-2)
    assert of(cl, "moments") == pytest.approx([t * (own + other) for t in (1, 2, 3, 4)], abs=1e-2)
    record = {p.curve: p.epsilon for p in points if p.scope == "record of task 1" and p.tasks == 4}
    assert record == pytest.approx({agem: own + 3 * other, cl: own + other}, abs=1e-2)


def test_growth_is_quadratic_and_linear() -> None:
    points = [p for p in claimed(129, 0, CurveSetting()) if p.scope == "all tasks" and p.accountant.startswith("drawn")]
    agem, cl = ([p.epsilon for p in points if p.curve == name] for name in CLAIMS)
    assert agem[16] == pytest.approx(17 + 136, rel=0.02) and cl[16] == pytest.approx(34, rel=0.02)
    assert agem[128] / agem[63] == pytest.approx(4, rel=0.05) and cl[128] / cl[63] == pytest.approx(2, rel=0.05)


def test_draws_depend_on_the_seed_alone() -> None:
    assert drawn(17, 1) == drawn(17, 1) != drawn(17, 2)
    train, reference = drawn(2000, 0)
    for values in (train, reference):
        mean = math.fsum(values) / len(values)
        assert mean == pytest.approx(1, abs=0.002)
        assert math.sqrt(sum((v - mean) ** 2 for v in values) / len(values)) == pytest.approx(0.02, rel=0.1)


def test_where_bounds_are_computed() -> None:
    assert measured_at(1) == [1] and measured_at(2) == [1, 2]
    assert measured_at(17) == [1, 2, 3, 4, 5, 7, 9, 13, 17]
    assert measured_at(129)[-7:] == [17, 25, 33, 49, 65, 97, 129]


def test_a_run_leaves_a_table_and_a_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = run(tmp_path / "new", tasks=3, seed=1, steps=5)
    assert found["tasks"] == 3
    curves = found["curves"]
    assert isinstance(curves, list) and len(curves) == 2 * 3 + 4 and all(one["tasks"] == 3 for one in curves)
    with (tmp_path / "new" / "accumulation.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == 2 * 3 * 3 + 4 * 3
    last = next(row for row in rows if row["tasks"] == "3" and row["curve"] == UNION)
    assert float(last["epsilon"]) == pytest.approx(certified(UNION, 3, CurveSetting(steps=5)).epsilon, rel=1e-5)
    assert {row["accountant"] for row in rows if row["kind"] == "certified"} <= {"PLD", "RDP"}
    picture = (tmp_path / "new" / "accumulation.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 10_000


def test_it_says_what_it_computes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    heard: list[Event] = []
    run(tmp_path, tasks=2, steps=2, progress=heard.append)
    assert [said.kind for said in heard] == ["notice"] * 4
    for number, (said, name) in enumerate(zip(heard, MEMORIES, strict=True), start=1):
        assert said.name == f"computing what is certified for {name}, 1 to 2 tasks ({number} of 4)"
    words = ["run", "desai2021/accumulation", "--set", "tasks=2", "--set", "steps=2", "--out", str(tmp_path / "r")]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0 and shown.stderr.splitlines() == [said.name for said in heard]
    quiet = CliRunner().invoke(app, [*words, "--quiet", "--json"])
    assert quiet.exit_code == 0 and quiet.stderr == "" and json.loads(quiet.stdout)["tasks"] == 2


def test_without_matplotlib_the_table_is_there_and_the_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[plots\]'"):
        accumulation.write(tmp_path, list(claimed(2, 0, CurveSetting())))
    assert (tmp_path / "accumulation.csv").exists() and not (tmp_path / "accumulation.png").exists()


def test_wrong_settings() -> None:
    for tasks in (0, True, 2.5):
        with pytest.raises(ConfigError, match="tasks must be a whole number >= 1"):
            run(Path("never"), tasks=tasks)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="0 < rate <= 1"):
        run(Path("never"), memory=0.0)
    assert not Path("never").exists()
