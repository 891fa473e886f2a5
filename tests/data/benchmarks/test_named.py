"""Public data sets by name, from files in the documented formats."""

import hashlib
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from PIL import Image

from tacit.data.benchmarks import named
from tacit.data.benchmarks.formats import cache_folder, decode, held_out, read_column, read_idx, read_images, write_idx
from tacit.data.benchmarks.named import NAMED, data_folder, find, load
from tacit.errors import DataError

GOLDEN = {
    "mnist": ((1, 28, 28), 60_000, 10_000, 10),
    "cifar10": ((3, 32, 32), 50_000, 10_000, 10),
    "cifar100": ((3, 32, 32), 50_000, 10_000, 100),
    "notmnist": ((1, 28, 28), 8_000, 2_000, 10),
    "wisdm": ((91,), 61_947, 13_152, 18),
    "wisdm-raw": ((3,), 2_485_965, 535_996, 18),
    "hmp": ((3,), 347_009, 99_520, 14),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_real_sets_have_the_sizes_of_the_literature(name: str, real: Callable[[str], Path]) -> None:
    data = load(name, real(name))
    shape, train, test, classes = GOLDEN[name]
    assert data.test is not None
    assert (data.shape, len(data.train), len(data.test), len(data.labels)) == (shape, train, test, classes)
    assert len(data.classes) == classes
    assert set(np.unique(data.train.y).tolist()) == set(data.labels)


@pytest.mark.parametrize("name", ["mnist", "notmnist", "wisdm", "hmp"])
def test_real_features_have_the_declared_shape_and_range(name: str, real: Callable[[str], Path]) -> None:
    data = load(name, real(name))
    assert data.train.x.shape[1:] == data.shape
    assert data.train.x.dtype == (np.uint8 if len(data.shape) == 3 else np.float32)
    if data.train.x.dtype == np.float32:
        assert np.abs(data.train.x).max() <= 1


def test_the_first_real_mnist_image_is_a_five(real: Callable[[str], Path]) -> None:
    data = load("mnist", real("mnist"))
    assert data.train.y[:5].tolist() == [5, 0, 4, 1, 9]
    assert int(data.train.x[0].sum()) == 27_525


def test_real_cifar100_names_are_those_of_the_file(real: Callable[[str], Path]) -> None:
    path = real("cifar100") / "cifar100" / "test.parquet"
    assert parquet.read_schema(path).metadata[b"classes"].decode() == ",".join(
        load("cifar100", path.parents[1]).classes
    )


def test_a_real_cifar100_image_is_decoded_exactly(real: Callable[[str], Path]) -> None:
    first = read_column(real("cifar100") / "cifar100" / "train.parquet", "image")[0].as_buffer()
    image = decode(first, (3, 32, 32))
    assert image.shape == (3, 32, 32) and int(image.sum()) == CIFAR100_FIRST


def test_digits_are_always_there() -> None:
    data = load("digits")
    assert data.test is not None
    assert (len(data.train), len(data.test), data.shape) == (1500, 297, (1, 8, 8))
    assert data.train.x.shape == (1500, 1, 8, 8)
    assert data.train.x.min() == 0 and data.train.x.max() == 1
    assert np.bincount(data.test.y).min() >= 15
    assert load("digits") is data


def test_idx_files_plain_and_compressed(idx_root: Path) -> None:
    for name in ("mnist", "fashion-mnist"):
        data = load(name, idx_root)
        assert data.train.x.shape == (20, 1, 28, 28) and data.train.x.dtype == np.uint8
        assert data.train.y.tolist() == [n % 10 for n in range(20)]
        assert data.test is not None and len(data.test) == 10


def test_features_are_read_only_when_asked_for(idx_root: Path) -> None:
    data = load("mnist", idx_root)
    (idx_root / "mnist" / "train-images-idx3-ubyte").write_bytes(b"broken")
    assert len(data.train) == 20
    with pytest.raises(DataError, match="not an idx file"):
        _ = data.train.x


def test_encoded_images_are_decoded_once_and_exactly(idx_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = idx_root / "cifar10" / "train.parquet"
    expected = np.load(idx_root / "cifar10-train.npy").transpose(0, 3, 1, 2)
    assert (load("cifar10", idx_root).train.x == expected).all()
    assert len(list((cache_folder() / "decoded").glob("cifar10-train-*.npy"))) >= 1
    monkeypatch.setattr("tacit.data.benchmarks.formats.decode", None)
    assert (read_images(path, (3, 32, 32)) == expected).all()
    path.touch()
    with pytest.raises(TypeError):
        read_images(path, (3, 32, 32))


def test_a_cache_that_cannot_be_written_is_no_reason_to_stop(idx_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (idx_root / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(idx_root / "file"))
    assert read_images(idx_root / "cifar10" / "test.parquet", (3, 32, 32)).shape == (4, 3, 32, 32)


def test_missing_data_names_the_command_and_the_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="tacit data fetch mnist") as error:
        load("mnist", tmp_path)
    assert str(tmp_path / "mnist") in str(error.value)
    with pytest.raises(DataError, match=rf"put its files \(.*features\.parquet\) in {tmp_path}/wisdm, or point"):
        load("wisdm", tmp_path)


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(DataError, match=r"'cifar'.*cifar10, cifar100"):
        load("cifar")


def test_where_data_is_looked_for(tmp_path: Path, idx_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_folder() == cache_folder() / "data"
    monkeypatch.setenv("TACIT_DATA", str(idx_root))
    assert find("mnist") == idx_root / "mnist"
    assert find("mnist", tmp_path / "elsewhere") is None
    known = replace(NAMED["fashion-mnist"], elsewhere=(idx_root / "fashion-mnist",))
    monkeypatch.setitem(named.NAMED, "fashion-mnist", known)
    assert find("fashion-mnist", tmp_path / "elsewhere") == idx_root / "fashion-mnist"


def test_a_damaged_file_is_told(cut_short: Path) -> None:
    with pytest.raises(DataError, match="fetch it again"):
        _ = load("fashion-mnist", cut_short).train.x


def test_idx_keeps_what_was_written(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    for name in ("a", "a.gz"):
        write_idx(tmp_path / name, values)
        assert (read_idx(tmp_path / name) == values).all()


def test_the_held_out_rows_never_change() -> None:
    digits, letters = held_out("digits", 1797, 297), held_out("notmnist", 10_000, 2_000)
    assert (digits.sum(), letters.sum()) == (297, 2_000)
    assert np.flatnonzero(digits)[:8].tolist() == DIGITS_HELD_OUT
    assert hashlib.blake2b(np.packbits(letters).tobytes(), digest_size=8).hexdigest() == LETTERS_HELD_OUT


DIGITS_HELD_OUT = [6, 18, 19, 20, 29, 31, 35, 38]
LETTERS_HELD_OUT = "f54ae562513f7c57"
CIFAR100_FIRST = 466_729


def test_a_lossy_copy_is_said_beside_numbers(tmp_path: Path, idx_root: Path) -> None:
    assert named.caveat("cifar10", idx_root) is None  # PNG
    assert named.caveat("mnist", idx_root) is None and named.caveat("cifar100", idx_root) is None
    out = io.BytesIO()
    Image.new("RGB", (32, 32)).save(out, format="JPEG")
    table = pa.table({"image": pa.array([out.getvalue()], pa.binary()), "label": [0]})
    for part in ("train", "test"):
        parquet.write_table(table, idx_root / "cifar10" / f"{part}.parquet")
    assert "cifar10 is here as a lossy JPEG re-encoding" in str(named.caveat("cifar10", idx_root))
