"""Reads a private folder of images, with one subfolder per class, or per task and then per class."""

from pathlib import Path

import numpy as np

from tacit.data.benchmarks.formats import Bytes, decode
from tacit.data.declared.declaration import Declaration
from tacit.data.input_form import InputForm
from tacit.data.samples import Array, Floats
from tacit.errors import DataError
from tacit.privacy.vault.sources import cell_conversion
from tacit.privacy.vault.sources.source import Occurring

BYTE_RANGE = (0.0, 255.0)


class ImageFolder:
    """`folder/class/…` for one task, `folder/task/class/…` for several; only declared tasks and labels are looked for.

    Images are resized to the declared shape. A file that is no image is dropped without a message, and no message names
    a file.

    Args:
        declared: The public facts; `shape` is needed.
        folder: The folder.
        test: Whether it is a public test folder. It may be divided by class alone; its images then belong to every task
            that has the class.
    """

    def __init__(self, declared: Declaration, folder: Path, *, test: bool = False) -> None:
        if declared.shape is None or len(declared.shape) != 3 or declared.shape[0] not in (1, 3):
            raise DataError(f"{folder}: images need a declared shape [1 or 3, height, width], such as [3, 32, 32]")
        if declared.unit == "person" and not test:
            raise DataError(
                f"{folder}: a folder of images does not tell which person each belongs to; to protect persons use a "
                "table or arrays"
            )
        self._declared, self._folder, self.shape = declared, folder, declared.shape
        limits = BYTE_RANGE if isinstance(declared.scaling, dict) else declared.scaling
        self.form = InputForm(
            kind="images", shape=declared.shape, limits=limits, range=declared.range, fill=declared.fill
        )
        first = declared.tasks[0].name
        self._by_task = len(declared.tasks) > 1 and not (test and not (folder / first).is_dir())

    def has_task(self, task: str) -> bool:
        """Whether the task's folder exists; it may be empty."""
        return (self._folder / task).is_dir() if self._by_task else self._folder.is_dir()

    def read(self, task: str) -> tuple[Floats, Array, Array | None]:
        """Features and labels of a task's images."""
        images: list[Bytes] = []
        labels: list[str | int] = []
        for label in self._declared.labels:
            folder = self._folder / task / str(label) if self._by_task else self._folder / str(label)
            for path in sorted(folder.iterdir()) if folder.is_dir() else ():
                image = self._image(path)
                if image is not None:
                    images.append(image)
                    labels.append(label)
        x = cell_conversion.image_features(images, self.form)
        return x, np.asarray(labels, dtype=str if isinstance(self._declared.labels[0], str) else np.int64), None

    def occurring(self) -> Occurring:
        """Which declared tasks and labels have files. No file is read."""
        tasks = [entry.name for entry in self._declared.tasks]
        places = {task: self._folder / task if self._by_task else self._folder for task in tasks}
        found = {
            task: frozenset(label for label in self._declared.labels if _has_files(place / str(label)))
            for task, place in places.items()
        }
        return Occurring(
            labels={task: labels for task, labels in found.items() if labels},
            tasks_named=_subfolders(self._folder) if self._by_task else (),
            labels_named=tuple(dict.fromkeys(name for place in places.values() for name in _subfolders(place))),
        )

    def _image(self, path: Path) -> Bytes | None:
        try:
            return decode(path.read_bytes(), self.shape)
        except DataError:
            raise
        except Exception:  # pillow raises errors of many types, and their messages name a private file
            return None


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(path.is_file() for path in folder.iterdir())


def _subfolders(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in folder.iterdir() if path.is_dir())) if folder.is_dir() else ()
