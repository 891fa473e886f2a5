"""How much of a backbone's speed is left when features are extracted: hashed, prepared, computed, kept on disk.

    python bench/features.py [--device cuda] [--rounds N] [--json FILE] [--compile]

The ratio is records a second of the whole extraction over those of the bare forward pass on pictures that lie prepared
on the device. ViT-B/16 with random weights on a GPU (target: 0.85); a tiny one on a CPU, to test the script. A FiLM
step is timed by bench/gpu.py. Stands alone: needs torch, numpy and safetensors only, and finds tacit beside itself.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The package itself may import what this machine does not have; only the rooms below it are used.
package = types.ModuleType("tacit")
package.__path__ = [str(HERE.parent / "src" / "tacit")]
sys.modules.setdefault("tacit", package)
sys.path.insert(0, str(HERE))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

import models  # noqa: E402
from tacit.experiment.extraction import Extractor  # noqa: E402
from tacit.experiment.feature_cache import FeatureCache  # noqa: E402
from tacit.models.backbones import Backbone, Parts  # noqa: E402
from tacit.models.preprocess import HALF, Preprocess  # noqa: E402

TARGET = 0.85


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
    extractor = Extractor(backbone, device, compiled=compiled)
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
        pictures = draw.integers(0, 256, (records, 3, side, side)).astype(np.uint8)

        def extract(pictures: np.ndarray = pictures) -> None:
            with tempfile.TemporaryDirectory() as folder:
                FeatureCache(Path(folder), backbone, extractor).take(pictures)

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    name = "CPU" if options.device == "cpu" else torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}, target {TARGET} on a GPU")
    results = measure(options.device, options.rounds, options.compile)
    if options.json:
        options.json.write_text(json.dumps({"device": name, "torch": torch.__version__, "results": results}, indent=1))


if __name__ == "__main__":
    main()
