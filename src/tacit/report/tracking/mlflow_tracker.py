"""MLflow: runs, seeds under their run, runs under their sweep, files, and a registered model version for each release.

Only the client is used, with times of its own: neither the moment of an upload nor the name of user, machine or program
is sent. MLflow's own usage statistics are switched off unless `MLFLOW_DISABLE_TELEMETRY` says otherwise.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError
from tacit.report.page import FILE, page
from tacit.report.reading.run_folders import read_folders
from tacit.report.reading.safe_files import SafeFolder
from tacit.report.tracking.mlflow_models import register
from tacit.report.tracking.run_figures import drawn
from tacit.report.tracking.run_tree import tracked
from tacit.report.tracking.tracked_run import TrackedRun
from tacit.words import install

EXPERIMENT = "tacit"
"""The name of the experiment, unless `MLFLOW_EXPERIMENT_NAME` has another."""
KEY = "tacit.key"
"""The tag by which an entry is found again."""
QUICK = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
"""Settings of MLflow where the user has none: a server that is down holds a run up for a minute at most."""
_MOST = 500
"""Metrics in one request."""
_MOST_PARAMETERS = 100
_FILES = ("config.yaml", "metrics.json", "accuracy.csv", "consumption.csv", "sweep.yaml", "cells.csv")


@dataclass(kw_only=True)
class _Known:
    """What the server has of an entry."""

    run: str
    steps: dict[str, set[int]]
    settings: set[str]
    status: str
    tags: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    drawn: tuple[int, bool] | None = None
    """How far the entry was when its figures were sent."""


class MLflow:
    """Sends runs to an MLflow server or database, version 3 or later.

    Args:
        where: The tracking URI, such as `http://127.0.0.1:5000` or `sqlite:///mlflow.db`; by default MLflow's own,
            which `MLFLOW_TRACKING_URI` sets.
        register: Whether each release of a run becomes a version of a registered model. Releases of sweeps do not.

    Raises:
        ConfigError: MLflow is not installed, or is older than 3.
    """

    name = "mlflow"

    def __init__(self, where: str | Path | None = None, *, register: bool = True) -> None:
        if find_spec("mlflow") is None:
            raise ConfigError(f"MLflow is not installed; {install('mlflow')}")
        for name, value in QUICK.items():
            os.environ.setdefault(name, value)
        try:
            found = metadata.version("mlflow-skinny")
        except metadata.PackageNotFoundError:  # of early versions
            found = metadata.version("mlflow")
        if int(found.split(".")[0]) < 3:
            raise ConfigError(f"MLflow {found} is installed, and 3 or later is needed; {install('mlflow')}")
        self.where = None if where is None else str(where)
        self._register = register
        self._client: Any = None
        self._entries: dict[str, _Known] = {}

    def send(self, folder: Path, *, final: bool = True) -> None:
        """Send what is new in a folder. Sending it again changes nothing.

        Args:
            folder: The folder of a run, a sweep or an endless stream.
            final: Whether to send figures and the page too.

        Raises:
            TacitError: There is no run in the folder, or a release does not match its certificate.
        """
        entries = tracked(Path(folder))
        if not entries:
            return
        if self._client is None:
            from mlflow import MlflowClient

            self._client = MlflowClient(tracking_uri=self.where, registry_uri=self.where)
        experiment = self._experiment()
        registered = self._register and entries[0].facts.get("kind") != "sweep"
        for entry in entries:
            known = self._known(entry, experiment)
            self._metrics(entry, known)
            if entry.folder.is_relative_to(Path(folder).resolve()):
                self._files(entry, known, final=final)
            if registered:
                register(self._client, entry, known.run)
            self._status(entry, known)

    def describe(self) -> str:
        """Where it is shown.

        Returns:
            The address.
        """
        import mlflow

        where = self.where if self.where is not None else str(mlflow.get_tracking_uri())
        return re.sub(r"//[^/@\s]*@", "//", where)

    def _experiment(self) -> str:
        """The id of the experiment, which is made if there is none."""
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        found = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if found is None else found.experiment_id)

    def _known(self, entry: TrackedRun, experiment: str) -> _Known:
        """What the server has of an entry, which is made if there is none."""
        if entry.key in self._entries:
            return self._entries[entry.key]
        found = self._client.search_runs([experiment], f"tags.`{KEY}` = '{entry.key}'", max_results=1)
        if found:
            run = found[0]
        else:
            parent = {"mlflow.parentRunId": self._entries[entry.parent].run} if entry.parent else {}
            tags = {KEY: entry.key, **parent}
            run = self._client.create_run(experiment, start_time=entry.moment, tags=tags, run_name=entry.name[:250])
        history = self._client.get_metric_history
        steps = {name: {one.step for one in history(run.info.run_id, name)} for name in run.data.metrics}
        known = _Known(run=run.info.run_id, steps=steps, settings=set(run.data.params), status=run.info.status)
        self._entries[entry.key] = known
        return known

    def _metrics(self, entry: TrackedRun, known: _Known) -> None:
        """Send the values, settings and facts that the server lacks."""
        from mlflow.entities import Metric, Param, RunTag

        series = {_key(name): values for name, values in entry.series.items()}
        new = [
            Metric(name, value, entry.moment + 1000 * step, step)
            for name, values in series.items()
            for step, value in values.items()
            if step not in known.steps.get(name, set())
        ]
        for start in range(0, len(new), _MOST):
            self._client.log_batch(known.run, metrics=new[start : start + _MOST])
            for one in new[start : start + _MOST]:
                known.steps.setdefault(one.key, set()).add(one.step)
        settings = {_key(name): value for name, value in entry.settings.items()}
        params = [Param(name, value) for name, value in settings.items() if name not in known.settings]
        for start in range(0, len(params), _MOST_PARAMETERS):
            self._client.log_batch(known.run, params=params[start : start + _MOST_PARAMETERS])
        known.settings |= set(settings)
        tags = {f"tacit.{_key(name)}": value for name, value in entry.facts.items()}
        if tags != known.tags:
            self._client.log_batch(known.run, tags=[RunTag(name, value) for name, value in tags.items()])
            known.tags = tags

    def _status(self, entry: TrackedRun, known: _Known) -> None:
        """Say whether the entry is done."""
        status = "FINISHED" if entry.done else "RUNNING"
        if status == known.status:
            return
        if entry.done:
            self._client.set_terminated(known.run, status, end_time=entry.moment + 1000 * entry.tasks)
        else:
            self._client.update_run(known.run, status=status)
        known.status = status

    def _files(self, entry: TrackedRun, known: _Known, *, final: bool) -> None:
        """Send the files that are new or have changed."""
        now = (entry.tasks, entry.done)
        final = final and known.drawn != now
        with tempfile.TemporaryDirectory() as place:
            for name, content in _contents(entry, final=final):
                digest = hashlib.sha256(content).hexdigest()
                if known.files.get(name) == digest:
                    continue
                file = Path(place) / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
                folder = str(Path(name).parent)
                self._client.log_artifact(known.run, str(file), None if folder == "." else folder)
                known.files[name] = digest
        known.drawn = now if final else known.drawn


def _contents(entry: TrackedRun, *, final: bool) -> Iterator[tuple[str, bytes]]:
    """The files of an entry: those of its folder that are public, certificates, figures and the page."""
    folder = SafeFolder(path=entry.folder)
    for release in entry.releases:
        yield f"certificates/{_plain(release.name)}.json", release.certificate.read_bytes()
    if not (entry.whole and final):
        return
    for name in _FILES:
        if folder.readable(name):
            yield name, (entry.folder / name).read_bytes()
    if entry.tasks:
        for kind, png, svg in drawn(entry.folder):
            yield f"figures/{kind}.png", png
            yield f"figures/{kind}.svg", svg
    if not entry.parent:
        yield FILE, page(read_folders([entry.folder])).encode()


def _key(name: str) -> str:
    """A name that MLflow takes."""
    return re.sub(r"[^A-Za-z0-9_\-. /]", "-", name)[:200].strip("/. ") or "unnamed"


def _plain(name: str) -> str:
    """A name of a file that stays in its folder."""
    kept = "".join(letter if letter.isalnum() or letter in "_.-" else "-" for letter in name)[:100]
    return kept.lstrip(".") or "unnamed"
