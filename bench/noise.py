"""The vault's noise beside torch's generator: milliseconds for n normals, CPU and (where there is one) GPU.

    python bench/noise.py [--json FILE]

Needs torch; on the CPU also `cryptography`. Medians of paired rounds.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import json
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

from tacit.privacy import cipher, noise  # noqa: E402

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


def measure(device: str) -> list[dict[str, object]]:
    cuda = device == "cuda"
    rows: list[dict[str, object]] = []
    for n in SIZES:
        out = torch.empty(n, device=device)
        row: dict[str, object] = {"device": device, "n": n}
        row["torch.normal_"] = milliseconds(lambda _, out=out: out.normal_(), cuda)
        row["cipher"] = milliseconds(lambda k, out=out: noise.gaussian_(out, KEY, k, 1.0), cuda)
        rows.append(row)
        print(", ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    return rows


def check_gpu() -> None:
    """The GPU's cipher is the CPU's to the last bit."""
    for counter, n in ((0, 1003), (1 << 62, 70_001), (77, 16)):
        heads = [
            [cipher.chacha_head(KEY, c, torch.device(d)) for c in (counter, counter | 1 << 63)] for d in ("cuda", "cpu")
        ]
        assert torch.equal(cipher.chacha(heads[0][0], n).cpu(), cipher.chacha(heads[1][0], n)), (
            "the GPU's bits are wrong"
        )
        there, here = (
            noise.fused(noise._chacha_normals, any_size=True)(*heads[0], n).cpu(),
            noise._chacha_normals(*heads[1], n),
        )
        assert torch.allclose(there, here, atol=1e-4), "the GPU's normals are wrong"
    draw = noise.gaussian_(torch.empty(4_000_000, device="cuda"), KEY, 5, 2.0).double()
    assert abs(float(draw.std()) - 2.0) < 0.01 and abs(float(draw.mean())) < 0.01, "the GPU's normals are wrong"
    print("GPU cipher: bits and scale are right")


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
