"""A private folder of images: one sub-folder per class, or per task and then per class."""

from pathlib import Path

import numpy as np

from tacit.data.columns import scale
from tacit.data.declaration import Declaration
from tacit.data.formats import Bytes, decode
from tacit.data.samples import Array, Floats
from tacit.errors import DataError

BYTES = (0.0, 255.0)


class ImageFolder:
    """`folder/class/…` for one task, `folder/task/class/…` for several. Only declared tasks and labels are looked for.

    Images are brought to the declared shape. A file that is no image is left out in silence, and none is ever named.
    """

    def __init__(self, declared: Declaration, folder: Path, *, test: bool = False) -> None:
        if declared.shape is None or len(declared.shape) != 3 or declared.shape[0] not in (1, 3):
            raise DataError(f"{folder}: images need a declared shape [1 or 3, height, width], such as [3, 32, 32]")
        if declared.unit == "person" and not test:
            raise DataError(
                f"{folder}: a folder of images does not say whose each is; to protect persons use a table or arrays"
            )
        self._declared, self._folder, self.shape = declared, folder, declared.shape
        # A test folder may be cut by class alone: its images then belong to every task that has the class.
        first = declared.tasks[0].name
        self._by_task = len(declared.tasks) > 1 and not (test and not (folder / first).is_dir())

    def has(self, task: str) -> bool:
        """Whether the task's own folder is there; it may be empty."""
        return (self._folder / task).is_dir() if self._by_task else self._folder.is_dir()

    def read(self, task: str) -> tuple[Floats, Array, Array | None]:
        images: list[Bytes] = []
        labels: list[str | int] = []
        for label in self._declared.labels:
            place = self._folder / task / str(label) if self._by_task else self._folder / str(label)
            for path in sorted(place.iterdir()) if place.is_dir() else ():
                found = self._image(path)
                if found is not None:
                    images.append(found)
                    labels.append(label)
        stored = np.asarray(images, dtype=np.uint8).reshape(-1, *self.shape)
        limit = BYTES if isinstance(self._declared.scaling, dict) else self._declared.scaling
        x = scale(stored.astype(np.float32), self._declared, limit).astype(np.float32)
        return x, np.asarray(labels, dtype=str if isinstance(self._declared.labels[0], str) else np.int64), None

    def _image(self, path: Path) -> Bytes | None:
        try:
            return decode(path.read_bytes(), self.shape)
        except DataError:
            raise
        except Exception:  # pillow raises what it likes, and each message names a private file
            return None
