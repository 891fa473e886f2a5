"""A released model answers for new records as the learner would, from its folder alone."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as parquet
import pytest
import yaml

import tacit
from support.months import HEADER, config_of, declare, grow, rows
from support.predicting import NEW
from tacit.errors import DataError, LearnerError
from tacit.experiment.config.config import Config
from tacit.experiment.runs.runner import run
from tacit.learners import load_learner
from tacit.prediction.new_records import read_rows


@pytest.fixture
def new(tmp_path: Path) -> Path:
    (tmp_path / "new.csv").write_text(NEW)
    return tmp_path / "new.csv"


def test_the_answers_are_those_of_the_learner(visits: Path, tmp_path: Path) -> None:
    (tmp_path / "later.csv").write_text(HEADER + rows("2026-04").replace("2026-04/1", "other"))
    model = tacit.load(visits)
    learner = load_learner(visits)
    assert learner.stream_.inputs is not None
    x = read_rows(learner.stream_.inputs, tmp_path / "later.csv").x
    np.testing.assert_array_equal(model.predict(tmp_path / "later.csv"), learner.predict(x))
    np.testing.assert_array_equal(model.predict_proba(tmp_path / "later.csv"), learner.predict_proba(x))
    assert model.predict(pd.read_csv(tmp_path / "later.csv")).tolist() == learner.predict(x).tolist()
    assert model.classes == ("well", "sick") and model.tasks == ("2026-01", "2026-02", "2026-03")
    assert model.certificate.epsilon is not None and repr(model) == "Model(NaiveDPSGD, 3 tasks, 2 labels)"


def test_it_needs_nothing_but_the_folder_of_the_release(visits: Path, new: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(visits, tmp_path / "elsewhere")
    assert tacit.load(copy).predict(new).tolist() == tacit.load(visits).predict(new).tolist()


def test_abstaining(visits: Path, new: Path) -> None:
    model = tacit.load(visits)
    found = model.predictions(new, abstain_below=1.0, keep=["patient"])
    assert found.abstained.all()
    table = found.table()
    assert table.column_names == ["patient", "prediction", "probability", "p(well)", "p(sick)"]
    assert table.column("prediction").to_pylist() == [None, None, None]
    assert model.predictions(new).abstained.sum() == 0
    with pytest.raises(DataError, match="from 0 to 1, got 2"):
        model.predictions(new, abstain_below=2)
    np.testing.assert_allclose(found.probabilities.sum(1), 1, rtol=1e-5)


def test_files(visits: Path, new: Path, tmp_path: Path) -> None:
    found = tacit.load(visits).predictions(new, keep=["patient"])
    found.write(tmp_path / "out.csv")
    found.write(tmp_path / "out.parquet", probabilities=False)
    assert (tmp_path / "out.csv").read_text() == found.csv()
    assert pd.read_csv(tmp_path / "out.csv")["prediction"].tolist() == found.labels.tolist()
    assert parquet.read_table(tmp_path / "out.parquet").column_names == ["patient", "prediction", "probability"]
    with pytest.raises(DataError, match=r"written to \.csv or \.parquet, not to 'out\.json'"):
        found.write(tmp_path / "out.json")
    with pytest.raises(FileNotFoundError) as failed:
        found.write(tmp_path / "nowhere" / "out.csv")
    assert failed.value.filename == str(tmp_path / "nowhere" / "out.csv")
    assert not list(tmp_path.glob("*.new"))


def test_columns_of_the_input_are_not_overwritten(visits: Path, tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": [50], "pulse": [80], "visit": ["other"], "prediction": ["mine"]})
    table = tacit.load(visits).predictions(frame, keep=["prediction"]).table(probabilities=False)
    assert table.column_names == ["prediction", "prediction_", "probability"]
    assert table.column("prediction").to_pylist() == ["mine"]


def test_no_records(visits: Path) -> None:
    frame = pd.DataFrame({"age": [], "pulse": [], "visit": []})
    assert tacit.load(visits).predictions(frame).table().num_rows == 0


def test_a_task_that_is_given(tmp_path: Path) -> None:
    declared = declare(tmp_path / "data", task_id="given")
    grow(declared, "2026-01", "2026-02", "2026-03")
    run(
        config_of(declared, "RoutedExperts", seeds=[0], repeatable_noise=False),
        tmp_path / "run",
        ledger=tmp_path / "ledger",
    )
    model = tacit.load(next((tmp_path / "run").glob("seeds/seed-0/releases/03-*")))
    (tmp_path / "new.csv").write_text("month,age,pulse\n2026-02,50,80\n2026-01,50,80\n2026-02,20,120\n")
    mixed = model.predict_proba(tmp_path / "new.csv")
    first = model.predict_proba(pd.DataFrame({"age": [50], "pulse": [80]}), task="2026-01")
    np.testing.assert_array_equal(mixed[1:2], first)
    assert not np.array_equal(mixed[0], mixed[1])
    with pytest.raises(DataError, match="give one of 2026-01, 2026-02, 2026-03, or a column 'month'"):
        model.predict(pd.DataFrame({"age": [50], "pulse": [80]}))
    with pytest.raises(DataError, match="has learned no task '2026-09'; did you mean"):
        model.predict(pd.DataFrame({"age": [50], "pulse": [80]}), task="2026-09")


def test_a_task_that_is_not_given_is_refused(visits: Path, new: Path) -> None:
    with pytest.raises(DataError, match="finds the task of a record by itself"):
        tacit.load(visits).predict(new, task="2026-01")


def test_a_release_without_a_form_reads_arrays(visits: Path, new: Path, tmp_path: Path) -> None:
    old = shutil.copytree(visits, tmp_path / "old")
    facts = json.loads((old / "release.json").read_text())
    del facts["stream"]["inputs"]
    (old / "release.json").write_text(json.dumps(facts))
    form = load_learner(visits).stream_.inputs
    assert form is not None
    model = tacit.load(old)
    assert model.predict(read_rows(form, new).x).tolist() == tacit.load(visits).predict(new).tolist()
    with pytest.raises(DataError, match="is a table, and the model was trained on arrays"):
        model.predict(new)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "by version 2 of the rules, and this tacit knows 1; upgrade it"),
        ({"columns": 1}, "is damaged; restore its files"),
        ({"range": [1, 0]}, "is damaged; restore its files"),
        ({"kind": "voices"}, "is damaged; restore its files"),
        ({"range": None}, "is damaged; restore its files"),
        ({"delimiter": ",,"}, "is damaged; restore its files"),
        ({"shape": [10**9, 10**9]}, "is damaged; restore its files"),
        ({"task": ["x"]}, "is damaged; restore its files"),
    ],
)
def test_a_damaged_form(visits: Path, tmp_path: Path, change: dict[str, object], words: str) -> None:
    broken = shutil.copytree(visits, tmp_path / "broken")
    facts = json.loads((broken / "release.json").read_text())
    facts["stream"]["inputs"] |= change
    (broken / "release.json").write_text(json.dumps(facts))
    with pytest.raises(DataError, match=words):
        tacit.load(broken)


def test_what_is_no_release(tmp_path: Path) -> None:
    with pytest.raises(LearnerError, match="holds no whole release"):
        tacit.load(tmp_path)


@pytest.mark.slow
def test_images_meet_the_backbone_of_the_training(tmp_path: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for label, pitch in (("fine", 1.5), ("coarse", 0.5)):
        waves = 128 + 60 * np.sin(pitch * np.arange(32))[:, None]
        for name in ("train", "new"):
            (tmp_path / name / label).mkdir(parents=True)
            for number in range(12):
                pixels = np.clip(rng.normal(waves, 5, (32, 32)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(tmp_path / name / label / f"{number}.png")
    facts = {
        "name": "pictures", "files": {"train": "train"}, "shape": [1, 32, 32], "labels": ["fine", "coarse"],
        "tasks": [{"name": "all", "size": 24}], "public": True,
    }  # fmt: skip
    (tmp_path / "pictures.yaml").write_text(yaml.safe_dump(facts))
    config = Config.model_validate(
        {
            "name": "pictures",
            "data": {"source": str(tmp_path / "pictures.yaml"), "scenario": "declared", "features": "scattering"},
            "learner": {"method": "MomentsClassifier"},
            "budget": {"epsilon": 1e5, "delta": 1e-5},
            "seeds": [0],
        }
    )
    run(config, tmp_path / "run")
    model = tacit.load(next((tmp_path / "run").glob("seeds/seed-0/releases/01-*")))
    found = model.predictions(tmp_path / "new")
    files = found.kept[0][1].to_pylist()
    assert len(files) == 24 and found.labels.tolist() == [name.split("/")[0] for name in files]
