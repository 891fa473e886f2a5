"""The public data sets by name: `load("mnist")`.

They are looked for in `root`, else in the folder that TACIT_DATA names, else in tacit's cache folder. Where the files
of a set are missing, `NAME.npz` there is read (`tacit data pack`). Digits ship inside scikit-learn and are always
there. Images are (channels, height, width); a model reads their bytes divided by 255.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.data.benchmarks import classes, har, pictures, sensors
from tacit.data.benchmarks.formats import cache_folder, held_out, idx_file, is_lossy, read_idx, read_images, read_labels
from tacit.data.benchmarks.packed import SUFFIX, packed_caveat, read_part
from tacit.data.samples import DataSet, Samples
from tacit.errors import DataError
from tacit.words import nearest

DIGITS, DIGITS_TEST = 1797, 297
NOTMNIST, NOTMNIST_TEST = 10_000, 2_000
IDX = ("images-idx3-ubyte", "labels-idx1-ubyte")
PARQUET = ("train.parquet", "test.parquet")
MAT = ("train_32x32.mat", "test_32x32.mat")
GREY, COLOUR, LARGE = (1, 28, 28), (3, 32, 32), (3, 224, 224)


@dataclass(frozen=True)
class Hub:
    """The id of a set on the Hugging Face hub, and the names of its columns."""

    id: str
    image: str = "image"
    label: str = "label"


@dataclass(frozen=True)
class Named:
    """A public data set: its files in the data folder, and how they are opened."""

    name: str
    about: str
    open: Callable[[Path], DataSet] = field(repr=False)
    folder: str = ""
    files: tuple[str, ...] = ()
    """An idx file may also be gzip-compressed, with `.gz` added to its name."""
    folders: int = 0
    """The number of class folders, which are named by WordNet ids."""
    elsewhere: tuple[Path, ...] = ()
    """Other folders that may hold the same files, such as those of a system package."""
    hub: Hub | None = None
    """None: the files must be put into the folder by hand."""
    caveat: str | None = None
    """A caveat that is printed with every number measured on the set."""


def data_folder(root: Path | str | None = None) -> Path:
    """The folder of named data sets: `root`, TACIT_DATA, or the cache folder."""
    chosen = root or os.environ.get("TACIT_DATA")
    return Path(chosen).expanduser() if chosen else cache_folder() / "data"


def entry(name: str) -> Named:
    """The data set of this name.

    Raises:
        DataError: There is none; the message has the nearest names.
    """
    if name not in NAMED:
        raise DataError(f"there is no data set {name!r}; {nearest(name, NAMED)}")
    return NAMED[name]


def find(name: str, root: Path | str | None = None) -> Path | None:
    """The folder that holds all files of a set, or else the packed file, if there is one."""
    known = entry(name)
    for folder in (data_folder(root) / known.folder, *known.elsewhere):
        whole = not known.folders or len(pictures.class_folders(folder)) == known.folders
        if whole and all(idx_file(folder, file) for file in known.files):
            return folder
    packed = data_folder(root) / f"{name}{SUFFIX}"
    return packed if name in PACKABLE and packed.is_file() else None


def load(name: str, root: Path | str | None = None) -> DataSet:
    """A public data set by name. Its files are read when they are needed, then kept in memory.

    Args:
        name: One of `NAMED`.
        root: The folder of data sets; None: TACIT_DATA, or the cache folder.

    Returns:
        The data set.

    Raises:
        DataError: The name is unknown, or files are missing.
    """
    folder = find(name, root)
    if folder is None:
        raise DataError(
            f"{name} is not in {data_folder(root) / entry(name).folder}; {way_out(name, root)}, or point TACIT_DATA to "
            "the folder that holds your data sets"
        )
    return _opened(name, folder)


def caveat(name: str, root: Path | str | None = None) -> str | None:
    """The caveat that is printed with numbers measured on a set, given the files that are present."""
    folder = find(name, root)
    if folder is not None and folder.suffix == SUFFIX:
        return packed_caveat(folder)
    if folder is None or entry(name).files != PARQUET or not is_lossy(folder / PARQUET[0]):
        return entry(name).caveat
    return f"{name} is here as a lossy JPEG re-encoding: good for comparing methods, not with published numbers"


def way_out(name: str, root: Path | str | None = None) -> str:
    """How to get a missing set."""
    known = entry(name)
    folder = data_folder(root) / known.folder
    if known.folders:
        return f"put its {known.folders} class folders (n…, as published) in {folder}"
    if known.hub is None:
        return f"put its files ({', '.join(known.files)}) in {folder}"
    return f"get it with `tacit data fetch {name}`"


@cache
def _opened(name: str, folder: Path) -> DataSet:
    if folder.suffix == SUFFIX:
        names, shape = PACKABLE[name]
        return _images(name, names, shape, lambda test: read_part(folder, "test" if test else "train"))
    return NAMED[name].open(folder)


def _digits(folder: Path) -> DataSet:
    """8×8 digits; a pixel of 0 to 16 is divided by 16."""

    def read(test: bool) -> Samples:
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        keep = held_out("digits", DIGITS, DIGITS_TEST) == test
        return Samples.of((x[keep] / 16).astype(np.float32).reshape(-1, 1, 8, 8), y[keep])

    return _images("digits", classes.DIGITS, (1, 8, 8), read)


def _idx(name: str, names: tuple[str, ...]) -> Callable[[Path], DataSet]:
    return lambda folder: _images(name, names, GREY, lambda test: _read_idx(folder, "t10k" if test else "train"))


def _notmnist(folder: Path) -> DataSet:
    """Only 10,000 letters are in use; 2,000 of them, by a fixed rule, are the test set."""
    rows = held_out("notmnist", NOTMNIST, NOTMNIST_TEST)
    return _images("notmnist", classes.LETTERS, GREY, lambda test: _read_idx(folder, "t10k", rows == test))


def _read_idx(folder: Path, part: str, keep: NDArray[np.bool_] | None = None) -> Samples:
    images, labels = (idx_file(folder, f"{part}-{end}") for end in IDX)
    assert images is not None and labels is not None
    rows = slice(None) if keep is None else keep
    return Samples(read=lambda: read_idx(images)[rows, None], y=read_idx(labels)[rows].astype(np.int64))


def _parquet(name: str, names: tuple[str, ...]) -> Callable[[Path], DataSet]:
    def part(file: Path) -> Samples:
        return Samples(read=lambda: read_images(file, COLOUR), y=read_labels(file))

    return lambda folder: _images(name, names, COLOUR, lambda test: part(folder / PARQUET[test]))


def _svhn(folder: Path) -> DataSet:
    return _images("svhn", classes.DIGITS, COLOUR, lambda test: pictures.read_mat(folder / MAT[test]))


def _imagenet_r(folder: Path) -> DataSet:
    """Renditions of 200 ImageNet classes, of many sizes; one in five, by a fixed rule, is a test image."""

    def part(test: bool) -> Samples:
        return pictures.read_folders("imagenet-r", folder, LARGE, test=test)

    return _images("imagenet-r", pictures.class_folders(folder), LARGE, part)


def _images(name: str, names: tuple[str, ...], shape: tuple[int, ...], read: Callable[[bool], Samples]) -> DataSet:
    return DataSet.of_parts(name, NAMED[name].about, names, shape, read)


PACKABLE = {
    "mnist": (classes.DIGITS, GREY),
    "fashion-mnist": (classes.CLOTHES, GREY),
    "cifar10": (classes.CIFAR10, COLOUR),
    "cifar100": (classes.CIFAR100, COLOUR),
    "notmnist": (classes.LETTERS, GREY),
    "svhn": (classes.DIGITS, COLOUR),
}
"""Sets that `tacit data pack` puts into one file: their classes and their shape."""
_FOUR = tuple(f"{part}-{end}" for part in ("train", "t10k") for end in IDX)
_DEBIAN = (Path("/usr/share/datasets/fashion-mnist"),)
_ALL = (
    Named("digits", "8×8 digits inside scikit-learn, 1,500 / 297", _digits),
    Named(
        "mnist",
        "28×28 handwritten digits, 60,000 / 10,000",
        _idx("mnist", classes.DIGITS),
        folder="mnist",
        files=_FOUR,
        hub=Hub("ylecun/mnist"),
    ),
    Named(
        "fashion-mnist",
        "28×28 clothes, 60,000 / 10,000",
        _idx("fashion-mnist", classes.CLOTHES),
        folder="fashion-mnist",
        files=_FOUR,
        elsewhere=_DEBIAN,
        hub=Hub("zalando-datasets/fashion_mnist"),
    ),
    Named(
        "cifar10",
        "32×32 colour photos of 10 classes, 50,000 / 10,000",
        _parquet("cifar10", classes.CIFAR10),
        folder="cifar10",
        files=PARQUET,
        hub=Hub("uoft-cs/cifar10", image="img"),
    ),
    Named(
        "cifar100",
        "32×32 colour photos of 100 classes, 50,000 / 10,000",
        _parquet("cifar100", classes.CIFAR100),
        folder="cifar100",
        files=PARQUET,
        hub=Hub("uoft-cs/cifar100", image="img", label="fine_label"),
    ),
    Named("notmnist", "28×28 letters A to J, 8,000 / 2,000", _notmnist, folder="notmnist", files=_FOUR[2:]),
    Named("svhn", "32×32 colour photos of house numbers, 73,257 / 26,032", _svhn, folder="svhn", files=MAT),
    Named(
        "imagenet-r",
        "art, cartoons and other renditions of 200 ImageNet classes, 224×224, 24,000 / 6,000",
        _imagenet_r,
        folder="imagenet-r",
        folders=200,
    ),
    Named(
        "wisdm",
        "activities, features of phone and watch sensors",
        sensors.wisdm,
        folder="wisdm",
        files=(sensors.FEATURES,),
    ),
    Named(
        "wisdm-raw",
        "activities, raw watch accelerometer at 20 Hz",
        sensors.wisdm_raw,
        folder="wisdm",
        files=(sensors.WATCH,),
    ),
    Named("hmp", "activities, raw wrist accelerometer at 32 Hz", sensors.hmp, folder="hmp", files=(sensors.WRIST,)),
    Named(
        "har",
        "activities, wrist accelerometers at 5, 10, 20 and 32 Hz; 15 % of the windows for testing",
        har.har,
        files=har.FILES,
        caveat="har's test windows overlap its training windows, as in the paper: har-people tests on other people",
    ),
    Named("har-people", "the same, tested on people who are in no training set", har.har_people, files=har.FILES),
)
NAMED = {known.name: known for known in _ALL}
