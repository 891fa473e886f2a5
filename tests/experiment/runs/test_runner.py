"""What a run leaves behind, what it refuses, and how it stops."""

import csv
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from support.blobs import in_a_process, make_blobs, make_config
from tacit.certificate.certificate import Certificate
from tacit.certificate.provenance import checkout
from tacit.data.stream import Stream
from tacit.errors import ConfigError
from tacit.experiment.config.config import Config
from tacit.experiment.progress import Event, Stop, Stopped
from tacit.experiment.runs.run_summary import RunSummary
from tacit.experiment.runs.runner import run
from tacit.learners.base.release import Release
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.limits.policy import Policy

Blobs = Callable[[int], Stream]


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "accuracy.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunSummary:
    torch.set_num_threads(1)
    config = make_config(seeds=2, repeatable_noise=False)
    return run(config, tmp_path_factory.mktemp("run") / "r", stream=make_blobs)


def test_the_folder_says_everything(finished: RunSummary) -> None:
    names = {path.name for path in finished.folder.iterdir()}
    assert names == {
        "config.yaml", "environment.json", "ledger.json", "metrics.json", "timing.json", "accuracy.csv",
        "consumption.csv", "seeds",
    }  # fmt: skip
    environment = json.loads((finished.folder / "environment.json").read_text())
    assert environment["threads"] == 1 and environment["torch"] == torch.__version__
    assert (environment["git_commit"], environment["dirty"]) == (checkout().commit, checkout().dirty)
    pointer = json.loads((finished.folder / "ledger.json").read_text())
    assert pointer["kind"].startswith("throw-away") and set(pointer["seeds"]) == {"0", "1"}
    assert not list(finished.folder.rglob("private"))  # a finished run keeps no record, no key and no ledger
    release = Release.load(finished.folder / "seeds" / "seed-1" / "releases" / "03-task-3")
    assert release.method == "DPCL" and len(release.tasks) == 3
    assert Certificate.load(finished.certificate).epsilon == pytest.approx(2.0, rel=1e-3)


def test_the_metrics_are_those_of_the_accuracies(finished: RunSummary) -> None:
    found = json.loads((finished.folder / "metrics.json").read_text())
    assert found == finished.metrics
    table = rows(finished.folder)
    assert len(table) == 2 * (2 + 3 + 3)  # a task, those before it, and the next
    last = [float(row["accuracy"]) for row in table if (row["seed"], row["after_task"]) == ("0", "3")]
    average = found["average_accuracy"]
    assert average["per_seed"][0] == pytest.approx(sum(last) / 3)
    assert average["mean"] == pytest.approx(sum(average["per_seed"]) / 2) and average["std"] >= 0
    assert set(found["lca"]) == {"paper", "trapezium", "beta"} and found["lca"]["beta"] == 5
    for key in ("forgetting", "worst_forgetting", "bwt", "fwt", "a_auc"):
        assert set(found[key]) == {"mean", "std", "per_seed"}, key
    assert set(found["epsilon_claimed"]) == {"per_task", "total", "delta"}
    certified = found["epsilon_certified"]
    assert certified["per_record"] == certified["task_wise"] < certified["all_tasks"]
    assert (certified["delta"], certified["unit"]) == (1e-3, "record")
    assert (found["tasks"], found["method"], found["seeds"]) == (3, "DPCL", [0, 1])
    assert (found["task_id"], found["accuracy"]) == ("hidden", "public test set")


def test_time_is_beside_the_metrics(finished: RunSummary) -> None:
    seconds = json.loads((finished.folder / "timing.json").read_text())["seed-0"]
    assert {"admit", "learn", "evaluate", "rest", "total"} == set(seconds)
    assert seconds["total"] == pytest.approx(sum(value for name, value in seconds.items() if name != "total"))


def test_noise_is_new_in_every_run_unless_it_is_repeatable(tmp_path: Path, blobs: Blobs) -> None:
    def weights(name: str, repeatable: bool) -> torch.Tensor:
        run(make_config(repeatable_noise=repeatable), tmp_path / name, stream=blobs)
        release = Release.load(tmp_path / name / "seeds" / "seed-0" / "releases" / "03-task-3")
        return torch.cat([value.flatten() for value in release.tensors.values()])

    assert torch.equal(weights("a", True), weights("b", True))
    assert not torch.equal(weights("c", False), weights("d", False))


def test_repeatable_noise_certifies_nothing_and_is_for_public_data(tmp_path: Path, config: Config) -> None:
    found = run(config, tmp_path / "r", stream=make_blobs)
    assert found.metrics["epsilon_certified"] is None
    assert "test keys" in found.metrics["epsilon_certified_reason"]
    private = partial(make_blobs, public=False)
    with pytest.raises(ConfigError, match="repeatable_noise = true makes noise that anyone can recompute"):
        run(config, tmp_path / "p", stream=private, ledger=tmp_path / "x.ledger")


def test_a_learner_without_privacy_certifies_nothing(tmp_path: Path, blobs: Blobs) -> None:
    found = run(make_config(learner={"method": "AGEM", "batch": 10}), tmp_path / "r", stream=blobs)
    assert not found.private and found.metrics["epsilon_certified"] is None
    assert found.metrics["epsilon_claimed"] is None and found.metrics["average_accuracy"]["mean"] > 0.6


def test_a_given_task_masks_the_answers(tmp_path: Path) -> None:
    found = run(make_config(), tmp_path / "r", stream=partial(make_blobs, task_id="given"))
    assert found.metrics["task_id"] == "given"


def test_a_folder_with_a_run_is_not_written_over(tmp_path: Path, config: Config, blobs: Blobs) -> None:
    run(config, tmp_path / "r", stream=blobs)
    before = (tmp_path / "r" / "metrics.json").read_bytes()
    with pytest.raises(ConfigError, match=r"already has a run; continue it with --resume, or pass another folder"):
        run(config, tmp_path / "r", stream=blobs)
    with pytest.raises(ConfigError, match=r"was begun with learner.steps = 12, got 13"):
        run(make_config(learner=config.plain()["learner"] | {"steps": 13}), tmp_path / "r", stream=blobs, resume=True)
    again = run(config, tmp_path / "r", stream=blobs, resume=True)
    assert again.metrics == json.loads(before) and (tmp_path / "r" / "metrics.json").read_bytes() == before
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "mine.txt").write_text("keep")
    with pytest.raises(ConfigError, match="is not empty and has no run"):
        run(config, tmp_path / "s", stream=blobs)


def test_stopping_is_between_steps_and_goes_on(tmp_path: Path, config: Config, blobs: Blobs) -> None:
    stop, heard = Stop(), list[str]()

    def progress(said: Event) -> None:
        heard.append(said.kind)
        if said.kind == "step" and said.task == 1:
            stop.request()

    def until_stopped() -> bool:
        try:
            run(config, tmp_path / "r", stream=blobs, progress=progress, stop=stop)
        except Stopped as stopped:
            return "nothing is lost" in str(stopped) and set(heard) == {"begin", "step", "task"}
        return False

    assert in_a_process(until_stopped)
    assert not (tmp_path / "r" / "metrics.json").exists()
    assert {row["after_task"] for row in rows(tmp_path / "r")} == {"1"}  # what is known by then
    found = run(config, tmp_path / "r", stream=blobs, resume=True)
    assert len(rows(tmp_path / "r")) == 8 and found.metrics["average_accuracy"] is not None


def test_progress_tells_what_is_committed(tmp_path: Path, config: Config, blobs: Blobs) -> None:
    heard: list[Event] = []
    run(config, tmp_path / "r", stream=blobs, progress=heard.append)
    assert [said.kind for said in heard if said.kind != "step"] == ["begin", "task", "task", "task", "done"]
    steps = [said for said in heard if said.kind == "step"]
    assert steps[0].epsilon is None and steps[0].of == 12  # nothing is charged before the first step
    assert steps[1].step == 1 and steps[1].epsilon == pytest.approx(2.0, rel=1e-2)


def test_private_data_needs_a_ledger_and_one_seed(tmp_path: Path) -> None:
    private = partial(make_blobs, public=False)
    config = make_config(repeatable_noise=False)
    with pytest.raises(ConfigError, match=r"the stream 'blobs' is private.*--ledger FILE or TACIT_LEDGER"):
        run(config, tmp_path / "r", stream=private)
    with pytest.raises(ConfigError, match="each seed would charge the same people again"):
        run(make_config(repeatable_noise=False, seeds=2), tmp_path / "r", stream=private, ledger=tmp_path / "l")
    assert not (tmp_path / "r").exists()  # refused before anything was made


def test_a_method_that_is_not_private_is_refused_for_private_data_before_anything_is_charged(tmp_path: Path) -> None:
    private, config = partial(make_blobs, public=False), make_config(repeatable_noise=False, learner={"method": "AGEM"})
    with pytest.raises(
        ConfigError,
        match=r"AGEM is not private.*; use a learner that is private .*docs/privacy",
    ):
        run(config, tmp_path / "r", stream=private, ledger=tmp_path / "l")
    assert not (tmp_path / "r").exists() and not (tmp_path / "l").exists()
    with Ledger(tmp_path / "l") as ledger:
        ledger.adopt(Policy(allow_unsafe=True), by="officer", why="a baseline")
    assert run(config, tmp_path / "r", stream=private, ledger=tmp_path / "l").metrics["epsilon_certified"] is None


def test_private_data_is_charged_to_its_ledger(tmp_path: Path) -> None:
    heard: list[Event] = []
    config, private = make_config(repeatable_noise=False), partial(make_blobs, public=False)
    found = run(config, tmp_path / "r", stream=private, ledger=tmp_path / "data.ledger", progress=heard.append)
    assert "charged to" in heard[0].name and "data.ledger" in heard[0].name
    pointer = json.loads((found.folder / "ledger.json").read_text())
    with Ledger(tmp_path / "data.ledger") as ledger:
        assert (pointer["id"], pointer["head"]["hash"]) == (ledger.id, ledger.head.hash)
        assert ledger.epsilon(1) == found.metrics["epsilon_certified"]["per_record"]
        assert {grant.state for grant in ledger.statement(1).grants} == {"RELEASED"}
    assert not list(found.folder.rglob("private"))


def test_the_unit_is_the_streams(tmp_path: Path) -> None:
    people = partial(make_blobs, unit="person")
    found = run(make_config(repeatable_noise=False), tmp_path / "r", stream=people)
    assert found.metrics["epsilon_certified"]["unit"] == "person"
    with pytest.raises(ConfigError, match=r"budget.unit = 'record' does not fit a stream whose unit is a person"):
        run(make_config(budget={"unit": "record"}), tmp_path / "s", stream=people)


def test_what_is_not_learned_in_sequence_forgets_nothing(tmp_path: Path, blobs: Blobs) -> None:
    found = run(make_config(learner={"method": "Joint", "steps": 5, "batch": 20}), tmp_path / "r", stream=blobs).metrics
    assert found["average_accuracy"] is not None
    assert found["forgetting"] is found["worst_forgetting"] is found["bwt"] is found["fwt"] is None
