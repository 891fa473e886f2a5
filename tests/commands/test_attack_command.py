"""`tacit attack`, as a person calls it, and what a run with a noise layer does."""

import csv
import hashlib
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from support.blobs import make_blobs, make_config
from tacit.cli import app
from tacit.errors import ConfigError
from tacit.experiment.attacks.attacked import attack_run
from tacit.experiment.config.attack_section import AttackSection
from tacit.experiment.runs.runner import run

FAST = ["--set", "data.limit=60", "--set", "data.tasks=2", "--set", "learner.steps=5", "--set", "learner.batch=20",
        "--set", "threads=1", "--set", "repeatable_noise=true", "--seeds", "2", "--processes", "1",
        "--method", "NaiveDPSGD", "--quiet"]  # fmt: skip
NOISY = ["--set", "model.network=noisy", "--set", "model.options={hidden: [8]}", "--set", "model.radius=0.05"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def tacit(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_the_table_and_the_file() -> None:
    assert tacit("run", "quickstart", *FAST, "--out", "r").exit_code == 0
    found = tacit("attack", "r", "--rows", "40", "--steps", "3", "--out", "r.csv")
    assert found.exit_code == 0, found.output
    for words in ("after task", "clean", "fgsm", "ifgsm", "mim", "pgd", "permutation-2", "forgetting", "L∞ 0.1",
                  "features in [0, 1]", "robustness is not certified: its network has no noise layer"):  # fmt: skip
        assert words in found.output
    lines = list(csv.DictReader(Path("r.csv").read_text().splitlines()))
    assert len(lines) == 2 * 3 * 5  # seeds, pairs of tasks, columns
    by = {(one["seed"], one["after_task"], one["on_task"], one["attack"]): float(one["accuracy"]) for one in lines}
    assert all(by[*place, "pgd"] <= by[*place, "clean"] for *place, _ in by)
    whole = tacit("attack", "r", "--rows", "0", "--attack", "fgsm", "--radius", "1e-12", "--quiet", "--json")
    facts = json.loads(whole.stdout)
    seen = {(str(m["seed"]), m["after_task"], m["on_task"], m["attack"]): m["accuracy"] for m in facts["measured"]}
    run_says = list(csv.DictReader(Path("r/accuracy.csv").read_text().splitlines()))
    for one in run_says:  # all rows, unchanged: what the run measured
        place = (one["seed"], int(one["after_task"]) - 1, int(one["on_task"]) - 1)
        if (*place, "clean") in seen:
            assert seen[*place, "clean"] == seen[*place, "fgsm"] == pytest.approx(float(one["accuracy"]))


def test_every_cell_of_a_sweep_is_attacked() -> None:
    quick = [*FAST[: FAST.index("--seeds")], "--seeds", "1", "--processes", "1", "--quiet"]
    assert tacit("run", "quickstart", *quick, "--out", "quick").exit_code == 0
    call = ("attack", "quick", "--attack", "fgsm", "--rows", "20", "--certificates", "0")
    before = sorted(Path("quick").rglob("*"))
    found = tacit(*call, "--out", "cells.csv")
    assert found.exit_code == 0, found.output
    for words in ("average accuracy", "forgetting", "AGEM", "DPCL", "RoutedExperts", "FGSM, L∞ 0.1", "wrote cells.csv"):
        assert words in found.output
    lines = list(csv.DictReader(Path("cells.csv").read_text().splitlines()))
    assert len({one["cell"] for one in lines}) == 3 and len(lines) == 3 * 3 * 2
    facts = json.loads(tacit(*call, "--quiet", "--json").stdout)
    assert [one["not_attacked"] for one in facts] == [None] * 3 and all(one["measured"] for one in facts)
    assert sorted(Path("quick").rglob("*")) == before


def test_of_a_stream_without_end_the_last_release_is_attacked() -> None:
    quick = ["data.limit=60", "learner.steps=2", "learner.batch=20", "learner.memory_batch=5", "threads=1", "window=2"]
    sets = [word for one in quick for word in ("--set", one)]
    made = tacit("run", "hassanpour2022/endless", "--tasks", "4", "--out", "e", "--quiet", *sets)
    assert made.exit_code == 0, made.output
    measured = json.loads(Path("e/metrics.jsonl").read_text().splitlines()[-1])
    assert measured["name"] == "task-4" and {"trained", "read", "admitted", "retired", "held"} == set(
        measured["consumption"]
    )
    call = ("attack", "e", "--attack", "fgsm", "--rows", "0", "--certificates", "0", "--out", "e.csv")
    found = tacit(*call)
    assert found.exit_code == 0, found.output
    assert "task-4" in found.stdout and "task-3" not in found.stdout and "forgetting" not in found.stdout
    lines = list(csv.DictReader(Path("e.csv").read_text().splitlines()))
    assert {(one["after_task"], one["on_task"]) for one in lines} == {("4", "3"), ("4", "4")}
    clean = [float(one["accuracy"]) for one in lines if one["attack"] == "clean"]
    assert clean == pytest.approx(measured["accuracy"])


@pytest.mark.parametrize("option", ["--radius", "--step-size"])
def test_an_attack_that_changes_nothing_is_refused(option: str) -> None:
    said = tacit("attack", "nowhere", option, "0").stderr
    assert "= 0.0 is out of range: should be greater than 0" in said and said.count("\n") == 1


def test_with_a_noise_layer_there_are_certificates() -> None:
    assert tacit("run", "quickstart", *FAST, *NOISY, "--out", "r").exit_code == 0
    call = (
        "attack",
        "r",
        "--attack",
        "fgsm",
        "--norm",
        "l2",
        "--radius",
        "0.001",
        "--rows",
        "30",
        "--certificates",
        "50",
    )
    found = tacit(*call)
    assert found.exit_code == 0, found.output
    assert "certified: no change of L2 0.001" in found.output and "gradients over 8 draws" in found.output
    assert "each evaluation is itself the mean of 8 draws of the noise layer" in found.output
    assert tacit(*call).stdout == found.stdout  # from public seeds
    other = tacit(*call, "--bound", "smoothing", "--certified-norm", "linf", "--certified-radius", "0.5", "--json")
    facts = json.loads(other.stdout)
    asked = {"norm": "linf", "radius": 0.5, "bound": "smoothing", "draws": 50}
    assert facts["certified"] == asked | {"votes": "soft", "error": 0.05, "range": None}
    assert facts["largest_radius"] < 0.5 and facts["average_accuracy"]["certified"] == 0
    assert tacit("attack", "r", "--bound", "tight").exit_code == 2
    assert "certified_radius = 0.0 is out of range" in tacit("attack", "r", "--certified-radius", "0").stderr


def test_without_noise_there_are_certificates_by_interval_bounds() -> None:
    bounds = ["--set", "model.network=interval", "--set", "model.options={hidden: [8]}", "--set", "model.radius=0.02"]
    experts = ["--method", "RoutedExperts", "--set", "learner.sharpness=1000", "--set", "learner.steps=20"]
    assert tacit("run", "quickstart", *FAST, *bounds, *experts, "--out", "r").exit_code == 0
    call = ("attack", "r", "--attack", "pgd", "--radius", "0.01", "--rows", "30", "--bound", "ibp", "--out", "r.csv")
    found = tacit(*call)
    assert found.exit_code == 0, found.output
    words = "certified: no change of L∞ 0.01 turns the right answer, by interval bounds, features in [0, 1]; it holds"
    assert words in found.output.replace("\n", " ") and "draws)" not in found.output
    lines = list(csv.DictReader(Path("r.csv").read_text().splitlines()))
    mean = {kind: [float(one["accuracy"]) for one in lines if one["attack"] == kind] for kind in ("pgd", "certified")}
    assert all(low <= high for low, high in zip(mean["certified"], mean["pgd"], strict=True))
    assert max(mean["certified"]) > 0
    other = json.loads(tacit(*call, "--certified-norm", "l2", "--bound", "auto", "--quiet", "--json").stdout)
    assert other["certified"]["bound"] == "ibp" and other["certified"]["norm"] == "l2"
    assert other["largest_radius"] is None


def test_wrong_calls_are_one_sentence() -> None:
    tacit("run", "quickstart", *FAST, "--out", "r")
    for arguments, words in (
        (["nowhere"], "nowhere has no run; pass the folder that `tacit run` made"),
        (["r", "--radius", "-1"], "radius = -1.0 is out of range: should be greater than 0"),
        (["r", "--range", "1", "0"], "range must be a smaller and a larger number"),
        (["r", "--out", "no/such/file.csv"], "the folder of no/such/file.csv does not exist"),
    ):
        found = tacit("attack", *arguments)
        assert found.exit_code == 1 and words in found.stderr, found.output
        assert len([line for line in found.stderr.strip().splitlines() if "release" not in line]) == 1
    assert tacit("attack", "r", "--attack", "cw").exit_code == 2


def test_records_without_a_public_test_set_are_not_attacked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder, config = tmp_path / "r", make_config()
    private = make_blobs(0, public=False, test=False)
    run(config, folder, stream=make_blobs)
    monkeypatch.setattr("tacit.experiment.attacks.attacked.open_stream", lambda data, seed, place: private)
    with pytest.raises(ConfigError, match="has no public test set, and an attack reports uncharged predictions"):
        attack_run(folder, AttackSection())


def test_another_stream_than_that_of_the_run_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run(make_config(), tmp_path / "r", stream=make_blobs)
    other = make_blobs(0, task_id="given")
    monkeypatch.setattr("tacit.experiment.attacks.attacked.open_stream", lambda data, seed, place: other)
    with pytest.raises(ConfigError, match="are not those that 'task-3' was learned with"):
        attack_run(tmp_path / "r", AttackSection())


NOISY_BLOBS = {"network": "noisy", "options": {"hidden": [6]}, "radius": 0.5}


@pytest.mark.parametrize("method", ["NaiveDPSGD", "AGEM"])
def test_a_run_with_a_noise_layer_can_be_repeated(method: str, tmp_path: Path) -> None:
    """In the vault and outside it: also what is measured, whatever the generators of the process are."""
    learner = {"method": method} | ({"steps": 6, "batch": 20} if method == "NaiveDPSGD" else {"batch": 10})
    config = make_config(learner=learner, model=NOISY_BLOBS)
    found = []
    for number in range(2):
        torch.manual_seed(number)
        run(config, tmp_path / str(number), stream=make_blobs)
        found.append((tmp_path / str(number) / "accuracy.csv").read_text())
    assert found[0] == found[1]


def test_charged_questions_to_a_noise_layer_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    config = make_config(
        learner={"method": "NaiveDPSGD", "steps": 6, "batch": 20}, model=NOISY_BLOBS, repeatable_noise=False
    )
    with pytest.raises(ConfigError, match="a network with a noise layer makes random predictions"):
        run(
            config, tmp_path / "r", ledger=tmp_path / "book.ledger",
            stream=lambda seed: make_blobs(seed, public=False, test=False),
        )  # fmt: skip


OWN = """
from pathlib import Path
from tacit.learners.baselines.naive import NaiveDPSGD

with Path(__file__).with_suffix(".ran").open("a") as file:
    file.write("ran")


class Mine(NaiveDPSGD):
    pass
"""


def test_a_run_that_names_code_is_attacked_only_where_the_code_is_allowed(tmp_path: Path) -> None:
    """A run folder may be somebody else's; what it names (here a method of one's own) is not run unasked."""
    file, ran = tmp_path / "mine.py", tmp_path / "mine.ran"
    file.write_text(OWN)
    config = make_config(
        data={"source": "digits", "scenario": "permuted", "tasks": 1, "limit": 100},
        learner={"method": f"{file}:Mine", "steps": 2, "batch": 20},
    )
    run(config, tmp_path / "r")
    ran.unlink()
    call = ("attack", "r", "--attack", "fgsm", "--rows", "10", "--certificates", "0", "--quiet")
    refused = tacit(*call)
    assert refused.exit_code == 1 and "runs no code" in refused.stderr and not ran.exists(), refused.output
    for allowed in (str(file), f"{file}:Mine", hashlib.sha256(file.read_bytes()).hexdigest()):
        found = tacit(*call, "--allow-code", allowed)
        assert found.exit_code == 0 and ran.exists(), found.output
        ran.unlink()
    missing = tacit(*call, "--allow-code", "nowhere.py")
    assert missing.exit_code == 1 and "'nowhere.py' cannot be read" in missing.stderr
