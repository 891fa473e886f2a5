"""Packed picture sets: what is packed is what is read, and a subset says so."""

from pathlib import Path

import numpy as np
import pytest

from support.shell import tacit
from tacit.data.benchmarks.file_check import check_named
from tacit.data.benchmarks.named import caveat, find, load
from tacit.data.benchmarks.packing import first_of_each, pack
from tacit.errors import DataError


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_a_packed_set_is_the_set(name: str, idx_root: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    original = load(name, idx_root)
    assert original.test is not None
    assert pack(name, there / f"{name}.npz", root=idx_root) == (len(original.train), len(original.test))
    packed = load(name, there)
    assert packed.test is not None and packed.shape == original.shape and packed.classes == original.classes
    for found, expected in ((packed.train, original.train), (packed.test, original.test)):
        assert np.array_equal(found.x, expected.x) and np.array_equal(found.y, expected.y)
        assert found.x.dtype == np.uint8 and found.y.dtype == np.int64
    assert caveat(name, there) == caveat(name, idx_root) is None
    assert all(result.ok for result in check_named(name, there))


def test_a_subset_has_the_first_of_each_class_and_says_so(idx_root: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    pack("mnist", there / "mnist.npz", train=15, root=idx_root)
    original, packed = load("mnist", idx_root).train, load("mnist", there).train
    assert np.array_equal(packed.x, original.x[:15]) and np.bincount(packed.y).max() == 2
    assert "15 of 20 train and 10 of 10 test" in str(caveat("mnist", there))


def test_classes_in_any_order_are_taken_in_turn() -> None:
    y = np.array([2, 2, 2, 0, 2, 1, 0])
    assert first_of_each(y, 3).tolist() == [0, 3, 5]
    assert first_of_each(y, 5).tolist() == [0, 1, 3, 5, 6]
    assert first_of_each(y, 7).tolist() == list(range(7))


def test_the_files_of_a_set_come_before_a_packed_one(idx_root: Path) -> None:
    pack("mnist", idx_root / "mnist.npz", train=10, root=idx_root)
    assert find("mnist", idx_root) == idx_root / "mnist"


def test_what_cannot_be_packed_is_refused(idx_root: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="only sets of small pictures"):
        pack("wisdm", tmp_path / "wisdm.npz", root=idx_root)
    with pytest.raises(DataError, match=r"write .*mnist\.npz"):
        pack("mnist", tmp_path / "digits.npz", root=idx_root)
    with pytest.raises(DataError, match="choose 1 to 20, not 21"):
        pack("mnist", tmp_path / "mnist.npz", train=21, root=idx_root)


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "mnist.npz").write_bytes(b"PK broken")
    with pytest.raises(DataError, match="pack it again"):
        _ = load("mnist", tmp_path).train
    with pytest.raises(DataError, match="pack it again"):
        caveat("mnist", tmp_path)


def test_the_command_says_what_was_packed(idx_root: Path, tmp_path: Path) -> None:
    found = tacit("data", "pack", "mnist", "--root", str(idx_root), "--out", str(tmp_path / "there" / "mnist.npz"))
    assert "20 training and 10 test pictures" in found.stdout and "TACIT_DATA=" in found.stdout
