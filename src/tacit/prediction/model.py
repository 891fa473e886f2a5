"""A released model that answers for new records."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from tacit.certificate import Certificate
from tacit.data.input_form import InputForm
from tacit.data.samples import Floats
from tacit.data.stream import Label, StreamInfo, TaskInfo
from tacit.errors import DataError, LearnerError, TacitError
from tacit.learners import load_learner
from tacit.learners.base.inference import ROWS
from tacit.learners.base.learner import Learner
from tacit.learners.base.release import damage
from tacit.models.backbones import NAMES as BACKBONES
from tacit.models.backbones import Backbone, backbone
from tacit.prediction.new_records import Rows, read_rows
from tacit.words import listed, nearest

LABEL, PROBABILITY = "prediction", "probability"
MOST_COLUMNS = 100
"""The most labels with a column of probabilities each, where nothing else was said."""


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """The answers for some records.

    Attributes:
        labels: The likeliest label of each record.
        probabilities: The probability of each label of the model (`classes`), by the model itself.
        classes: The labels of the model.
        abstained: Whether the largest probability was too small for an answer.
        kept: Columns of the input.
        notes: What was unusual about the input, a sentence each.
    """

    labels: NDArray[Any]
    probabilities: NDArray[np.float32]
    classes: tuple[Label, ...]
    abstained: NDArray[np.bool_]
    kept: tuple[tuple[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    def table(self, *, probabilities: bool | None = None) -> Any:
        """The answers as an Arrow table.

        Args:
            probabilities: Whether each label has a column; None: if there are at most a hundred.

        Returns:
            The kept columns, `prediction` (null where the model abstained), `probability`, and one column a label.
        """
        found = dict(self.kept)
        answers = pa.array(self.labels.tolist(), mask=self.abstained)
        top = self.probabilities.max(1) if len(self.labels) else np.zeros(0, np.float32)
        found |= {_free(LABEL, found): answers, _free(PROBABILITY, found): pa.array(top)}
        if len(self.classes) <= MOST_COLUMNS if probabilities is None else probabilities:
            each = {f"p({label})": pa.array(self.probabilities[:, place]) for place, label in enumerate(self.classes)}
            found |= {_free(name, found): column for name, column in each.items()}
        return pa.table(found)

    def csv(self, *, probabilities: bool | None = None) -> str:
        """The table as CSV.

        Args:
            probabilities: As for `table`.

        Returns:
            The text, with a header.
        """
        import pyarrow.csv as arrow_csv

        sink = pa.BufferOutputStream()
        arrow_csv.write_csv(self.table(probabilities=probabilities), sink)
        return str(sink.getvalue().to_pybytes().decode())

    def write(self, path: str | Path, *, probabilities: bool | None = None) -> None:
        """Write the table whole, or nothing of it.

        Args:
            path: A file that ends in .csv or .parquet.
            probabilities: As for `table`.

        Raises:
            DataError: The file has another ending.
            OSError: It cannot be written.
        """
        import pyarrow.csv as arrow_csv
        import pyarrow.parquet as parquet

        path = Path(path)
        writers = {".csv": arrow_csv.write_csv, ".parquet": parquet.write_table, ".pq": parquet.write_table}
        if path.suffix.lower() not in writers:
            raise DataError(f"predictions are written to .csv or .parquet, not to {path.name!r}; change the ending")
        draft = path.with_name(f"{path.name}.new")
        try:
            with draft.open("wb") as file:
                writers[path.suffix.lower()](self.table(probabilities=probabilities), file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError as error:
            raise type(error)(error.errno, error.strerror, str(path)) from None  # not the name of the draft
        finally:
            draft.unlink(missing_ok=True)


class Model:
    """A released model. It reads records as those were read that it was trained on.

    Args:
        learner: The learner of a release.
        certificate: What is guaranteed to the people whose records it was trained on.

    Attributes:
        certificate: The same.
        classes: The labels.
        tasks: The names of the tasks it has learned.
    """

    def __init__(self, learner: Learner, certificate: Certificate) -> None:
        self._learner, self.certificate = learner, certificate
        self._info: StreamInfo = learner.stream_
        self.classes: tuple[Label, ...] = tuple(learner.labels_)
        self._tasks: dict[str, TaskInfo] = {task.name: task for task in learner.tasks_}
        self.tasks = tuple(self._tasks)
        self._form = self._info.inputs or InputForm(kind="arrays", shape=self._info.shape)
        self._map = self._feature_map() if self._info.features and self._info.inputs is not None else None

    def __repr__(self) -> str:
        return f"Model({type(self._learner).__name__}, {len(self.tasks)} tasks, {len(self.classes)} labels)"

    def predict(self, source: Any, *, task: str | None = None) -> NDArray[Any]:
        """The likeliest label of each record.

        Args:
            source: A data frame, an array, or a path.
            task: The task of the records, where the model has to be told.

        Returns:
            An array of labels.

        Raises:
            DataError: The records are not of the form that the model reads.
        """
        return self.predictions(source, task=task).labels

    def predict_proba(self, source: Any, *, task: str | None = None) -> NDArray[np.float32]:
        """Probabilities over `classes`, by the model itself: nothing guarantees that they are calibrated.

        Args:
            source: A data frame, an array, or a path.
            task: The task of the records, where the model has to be told.

        Returns:
            An array of shape (records, labels).

        Raises:
            DataError: The records are not of the form that the model reads.
        """
        return self.predictions(source, task=task).probabilities

    def predictions(
        self,
        source: Any,
        *,
        task: str | None = None,
        keep: Sequence[str] = (),
        abstain_below: float = 0.0,
        any_range: bool = False,
    ) -> Predictions:
        """The answers for some records, with probabilities.

        Args:
            source: A data frame, an array, or a path of a table, an array, an image or a folder of images.
            task: The task of the records, where the model has to be told.
            keep: Columns of a table to return beside the answers.
            abstain_below: The probability below which the model does not answer.
            any_range: Accept columns of which most values are outside the declared limits.

        Returns:
            The answers, in the order of the records.

        Raises:
            DataError: The records are not of the form that the model reads.
        """
        if not 0.0 <= abstain_below <= 1.0:
            raise DataError(f"abstain_below is a probability from 0 to 1, got {abstain_below}")
        rows = read_rows(self._form, source, tuple(keep), any_range=any_range)
        x = rows.x if self._map is None else self._mapped(rows.x)
        found = np.zeros((len(x), len(self.classes)), np.float32)
        for asked, places in self._groups(rows, task):
            for first in range(0, len(places), ROWS):
                part = places[first : first + ROWS]
                found[part] = self._learner.predict_proba(torch.from_numpy(x[part]), asked)
        labels = np.asarray(self.classes)[found.argmax(1)] if len(x) else np.asarray(self.classes)[:0]
        abstained = found.max(1) < abstain_below if len(x) else np.zeros(0, np.bool_)
        return Predictions(
            labels=labels, probabilities=found, classes=self.classes, abstained=abstained, kept=rows.kept,
            notes=rows.notes,
        )  # fmt: skip

    def _groups(self, rows: Rows, task: str | None) -> list[tuple[TaskInfo | None, NDArray[np.int64]]]:
        """The records of each task; all together where the task is not given to the model."""
        everything = np.arange(len(rows.x))
        if self._info.task_id == "hidden":
            if task is not None:
                raise DataError(f"the model finds the task of a record by itself; leave task = {task!r} out")
            return [(None, everything)]
        if task is not None:
            return [(self._task(task), everything)]
        if rows.tasks is None:
            column = "" if self._form.task is None else f", or a column {self._form.task!r}"
            raise DataError(
                f"the model has to be told the task of the records; give one of {listed(self.tasks)}{column}"
            )
        names = np.asarray([name or "" for name in rows.tasks])
        return [(self._task(name), np.flatnonzero(names == name)) for name in dict.fromkeys(names.tolist())]

    def _task(self, name: str) -> TaskInfo:
        if name not in self._tasks:
            raise DataError(f"the model has learned no task {name!r}; {nearest(name, self.tasks)}")
        return self._tasks[name]

    def _feature_map(self) -> Backbone:
        name = self._info.features.partition(" ")[0]
        if name not in BACKBONES:
            raise LearnerError(
                f"the features of this model come from {name!r}, which is not a backbone of tacit; compute them "
                "yourself, and use tacit.learners.load_learner"
            )
        made = backbone(name, shape=self._form.shape)
        if made.key != self._info.features:
            raise LearnerError(
                f"the backbone {name} here is not the one whose features the model was trained on; install the version "
                f"that gives {self._info.features!r}"
            )
        return made.to(self._learner.device)

    def _mapped(self, x: Floats) -> Floats:
        assert self._map is not None
        step = self._map.at_a_time
        with torch.inference_mode():
            parts = [
                self._map(torch.from_numpy(x[first : first + step]).to(self._learner.device)).cpu().numpy()
                for first in range(0, len(x), step)
            ]
        return np.concatenate([np.zeros((0, self._map.width), np.float32), *parts])


def load(folder: str | Path, *, device: str = "cpu", allow_code: Collection[str] = ()) -> Model:
    """The model of a release, for predictions.

    Args:
        folder: The folder of the release.
        device: Where it computes.
        allow_code: SHA-256 hashes of the Python files that the release may run.

    Returns:
        The model.

    Raises:
        LearnerError: The release is damaged, or needs code that is not allowed.
    """
    try:
        learner = load_learner(folder, device=device, allow_code=allow_code)
    except TacitError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError):
        raise LearnerError(damage(folder)) from None
    return Model(learner, learner.certificate_)


def _free(name: str, taken: Collection[str]) -> str:
    """The name, or another where the kept columns have it."""
    while name in taken:
        name = f"{name}_"
    return name
