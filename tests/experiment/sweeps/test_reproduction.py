"""`tacit reproduce`: every item has a preset, what is missing is run, a second call only reads, figures are drawn."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from support.blobs import make_config
from tacit.cli import app
from tacit.errors import ConfigError
from tacit.experiment.config.config import Accumulation, Sweep
from tacit.experiment.config.loading import load, preset_names
from tacit.experiment.papers import accumulation
from tacit.experiment.sweeps import cached_output, reproduction
from tacit.experiment.sweeps import sweep as sweeps
from tacit.experiment.sweeps.comparison import labels
from tacit.experiment.sweeps.reproduction import Item, catalogue, find, reproduce
from tacit.experiment.sweeps.sweep_figure import panels

BASE = make_config(learner={"method": "NaiveDPSGD", "steps": 3, "batch": 20}, seeds=2).plain()


def item(folder: Path, **values: Any) -> Item:
    """An item whose preset is a small sweep."""
    file = folder / "small.yaml"
    cells = [{"budget.epsilon": 0.5}, {"budget.epsilon": 2.0}]
    content = {"kind": "sweep", "name": "small", "base": BASE, "cells": cells, "baseline": {"budget.epsilon": 0.5}}
    file.write_text(yaml.safe_dump(content))
    return Item(name="paper/table", preset=str(file), about="a small table", **values)


def test_every_item_has_a_preset_that_loads() -> None:
    items = catalogue()
    assert len({one.name for one in items}) == len(items)
    assert {one.name.partition("/")[0] for one in items} == {
        "desai2021", "phan2019", "lai2022", "hassanpour2022", "tobaben2025"
    }  # fmt: skip
    for one in items:
        assert one.preset in preset_names(), one
        assert isinstance(one.plan, Accumulation if one.shows == "curves" else Sweep), one
        assert one.shows != "attacks" or getattr(one.plan, "attacks", None) is not None, one
        assert one.shows != "p" or getattr(one.plan, "baseline", None) is not None, one


def test_every_sweep_beside_a_table_of_a_paper_is_an_item() -> None:
    plans = {name: load(name) for name in preset_names()}
    beside = {name for name, plan in plans.items() if isinstance(plan, Sweep) and plan.reference is not None}
    assert beside <= {one.preset for one in catalogue()}


def test_every_figure_and_table_is_found_by_its_own_name() -> None:
    names = [name for one in catalogue() for name in one.names]
    assert len(set(names)) == len(names)
    assert find("desai2021/figure-2b") == find("desai2021/table-1")
    assert find("lai2022/table-7") == find("lai2022/table-2")
    figures = {
        "desai2021": "2a 2b 2c",
        "phan2019": "1a 1b",
        "lai2022": "3a 3b 3c 4 5a 5b 5c 6 7a 7b",
        "hassanpour2022": "3 4 5a 5b 6a 6b 6c 6d 7a 7b 8a 8b 9a 9b 10a 10b 11",
        "tobaben2025": "2 3 4 5 a1 a2 a3 a4 a5 a6 a7",
    }
    assert {f"{paper}/figure-{one}" for paper, found in figures.items() for one in found.split()} <= set(names)
    tables = "desai2021/table-1 desai2021/table-2 lai2022/table-2 lai2022/table-4 lai2022/table-5 lai2022/table-7"
    assert {*tables.split(), *(f"tobaben2025/table-a{number}" for number in (3, 4, 5))} <= set(names)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean desai2021/table-1"):
        find("desai2021/tabel-1")


def test_what_has_no_experiment_or_has_parts_says_so() -> None:
    for name, said in (
        ("lai2022/table-3", "lai2022/table-3 has no experiment: it counts the records of HARW"),
        ("tobaben2025/table-a1", "has no experiment"),
        ("hassanpour2022/figure-5", "figure-5 has parts, .*: hassanpour2022/figure-5a, hassanpour2022/figure-5b$"),
        ("lai2022/table-1", "table-1-mnist, lai2022/table-1-cifar10, lai2022/table-1-har$"),
        ("hassanpour2022/figure-10", "figure-10a, hassanpour2022/figure-10b$"),
        ("desai2021/figure-9", "there is no table or figure"),
    ):
        with pytest.raises(ConfigError, match=said):
            find(name)
    assert find("lai2022/figure-4").preset == "lai2022/har-orders", "a name of its own comes first"
    found = CliRunner().invoke(app, ["reproduce", "lai2022/table-3"])
    assert found.exit_code == 1 and "has no experiment" in found.output


def test_interval_bounds_are_shown_beside_the_attacks() -> None:
    for figure in ("figure-9a", "figure-10a"):
        assert find(f"hassanpour2022/{figure}").beside == ("hassanpour2022/attacks-ibp",)
    made = {one.preset for one in catalogue()}
    assert {"hassanpour2022/attacks-ibp", "hassanpour2022/smoothing-peer"} <= made
    for one in catalogue():
        assert set(one.beside) <= set(preset_names())


def test_a_preset_beside_is_run_and_shown_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = item(tmp_path), tmp_path / "other.yaml"
    cells = [{"budget.epsilon": 1.0}]
    other.write_text(yaml.safe_dump({"kind": "sweep", "name": "other", "base": BASE, "cells": cells}))
    both = replace(one, beside=(str(other),))
    out = tmp_path / "out"
    reproduce(one, out, processes=1)
    assert one.state(out) == "done" and both.state(out) == "in part"
    found = reproduce(both, out, processes=1)
    assert [len(part.cells or ()) for part in (found, *found.beside)] == [2, 1] and found.finished
    assert both.state(out) == "done" and found.figure == both.figure(out)
    monkeypatch.setattr(reproduction, "catalogue", lambda: [both])
    shown = CliRunner().invoke(app, ["reproduce", "paper/table", "--quiet", "--out", str(out)])
    assert shown.exit_code == 0 and shown.output.count("runs with their releases and certificates") == 2
    rows = json.loads(CliRunner().invoke(app, ["reproduce", "paper/table", "--json", "--out", str(out)]).output)
    assert [row["budget.epsilon"] for row in rows] == [0.5, 2.0, 1.0]


def test_where_it_runs_can_be_set_and_the_cells_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that was begun on another device goes on there, so a later call needs no setting."""
    one, out = item(tmp_path), tmp_path / "out"
    where: list[tuple[str, int | None]] = []
    run = sweeps.run

    def elsewhere(config: Any, folder: Any, **named: Any) -> Any:
        """Records the device; the folder is begun as asked for, and trained on the CPU."""
        where.append((config.device, config.threads))
        file = Path(folder) / "config.yaml"
        if file.exists():
            file.write_text(file.read_text().replace("device: cuda", "device: cpu"))
        found = run(config.model_copy(update={"device": "cpu"}), folder, **named)
        file.write_text(file.read_text().replace("device: cpu", f"device: {config.device}"))
        return found

    monkeypatch.setattr(sweeps, "run", elsewhere)
    found = reproduce(one, out, sets=["device=cuda", "threads=1"], processes=1)
    assert where == [("cuda", 1)] * 2 and found.finished and one.state(out) == "done"
    again = reproduce(one, out, processes=1)
    assert len(where) == 2 and [c.name for c in again.cells or ()] == [c.name for c in found.cells or ()]
    cell = (found.cells or ())[0]
    cell.folder.metrics.unlink()  # killed before its end
    reproduce(one, out, processes=1)
    assert where[2:] == [("cuda", 1)]
    cell.folder.metrics.unlink()
    reproduce(one, out, sets=["device=cpu"], processes=1)
    assert where[3:] == [("cuda", 1)], "not half of it on each"


def test_what_it_shows_cannot_be_set(tmp_path: Path) -> None:
    one = item(tmp_path)
    for setting, said in (
        ("learner.lr=1", r"--set takes device and threads, got learner.lr = 1; for other settings, use tacit sweep"),
        ("seeds=1", "got seeds = 1"),
        ("jobs=4", "use --jobs"),
        ("device=abacus", "abacus"),
    ):
        with pytest.raises(ConfigError, match=said):
            reproduce(one, tmp_path / "out", sets=[setting], processes=1, limit_minutes=0)
    curves = find("hassanpour2022/figure-11")
    assert reproduction._changed(curves.plan, ["device=cuda"]) == curves.plan, "curves are made of plans"


def test_what_is_missing_is_run_and_a_second_call_only_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, out = item(tmp_path), tmp_path / "out"
    assert one.state(out) == "not run"
    reproduce(one, out, processes=1, limit_minutes=0)  # too late for any run
    assert one.state(out) == "not run" and not one.figure(out).exists()
    calls: list[str] = []
    run = sweeps.run

    def counted(*given: Any, **named: Any) -> Any:
        calls.append(str(given[1]))
        return run(*given, **named)

    monkeypatch.setattr(sweeps, "run", counted)
    found = reproduce(one, out, processes=1)
    assert len(calls) == 2 and one.state(out) == "done"
    assert found.cells is not None and [cell.status for cell in found.cells] == ["done", "done"]
    assert found.figure == one.figure(out) and found.figure.read_bytes().startswith(b"\x89PNG")
    again = reproduce(one, out, processes=1)
    assert len(calls) == 2 and again.figure == found.figure
    p = Item(name="paper/p", preset=one.preset, about="p", shows="p")
    assert p.folder(out) == one.folder(out), "items of one preset share its runs"
    drawn = reproduce(p, out, processes=1).figure
    assert drawn == p.figure(out) and drawn != found.figure and drawn.stat().st_size > 0 and len(calls) == 2


def test_curves_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "curves.yaml"
    file.write_text(yaml.safe_dump({"kind": "accumulation", "name": "curves", "tasks": 2}))
    one = Item(name="paper/curves", preset=str(file), about="curves", shows="curves")
    found = reproduce(one, tmp_path / "out")
    assert found.figure is not None and found.figure.exists() and one.state(tmp_path / "out") == "done"
    monkeypatch.setattr(accumulation, "certified", lambda *_: pytest.fail("it is computed again"))
    assert reproduce(one, tmp_path / "out").curves == found.curves


def test_a_finished_item_is_printed_again_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From what was printed last, until its results or the presets change."""
    one, runner = item(tmp_path), CliRunner()
    folder = one.folder(tmp_path / "out")
    monkeypatch.setattr(reproduction, "catalogue", lambda: [one])
    monkeypatch.setattr(cached_output, "presets_of", lambda name: [one.preset] if name == one.name else [])
    call = ["reproduce", "paper/table", "--quiet", "--processes", "1", "--out", str(tmp_path / "out")]
    late = runner.invoke(app, [*call, "--limit-minutes", "0"])
    assert "not run" in late.output and not list(folder.glob("*.printed.json")), "it is not finished"
    first = runner.invoke(app, call)
    assert first.exit_code == 0 and "figure:" in first.output
    asked: list[str] = []
    work = reproduction.reproduce

    def counted(*given: Any, **named: Any) -> Any:
        asked.append("again")
        return work(*given, **named)

    monkeypatch.setattr(reproduction, "reproduce", counted)
    assert runner.invoke(app, call).output == first.output and not asked
    assert runner.invoke(app, [*call, "--json"]).exit_code == 0 and len(asked) == 1
    (folder / "table.png").unlink()
    assert runner.invoke(app, call).output == first.output and len(asked) == 2 and (folder / "table.png").exists()
    next(folder.glob("*.printed.json")).write_text("torn")
    assert runner.invoke(app, call).output == first.output and len(asked) == 3


def test_names_lead_to_presets_without_torch() -> None:
    assert cached_output.preset_of("desai2021/figure-2b") == find("desai2021/figure-2b").preset
    assert {name: cached_output.preset_of(name) for one in catalogue() for name in one.names} == {
        name: one.preset for one in catalogue() for name in one.names
    }
    assert cached_output.preset_of("desai2021/table-9") is None and cached_output.preset_of("nobody/x") is None
    code = "import sys, tacit.experiment.sweeps.cached_output; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_command_lists_runs_and_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, runner = item(tmp_path), CliRunner()
    monkeypatch.setattr(reproduction, "catalogue", lambda: [one])
    out = ["--out", str(tmp_path / "out")]
    assert "not run" in runner.invoke(app, ["reproduce", *out]).output
    found = runner.invoke(app, ["reproduce", "paper/table", "--quiet", "--processes", "1", *out])
    assert found.exit_code == 0, found.output
    assert "ε certified" in found.output and "table.png" in found.output
    assert "done" in runner.invoke(app, ["reproduce", *out]).output
    wrong = runner.invoke(app, ["reproduce", "paper/tabel", *out])
    assert wrong.exit_code == 1


def test_curves_are_in_panels_of_a_few() -> None:
    """By method, and by as many of its settings as it takes."""
    few = ["AGEM", "DPCL steps=1", "DPCL steps=2"]
    assert panels(few) == {"AGEM": ["AGEM"], "DPCL": few[1:]}
    many = [f"Pool noise={noise} tasks={tasks} seed={n}" for noise in (2, 4) for tasks in (6, 9) for n in range(5)]
    found = panels(many)
    assert list(found) == [f"Pool noise={noise} tasks={tasks}" for noise in (2, 4) for tasks in (6, 9)]
    assert sorted(name for own in found.values() for name in own) == sorted(many)
    assert panels(["A x=1"] * 9) == {"A": ["A x=1"] * 9}, "nothing tells them apart"


def test_settings_that_follow_from_others_are_left_out_of_long_names() -> None:
    cells = [
        {"learner.method": "Pool", "learner.noise": n, "learner.memory_noise": n, "learner.fine_tune": f}
        for n in (2, 4)
        for f in ("public", None)
    ]
    assert labels(cells) == [f"Pool noise={n} fine_tune={f}" for n in (2, 4) for f in ("public", None)]
    assert labels([{"a.x": 1, "b.y": 2}, {"a.x": 2, "b.y": 3}]) == ["x=1 y=2", "x=2 y=3"], "short names are whole"
