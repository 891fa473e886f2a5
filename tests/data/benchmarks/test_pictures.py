"""SVHN's MATLAB files and a folder of class folders."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from tacit.data.benchmarks import named
from tacit.data.benchmarks.formats import held_out
from tacit.data.benchmarks.hub import fetch
from tacit.data.benchmarks.named import find, load, way_out
from tacit.data.benchmarks.pictures import PictureFiles, class_folders
from tacit.data.scenarios.sharp import split
from tacit.errors import DataError


@pytest.fixture
def svhn_root(tmp_path: Path) -> Path:
    (tmp_path / "svhn").mkdir()
    rng = np.random.default_rng(0)
    for part, count in (("train", 12), ("test", 7)):
        x = rng.integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
        y = (np.arange(count) % 10 + 1).astype(np.uint8)[:, None]  # 10 is the digit 0
        savemat(tmp_path / "svhn" / f"{part}_32x32.mat", {"X": x, "y": y})
        np.save(tmp_path / f"{part}.npy", x)
    return tmp_path


def test_svhn_is_read_as_published(svhn_root: Path) -> None:
    data = load("svhn", svhn_root)
    assert data.test is not None and data.shape == (3, 32, 32) and data.labels == tuple(range(10))
    assert data.train.y.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2] and len(data.test) == 7
    x = np.load(svhn_root / "train.npy")
    assert data.train.x.dtype == np.uint8 and data.train.x.shape == (12, 3, 32, 32)
    assert data.train.x[5, 2, 10, 20] == x[10, 20, 2, 5]


def test_a_file_that_is_no_mat_is_one_sentence(svhn_root: Path) -> None:
    (svhn_root / "svhn" / "train_32x32.mat").write_bytes(b"no")
    with pytest.raises(DataError, match=r"train_32x32\.mat is not SVHN's MATLAB file"):
        _ = load("svhn", svhn_root).train


CLASSES = 4


@pytest.fixture
def folder_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny ImageNet-R: four classes of five pictures of several sizes, and things that are not pictures."""
    known = named.NAMED["imagenet-r"]
    monkeypatch.setitem(named.NAMED, "imagenet-r", replace(known, folders=CLASSES))
    for place in range(CLASSES):
        here = tmp_path / "imagenet-r" / f"n0000000{CLASSES - place}"
        here.mkdir(parents=True)
        for number in range(5):
            colour = (10 * (CLASSES - 1 - place), number, 0)
            Image.new("RGB", (30 + number, 50), colour).save(here / f"{number}.png")
        (here / "notes.txt").write_text("no picture")
    (tmp_path / "imagenet-r" / "README").write_text("no class")
    (tmp_path / "imagenet-r" / "other").mkdir()
    return tmp_path


def test_a_folder_of_classes_is_cut_80_to_20_by_a_fixed_rule(folder_root: Path) -> None:
    data = load("imagenet-r", folder_root)
    assert data.test is not None and data.labels == tuple(range(CLASSES))
    assert data.classes == ("n00000001", "n00000002", "n00000003", "n00000004")
    assert (len(data.train), len(data.test)) == (16, 4)
    chosen = held_out("imagenet-r", 20, 4)
    assert data.test.y.tolist() == (np.flatnonzero(chosen) // 5).tolist()
    every = np.concatenate([data.train.x[:], data.test.x[:]])[:, :2, 0, 0]
    assert sorted(map(tuple, every.tolist())) == [(10 * label, number) for label in range(4) for number in range(5)]
    assert (data.train.x[:][:, 0, 0, 0] == 10 * data.train.y).all()  # a picture has the label of its folder


def test_pictures_are_decoded_when_they_are_asked_for(folder_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load("imagenet-r", folder_root)
    decoded: list[str] = []
    inside = PictureFiles._decoded
    monkeypatch.setattr(PictureFiles, "_decoded", lambda self, path: decoded.append(path.name) or inside(self, path))
    stream = split(data, 2, seed=1)
    x, y = stream[0].records()
    assert decoded == [] and x.shape == (len(y), 3, 224, 224)
    few = x[np.array([2, 0])]
    assert len(decoded) == 2 and few.shape == (2, 3, 224, 224) and few.dtype == np.float32
    assert np.allclose(few[:, 0, 0, 0] * 255, 10 * y[[2, 0]])
    assert data.train.x.shape == (16, 3, 224, 224) and len(data.train.x) == 16
    assert np.asarray(data.train.x).shape == (16, 3, 224, 224)


def test_a_broken_picture_is_one_sentence(folder_root: Path) -> None:
    for path in (folder_root / "imagenet-r").glob("*/*.png"):
        path.write_bytes(b"no")
    with pytest.raises(DataError, match="is not a readable image"):
        _ = load("imagenet-r", folder_root).train.x[:1]


def test_what_is_missing_says_what_to_put_where(tmp_path: Path, folder_root: Path) -> None:
    assert class_folders(tmp_path / "nowhere") == ()
    assert find("svhn", tmp_path) is None and find("imagenet-r", folder_root) is not None
    (folder_root / "imagenet-r" / "n00000009").mkdir()
    with pytest.raises(DataError, match=r"imagenet-r is not in .*put its 4 class folders"):
        load("imagenet-r", folder_root)
    assert "train_32x32.mat" in way_out("svhn")
    with pytest.raises(DataError, match="no hub is known to have imagenet-r"):
        fetch("imagenet-r", tmp_path)
