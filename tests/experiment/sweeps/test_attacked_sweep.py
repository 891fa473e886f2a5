"""A sweep with attacks: cells are learned, then attacked once, and one table says what was found."""

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tacit.cli import app
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import ConfigError
from tacit.experiment.attacks import attacked
from tacit.experiment.attacks.results import AttackResults, Measurement
from tacit.experiment.config.config import Sweep
from tacit.experiment.config.loading import load
from tacit.experiment.files import read
from tacit.experiment.progress import Stop, Stopped
from tacit.experiment.runs.resolver import make_budget
from tacit.experiment.sweeps import attack_table, attacked_cells
from tacit.experiment.sweeps.reference import reference
from tacit.experiment.sweeps.sweep import cells_of, sweep
from tacit.learners import find
from tacit.learners.base.networks import NamedNetwork
from tacit.presets import PRESETS
from tacit.robustness.attacks import Attack

FAST: dict[str, Any] = {
    "kind": "sweep",
    "name": "attacked",
    "base": {
        "name": "attacked",
        "data": {"source": "digits", "scenario": "permuted", "tasks": 2, "limit": 60},
        "learner": {"method": "NaiveDPSGD", "steps": 5, "batch": 20},
        "model": {"network": "mlp", "hidden": [8]},
        "budget": {"epsilon": 2.0, "delta": 1e-4},
        "seeds": 2,
        "threads": 1,
    },
    "cells": [
        {"learner.method": "NaiveDPSGD"},
        {"learner.method": "NaiveDPSGD", "model.network": "noisy", "model.options": {"hidden": [8]}},
    ],
    "attacks": {"kinds": ["fgsm", "pgd"], "steps": 2, "rows": 20, "draws": 1, "certificates": 20},
}


def plan(**attacks: Any) -> Sweep:
    made = load({**FAST, "attacks": {**FAST["attacks"], **attacks}})
    assert isinstance(made, Sweep)
    return made


def printed(cells: Any) -> str:
    console = Console(width=200, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115 - the console's
    attack_table.show(cells, console)
    return console.export_text()


def test_cells_are_attacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = sweep(plan(), tmp_path / "s", processes=1)
    said = printed(cells)
    for words in (
        *("average accuracy", "clean", "FGSM", "PGD", "certified", "forgetting", "±", "L∞ 0.1, 2 steps of 0.125"),
        "each evaluation is itself the mean of 8 draws",
        "nothing is certified: its network has no noise layer",
    ):
        assert words in said, said
    found = [cell.attacked for cell in cells]
    assert found[0] is not None and found[1] is not None
    assert AttackResults.of(json.loads(json.dumps(asdict(found[1])))) == found[1]  # as it is read back
    assert found[0].columns == ("clean", "fgsm", "pgd") and found[1].columns == ("clean", "fgsm", "pgd", "certified")
    lines = list(csv.DictReader((tmp_path / "s" / "cells.csv").read_text().splitlines()))
    assert float(lines[0]["accuracy_pgd_mean"]) == pytest.approx(found[0].last("pgd").mean)
    assert lines[0]["accuracy_certified_mean"] == "" != lines[1]["accuracy_certified_mean"]

    def never(*_: Any) -> None:
        raise AssertionError("it was attacked already")

    monkeypatch.setattr(attacked, "_AllReleases", never)
    again = sweep(plan(), tmp_path / "s", processes=1)
    assert [cell.attacked for cell in again] == found
    with pytest.raises(AssertionError, match="attacked already"):  # other attacks are not these
        sweep(plan(radius=0.2), tmp_path / "s", processes=1)


def test_the_ball_of_certified_accuracy_has_its_own_norm_radius_and_bound(tmp_path: Path) -> None:
    def asked(folder: str, **more: Any) -> AttackResults:
        made = plan(kinds=["fgsm"], certificates=200, **more)
        learner = {"method": "NaiveDPSGD", "steps": 60, "batch": 40, "lr": 1.0}
        base = {**FAST["base"], "seeds": 1, "learner": learner, "budget": {"epsilon": 200.0, "delta": 1e-4}}
        one = made.model_copy(update={"cells": made.cells[1:], "base": base})
        (cell,) = sweep(one, tmp_path / folder, processes=1)
        assert cell.attacked is not None
        said = printed([cell])
        assert cell.attacked.certificate() in " ".join(said.split()), said
        return cell.attacked

    as_attacked = asked("s")
    assert as_attacked.last("certified").mean == 0
    assert "no change of L∞ 0.1 turns the right answer, by PixelDP's bound" in as_attacked.certificate()
    assert "can be certified, so it is 0 whatever was learned" in as_attacked.certificate()
    own = asked("s", certified_norm="l2", certified_radius=0.01, bound="smoothing")  # the same releases, asked anew
    assert 0 < own.last("certified").mean <= own.last("clean").mean
    assert "no change of L2 0.01 turns the right answer, by randomised smoothing" in own.certificate()
    assert "whatever was learned" not in own.certificate() and (own.largest_radius or 0) > 0.01
    norms = {(line[3], line[4], line[5]) for line in own.lines()}
    assert norms == {("clean", "", ""), ("fgsm", "linf", 0.1), ("certified", "l2", 0.01)}
    for wrong in ({"bound": "tight"}, {"certified_norm": "l3"}, {"certified_radius": 0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))[-4:]):
            plan(**wrong)


def test_results_of_earlier_versions_are_those_of_the_same_attacks(tmp_path: Path) -> None:
    found = sweep(plan(kinds=["fgsm"]), tmp_path / "s", processes=1)[1].attacked
    assert found is not None
    earlier = json.loads(json.dumps(asdict(found)))
    del earlier["certified"], earlier["largest_radius"]
    read_back = AttackResults.of(earlier)
    assert read_back.measured == found.measured and "no change of L∞ 0.1" in read_back.certificate()
    assert set(attacked._plain(plan().attacks)) == {"draws", "range", "rows", "certificates", "attacks"}


def test_the_papers_gains_stand_beside(tmp_path: Path) -> None:
    known = reference("hassanpour2022/attacks")
    made = load(read(PRESETS / "hassanpour2022" / "attacks.yaml"))
    assert isinstance(made, Sweep) and made.reference == "hassanpour2022/attacks"
    cells = cells_of(made, tmp_path)
    rows = [known.beside(cell.config) for cell in cells]
    assert [row.gain for row in rows if row is not None] == [None, 9.3, 3.3, 1.65, 3.6]
    assert sum(row.gain or 0 for row in rows[2:] if row is not None) == pytest.approx(8.55)
    cifar = reference("hassanpour2022/attacks-cifar")
    assert sum(row.gain or 0 for row in cifar.rows[:3]) == pytest.approx(10.2)
    for place, cell in enumerate(cells):  # under attack 10, 20, … %
        cell.attacked = AttackResults(
            measured=tuple(
                Measurement(seed=0, after_task=0, on_task=0, attack=kind, accuracy=0.1 * (place + 1))
                for kind in ("clean", "fgsm", "pgd")
            ),
            tasks=("t",), seeds=(0,), columns=("clean", "fgsm", "pgd"),
            attacks=(Attack(kind="fgsm"), Attack(kind="pgd")), answer_draws=1, flat=0.0,
            no_certificate=None,
        )  # fmt: skip
    console = Console(width=200, record=True, file=io.StringIO())
    attack_table.show(cells, console, known)
    lines = [line.split()[-3:] for line in console.export_text().splitlines()]
    table = [
        line for line in lines if len(line) == 3 and line[0].endswith("%") and line[0] in ("10.0%", "20.0%", "50.0%")
    ]
    assert (
        ["10.0%", "–", "–"] in table and ["20.0%", "+10.00", "+9.3"] in table and ["50.0%", "+10.00", "+3.6"] in table
    )


def test_a_stop_between_seeds_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, done = Stop(), []
    real = attacked.write_json

    def writes(path: Path, values: Any) -> None:
        real(path, values)
        done.append(path)
        if path.name == attacked.KEPT:
            stop.request()

    monkeypatch.setattr(attacked, "write_json", writes)
    with pytest.raises(Stopped):
        sweep(plan(), tmp_path / "s", processes=1, stop=stop)
    assert len(done) == 1, "the first seed of the first cell is kept"
    monkeypatch.setattr(attacked, "write_json", real)
    first = done[0].stat().st_mtime_ns
    cells = sweep(plan(), tmp_path / "s", processes=1)
    assert all(cell.attacked is not None for cell in cells) and done[0].stat().st_mtime_ns == first


@pytest.mark.slow
def test_in_processes_of_their_own_they_find_the_same(tmp_path: Path) -> None:
    one = sweep(plan(), tmp_path / "s", processes=1)
    for kept in (tmp_path / "s").rglob(attacked.KEPT):
        kept.unlink()
    several = sweep(plan(), tmp_path / "s", processes=2)
    assert [cell.attacked for cell in several] == [cell.attacked for cell in one] and several[0].attacked is not None


def test_a_failed_attack_is_a_sentence_of_its_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ConfigError("there is nothing to attack")

    monkeypatch.setattr(attacked_cells, "attack_run", fails)
    cells = sweep(plan(), tmp_path / "s", processes=1)
    assert [cell.not_attacked for cell in cells] == ["there is nothing to attack"] * 2
    assert "there is nothing to attack" in printed(cells)
    assert attacked_cells.main(str(tmp_path / "none"), "{}") == 1


def test_wrong_attacks_are_said_before_the_first_cell() -> None:
    for wrong, words in (
        ({"kinds": ["cw"]}, "attack must be one of fgsm, ifgsm, mim, pgd, got 'cw'"),
        ({"radius": -1}, "attacks.radius = -1 is out of range: should be greater than 0"),
        ({"rows": 0}, "attacks.rows = 0 is out of range"),
        ({"row": 5}, "attacks.row"),
    ):
        with pytest.raises(ConfigError, match=words):
            plan(**wrong)


@pytest.mark.parametrize("name", ["attacks", "attacks-cifar"])
def test_the_presets_are_the_papers_five_cells(name: str) -> None:
    made = load(read(PRESETS / "hassanpour2022" / f"{name}.yaml"))
    assert isinstance(made, Sweep) and made.attacks is not None
    assert made.attacks.kinds == ("fgsm", "ifgsm", "mim", "pgd") and (made.attacks.norm, made.attacks.radius) == (
        "linf",
        0.1,
    )
    *cells, printed = [cell.config for cell in cells_of(made, Path("nowhere"))]
    assert printed.learner.method == "PublishedRobustDPCL" and printed.learner.options["noise"] == 4
    assert [one.learner.method for one in cells] == ["AGEM"] + ["DPCL"] * 4
    assert [one.model.network == "noisy" for one in cells] == [False, False, True, True, True]
    assert [one.learner.options.get("by_class", False) for one in cells] == [False] * 3 + [True] * 2
    assert [one.learner.options.get("margin") is None for one in cells] == [True] * 4 + [False]
    assert all(one.learner.options["noise"] == one.learner.options["memory_noise"] == 4 for one in cells[1:])
    assert all(len(one.seeds) == 5 and one.data.held == 3 for one in cells)


@pytest.mark.parametrize("name", ["attacks", "attacks-cifar"])
def test_every_cell_of_the_presets_fits_its_budget(name: str) -> None:
    """Its reads are planned when it starts, from the public facts that the data sets have."""
    made = load(read(PRESETS / "hassanpour2022" / f"{name}.yaml"))
    assert isinstance(made, Sweep)
    size, shape, split = (60_000, (1, 28, 28), False) if name == "attacks" else (2500, (3, 32, 32), True)
    own = [tuple(range(5 * n, 5 * n + 5)) if split else tuple(range(10)) for n in range(17)]
    tasks = tuple(TaskInfo(name=f"t{n}", number=n, labels=labels, size=size) for n, labels in enumerate(own))
    info = StreamInfo(name=name, shape=shape, tasks=tasks, public=True, task_id="given" if split else "hidden")
    for cell in cells_of(made, Path("nowhere")):
        config = cell.config
        network = NamedNetwork(name=config.model.network, options=config.model.options)
        learner = find(config.learner.method)(
            budget=make_budget(config.budget, "record"), network=network, **config.learner.options
        )
        learner.start(info)


@pytest.mark.slow
def test_the_preset_runs_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On digits instead of MNIST, two tasks, one seed."""
    values = read(PRESETS / "hassanpour2022" / "attacks.yaml")
    values["base"]["data"] = {"source": "digits", "scenario": "permuted", "tasks": 2}
    values["base"] |= {"seeds": 1, "threads": 1}
    values["base"]["learner"] |= {"steps": 10, "batch": 400, "memory_share": 0.3, "memory_batch": 300}
    values["attacks"] |= {"rows": 20, "draws": 1, "certificates": 20, "steps": 2}
    values["name"] = "short"
    file = tmp_path / "short.yaml"
    file.write_text(json.dumps(values))
    monkeypatch.setenv("COLUMNS", "250")
    found = CliRunner().invoke(app, ["sweep", str(file), "--out", str(tmp_path / "s"), "--processes", "1", "--quiet"])
    assert found.exit_code == 0, found.output
    assert found.output.count("margin=0.0") >= 2 and "I-FGSM" in found.output and "certified" in found.output
