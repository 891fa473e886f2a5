"""MLflow, read by its own client: runs, files and models, each once; nothing private, no code, no moment of its own."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.tracked import SECRET
from tacit import Certificate
from tacit.errors import CertificateError, ConfigError
from tacit.learners import load_learner
from tacit.report import MLflow, find_trackers
from tacit.report.tracking.mlflow_models import LOADER
from tacit.report.tracking.run_tree import tracked


def client(address: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(address, address)


def runs(address: str) -> dict[str, Any]:
    """The runs by their names."""
    found = client(address)
    experiment = found.get_experiment_by_name("tacit")
    return {run.info.run_name: run for run in found.search_runs([experiment.experiment_id])}


def files(address: str, run: str, path: str | None = None) -> list[str]:
    found = client(address).list_artifacts(run, path)
    return [name for one in found for name in (files(address, run, one.path) if one.is_dir else [one.path])]


def history(address: str, run: Any, key: str) -> dict[int, float]:
    values = client(address).get_metric_history(run.info.run_id, key)
    assert len({one.step for one in values}) == len(values)
    return {one.step: one.value for one in values}


def test_a_run_its_files_and_its_models(a_run: Path, address: str) -> None:
    MLflow(address).send(a_run)
    above, *seeds = tracked(a_run)
    found = runs(address)
    assert set(found) == {"tiny", "seed 0", "seed 1"}
    top, seed = found["tiny"], found["seed 1"]
    assert seed.data.tags["mlflow.parentRunId"] == top.info.run_id and "mlflow.parentRunId" not in top.data.tags
    assert top.info.status == seed.info.status == "FINISHED"
    for run, entry in ((top, above), (seed, seeds[1])):
        assert {name: history(address, run, name) for name in run.data.metrics} == {
            name: pytest.approx(values) for name, values in entry.series.items()
        }
        assert run.data.params["learner.method"] == "DPCL" and run.data.tags["tacit.unit"] == "record"
    kept = files(address, top.info.run_id)
    assert {"report.html", "config.yaml", "figures/accuracy.png", "figures/epsilon.svg", "metrics.json"} <= set(kept)
    assert not {"timing.json", "environment.json", "ledger.json", "tracking.json"} & set(kept)
    inside = files(address, seed.info.run_id)
    assert len([name for name in inside if name.startswith("certificates/")]) == 3

    (model,) = [one for one in client(address).search_registered_models() if one.name == "tiny seed 1"]
    versions = {one.tags["task"]: one for one in client(address).search_model_versions(f"name='{model.name}'")}
    assert set(versions) == {"1", "2", "3"}
    last = Certificate.load(seeds[1].releases[-1].certificate)
    tags = versions["3"].tags
    assert (tags["certificate"], tags["unit"], float(tags["epsilon"])) == (last.id, "record", last.epsilon)
    assert float(tags["delta"]) == last.claims.certified.delta and tags["bound"] == "yes"
    assert versions["3"].run_id == seed.info.run_id


def test_a_registered_model_predicts_and_contains_no_code(a_run: Path, address: str) -> None:
    import mlflow

    MLflow(address).send(a_run)
    mlflow.set_tracking_uri(address)
    try:
        loaded = mlflow.pyfunc.load_model("models:/tiny seed 0/3")
    finally:
        mlflow.set_tracking_uri(None)
    release = tracked(a_run)[1].releases[-1]
    x = np.random.default_rng(0).normal(size=(7, 64)).astype(np.float32)
    own = load_learner(release.folder)
    assert np.array_equal(loaded.predict(x), own.predict(x.reshape(7, *own.stream_.shape)))
    assert loaded.metadata.metadata["certificate"]["certificate"] == Certificate.load(release.certificate).id
    written = [path for path in Path.cwd().rglob("models/task-*/**/*") if path.is_file()]
    assert {path.name for path in written} - {"registered_model_meta"} == {  # which MLflow itself writes on loading
        "MLmodel", "requirements.txt", "model.safetensors", "release.json", "certificate.json", "README.md"
    }  # fmt: skip
    described = next(path for path in written if path.name == "MLmodel").read_text()
    assert f"loader_module: {LOADER}" in described and "cloudpickle" not in described and "code:" not in described


def test_sending_it_again_repeats_nothing(a_run: Path, address: str) -> None:
    for tracker in (MLflow(address), MLflow(address)):
        for final in (False, True, True):
            tracker.send(a_run, final=final)
    found = runs(address)
    assert len(client(address).search_runs(["1"])) == len(found) == 3
    for run in found.values():
        for name in run.data.metrics:
            history(address, run, name)  # fails for a step that is there twice
    assert len(client(address).search_model_versions("name='tiny seed 0'")) == 3


def test_a_run_that_goes_on_is_continued(a_run: Path, address: str) -> None:
    """As after a resume by another process: first two tasks are settled, then all."""
    logs = {log: log.read_text() for log in a_run.rglob("progress.jsonl")}
    for log, text in logs.items():
        log.write_text(
            "\n".join(line for line in text.splitlines() if '"task": 2' not in line and "finish" not in line)
        )
    told = (a_run / "metrics.json").read_text()
    (a_run / "metrics.json").unlink()
    MLflow(address).send(a_run)
    first = runs(address)
    assert first["tiny"].info.status == "RUNNING" and set(history(address, first["tiny"], "average_accuracy")) == {1, 2}
    for log, text in logs.items():
        log.write_text(text)
    (a_run / "metrics.json").write_text(told)
    MLflow(address).send(a_run)
    found = runs(address)
    assert {name: run.info.run_id for name, run in found.items()} == {n: run.info.run_id for n, run in first.items()}
    assert found["tiny"].info.status == "FINISHED"
    assert set(history(address, found["tiny"], "average_accuracy")) == {1, 2, 3}


def test_a_sweep_is_nested_and_registers_no_model(swept: Path, address: str, run_of: Callable[[str], Path]) -> None:
    MLflow(address).send(swept / run_of("DPCL").name, final=False)
    assert runs(address)["tiny"].info.status == "RUNNING"
    MLflow(address).send(swept, final=False)
    experiment = client(address).get_experiment_by_name("tacit").experiment_id
    found = client(address).search_runs([experiment])
    tops = [run for run in found if "mlflow.parentRunId" not in run.data.tags]
    cells = [run for run in found if run.data.tags.get("mlflow.parentRunId") == tops[0].info.run_id]
    assert len(tops) == 1 and len(cells) == 3 and len(found) == 1 + 3 + 6
    assert tops[0].info.status == "FINISHED" and tops[0].data.metrics["runs_done"] == 3
    assert tops[0].info.start_time > 10**12
    assert client(address).search_registered_models() == []


def test_nothing_private_is_sent(with_secrets: Path, address: str) -> None:
    MLflow(address).send(with_secrets)
    sent = {path: path.read_bytes() for path in Path.cwd().rglob("*") if path.is_file()}
    assert len(sent) > 20
    assert [path for path, content in sent.items() if SECRET.encode() in content] == []


def test_no_moment_of_sending_and_no_person_is_sent(a_run: Path, address: str) -> None:
    """Certificates of private data have the day of their issue; how long a task took depends on its records."""
    for path in a_run.rglob("certificate.json"):
        path.write_text(path.read_text().replace('"created": "20', '"created": "2001-02-03", "was": "20'))
    for path in a_run.rglob("certificate.json"):
        body = json.loads(path.read_text())
        body.pop("was")
        path.write_text(json.dumps(body))
    MLflow(address).send(a_run, final=False)
    for run in runs(address).values():
        assert run.info.start_time == 981158400000 and run.info.end_time == 981158400000 + 3000
        assert not {"mlflow.user", "mlflow.source.name", "mlflow.source.git.commit"} & set(run.data.tags)
        for name in run.data.metrics:
            for one in client(address).get_metric_history(run.info.run_id, name):
                assert one.timestamp == 981158400000 + 1000 * one.step
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"]


def test_a_release_that_was_changed_is_not_registered(a_run: Path, address: str) -> None:
    release = tracked(a_run)[1].releases[0]
    card = release.folder / "README.md"
    card.write_text(card.read_text() + "More.")
    with pytest.raises(CertificateError, match=r"README\.md was changed"):
        MLflow(address).send(a_run)
    assert client(address).search_model_versions("name='tiny seed 0'") == []
    assert set(history(address, runs(address)["tiny"], "average_accuracy")) == {1, 2, 3}
    card.unlink()
    card.symlink_to(a_run / "config.yaml")
    with pytest.raises(ConfigError, match="is not a plain file"):
        MLflow(address).send(a_run)


def test_hostile_settings_and_names_are_text(a_run: Path, address: str) -> None:
    config = (a_run / "config.yaml").read_text().replace("name: tiny", 'name: "<b>\'; DROP TABLE runs; --"')
    (a_run / "config.yaml").write_text(config + '"\'; x": <script>\nlong: ' + "x" * 20_000 + "\n")
    MLflow(address).send(a_run, final=False)
    found = runs(address)
    assert found["<b>'; DROP TABLE runs; --"].data.params["long"] == "x" * 500
    assert {one.name for one in client(address).search_registered_models()} == {
        "-b--- DROP TABLE runs- -- seed 0", "-b--- DROP TABLE runs- -- seed 1"
    }  # fmt: skip


def test_wrong_trackers_and_missing_packages_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.report.tracking import mlflow_tracker

    with pytest.raises(ConfigError, match="there is no tracker 'mlfow'; did you mean mlflow"):
        find_trackers(["mlfow"])
    with pytest.raises(ConfigError, match="'tensorboard=' has no place after '='; give one, or 'tensorboard' alone"):
        find_trackers(["tensorboard="])
    monkeypatch.setattr(mlflow_tracker, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"MLflow is not installed; pip install '\.\[mlflow\]'"):
        find_trackers(["mlflow=http://127.0.0.1:1"])
    monkeypatch.undo()
    monkeypatch.setattr(mlflow_tracker.metadata, "version", lambda name: "2.22.0")
    with pytest.raises(ConfigError, match=r"MLflow 2\.22\.0 is installed, and 3 or later is needed"):
        find_trackers(["mlflow"])
