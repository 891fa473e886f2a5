"""The vault's noise beside torch's generator: milliseconds for n normals, CPU and (where there is one) GPU.

    python bench/noise.py [--json FILE]

Needs torch; on the CPU also `cryptography`. Medians of paired rounds.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import json
import math
import statistics
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
package = types.ModuleType("tacit")  # the package itself may import what a GPU machine does not have
package.__path__ = [str(HERE.parent / "src" / "tacit")]
sys.modules.setdefault("tacit", package)

import torch  # noqa: E402

from tacit.gradients.exact import ExactSum  # noqa: E402
from tacit.privacy.randomness import cipher, grid, noise  # noqa: E402

KEY = bytes(range(32))  # a bench has no secret
SIZES = (38_400, 269_322, 1_096_430, 10_000_000)


def milliseconds(work: Callable[[int], object], cuda: bool, rounds: int = 9) -> float:
    times = []
    inner = 5
    work(0)
    for number in range(rounds):
        if cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        for k in range(inner):
            work(number * inner + k + 1)
        if cuda:
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / inner)
    return 1e3 * statistics.median(times)


def before(out: torch.Tensor, key: bytes, counter: int) -> torch.Tensor:
    """The noise that releases had before they were exact: AES, Box–Muller in float32. Only to compare with."""
    half = out.numel() // 2
    for start in range(0, half, 1 << 18):
        count = min(1 << 18, half - start)
        bits = cipher.words(key, counter, 2 * count, 2 * start, noise._scratch("before", 8 * count))
        radius = (bits[:count] & 0x7FFFFFFF).to(torch.float32).add_(1.0).mul_(2.0**-31).log_().mul_(-2.0).sqrt_()
        angle = bits[count:].to(torch.float32).mul_(2.0 * math.pi * 2.0**-32)
        part = out[2 * start : 2 * (start + count)]
        torch.cos(angle, out=part[:count]).mul_(radius)
        torch.sin(angle, out=part[count:]).mul_(radius)
    return out


def measure(device: str) -> list[dict[str, object]]:
    """Milliseconds for n normals: torch's generator, the float32 noise of before (CPU), the first digits of the real
    numbers, and with them a whole release of an exact sum on the grid."""
    cuda = device == "cuda"
    rows: list[dict[str, object]] = []
    for n in SIZES + ((100_000_000,) if cuda else ()):
        out = torch.empty(n, device=device)
        wide = torch.empty(n, device=device, dtype=torch.float64)
        total = ExactSum(n, 1.0, device)
        total.flat.copy_(torch.randint(-(2**40), 2**40, (n,), device=device))
        row: dict[str, object] = {"device": device, "n": n}
        work = {"torch.normal_": lambda _, out=out: out.normal_()}
        if not cuda:
            work["float32, before"] = lambda k, out=out: before(out, KEY, k)
        work["to first digits"] = lambda k, n=n, wide=wide: noise.Normals(KEY, k, n, cuda=cuda).fill_(wide, 1.0)
        work["release"] = lambda k, total=total, wide=wide: whole(total, wide, k)
        row |= {name: milliseconds(step, cuda) for name, step in work.items()}
        rows.append(row)
        print(", ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    return rows


def whole(total: ExactSum, room: torch.Tensor, counter: int) -> torch.Tensor:
    gamma = grid.grid_for(1.0)
    normals = noise.Normals(KEY, counter, len(room), cuda=room.is_cuda)
    drawn = normals.fill_(room, 1.0 / gamma)
    return grid.released(total, gamma, drawn, [(1.0 / gamma, normals)], dtype=torch.float32)


def check_gpu() -> None:
    """The GPU's cipher is the CPU's to the last bit, its normals are within their error, and rounding is right."""
    for counter, n in ((0, 1003), (1 << 62, 70_001), (77, 16)):
        heads = [cipher.chacha_head(KEY, counter, torch.device(d)) for d in ("cuda", "cpu")]
        assert torch.equal(cipher.chacha(heads[0], n).cpu(), cipher.chacha(heads[1], n)), "the GPU's bits are wrong"
        normals = noise.Normals(KEY, counter, n, cuda=True)
        drawn = normals.fill_(torch.empty(n, dtype=torch.float64, device="cuda"), 1.0).cpu()
        worst = max(abs(float(drawn[i]) - float(normals.bounds(i, 160)[0])) for i in range(0, n, max(1, n // 50)))
        assert worst < noise.ERROR, f"the GPU's normals are off by {worst}"
    draw = noise.Normals(KEY, 5, 4_000_000, cuda=True).fill_(torch.empty(4_000_000, dtype=torch.float64).cuda(), 2.0)
    assert abs(float(draw.std()) - 2.0) < 0.01 and abs(float(draw.mean())) < 0.01, "the GPU's normals are wrong"
    print("GPU cipher: bits, normals and scale are right")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cuda = torch.cuda.is_available()
    if cuda:
        check_gpu()
    else:
        torch.set_num_threads(1)  # as the vault draws it: on one second thread
    rows = measure("cuda" if cuda else "cpu")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
