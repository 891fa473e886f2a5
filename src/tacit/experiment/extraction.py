"""Records through a frozen backbone, batch by batch.

Guarantee: every batch has the same size (the last is filled up with zeros), so that the features of a record do not
depend on how many others there are; the backbone treats each record by itself. float32 on a CPU, bf16 (autocast) on a
GPU; features come back as float16.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import ConfigError
from tacit.models.backbones import Backbone
from tacit.models.devices import check_device

Halves = NDArray[np.float16]
Each = Callable[[int], None]
"""Told on a CPU, between the batches of a chunk, how many of its records are done. It may raise, to stop."""
CPU_BATCH = 8
"""What fits into a core's caches: larger batches are slower."""
GPU_BATCH = 512
BYTES_A_RECORD = 2**26
"""Of a GPU's free memory, with much to spare; where it is too little, the batch is halved."""
MOST = float(torch.finfo(torch.float16).max)


class Extractor:
    """A backbone on a device, ready for many chunks of records."""

    def __init__(self, net: Backbone, device: str = "cpu", *, batch: int | None = None, compiled: bool = False) -> None:
        """`batch`: so many records at a time; None: as many as memory allows. `compiled`: by torch.compile, which pays
        off on a GPU from some ten thousand records on."""
        check_device(device)
        self._device = torch.device(device)
        self._net = net.to(self._device)
        self.batch = self._fitting() if batch is None else batch
        """So many records are in every batch; fewer after one that did not fit into memory."""
        self._run: Any = torch.compile(self._net, dynamic=False) if compiled else self._net

    def __call__(self, chunks: Iterable[NDArray[Any]], each: Each | None = None) -> Iterator[Halves]:
        """Features of each chunk: on a CPU as soon as they are made, before the next chunk is taken. On a GPU the next
        chunk is under way while the last one is handed out."""
        waiting: Launched | None = None
        for chunk in chunks:
            launched = self._launch(chunk, each)
            if waiting is not None:
                yield waiting.result()
            waiting = launched
            if self._device.type != "cuda":  # nothing would be under way meanwhile
                yield waiting.result()
                waiting = None
        if waiting is not None:
            yield waiting.result()

    def _launch(self, chunk: NDArray[Any], each: Each | None) -> "Launched":
        while True:
            try:
                return Launched(self._features(chunk, each))
            except torch.OutOfMemoryError:
                if self.batch == 1:
                    raise ConfigError("one record does not fit into the GPU's memory; use device = 'cpu'") from None
                self.batch //= 2
                torch.cuda.empty_cache()

    @torch.inference_mode()
    def _features(self, chunk: NDArray[Any], each: Each | None) -> Tensor:
        rows = torch.from_numpy(np.ascontiguousarray(chunk))
        if self._device.type == "cuda":
            rows = rows.pin_memory().to(self._device, non_blocking=True)
        made, done = [torch.zeros(0, self._net.width, device=self._device)], 0
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda"):
            for part in torch.split(rows, self.batch):
                made.append(self._run(self._filled(part))[: len(part)])
                done += len(part)
                if each is not None and done < len(chunk) and self._device.type != "cuda":
                    each(done)
        return torch.cat(made).clamp(-MOST, MOST).half()

    def _filled(self, part: Tensor) -> Tensor:
        """As floats, bytes divided by 255; with rows of zeros up to the size of every batch."""
        x = part.float() / 255 if part.dtype == torch.uint8 else part.float()
        missing = self.batch - len(x)
        return torch.cat([x, x.new_zeros(missing, *x.shape[1:])]) if missing else x

    def _fitting(self) -> int:
        if self._device.type != "cuda":
            return CPU_BATCH
        fits = max(1, int(torch.cuda.mem_get_info(self._device)[0]) // BYTES_A_RECORD)
        return int(min(GPU_BATCH, 2 ** (fits.bit_length() - 1)))


class Launched:
    """Features that are being made, and copied to the host without waiting."""

    def __init__(self, made: Tensor) -> None:
        self._event = None
        self._host = made
        if made.is_cuda:
            self._host = torch.empty(made.shape, dtype=made.dtype, pin_memory=True)
            self._host.copy_(made, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def result(self) -> Halves:
        if self._event is not None:
            self._event.synchronize()
        found: Halves = self._host.numpy().copy()
        return found
