"""Runs records through a frozen backbone, batch by batch.

Every batch has the same size (the last one is padded with zeros), so that the features of a record do not depend on how
many other records there are. The backbone computes in float32 on a CPU and in bfloat16 (autocast) on a GPU; features
are returned as float16.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.errors import ConfigError

Halves = NDArray[np.float16]
BatchProgress = Callable[[int], None]
"""Called on a CPU between the batches of a chunk with the number of records done; it may raise, to stop."""
CPU_BATCH = 8
"""Records per batch on a CPU: larger batches no longer fit into a core's caches and are slower."""
GPU_BATCH = 512
BYTES_PER_RECORD = 2**26
"""A generous estimate of the GPU memory per record; where it is too small, the batch is halved."""
LARGEST = float(torch.finfo(torch.float16).max)


class Extractor:
    """A backbone on a device.

    Args:
        module: The frozen backbone, from (n, *shape) to (n, width).
        width: The number of features.
        device: `cpu`, `cuda` or `cuda:1`.
        batch: Records per batch; None chooses it by the memory that is free.
        compiled: Whether to use torch.compile, which pays off on a GPU from about ten thousand records.

    Attributes:
        batch: Records per batch; it is halved after a batch that does not fit into memory.
    """

    def __init__(
        self, module: nn.Module, width: int, device: str = "cpu", *, batch: int | None = None, compiled: bool = False
    ) -> None:
        self._device = torch.device(device)
        self._width = width
        self.batch = self._fitting_batch() if batch is None else batch
        moved = module.to(self._device)
        self._run: Any = torch.compile(moved, dynamic=False) if compiled else moved

    def __call__(self, chunks: Iterable[NDArray[Any]], progress: BatchProgress | None = None) -> Iterator[Halves]:
        """Yields the features of each chunk. On a GPU the next chunk is computed while the last one is handed out."""
        pending: _Transfer | None = None
        for chunk in chunks:
            launched = self._launch(chunk, progress)
            if pending is not None:
                yield pending.result()
            pending = launched
            if self._device.type != "cuda":  # nothing would be computed meanwhile
                yield pending.result()
                pending = None
        if pending is not None:
            yield pending.result()

    def _launch(self, chunk: NDArray[Any], progress: BatchProgress | None) -> "_Transfer":
        while True:
            try:
                return _Transfer(self._features(chunk, progress))
            except torch.OutOfMemoryError:
                if self.batch == 1:
                    raise ConfigError("one record does not fit into the GPU's memory; use device = 'cpu'") from None
                self.batch //= 2
                torch.cuda.empty_cache()

    @torch.inference_mode()
    def _features(self, chunk: NDArray[Any], progress: BatchProgress | None) -> Tensor:
        rows = torch.from_numpy(np.ascontiguousarray(chunk))
        if self._device.type == "cuda":
            rows = rows.pin_memory().to(self._device, non_blocking=True)
        parts, done = [torch.zeros(0, self._width, device=self._device)], 0
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda"):
            for part in torch.split(rows, self.batch):
                parts.append(self._run(self._padded(part))[: len(part)])
                done += len(part)
                if progress is not None and done < len(chunk) and self._device.type != "cuda":
                    progress(done)
        return torch.cat(parts).clamp(-LARGEST, LARGEST).half()

    def _padded(self, part: Tensor) -> Tensor:
        """The rows as floats (bytes divided by 255), padded with zeros to the size of a batch."""
        x = part.float() / 255 if part.dtype == torch.uint8 else part.float()
        missing = self.batch - len(x)
        return torch.cat([x, x.new_zeros(missing, *x.shape[1:])]) if missing else x

    def _fitting_batch(self) -> int:
        if self._device.type != "cuda":
            return CPU_BATCH
        fits = max(1, int(torch.cuda.mem_get_info(self._device)[0]) // BYTES_PER_RECORD)
        return int(min(GPU_BATCH, 2 ** (fits.bit_length() - 1)))


class _Transfer:
    """Features on their way to the host; the copy does not block."""

    def __init__(self, features: Tensor) -> None:
        self._event = None
        self._host = features
        if features.is_cuda:
            self._host = torch.empty(features.shape, dtype=features.dtype, pin_memory=True)
            self._host.copy_(features, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def result(self) -> Halves:
        if self._event is not None:
            self._event.synchronize()
        features: Halves = self._host.numpy().copy()
        return features
