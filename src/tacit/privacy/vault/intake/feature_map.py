"""A frozen feature map that `Vault.admit(…, through=)` applies to private records, with its private cache.

Formal guarantees:
    * The features of a record are a function of that record and of public constants, provided that the module treats
      each row by itself. Before the first record is read, `check` compares rows alone and in batches on synthetic
      records and refuses a module that mixes them; a module that hides a dependence cannot be detected.
    * The module keeps nothing: a buffer that it writes is restored, and the module is refused.
    * Nothing is reported: no count, no progress, and errors of the module are withheld.
    * Cached features are in a folder that only its owner can read, and `forget` deletes those of a task.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.privacy.vault.intake.extraction import Extractor
from tacit.privacy.vault.intake.feature_cache import FeatureCache
from tacit.privacy.vault.intake.isolation import guarded, unchanged
from tacit.privacy.vault.intake.row_checks import check_rows
from tacit.privacy.vault.intake.store import delete_private
from tacit.privacy.vault.sources.source import Source


class FeatureMap:
    """A frozen backbone for the records of a private stream.

    Args:
        module: From records (n, *shape), floats with images in [0, 1], to features (n, width).
        key: Names the module's weights and preprocessing; cached features are found by it.
        width: The number of features.
        shape: The shape of one record before the map.
        extractor: Runs the module on its device; None runs it on the CPU.
        folder: The private folder of the cache, one subfolder per task; None computes features again each time.
        check_stop: Called between batches; it may raise, to stop.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        key: str,
        width: int,
        shape: tuple[int, ...],
        extractor: Extractor | None = None,
        folder: Path | None = None,
        check_stop: Callable[[], None] | None = None,
    ) -> None:
        self.module, self.key, self.width, self.shape = module, key, width, shape
        self._extractor = extractor or Extractor(module, width)
        self._folder, self._check_stop = folder, check_stop
        self._checked = False

    def check(self) -> None:
        """Refuses a module that mixes rows, on synthetic records.

        Raises:
            VaultError: A row alone has other features than in a batch.
        """
        if not self._checked:
            generator = torch.Generator().manual_seed(0)
            check_rows(torch.rand(self._extractor.batch, *self.shape, generator=generator), self.module)
            self._checked = True

    def apply(self, source: Source, task: str) -> Tensor:
        """The features of all records of a task: from the cache, or computed and cached. Private.

        Args:
            source: The records.
            task: The name of their task.

        Raises:
            VaultError: The backbone fails on a record.
        """
        cache = FeatureCache(self._task_folder(task), self.key, self.width, self._extractor)
        with unchanged(self.module):
            features = guarded(
                lambda: cache.features(_Rows(source), self._progress), "the backbone failed on private records"
            )
        return torch.from_numpy(features).float()

    def forget(self, task: str) -> None:
        """Deletes the cached features of a task; they are not needed once the task is released.

        Args:
            task: The name of the task.
        """
        if (folder := self._task_folder(task)) is not None:
            delete_private(folder)

    def _task_folder(self, task: str) -> Path | None:
        """The folder of a task; its name is a hash of the task's name."""
        name = hashlib.blake2b(task.encode(), digest_size=8).hexdigest()
        return None if self._folder is None else self._folder / name

    def _progress(self, _done: int, _total: int) -> None:
        if self._check_stop is not None:
            self._check_stop()


class _Rows:
    """The features of a source as an array of which slices are taken."""

    def __init__(self, source: Source) -> None:
        self._fetch, self._count = source.fetch, len(source.labels)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        array: NDArray[Any] = self._fetch(torch.arange(self._count)[rows]).numpy()
        return array
