"""Small public sets made by hand, and the real ones where TACIT_DATA says where they are."""

import gzip
import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from PIL import Image

from tacit.data.benchmarks.formats import write_idx
from tacit.data.benchmarks.named import find
from tacit.data.samples import DataSet, Samples


@pytest.fixture(autouse=True)
def own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test writes to the user's cache, or finds data by accident."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.delenv("TACIT_DATA", raising=False)


REAL = os.environ.get("TACIT_DATA")


@pytest.fixture
def real() -> Callable[[str], Path]:
    """The folder of real data that has this set, or the test is skipped."""

    def root(name: str) -> Path:
        if not REAL or find(name, REAL) is None:
            pytest.skip(f"real data: set TACIT_DATA to a folder that has {name}")
        return Path(REAL)

    return root


def toy_set(classes: int = 6, each: int = 10, shape: tuple[int, ...] = (1, 4, 4), name: str = "toy") -> DataSet:
    """Images whose first byte is the label and whose second is the number in the class."""

    def part(count: int) -> Samples:
        y = np.repeat(np.arange(classes), count)
        x = np.zeros((len(y), *shape), dtype=np.uint8)
        flat = x.reshape(len(y), -1)
        flat[:, 0], flat[:, 1], flat[:, 2:] = y, np.tile(np.arange(count), classes), 200
        groups = {"place": np.asarray(["home", "away"])[np.arange(len(y)) % 2]}
        return Samples.of(x, y, ids=np.arange(len(y)) % 5, groups=groups)

    return DataSet(
        name=name,
        about="a toy",
        labels=tuple(range(classes)),
        shape=shape,
        groups={"place": ("home", "away")},
        read_train=lambda: part(each),
        read_test=lambda: part(3),
    )


@pytest.fixture
def toy() -> Callable[..., DataSet]:
    return toy_set


def png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format="PNG")
    return out.getvalue()


@pytest.fixture
def as_png() -> Callable[[np.ndarray], bytes]:
    return png


@pytest.fixture
def idx_root(tmp_path: Path) -> Path:
    """A tiny mnist (plain idx), fashion-mnist and notmnist (gzip), cifar10 (Parquet of PNG)."""
    rng = np.random.default_rng(0)
    for name, compress in (("mnist", False), ("fashion-mnist", True)):
        (tmp_path / name).mkdir()
        for part, count in (("train", 20), ("t10k", 10)):
            images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
            end = ".gz" if compress else ""
            write_idx(tmp_path / name / f"{part}-images-idx3-ubyte{end}", images)
            write_idx(tmp_path / name / f"{part}-labels-idx1-ubyte{end}", (np.arange(count) % 10).astype(np.uint8))
    (tmp_path / "cifar10").mkdir()
    for part, count in (("train", 6), ("test", 4)):
        images = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        table = {"image": pa.array([png(image) for image in images], pa.binary()), "label": np.arange(count) % 10}
        parquet.write_table(pa.table(table), tmp_path / "cifar10" / f"{part}.parquet")
        np.save(tmp_path / f"cifar10-{part}.npy", images)
    return tmp_path


@pytest.fixture
def cut_short(idx_root: Path) -> Path:
    """The same with a damaged file."""
    path = idx_root / "fashion-mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-5]))
    return idx_root
