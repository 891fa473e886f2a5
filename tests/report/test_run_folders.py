"""What a report reads of whole folders."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.report_folders import by_hand
from tacit.errors import ConfigError
from tacit.experiment import load
from tacit.experiment.config.config import Config
from tacit.experiment.runs import run_summary
from tacit.experiment.runs.folder import RunFolder
from tacit.report.reading.run_folders import read_folders

RunOf = Callable[[str], Path]


def test_a_sweep_is_read_in_the_order_of_its_plan(trained: Path) -> None:
    found = read_folders([trained])
    assert [run.label for run in found.runs] == ["AGEM", "DPCL", "RoutedExperts"]
    assert found.description == "Three tiny learners." and found.missing == ()
    assert all(run.missing == () and run.status == "done" for run in found.runs)


def test_the_figures_are_those_of_the_run(run_of: RunOf) -> None:
    path = run_of("DPCL")
    told = json.loads((path / "metrics.json").read_text())
    (run,) = read_folders([path]).runs
    assert run.average_accuracy is not None and run.average_accuracy.mean == told["average_accuracy"]["mean"]
    assert run.forgetting is not None and run.forgetting.mean == told["forgetting"]["mean"]
    config = load(path)
    assert isinstance(config, Config)
    curves = run_summary.average_curves(config, RunFolder(path=path))
    assert [list(curve) for curve in run.average_curves] == curves
    assert [curve[-1] for curve in run.forgetting_curves] == told["forgetting"]["per_seed"]
    assert run.certified is not None and run.certified["per_record"] == told["epsilon_certified"]["per_record"]
    assert [step.tasks for step in run.privacy] == [1, 2, 3] and run.privacy[-1].certified == run.epsilon
    assert run.budget == 2.0 and len(run.blocks) == 3
    assert all(block.spent is not None and 0 < block.spent <= 2.0 for block in run.blocks)
    assert run.attacks is not None and run.attacks.columns == ("clean", "fgsm")


def test_without_metrics_they_are_computed_from_the_logs(a_run: Path) -> None:
    (before,) = read_folders([a_run]).runs
    (a_run / "metrics.json").unlink()
    (run,) = read_folders([a_run]).runs
    assert run.average_accuracy == before.average_accuracy and run.forgetting == before.forgetting
    assert run.certified == {key: value for key, value in dict(before.certified or {}).items() if key != "task_wise"}
    assert any("metrics.json is missing" in one for one in run.missing)


def test_a_run_without_privacy_has_no_epsilon(run_of: RunOf) -> None:
    (run,) = read_folders([run_of("AGEM")]).runs
    assert run.epsilon is None and not run.private and "raw records" in run.certified_reason and run.budget is None


def test_several_folders_and_a_folder_of_runs(trained: Path, run_of: RunOf, tmp_path: Path) -> None:
    two = read_folders([trained, run_of("DPCL")])
    assert len(two.runs) == 4 and len({run.label for run in two.runs}) == 4 and two.title == "2 folders"
    by_hand(tmp_path / "all" / "one", trained, method="A", tasks=2)
    by_hand(tmp_path / "all" / "two", trained, method="A", tasks=3)
    assert [run.label for run in read_folders([tmp_path / "all"]).runs] == ["one", "two"]
    same = read_folders([run_of("DPCL"), run_of("DPCL")])
    assert len({run.label for run in same.runs}) == 2 and len({run.key for run in same.runs}) == 2


def test_folders_without_a_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        read_folders([tmp_path / "no"])
    with pytest.raises(ConfigError, match="there is no run in"):
        read_folders([tmp_path])


def test_an_endless_stream(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "forever"
    folder.mkdir()
    config = {"kind": "endless", "learner": {"method": "Pool"}, "seeds": [0], "budget": {"epsilon": 2.0}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    lines: list[dict[str, Any]] = [
        {
            "task": task,
            "name": f"day-{task}",
            "accuracy": [0.7 + on / 100 for on in range(min(3, task + 1))],
            "epsilon": 1.5,
        }
        for task in range(1000)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"task": 1000, "acc')
    (folder / "state.json").write_text(json.dumps({"settled": 1000, "ended": None}))
    (run,) = read_folders([folder]).runs
    assert run.kind == "endless" and run.method == "Pool" and "1000 tasks learned" in run.status
    assert len(run.points) == 400 and run.points[0] == 1 and run.points[-1] == 1000
    assert run.matrix.shape == (20, 20) and run.first_task == 981 and run.tasks[-1] == "day-999"
    assert run.average_accuracy is not None and run.average_accuracy.mean == pytest.approx(0.71)
    assert run.privacy[-1].certified == 1.5
    assert any("no certificate" in one for one in run.missing)


OPENED: list[str] = []
_WATCHING = [False]


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _WATCHING[0] and event in ("open", "os.listdir", "os.scandir"):
        OPENED.append(str(arguments[0]))


def test_nothing_private_is_opened(a_run: Path) -> None:
    for place in (a_run / "private", a_run / "seeds" / "private", a_run / "seeds" / "seed-0" / "private"):
        (place / "seeds" / "seed-3").mkdir(parents=True)
        (place / "progress.jsonl").write_text('{"task": 0, "accuracy": [1.0]}\n')
    (a_run / "environment.json").unlink()
    (a_run / "environment.json").symlink_to(a_run / "private" / "progress.jsonl")
    (a_run / "seeds" / "seed-1" / "progress.jsonl").unlink()
    (a_run / "seeds" / "seed-1" / "progress.jsonl").symlink_to(a_run / "seeds" / "seed-1" / "private")
    sys.addaudithook(_watch)
    _WATCHING[0] = True
    try:
        (run,) = read_folders([a_run]).runs
    finally:
        _WATCHING[0] = False
    inside = [path.removeprefix(str(a_run)) for path in OPENED if path.startswith(str(a_run))]
    assert len(inside) > 5 and not [path for path in inside if "private" in path]
    assert any("environment.json is not a plain file of the folder" in one for one in run.missing)


def test_a_link_into_a_private_folder_is_no_run(swept: Path) -> None:
    secret = swept / "private" / "run"
    (secret / "seeds").mkdir(parents=True)
    (swept / "looks-public").symlink_to(secret)
    assert [run.label for run in read_folders([swept]).runs] == ["AGEM", "DPCL", "RoutedExperts"]
