"""A version of a registered MLflow model for each release, with its certificate as metadata.

The model is the folder of the release as it is, safetensors and JSON, beside an `MLmodel` file that names
`tacit.learners.pyfunc` as its loader. Loading it runs the code of the installed tacit and no other.
"""

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from platform import python_version
from shutil import copyfile
from typing import Any

from tacit import __version__
from tacit.certificate import Certificate, binding
from tacit.errors import ConfigError
from tacit.report.tracking.seed_history import certificate_facts
from tacit.report.tracking.tracked_run import TrackedRelease, TrackedRun

LOADER = "tacit.learners.pyfunc"
RELEASE = "release"
"""The folder of the release in the folder of the model."""
TAG = "tacit.release"
_FILES = ("model.safetensors", "release.json", "certificate.json", "README.md")


def register(client: Any, entry: TrackedRun, run: str) -> None:
    """Register each release of an entry that is not registered yet.

    Args:
        client: The client of MLflow.
        entry: A run or one of its seeds.
        run: The id of its MLflow run.

    Raises:
        ConfigError: A release does not match its certificate.
    """
    if not entry.releases:
        return
    from mlflow.exceptions import MlflowException

    model = model_name(entry)
    try:
        client.get_registered_model(model)
    except MlflowException:
        client.create_registered_model(model, tags={"library": "tacit"})
    there = {one.tags.get(TAG) for one in client.search_model_versions(f"name='{model}'")}
    for release in entry.releases:
        tag = f"{entry.key}/{release.task}"
        if tag in there:
            continue
        facts = checked_facts(release)
        at = f"models/task-{release.task:02d}"
        with tempfile.TemporaryDirectory() as place:
            write_model(release, Path(place), run, facts, entry.moment)
            client.log_artifacts(run, place, at)
        tags = {**facts, TAG: tag, "task": str(release.task)}
        source = f"{client.get_run(run).info.artifact_uri}/{at}"
        client.create_model_version(model, source, run, tags=tags, description=_description(facts))


def model_name(entry: TrackedRun) -> str:
    """The name of the registered model of an entry.

    Args:
        entry: A run or one of its seeds.

    Returns:
        The name of the run, and the seed where there are several.
    """
    plain = entry.settings.get("name") or entry.place[0]
    kept = "".join(letter if letter.isalnum() or letter in "_- " else "-" for letter in plain)[:100].strip()
    return (kept or "tacit") if entry.whole else f"{kept or 'tacit'} {entry.name}"


def checked_facts(release: TrackedRelease) -> dict[str, str]:
    """What the certificate of a release states, once the release was compared with it.

    Args:
        release: The release.

    Returns:
        Texts by name: epsilon, delta, unit, adjacency, certificate, method.

    Raises:
        ConfigError: It does not match, or a file of it is not a plain file.
    """
    home = release.folder.resolve()
    for name in _FILES:
        file = release.folder / name
        if file.exists() and (file.is_symlink() or file.resolve().parent != home or not file.is_file()):
            raise ConfigError(f"{file} is not a plain file of its release, which is not registered")
    certificate = Certificate.load(release.certificate)
    bound = binding.check(release.folder, certificate)
    return certificate_facts(json.loads(certificate.to_json())) | {"bound": "yes" if bound else "no"}


def write_model(release: TrackedRelease, place: Path, run: str, facts: dict[str, str], moment: int) -> None:
    """Write a model in MLflow's format.

    Args:
        release: The release.
        place: An empty folder.
        run: The id of its MLflow run.
        facts: What its certificate states.
        moment: The date of the model, in milliseconds since 1970.
    """
    from mlflow.models import Model

    (place / RELEASE).mkdir()
    for name in _FILES:
        if (release.folder / name).is_file():
            copyfile(release.folder / name, place / RELEASE / name)
    (place / "requirements.txt").write_text(f"tacit=={__version__}\n", encoding="utf-8")
    issued = datetime.fromtimestamp(moment / 1000, UTC)
    model = Model(run_id=run, metadata={"certificate": facts}, utc_time_created=issued)
    model.add_flavor("python_function", loader_module=LOADER, data=RELEASE, python_version=python_version())
    model.save(str(place / "MLmodel"))


def _description(facts: dict[str, str]) -> str:
    """Numbers and words of tacit only: MLflow shows it as Markdown."""
    bound = "no finite ε is certified" if facts.get("epsilon") == "none" else f"ε = {float(facts['epsilon']):.4g}"
    return f"{bound}, δ = {float(facts['delta']):.3g}, for one {facts.get('unit')}; certificate {facts['certificate']}"
