"""Scattering features from a name alone: of a private table of pixels, in a learner, from the command."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from support.blobs import make_config
from support.pictures import digits, digits_facts
from support.shell import tacit
from support.small_world import fixed, learn
from tacit import Budget, MomentsClassifier
from tacit.data.benchmarks.named import load
from tacit.errors import ConfigError
from tacit.experiment.features import features
from tacit.experiment.runs.runner import run
from tacit.models.backbones import backbone
from tacit.privacy.vault.intake import feature_map


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TACIT_DATA", raising=False)
    features._built.cache_clear()


def table(folder: Path, *, pictures: bool = True) -> Path:
    """A declaration of digits as a private CSV file with a column for each pixel, from 0 to 16, in two tasks."""
    data = load("digits")
    for name, part, size in (("train", data.train, 600), ("test", data.test, 200)):
        assert part is not None
        rows = np.asarray(part.x[:size]).reshape(size, -1)
        lines = [
            f"{','.join(f'{value * 16:g}' for value in row)},{label},{'ab'[label // 5]}"
            for row, label in zip(rows, part.y[:size], strict=True)
        ]
        head = ",".join([*(f"p{n}" for n in range(64)), "label", "task"])
        (folder / f"{name}.csv").write_text("\n".join([head, *lines]) + "\n")
    facts = {
        "name": "scans",
        "files": {"train": "train.csv", "test": "test.csv"},
        "columns": {"label": "label", "task": "task"},
        "scaling": [0, 16],
        "labels": "0..9",
        "tasks": [
            {"name": "a", "size": 300, "labels": "0..4"},
            {"name": "b", "size": 300, "labels": "5..9"},
        ],
        "task_id": "given",
        **({"shape": [1, 8, 8]} if pictures else {}),
    }
    (folder / "scans.yaml").write_text(yaml.safe_dump(facts))
    return folder / "scans.yaml"


def test_pixels_in_a_private_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[torch.Tensor] = []
    original = feature_map.FeatureMap.apply

    def spied(self: feature_map.FeatureMap, source: object, task: str) -> torch.Tensor:
        held.append(original(self, source, task))  # type: ignore[arg-type]
        return held[-1]

    monkeypatch.setattr(feature_map.FeatureMap, "apply", spied)
    source = {"source": str(table(tmp_path)), "scenario": "declared", "features": "scattering"}
    config = make_config(
        name="scans",
        data=source,
        learner={"method": "MomentsClassifier"},
        budget={"epsilon": 8.0, "delta": 1e-5},
        repeatable_noise=False,
    )
    result = run(config, tmp_path / "run", ledger=tmp_path / "scans.ledger")
    assert result.metrics["average_accuracy"]["mean"] > 0.8
    x, y = load("digits").train.x[:600], load("digits").train.y[:600]
    first = backbone("scattering", shape=(1, 8, 8))(torch.from_numpy(np.asarray(x)[y < 5]).float())
    assert held[0].shape == first.shape and torch.allclose(held[0], first, atol=1e-3)
    kept = json.loads(next((tmp_path / "run").rglob("release.json")).read_text())
    assert "scattering" in json.dumps(kept) and not (tmp_path / "cache" / "tacit" / "features").exists()


def test_a_table_without_pictures_is_refused_before_a_charge(tmp_path: Path) -> None:
    source = {"source": str(table(tmp_path, pictures=False)), "scenario": "declared", "features": "scattering"}
    config = make_config(name="scans", data=source, learner={"method": "MomentsClassifier"}, repeatable_noise=False)
    with pytest.raises(ConfigError, match=r"scattering reads pictures of shape .* got records of shape \(64,\)"):
        run(config, tmp_path / "run", ledger=tmp_path / "scans.ledger")
    assert not (tmp_path / "scans.ledger").exists()


def test_a_learner_takes_it_by_name_and_its_release_again(tmp_path: Path) -> None:
    learner = MomentsClassifier(budget=Budget(epsilon=8.0, delta=1e-5), backbone="scattering")
    learner.start(digits_facts())
    releases = learn(learner, fixed(), [0, 1], digits)
    x, y = (np.concatenate(parts) for parts in zip(*(digits(task, test=True) for task in (0, 1)), strict=True))
    assert float(np.mean(np.asarray(learner.predict(x)) == y)) > 0.9
    reader = MomentsClassifier(budget=Budget(epsilon=8.0, delta=1e-5), backbone="scattering")
    reader.start(digits_facts())
    reader.restore(releases[-1].tensors, releases[-1].tasks)
    assert torch.equal(reader.scores(torch.from_numpy(x)), learner.scores(torch.from_numpy(x)))


def test_the_command_builds_and_lists_it() -> None:
    tacit("features", "build", "digits", "--backbone", "scattering", "--limit", 20)
    (kept,) = json.loads(tacit("features", "list", "--json").output)
    assert (kept["backbone"], kept["width"], kept["records"]) == ("scattering", 324, 40)
