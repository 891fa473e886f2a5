"""The public data sets by name: `load("mnist")`.

They are looked for in `root`, else in the folder that TACIT_DATA names, else in tacit's cache folder. Digits ship
inside scikit-learn and are always there. Images are (channels, height, width); a model reads their bytes divided by
255.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.data import classes, har, pictures, sensors
from tacit.data.formats import cache_folder, held_out, idx_file, is_lossy, read_idx, read_images, read_labels
from tacit.data.samples import DataSet, Samples
from tacit.errors import DataError
from tacit.words import nearest

DIGITS, DIGITS_TEST = 1797, 297
NOTMNIST, NOTMNIST_TEST = 10_000, 2_000
IDX = ("images-idx3-ubyte", "labels-idx1-ubyte")
PARQUET = ("train.parquet", "test.parquet")
MAT = ("train_32x32.mat", "test_32x32.mat")
GREY, COLOUR, LARGE = (1, 28, 28), (3, 32, 32), (3, 224, 224)


@dataclass(frozen=True, kw_only=True)
class Hub:
    """Where the Hugging Face hub has a set, and under which column names."""

    id: str
    image: str
    label: str


@dataclass(frozen=True, kw_only=True)
class Named:
    """One public set: where its files lie below the data folder, and how they are opened."""

    name: str
    about: str
    open: Callable[[Path], DataSet] = field(repr=False)
    folder: str = ""
    files: tuple[str, ...] = ()
    """An idx file may also be gzip-compressed, with `.gz` added to its name."""
    folders: int = 0
    """So many class folders, named by WordNet's ids."""
    elsewhere: tuple[Path, ...] = ()
    """Other folders with the same files: where a system package puts them."""
    hub: Hub | None = None
    """None: the files have to be put into the folder by hand."""
    caveat: str | None = None
    """What has to be said beside every number that is measured on it."""


def data_folder(root: Path | str | None = None) -> Path:
    """Where named data sets are looked for."""
    chosen = root or os.environ.get("TACIT_DATA")
    return Path(chosen).expanduser() if chosen else cache_folder() / "data"


def entry(name: str) -> Named:
    """The set of this name, or a sentence with the nearest ones."""
    if name not in NAMED:
        raise DataError(f"there is no data set {name!r}; {nearest(name, NAMED)}")
    return NAMED[name]


def find(name: str, root: Path | str | None = None) -> Path | None:
    """The folder that holds all files of a set, if there is one."""
    known = entry(name)
    for folder in (data_folder(root) / known.folder, *known.elsewhere):
        whole = not known.folders or len(pictures.class_folders(folder)) == known.folders
        if whole and all(idx_file(folder, file) for file in known.files):
            return folder
    return None


def load(name: str, root: Path | str | None = None) -> DataSet:
    """A public data set by name. Files are checked to be there now, and read when they are needed; then they are kept
    in memory, so that loading twice costs once."""
    folder = find(name, root)
    if folder is None:
        raise DataError(
            f"{name} is not in {data_folder(root) / entry(name).folder}; {way_out(name)}, or point TACIT_DATA to the "
            "folder that holds your data sets"
        )
    return _opened(name, folder)


def caveat(name: str, root: Path | str | None = None) -> str | None:
    """What has to be said beside numbers that were measured on a set as it lies here."""
    folder = find(name, root)
    if folder is None or entry(name).files != PARQUET or not is_lossy(folder / PARQUET[0]):
        return entry(name).caveat
    return f"{name} is here as a lossy JPEG re-encoding: good for comparing methods, not with published numbers"


def way_out(name: str) -> str:
    """How a missing set is got."""
    known = entry(name)
    if known.folders:
        return f"put its {known.folders} class folders (n…, as published) there by hand"
    if known.hub is None:
        return f"put its files ({', '.join(known.files)}) there by hand"
    return f"get it with `tacit data fetch {name}`"


@cache
def _opened(name: str, folder: Path) -> DataSet:
    return NAMED[name].open(folder)


def _digits(folder: Path) -> DataSet:
    """8×8 digits; a pixel of 0 to 16 is divided by 16."""

    def read(test: bool) -> Samples:
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        keep = held_out("digits", DIGITS, DIGITS_TEST) == test
        return Samples.of((x[keep] / 16).astype(np.float32).reshape(-1, 1, 8, 8), y[keep])

    return _images("digits", classes.DIGITS, (1, 8, 8), lambda: read(False), lambda: read(True))


def _idx(name: str, names: tuple[str, ...]) -> Callable[[Path], DataSet]:
    def open(folder: Path) -> DataSet:
        return _images(name, names, GREY, lambda: _read_idx(folder, "train"), lambda: _read_idx(folder, "t10k"))

    return open


def _notmnist(folder: Path) -> DataSet:
    """Only 10,000 letters are in use; 2,000 of them, by a fixed rule, are the test set."""
    test = held_out("notmnist", NOTMNIST, NOTMNIST_TEST)

    def train() -> Samples:
        return _read_idx(folder, "t10k", ~test)

    return _images("notmnist", classes.LETTERS, GREY, train, lambda: _read_idx(folder, "t10k", test))


def _read_idx(folder: Path, part: str, keep: NDArray[np.bool_] | None = None) -> Samples:
    images, labels = (idx_file(folder, f"{part}-{end}") for end in IDX)
    assert images is not None and labels is not None
    rows = slice(None) if keep is None else keep
    return Samples(read=lambda: read_idx(images)[rows, None], y=read_idx(labels)[rows].astype(np.int64))


def _parquet(name: str, names: tuple[str, ...]) -> Callable[[Path], DataSet]:
    def part(file: Path) -> Samples:
        return Samples(read=lambda: read_images(file, COLOUR), y=read_labels(file))

    def open(folder: Path) -> DataSet:
        train, test = (folder / file for file in PARQUET)
        return _images(name, names, COLOUR, lambda: part(train), lambda: part(test))

    return open


def _svhn(folder: Path) -> DataSet:
    train, test = (folder / file for file in MAT)
    return _images("svhn", classes.DIGITS, COLOUR, lambda: pictures.read_mat(train), lambda: pictures.read_mat(test))


def _imagenet_r(folder: Path) -> DataSet:
    """Renditions of 200 ImageNet classes, of many sizes; one in five, by a fixed rule, is a test picture."""

    def part(test: bool) -> Samples:
        return pictures.read_folders("imagenet-r", folder, LARGE, test=test)

    return _images("imagenet-r", pictures.class_folders(folder), LARGE, lambda: part(False), lambda: part(True))


def _images(
    name: str,
    names: tuple[str, ...],
    shape: tuple[int, ...],
    train: Callable[[], Samples],
    test: Callable[[], Samples],
) -> DataSet:
    labels = tuple(range(len(names)))
    about = NAMED[name].about
    return DataSet(name=name, about=about, labels=labels, classes=names, shape=shape, read_train=train, read_test=test)


_FOUR = tuple(f"{part}-{end}" for part in ("train", "t10k") for end in IDX)
_DEBIAN = (Path("/usr/share/datasets/fashion-mnist"),)
NAMED = {
    known.name: known
    for known in (
        Named(name="digits", about="8×8 digits inside scikit-learn, 1,500 / 297", open=_digits),
        Named(
            name="mnist",
            about="28×28 handwritten digits, 60,000 / 10,000",
            open=_idx("mnist", classes.DIGITS),
            folder="mnist",
            hub=Hub(id="ylecun/mnist", image="image", label="label"),
            files=_FOUR,
        ),
        Named(
            name="fashion-mnist",
            about="28×28 clothes, 60,000 / 10,000",
            open=_idx("fashion-mnist", classes.CLOTHES),
            folder="fashion-mnist",
            hub=Hub(id="zalando-datasets/fashion_mnist", image="image", label="label"),
            files=_FOUR,
            elsewhere=_DEBIAN,
        ),
        Named(
            name="cifar10",
            about="32×32 colour photos of 10 classes, 50,000 / 10,000",
            open=_parquet("cifar10", classes.CIFAR10),
            folder="cifar10",
            hub=Hub(id="uoft-cs/cifar10", image="img", label="label"),
            files=PARQUET,
        ),
        Named(
            name="cifar100",
            about="32×32 colour photos of 100 classes, 50,000 / 10,000",
            open=_parquet("cifar100", classes.CIFAR100),
            folder="cifar100",
            hub=Hub(id="uoft-cs/cifar100", image="img", label="fine_label"),
            files=PARQUET,
        ),
        Named(
            name="notmnist",
            about="28×28 letters A to J, 8,000 / 2,000",
            open=_notmnist,
            folder="notmnist",
            files=_FOUR[2:],
        ),
        Named(
            name="svhn",
            about="32×32 colour photos of house numbers, 73,257 / 26,032",
            open=_svhn,
            folder="svhn",
            files=MAT,
        ),
        Named(
            name="imagenet-r",
            about="art, cartoons and other renditions of 200 ImageNet classes, 224×224, 24,000 / 6,000",
            open=_imagenet_r,
            folder="imagenet-r",
            folders=200,
        ),
        Named(
            name="wisdm",
            about="activities, features of phone and watch sensors",
            open=sensors.wisdm,
            folder="wisdm",
            files=(sensors.FEATURES,),
        ),
        Named(
            name="wisdm-raw",
            about="activities, raw watch accelerometer at 20 Hz",
            open=sensors.wisdm_raw,
            folder="wisdm",
            files=(sensors.WATCH,),
        ),
        Named(
            name="hmp",
            about="activities, raw wrist accelerometer at 32 Hz",
            open=sensors.hmp,
            folder="hmp",
            files=(sensors.WRIST,),
        ),
        Named(
            name="har",
            about="activities, wrist accelerometers at 5, 10, 20 and 32 Hz; 15 % of the windows for testing",
            open=har.har,
            files=har.FILES,
            caveat="har's test windows overlap its training windows, as in the paper: har-people tests on other people",
        ),
        Named(
            name="har-people",
            about="the same, tested on people who are in no training set",
            open=har.har_people,
            files=har.FILES,
        ),
    )
}
