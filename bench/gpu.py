"""What privacy costs on a GPU: a clipped, noisy step over a plain step of the same model and batch.

    python bench/gpu.py [--json FILE] [--rounds N] [--tiny]

Stands alone: needs torch only, and finds tacit beside itself. `--tiny` runs small sizes on the CPU, to test the script.
"""

import argparse
import contextlib
import copy
import json
import statistics
import sys
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src" / "tacit"
# The package itself may import what this machine does not have; only the rooms below it are used.
package = types.ModuleType("tacit")
package.__path__ = [str(SOURCE)]
sys.modules.setdefault("tacit", package)
sys.path.insert(0, str(HERE))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import models  # noqa: E402
from tacit.gradients import Clipper, ExactSum  # noqa: E402
from tacit.gradients.losses import cross_entropy  # noqa: E402

CLIP, NOISE, RATE = 1.0, 1.0, 0.01
Step = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Row:
    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batch: int
    autocast: bool = False
    target: float | None = None


def rows(tiny: bool) -> list[Row]:
    if tiny:
        small = models.film(models.ViT(32, 2, 2, patch=8, pixels=32))
        return [
            Row(name="ResNet-18 reduced", build=models.reduced_resnet18, shape=(3, 32, 32), batch=4),
            Row(name="ViT FiLM bf16", build=lambda: small, shape=(3, 32, 32), batch=4, autocast=True, target=1.05),
        ]
    resnet = [
        Row(name="ResNet-18 reduced", build=models.reduced_resnet18, shape=(3, 32, 32), batch=b)
        for b in (64, 256, 1024)
    ]
    vit = Row(
        name="ViT-B/16 FiLM bf16", build=models.vit_base, shape=(3, 224, 224), batch=256, autocast=True, target=1.05
    )
    return [*resnet, vit]


def plain(
    model: nn.Module, x: Tensor, y: Tensor, cast: Callable[[], contextlib.AbstractContextManager[object]]
) -> Step:
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE)

    def step() -> None:
        optimizer.zero_grad()
        with cast():
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    return step


def private(
    model: nn.Module, x: Tensor, y: Tensor, cast: Callable[[], contextlib.AbstractContextManager[object]], noise: str
) -> Step:
    clipper = Clipper(model, cross_entropy, CLIP)
    total = clipper.total()
    trained = [p for p in model.parameters() if p.requires_grad]
    released = _noise(noise, total)
    with cast():  # Poisson batches change in size: kernels must not be compiled for one size alone
        for size in (len(x) - 1, len(x) - 2):
            clipper.sum(x[:size], y[:size])

    def step() -> None:
        with cast():
            clipper.add(total.clear(), x, y)
        with torch.no_grad():
            views = clipper.views(released().mul_(-RATE / len(x)).float())
            torch._foreach_add_(trained, list(views.values()))

    return step


def _noise(source: str, total: ExactSum) -> Callable[[], Tensor]:
    """torch: normals of torch's generator on the exact sum, which is no guarantee. cipher: what the vault does."""
    if source == "cipher":
        from tacit.privacy.randomness.grid import GridNoise

        key = bytes(range(32))  # a bench has no secret
        noise, counter = GridNoise(len(total.flat), key, NOISE * CLIP, total.flat.device), iter(range(1 << 62))
        return lambda: noise.released(total, next(counter), last=False)
    return lambda: total.values().add_(torch.randn_like(total.flat), alpha=NOISE * CLIP)


def seconds(step: Step, inner: int, device: str) -> float:
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(inner):
            step()
        return (time.perf_counter() - start) / inner
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    for _ in range(inner):
        step()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / 1e3 / inner


def measure(row: Row, device: str, count: int) -> dict[str, object]:
    torch.manual_seed(0)
    model = row.build().to(device)
    x = torch.randn(row.batch, *row.shape, device=device)
    y = torch.randint(0, 10, (row.batch,), device=device)

    def cast() -> contextlib.AbstractContextManager[object]:
        return torch.autocast(device, torch.bfloat16) if row.autocast else contextlib.nullcontext()

    steps = {"plain": plain(copy.deepcopy(model), x, y, cast)}
    for noise in ("torch", "cipher"):
        try:
            step = private(copy.deepcopy(model), x, y, cast, noise)
            step()
            steps[f"tacit, {noise} noise"] = step
        except ImportError as error:
            print(f"no {noise} noise here: {error}")
    times: dict[str, list[float]] = {name: [] for name in steps}
    memory: dict[str, float] = {}
    for name, step in steps.items():
        for _ in range(3):
            step()
        if device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            held = torch.cuda.memory_allocated()
            step()
            torch.cuda.synchronize()
            memory[name] = (torch.cuda.max_memory_allocated() - held) / 1e9
    inner = max(1, int(0.2 / max(seconds(steps["plain"], 1, device), 1e-6))) if device == "cuda" else 1
    for _ in range(count):
        for name, step in steps.items():
            times[name].append(seconds(step, inner, device))
    result: dict[str, object] = {"row": row.name, "batch": row.batch, "target": row.target}
    for name, t in times.items():
        ratio = statistics.median(a / b for a, b in zip(t, times["plain"], strict=True))
        spent = statistics.median(t)
        result[name] = {"ms": 1e3 * spent, "ratio": ratio, "per_second": row.batch / spent, "GB": memory.get(name)}
        extra = f", {memory[name]:.2f} GB" if name in memory else ""
        print(f"{row.name}, {row.batch}: {name:20s} {1e3 * spent:9.2f} ms, ratio {ratio:.3f}{extra}", flush=True)
    return result


def check(device: str) -> None:
    """The sums on this device against float64 on the CPU, and no row above the clip."""
    torch.manual_seed(1)
    torch.backends.cudnn.allow_tf32 = False  # with it a convolution has 10 bits, and the comparison none
    for name, build, shape in (
        ("ResNet-18 reduced", models.reduced_resnet18, (3, 32, 32)),
        ("ViT", lambda: models.film(models.ViT(64, 2, 2, patch=8, pixels=32)), (3, 32, 32)),
    ):
        model, x, y = build(), torch.randn(6, *shape), torch.randint(0, 10, (6,))
        wide = Clipper(copy.deepcopy(model).double(), cross_entropy, 0.1).sum(x.double(), y)
        here = Clipper(copy.deepcopy(model).to(device), cross_entropy, 0.1)
        found = here.sum(x.to(device), y.to(device))
        off = max(float((found[n].cpu().double() - v).norm() / max(v.norm(), 1e-9)) for n, v in wide.items())
        with torch.autocast(device, torch.bfloat16):
            one = here.sum(x[:1].to(device), y[:1].to(device))
        norm = float(torch.cat([v.flatten() for v in one.values()]).norm())
        assert off < 2e-2 and norm <= 0.1, (name, off, norm)
        torch.backends.cudnn.allow_tf32 = True
        print(f"{name}: off by {off:.1e} from float64; one row under bf16 has norm {norm:.5f} of 0.1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="small sizes on the CPU")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    options = parser.parse_args()
    device = "cpu" if options.tiny else "cuda"
    name = "CPU" if options.tiny else torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}")
    check(device)
    results = [
        measure(row, device, 1 if options.tiny else options.rounds)
        for row in rows(options.tiny)
        if options.only in row.name
    ]
    if options.json:
        options.json.write_text(json.dumps({"device": name, "torch": torch.__version__, "results": results}, indent=1))


if __name__ == "__main__":
    main()
