"""An empty MLflow database, made once, and values that must reach no tracker."""

import shutil
from pathlib import Path

import pytest

from support.tracked import SECRET


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "empty.sqlite"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def address(empty_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of an empty database; MLflow keeps files in the working directory."""
    place = tmp_path / "server"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return f"sqlite:///{shutil.copy(empty_database, place / 'mlflow.sqlite')}"


@pytest.fixture
def with_secrets(a_run: Path) -> Path:
    """A run whose private folders, environment and folder have files that are nobody's business."""
    for place in (a_run / "private", *(seed / "private" for seed in (a_run / "seeds").iterdir())):
        (place / "store").mkdir(parents=True, exist_ok=True)
        (place / "store" / "block.json").write_text(SECRET)
        (place / "meters.json").write_text(SECRET)
    (a_run / "notes.txt").write_text(SECRET)
    certificate = next((a_run / "seeds" / "seed-1").rglob("certificate.json")).read_text()
    (a_run / "private" / "certificate.json").write_text(certificate)
    (a_run / "seeds" / "seed-0" / "releases" / "02-linked").symlink_to(a_run / "private")
    (a_run / "consumption.csv").unlink(missing_ok=True)
    (a_run / "consumption.csv").symlink_to(a_run / "private" / "meters.json")
    return a_run
