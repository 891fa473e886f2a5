"""Golden values of a sweep: accuracy matrices, charged events, and digests and norms of the released tensors.

    python -m support.golden SWEEP_FOLDER > tests/golden/NAME.json

A sweep with `repeatable_noise` gives the same values in every run on the same type of machine. Other processors and
other versions of the math libraries round differently, so there the values are only close: the noise is the same.
"""

import csv
import hashlib
import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
import torch
from safetensors.torch import load_file


def machine() -> dict[str, str]:
    """What decides how floating-point numbers are rounded."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    vendor = next((line.split(":")[1].strip() for line in lines if line.startswith("vendor_id")), platform.processor())
    return {
        "processor": f"{platform.machine()} {vendor} {torch.backends.cpu.get_cpu_capability()}",
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def values(sweep: Path) -> dict[str, Any]:
    """The golden values of every cell of a sweep folder."""
    return {
        "machine": machine(),
        "cells": {path.name: _cell(path) for path in sorted(sweep.iterdir()) if path.is_dir()},
    }


def _cell(run: Path) -> dict[str, Any]:
    with (run / "accuracy.csv").open() as file:
        accuracy = {
            f"seed {row['seed']}, after task {row['after_task']}, on task {row['on_task']}": float(row["accuracy"])
            for row in csv.DictReader(file)
        }
    releases = sorted(run.glob("seeds/*/releases/*"))
    last = {path.parent: path for path in releases}.values()
    return {
        "accuracy": accuracy,
        "releases": {str(path.relative_to(run / "seeds")): _release(path) for path in releases},
        "charges": {str(path.relative_to(run / "seeds")): _charges(path) for path in last},
    }


def _release(path: Path) -> dict[str, Any]:
    tensors = sorted(load_file(path / "model.safetensors").items())
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy())
    return {"sha256": digest.hexdigest(), "norms": {name: float(tensor.double().norm()) for name, tensor in tensors}}


def _charges(path: Path) -> list[Any]:
    """For each task the part with the largest loss, and its events; then the plans of all grants."""
    certificate = json.loads((path / "certificate.json").read_text())
    return [
        *certificate["claims"]["certified"]["tasks"],
        *({key: grant[key] for key in ("kind", "state", "plan", "reads")} for grant in certificate["mechanisms"]),
    ]


def assert_equal(found: dict[str, Any], golden: dict[str, Any], within: float = 1e-3) -> None:
    """Bit for bit on the type of machine that made the golden values; on others norms agree up to a share `within`."""
    if found["machine"] == golden["machine"]:
        assert found == golden
    else:
        _assert_close(found["cells"], golden["cells"], "cells", within)


def _assert_close(found: Any, golden: Any, path: str, within: float) -> None:
    if isinstance(golden, dict):
        assert set(found) == set(golden), path
        for key in golden.keys() - {"sha256"}:
            _assert_close(found[key], golden[key], f"{path}/{key}", within)
    elif isinstance(golden, list):
        assert len(found) == len(golden), path
        for number, pair in enumerate(zip(found, golden, strict=True)):
            _assert_close(*pair, f"{path}/{number}", within)
    elif isinstance(golden, float):
        tolerance = {"abs": 0.05} if "/accuracy/" in path else {"rel": within}  # records near a decision boundary
        assert found == pytest.approx(golden, **tolerance), path
    else:
        assert found == golden, path


if __name__ == "__main__":
    json.dump(values(Path(sys.argv[1])), sys.stdout, indent=1, ensure_ascii=False)
    print()
