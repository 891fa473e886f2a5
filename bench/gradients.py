"""What privacy costs: a clipped, noisy step over a plain SGD step of the same model and batch, on the CPU.

    python bench/gradients.py [--quick] [--json FILE] [--only NAME] [--no-opacus]

Ratios are medians over paired rounds in one process. Absolute times depend on the machine and are not the point.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # a competing process otherwise makes small steps 100× slower

import argparse
import copy
import json
import secrets
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import models
from _timing import Step, peak_extra, rounds
from tacit.gradients import Clipper
from tacit.gradients.losses import cross_entropy
from tacit.privacy.randomness.grid import GridNoise

CLIP, NOISE, RATE = 1.0, 1.0, 0.05
OPACUS = ("hooks", "ghost", "functorch", "ew")


@dataclass(frozen=True, kw_only=True)
class Row:
    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batch: int
    target: float


ROWS = (
    Row(name="MLP, 100", build=models.mlp, shape=(784,), batch=100, target=1.6),
    Row(name="MLP, 10", build=models.mlp, shape=(784,), batch=10, target=2.2),
    Row(name="ResNet-18 reduced, 10", build=models.reduced_resnet18, shape=(3, 32, 32), batch=10, target=1.4),
    Row(name="ResNet-18 reduced, 64", build=models.reduced_resnet18, shape=(3, 32, 32), batch=64, target=1.8),
    Row(name="CNN 32-64-96, 250", build=models.cnn, shape=(3, 32, 32), batch=250, target=2.0),
    Row(name="ViT-Ti FiLM, 32", build=models.vit_tiny, shape=(3, 224, 224), batch=32, target=1.05),
)


def plain(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def private(model: nn.Module, x: Tensor, y: Tensor, noisy: bool = True) -> Step:
    """What a grant of the vault does in a step: clipped sum, noise from the cipher, then the update."""
    clipper = Clipper(model, cross_entropy, CLIP)
    total = clipper.total()
    trained = [p for p in model.parameters() if p.requires_grad]
    noise = GridNoise(len(total.flat), secrets.token_bytes(32), NOISE * clipper.sensitivity, torch.device("cpu"))
    count = iter(range(1 << 62))

    def step() -> None:
        clipper.add(total.clear(), x, y)
        if noisy:
            out = noise.released(total, next(count), over=len(x), dtype=torch.float32, last=False)
        else:
            out = total.values().div_(len(x)).float()
        with torch.no_grad():
            torch._foreach_add_(trained, list(clipper.views(out).values()), alpha=-RATE)

    return step


def opacus(mode: str, model: nn.Module, x: Tensor, y: Tensor) -> Step:
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE)
    made = PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        criterion=nn.CrossEntropyLoss(),
        data_loader=DataLoader(TensorDataset(x, y), batch_size=len(x)),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        poisson_sampling=False,
        grad_sample_mode=mode,
    )
    wrapped, optimizer = made[0], made[1]
    criterion = made[2] if mode == "ghost" else nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad()
        criterion(wrapped(x), y).backward()
        optimizer.step()

    return step


def measure(row: Row, *, quick: bool, peers: bool) -> dict[str, object]:
    torch.manual_seed(0)
    first = row.build()
    x, y = torch.randn(row.batch, *row.shape), torch.randint(0, 10, (row.batch,))
    steps: dict[str, Step] = {
        "plain": plain(copy.deepcopy(first), x, y),
        "tacit": private(copy.deepcopy(first), x, y),
        "no noise": private(copy.deepcopy(first), x, y, noisy=False),
    }
    failed: dict[str, str] = {}
    for mode in (OPACUS[:2] if quick else OPACUS) if peers else ():
        try:
            step = opacus(mode, copy.deepcopy(first).train(), x, y)
            step()
            steps[mode] = step
        except Exception as error:
            failed[mode] = type(error).__name__
    timed = rounds(steps, count=3 if quick else 15, seconds=0.05 if quick else 0.2, base="plain")
    best = min((m for m in OPACUS if m in timed), key=lambda m: timed[m]["ratio"], default=None)
    memory = {name: peak_extra(steps[name]) for name in ("plain", "tacit", best) if name is not None}
    return {"row": row.name, "target": row.target, "timed": timed, "memory": memory, "best": best, "failed": failed}


def show(results: list[dict[str, object]]) -> None:
    table = Table(title=f"clipped, noisy step ÷ plain step ({torch.get_num_threads()} threads)")
    columns = (
        "model, batch",
        "target",
        "tacit",
        "without noise",
        "Opacus hooks",
        "Opacus ghost",
        "best Opacus",
        "peak MB: plain",
        "tacit",
        "best",
    )
    for column in columns:
        table.add_column(column, justify="left" if column == columns[0] else "right")
    for r in results:
        timed, memory, best = r["timed"], r["memory"], r["best"]

        def ratio(name: str | None, timed: dict = timed) -> str:  # type: ignore[type-arg]
            return f"{timed[name]['ratio']:.2f}" if name in timed else "–"

        def held(name: str | None, memory: dict = memory) -> str:  # type: ignore[type-arg]
            return f"{memory[name]:.0f}" if name in memory else "–"

        table.add_row(
            str(r["row"]), f"≤ {r['target']}", ratio("tacit"), ratio("no noise"), ratio("hooks"), ratio("ghost"),
            f"{ratio(best)} ({best})", held("plain"), held("tacit"), held(best),
        )  # fmt: skip
    Console(width=140).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--no-opacus", action="store_true", help="only plain and tacit")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(2)
    chosen = [row for row in ROWS if options.only.lower() in row.name.lower()]
    results = [measure(row, quick=options.quick, peers=not options.no_opacus) for row in chosen]
    show(results)
    if options.json:
        options.json.write_text(json.dumps({"torch": torch.__version__, "results": results}, indent=1))


if __name__ == "__main__":
    main()
