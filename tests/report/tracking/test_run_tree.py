"""What trackers are sent: entries of run folders, settled tasks only, under keys that stay."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tacit import Certificate
from tacit.errors import ConfigError
from tacit.experiment import run_endless
from tacit.report.tracking.run_tree import KEYS, tracked


def test_a_run_has_an_entry_for_each_seed_below_its_own(a_run: Path) -> None:
    above, *seeds = tracked(a_run)
    assert [one.name for one in seeds] == ["seed 0", "seed 1"] and all(one.parent == above.key for one in seeds)
    assert above.parent == "" and above.whole and not seeds[0].whole and above.done and seeds[0].done
    told = json.loads((a_run / "metrics.json").read_text())
    for seed, entry in enumerate(seeds):
        assert entry.series["average_accuracy"][3] == pytest.approx(told["average_accuracy"]["per_seed"][seed])
        assert entry.series["forgetting"][3] == pytest.approx(told["forgetting"]["per_seed"][seed])
        assert set(entry.series["accuracy/task_02"]) == {2, 3}
        assert [one.task for one in entry.releases] == [1, 2, 3]
        last = Certificate.load(entry.releases[-1].certificate)
        assert entry.facts["certificate"] == last.id and float(entry.facts["epsilon"]) == last.epsilon
    assert above.series["average_accuracy"][3] == pytest.approx(told["average_accuracy"]["mean"])
    assert above.series["average_accuracy_std"][3] == pytest.approx(told["average_accuracy"]["std"])
    assert above.series["epsilon_certified"][3] == told["epsilon_certified"]["per_record"]
    assert above.series["epsilon_claimed"][3] == pytest.approx(told["epsilon_claimed"]["per_task"])
    assert above.settings["learner.steps"] == "4" and above.releases == ()


def test_keys_stay(a_run: Path) -> None:
    keys = [one.key for one in tracked(a_run)]
    assert [one.key for one in tracked(a_run)] == keys and keys[0] == json.loads((a_run / KEYS).read_text())["key"]
    for wrong in ("no", '{"key": "x\' OR 1"}', "[]", '{"key": 3}'):
        (a_run / KEYS).write_text(wrong)
        with pytest.raises(ConfigError, match="was changed or is damaged"):
            tracked(a_run)


def test_a_sweep_has_its_runs_below_it_and_a_run_knows_its_sweep(swept: Path, run_of: Callable[[str], Path]) -> None:
    top, *below = tracked(swept)
    assert top.facts["kind"] == "sweep" and top.settings == {}
    runs = [one for one in below if one.whole]
    assert len(runs) == 3 and all(one.parent == top.key for one in runs) and len(below) == 9
    alone = tracked(swept / run_of("DPCL").name)
    assert alone[0].key == top.key and {one.key for one in alone[1:]} <= {one.key for one in below}


def test_a_task_counts_once_it_is_settled(a_run: Path) -> None:
    for seed in (0, 1):
        log = a_run / "seeds" / f"seed-{seed}" / "progress.jsonl"
        lines = [line for line in log.read_text().splitlines() if "finished" not in line]
        kept = [line for line in lines if not (json.loads(line).get("task") == 2 and json.loads(line).get("settled"))]
        log.write_text("\n".join(kept) + '\n{"task": 2, "settl')
    (a_run / "metrics.json").unlink()
    above, *seeds = tracked(a_run)
    assert not above.done and above.tasks == 2 and not any(one.done for one in seeds)
    assert [len(one.releases) for one in seeds] == [2, 2] and set(seeds[0].series["epsilon_certified"]) == {1, 2}
    assert set(above.series["forgetting"]) == {2}


def test_the_mean_waits_for_all_seeds(a_run: Path) -> None:
    shutil.rmtree(a_run / "seeds" / "seed-1")
    above, *seeds = tracked(a_run)
    assert above.series == {} and not above.done and len(seeds) == 1 and seeds[0].done


def test_a_method_that_is_not_sequential_has_no_forgetting(a_run: Path) -> None:
    for log in a_run.rglob("progress.jsonl"):
        log.write_text(log.read_text().replace('"sequential": true', '"sequential": false'))
    assert all("forgetting" not in one.series for one in tracked(a_run))


def test_weights_of_tasks_count_before_the_run_ends(a_run: Path) -> None:
    log = a_run / "seeds" / "seed-0" / "progress.jsonl"
    lines = [line for line in log.read_text().splitlines() if "finished" not in line]
    first = json.loads(lines[0])
    assert first["sequential"] is True
    log.write_text("\n".join([json.dumps({**first, "weights": [1.0, 0.0, 0.0]}), *lines[1:]]) + "\n")
    seed = tracked(a_run)[1]
    assert seed.series["average_accuracy"][3] == seed.series["accuracy/task_01"][3]


def test_nothing_is_sent_of_a_run_without_a_task(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("name: x\nseeds: [0]\n")
    assert tracked(tmp_path) == [] and not (tmp_path / KEYS).exists()
    with pytest.raises(ConfigError, match="there is no run in"):
        tracked(tmp_path / "nothing")


@pytest.mark.parametrize(
    "text", ["{}\n", '{"task": [], "settled": true}\n', "\x00\xff", '{"task": 0, "accuracy": "x"}\n']
)
def test_a_damaged_log_is_no_error(a_run: Path, text: str) -> None:
    for log in a_run.rglob("progress.jsonl"):
        log.write_text(text)
    for entry in tracked(a_run):
        assert all(math.isfinite(value) for values in entry.series.values() for value in values.values())


def test_links_and_private_folders_are_not_read(with_secrets: Path) -> None:
    for entry in tracked(with_secrets):
        inside = [one.certificate.resolve().relative_to(with_secrets.resolve()) for one in entry.releases]
        assert all("private" not in path.parts for path in inside)
        assert len(entry.releases) in (0, 3)


ENDLESS = {
    "kind": "endless", "name": "months",
    "data": {"source": "digits", "scenario": "drifting", "limit": 60},
    "learner": {"method": "NaiveDPSGD", "steps": 2, "batch": 20}, "model": {"network": "mlp", "hidden": [4]},
    "budget": {"epsilon": 2.0, "delta": 1e-3}, "keep": 2, "threads": 1,
}  # fmt: skip


def test_an_endless_stream_is_one_entry(tmp_path: Path) -> None:
    sent: list[tuple[int, bool]] = []

    class Noted:
        name = "noted"

        def send(self, folder: Path, *, final: bool = True) -> None:
            sent.append((tracked(folder)[0].tasks, final))

    run_endless(ENDLESS, tmp_path / "months", tasks=3, trackers=[Noted()])
    assert sent == [(1, False), (2, False), (3, False), (3, True)]
    (entry,) = tracked(tmp_path / "months")
    assert set(entry.series["epsilon_certified"]) == {1, 2, 3} and set(entry.series["average_accuracy"]) == {1, 2, 3}
    assert [one.task for one in entry.releases] == [2, 3] and not entry.done and entry.facts["kind"] == "endless"
    assert "Average accuracy" in (entry.releases[-1].folder / "README.md").read_text()
