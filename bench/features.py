"""How much of a backbone's speed is left when features are extracted, and when the PEFT ensemble trains FiLM on it.

    python bench/features.py [--device cuda] [--rounds N] [--json FILE] [--compile]

Extraction: records a second (hashed, prepared, computed, kept on disk) over those of the bare forward pass on pictures
that lie prepared on the device (target: 0.85). Steps: the median step of PEFTEnsemble (draw, clip, noise, journal,
Adam; bf16) over that of plain DP-SGD on the same network and records (target: 1.05), and both over a bare step without
a vault: clipped gradients of a batch that lies on the device, torch's noise, SGD.

ViT-B/16 with random weights on a GPU; a tiny one on a CPU, to test the script. Extraction stands alone: it needs torch,
numpy and safetensors only, and finds tacit beside itself. Steps need what tacit needs.
"""

import argparse
import contextlib
import itertools
import json
import statistics
import sys
import tempfile
import time
import types
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# The package itself may import what this machine does not have; only the rooms below it are used.
package = types.ModuleType("tacit")
package.__path__ = [str(HERE.parent / "src" / "tacit")]
sys.modules.setdefault("tacit", package)
sys.path.insert(0, str(HERE))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

import gpu  # noqa: E402
import models  # noqa: E402
from tacit.models.adapters import pretrained  # noqa: E402
from tacit.models.backbone_parts import Parts  # noqa: E402
from tacit.models.backbones import Backbone  # noqa: E402
from tacit.models.preprocess import HALF, Preprocess  # noqa: E402
from tacit.privacy.vault.intake.extraction import Extractor  # noqa: E402
from tacit.privacy.vault.intake.feature_cache import FeatureCache  # noqa: E402

TARGET, STEP_TARGET = 0.85, 1.05
STEPS, WARM = 20, 6
"""Of one learner in one round; the first of them are not timed."""
PICTURE = (3, 32, 32)


def net(tiny: bool) -> tuple[Backbone, int]:
    """A ViT whose feature is the class token after the last LayerNorm, and the pixels a side that it reads."""
    torch.manual_seed(0)
    pixels, width = (32, 32) if tiny else (224, 768)
    body = models.ViT(32, 2, 2, patch=8, pixels=32) if tiny else models.ViT(768, 12, 12)
    body.head = nn.Identity()
    return Backbone("ViT", Parts(body=body, prepare=Preprocess(pixels, HALF), width=width)), pixels


def seconds(work: Callable[[], object], device: str) -> float:
    _wait(device)
    start = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def measure(device: str, count: int, compiled: bool) -> list[dict[str, object]]:
    tiny = device == "cpu"
    backbone, pixels = net(tiny)
    extractor = Extractor(backbone, backbone.width, device, compiled=compiled)
    bare = torch.compile(backbone.body, dynamic=False) if compiled else backbone.body
    records, batch = (256, 8) if tiny else (8192, 512)
    prepared = torch.randn(batch, 3, pixels, pixels, device=device)
    draw = np.random.default_rng(0)

    @torch.inference_mode()
    def forward() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            for _ in range(records // batch):
                bare(prepared)

    results: list[dict[str, object]] = []
    for side in (pixels, 16 if tiny else 32):
        pictures = draw.integers(0, 256, (records, 3, side, side), dtype=np.uint8)

        def extract(pictures: np.ndarray = pictures) -> None:
            with tempfile.TemporaryDirectory() as folder:
                FeatureCache(Path(folder), backbone.key, backbone.width, extractor).features(pictures)

        forward(), extract()  # warm
        times = [(seconds(forward, device), seconds(extract, device)) for _ in range(count)]
        ratio = statistics.median(plain / whole for plain, whole in times)
        speed = records / statistics.median(whole for _, whole in times)
        plain = records / statistics.median(plain for plain, _ in times)
        print(
            f"{records} pictures of {side}×{side}: {speed:.0f} a second, bare {plain:.0f}, ratio {ratio:.3f}",
            flush=True,
        )
        results.append({"side": side, "records": records, "per_second": speed, "bare": plain, "ratio": ratio})
    return results


def steps(device: str, count: int) -> list[dict[str, object]]:
    """Steps of both learners in turn, each on all of its records at once: the batch is the same in every step."""
    from tacit.learners.baselines.naive import NaiveDPSGD
    from tacit.learners.experts.ensemble import PEFTEnsemble

    tiny = device == "cpu"
    batch = 8 if tiny else 256
    backbone, _ = net(tiny)
    film = pretrained(PICTURE, 10, backbone=backbone, adapter="film")
    draw = np.random.default_rng(0)
    x, y = draw.random((batch, *PICTURE), dtype=np.float32), np.arange(batch) % 10
    rows, labels = torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)

    def cast() -> contextlib.AbstractContextManager[object]:
        return torch.autocast(device, torch.bfloat16)

    bare = gpu.private(deepcopy(film).to(device), rows, labels, cast, "torch")
    times: dict[str, list[float]] = {"bare": [], "NaiveDPSGD": [], "PEFTEnsemble": []}
    for turn in range(count + 1):
        found = {"bare": gpu.seconds(bare, STEPS, device)}
        for learner in (NaiveDPSGD, PEFTEnsemble):
            options = {"network": film, "batch": batch, "epochs": None, "steps": STEPS, "rule": "adam", "lr": 1e-3}
            with cast():
                found[learner.__name__] = one_task(learner(device=device, seed=turn, **options), x, y)
        for name, spent in found.items() if turn else ():  # the first round is warm-up
            times[name].append(spent)
    results: list[dict[str, object]] = []
    for name, spent in times.items():
        middle = statistics.median(spent)
        ratios = {
            base: statistics.median(a / b for a, b in zip(spent, times[base], strict=True))
            for base in ("bare", "NaiveDPSGD")
        }
        print(
            f"FiLM step, batch {batch}: {name:12s} {1e3 * middle:8.2f} ms, {ratios['bare']:.3f} of bare, "
            f"{ratios['NaiveDPSGD']:.3f} of plain DP-SGD ({min(spent) * 1e3:.2f} to {max(spent) * 1e3:.2f} ms)",
            flush=True,
        )
        results.append({"step": name, "batch": batch, "ms": 1e3 * middle, "rounds_s": spent, "ratio": ratios})
    return results


def one_task(learner: Any, x: np.ndarray, y: np.ndarray) -> float:
    """Median seconds of a step, from the start of one to the start of the next; the device is not made to wait."""
    from tacit.data.stream import StreamInfo
    from tacit.learners.base.callbacks import Callback, Step
    from tacit.learners.base.task_loop import admit
    from tacit.privacy.ledger import Ledger
    from tacit.privacy.vault import Vault

    info = StreamInfo.uniform("s", labels=range(10), shape=PICTURE, size=len(x), tasks=1, public=True)
    stamps: list[Any] = []

    class Stamps(Callback):
        def on_step(self, step: Step) -> None:
            stamp = torch.cuda.Event(enable_timing=True) if learner.device == "cuda" else time.perf_counter()
            if not isinstance(stamp, float):
                stamp.record()
            stamps.append(stamp)

    learner.callback = Stamps()
    learner.start(info)
    with Ledger.throwaway() as ledger:
        vault = Vault(ledger)
        learner.learn(info.tasks[0], admit(vault, (x, y), info, info.tasks[0], learner.budget), vault)
    _wait(learner.device)
    pairs = list(itertools.pairwise(stamps))[WARM:]
    return statistics.median(b - a if isinstance(a, float) else a.elapsed_time(b) / 1e3 for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    name = "CPU" if options.device == "cpu" else torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}; on a GPU: extraction ≥ {TARGET}, steps ≤ {STEP_TARGET}")
    results = measure(options.device, options.rounds, options.compile)
    try:
        results += steps(options.device, options.rounds)
    except ImportError as error:
        print(f"no steps here: {error}")
    if options.json:
        options.json.write_text(json.dumps({"device": name, "torch": torch.__version__, "results": results}, indent=1))


if __name__ == "__main__":
    main()
