"""A contract: whatever is wrong with a folder, the page shows what can be read and says what is missing."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tacit.report.page import page
from tacit.report.reading.run_folders import read_folders


def _change(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def _last(run: Path) -> Path:
    return sorted((run / "seeds" / "seed-0" / "releases").iterdir())[-1] / "certificate.json"


def _log(run: Path) -> Path:
    return run / "seeds" / "seed-0" / "progress.jsonl"


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _metrics(text: str) -> Callable[[Path], object]:
    return lambda run: (run / "metrics.json").write_text(text)


def _config(text: str) -> Callable[[Path], object]:
    return lambda run: (run / "config.yaml").write_text(text)


def _logged(line: str) -> Callable[[Path], object]:
    return lambda run: _log(run).write_text(line + "\n")


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "torn metrics": (_metrics('{"average_accuracy": {"me'), "metrics.json is damaged"),
    "metrics that are a list": (_metrics("[1, 2]"), "metrics.json is damaged"),
    "deep metrics": (_metrics("[" * 100_000), "metrics.json is damaged"),
    "metrics that are a pipe": (lambda run: _fifo(run / "metrics.json"), "not a plain file"),
    "metrics that are a folder": (
        lambda run: ((run / "metrics.json").unlink(), (run / "metrics.json").mkdir()), "not a plain file",
    ),
    "no configuration": (lambda run: (run / "config.yaml").unlink(), ""),
    "torn configuration": (_config("data: {a: [1"), "config.yaml is damaged"),
    "a configuration of bytes": (
        lambda run: (run / "config.yaml").write_bytes(b"\xff\x00\x01"), "config.yaml is damaged",
    ),
    "a configuration of other types": (
        _config("data: 3\nlearner: [1]\nbudget: x\nseeds: {a: 1}\nkind: [2]"), "",
    ),
    "a configuration that asks for code": (
        _config("learner: {method: '/nowhere/evil.py:Evil'}\nseeds: [0, 1]"), "",
    ),
    "a missing log": (lambda run: _log(run).unlink(), "the log of seed 0 is missing"),
    "a torn log": (lambda run: _log(run).write_text(_log(run).read_text()[:900]), ""),
    "a log of words": (_logged('{"task": 0, "accuracy": ["high"]}'), "damaged"),
    "a log of other types": (_logged('{"task": {}, "accuracy": 3, "finished": [1]}'), "damaged"),
    "a log with a gap": (_logged('{"task": 2, "accuracy": [0.1, 0.2, 0.3]}'), ""),
    "a log with too many": (_logged('{"task": 0, "accuracy": [0.1, 0.2, 0.3]}'), ""),
    "an unfinished log": (
        lambda run: _log(run).write_text("\n".join(_log(run).read_text().splitlines()[:-1]) + "\n"), "",
    ),
    "a missing seed": (lambda run: shutil.rmtree(run / "seeds" / "seed-1"), "nothing was found of seed 1"),
    "no seeds": (lambda run: shutil.rmtree(run / "seeds"), "no certificate could be read"),
    "odd seeds": (lambda run: (run / "seeds" / "seed-²").mkdir(), ""),
    "a loop of links": (lambda run: _loop(_log(run)), "cannot be read"),
    "a damaged certificate": (
        lambda run: _last(run).write_text("{}"), "certificate.json is damaged or of another version",
    ),
    "a certificate of a newer version": (
        lambda run: _change(_last(run), lambda c: c.update(format=2, strange=True)), "of another version",
    ),
    "a certificate of other types": (
        lambda run: _change(_last(run), lambda c: c.update(claims=[1])), "of another version",
    ),
    "no release": (
        lambda run: [shutil.rmtree(run / "seeds" / f"seed-{seed}" / "releases") for seed in (0, 1)],
        "no certificate could be read",
    ),
    "a newer version": (
        lambda run: _change(run / "environment.json", lambda e: e.update(tacit="9.1")), "made by tacit 9.1, newer than",
    ),
    "an environment of other types": (
        lambda run: (run / "environment.json").write_text('{"tacit": [1], "torch": {"a": null}}'), "",
    ),
    "damaged attacks": (
        lambda run: (run / "seeds" / "seed-0" / "attacks.json").write_text('{"found": {"columns": 3}}'),
        "the attack results are damaged",
    ),
    "attacks on one seed": (
        lambda run: (run / "seeds" / "seed-1" / "attacks.json").unlink(), "attack results of some seeds",
    ),
    "numbers that are none": (
        lambda run: _change(
            run / "metrics.json",
            lambda m: m.update(
                average_accuracy={"mean": "NaN"}, forgetting=7, epsilon_certified={"per_record": True},
                caveats=[{}, "x"], epsilon_claimed=[1],
            ),
        ),
        "",
    ),
    "infinite numbers": (
        _metrics('{"average_accuracy": {"mean": Infinity, "std": NaN}, "epsilon_certified": {"per_record": 1e999}}'),
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_run_gives_what_can_be_read(name: str, a_run: Path) -> None:
    damage, sentence = DAMAGES[name]
    damage(a_run)
    found = read_folders([a_run])
    assert len(found.runs) == 1
    said = " ".join(found.runs[0].missing)
    assert sentence in said
    text = page(found)
    assert "<h1>" in text and "Traceback" not in text
    assert not sentence or "What is missing" in text


def test_any_file_may_be_cut_anywhere(a_run: Path, tmp_path: Path) -> None:
    files = [path for path in sorted(a_run.rglob("*")) if path.suffix in (".json", ".jsonl", ".yaml", ".csv")]
    assert len(files) > 10
    for path in files:
        whole = path.read_bytes()
        for part in (0.0, 0.3, 0.9):
            path.write_bytes(whole[: int(part * len(whole))])
            assert len(read_folders([a_run]).runs) == 1, (path, part)
        path.write_bytes(whole)


@pytest.mark.parametrize(
    "text",
    ["", "[1]", "cells: 3", "cells: [3]", "grid: [1]", "grid: {a: 1}", "a: &a [1]\nb: [*a, *a]\ncells: {x: y}", "{"],
)
def test_a_damaged_plan_of_a_sweep(swept: Path, text: str) -> None:
    (swept / "sweep.yaml").write_text(text)
    (swept / "cells.csv").write_bytes(b'folder,baseline\n"\xff\x00')
    found = read_folders([swept])
    assert len(found.runs) == 3 and "<h1>" in page(found)


def test_a_sweep_that_goes_on(swept: Path) -> None:
    first, second, _ = (run.folder for run in read_folders([swept]).runs)
    shutil.rmtree(first)
    (second / "metrics.json").unlink()
    for log in second.rglob("progress.jsonl"):
        log.write_text("\n".join(log.read_text().splitlines()[:6]) + "\n")
    found = read_folders([swept])
    assert [run.label for run in found.runs] == ["DPCL", "RoutedExperts"]
    assert "1 of 3 runs of the sweep has not begun" in found.missing[0]
    assert "tasks learned" in found.runs[0].status and any("not finished" in one for one in found.runs[0].missing)
    assert found.runs[0].status in page(found)
