"""Replaces images by the features of a frozen public backbone (`data.features`), so that any learner can use them.

`data.features` is the name of a backbone (or anything that `models.backbones.backbone` accepts), or a file of
precomputed features. Features of public sets are cached in tacit's cache folder; a file that is published with a set is
used instead of the backbone. Private records meet the backbone inside the vault (`Vault.admit(…, through=)`): their
features are cached in the run's `private/` folder, and are deleted when their task is settled.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from tacit.data.benchmarks.formats import cache_folder
from tacit.data.samples import Array, DataSet, Samples
from tacit.data.stream import Loader, Stream
from tacit.errors import ConfigError
from tacit.experiment.features.feature_files import FeatureFile, check_file, is_feature_file, published
from tacit.experiment.files import write_json
from tacit.experiment.progress import Event, OnEvent, Stop, Stopped
from tacit.models.backbones import Backbone, backbone
from tacit.models.devices import check_device
from tacit.privacy.vault.intake.extraction import Extractor
from tacit.privacy.vault.intake.feature_cache import FeatureCache, Progress
from tacit.privacy.vault.intake.feature_map import FeatureMap
from tacit.privacy.vault.intake.isolation import unchanged


@dataclass(frozen=True, kw_only=True)
class Place:
    """How features are computed, and where those of private records are cached."""

    device: str = "cpu"
    private: Path | None = None
    """The private cache folder; None computes features of private records again each time."""
    compiled: bool = False
    """Whether to use torch.compile."""
    progress: OnEvent | None = None
    """Receives the progress on public sets."""
    stop: Stop | None = None

    def report(self, name: str, done: int, of: int) -> None:
        """Report that `done` records of a public set are computed, and stop if that was requested."""
        if self.progress is not None and of:
            self.progress(Event(kind="features", name=name, step=done, of=of))
        if self.stop is not None:
            self.stop.check()


def of_set(data: DataSet, features: str, place: Place) -> DataSet:
    """A public set with features in place of images; they are computed when they are first read."""
    file = _file(data, features)
    if file is not None:
        name = str(file.path.resolve())
        if file.in_steps:
            name = f"{features}, the file {file.path.name} that is published with the set"
        named = replace(data, features=name)
        return _with(named, file.width, lambda: file.parts(data)[0], lambda: file.parts(data)[1])
    net, cache = _public(data, features, place)

    def rows(samples: Samples | None) -> Array:
        assert samples is not None
        return cast(Array, FeatureRows(samples, cache, partial(place.report, data.name)))

    named = replace(data, features=net.key)
    return _with(named, net.width, lambda: rows(data.train), lambda: rows(data.test))


def of_stream(stream: Stream, features: str, place: Place) -> Stream:
    """A declared stream whose records the vault maps to features when it admits them. Nothing is read here.

    The features of each task are cached in a subfolder of `place.private`, so that they can be deleted when the task is
    settled; those of public test sets are cached in `tests`.

    Raises:
        ConfigError: `features` is a file, or the backbone cannot read the declared shape.
    """
    if is_feature_file(features):
        raise ConfigError(
            f"data.features = {features!r} is a file without a task for each row; declare the table of "
            "features itself (tacit data declare), and leave data.features out"
        )
    net, extractor = _built(features, stream.info.shape, place.device, place.compiled)
    through = FeatureMap(
        net,
        key=net.key,
        width=net.width,
        shape=stream.info.shape,
        extractor=extractor,
        folder=place.private,
        check_stop=None if place.stop is None else place.stop.check,
    )

    def mapped(load: Loader) -> Loader:
        """The public test set of a task, as features."""
        folder = None if place.private is None else place.private / "tests"
        cache = FeatureCache(folder, net.key, net.width, extractor)

        def read() -> tuple[Any, ...]:
            x, y = load()
            with unchanged(net):
                return cache.features(np.asarray(x)).astype(np.float32), y

        return read

    tasks = [replace(task, through=through, test=None if task.test is None else mapped(task.test)) for task in stream]
    return Stream(replace(stream.info, shape=(net.width,), features=net.key), tasks)


def make(data: DataSet, features: str, place: Place, limit: int | None = None) -> Path | None:
    """Computes and caches the features of a public set, or of the first `limit` records of its train and test part.

    Returns:
        The folder of the cache; None where a published file has the features.

    Raises:
        Stopped: It was stopped; complete chunks stay cached.
    """
    if _file(data, features) is not None:
        return None
    _, cache = _public(data, features, place)
    try:
        for samples in (data.train, data.test):
            if samples is not None:
                cache.features(samples.x[:limit], partial(place.report, data.name))
    except Stopped:
        raise Stopped(f"stopped; the features of {len(cache)} records of {data.name} are kept") from None
    return cache.folder


def published_notices(names: Sequence[str], features: str | None) -> list[str]:
    """Sentences for the user about features that are read from published files."""
    return [
        f"features of {name} by {features} are read from {file.path}, as published with the set; they are not computed"
        for name in names
        if features is not None and (file := published(name, features)) is not None
    ]


class FeatureRows:
    """Features of the samples of a public set, computed for the rows that are read, then kept in memory.

    It is used like an array of features; rows are read by an index, a slice or an array of indices."""

    def __init__(self, samples: Samples, cache: FeatureCache, progress: Progress) -> None:
        self._samples, self._cache, self._progress = samples, cache, progress
        self._rows = np.empty((len(samples), cache.width), dtype=np.float16)
        self._computed = np.zeros(len(samples), dtype=np.bool_)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Array:
        rows = np.arange(len(self))[index]
        missing = np.unique(rows[~self._computed[rows]])
        if len(missing):
            self._rows[missing] = self._cache.features(self._samples.x[missing], self._progress)
            self._computed[missing] = True
        features: Array = self._rows[rows]
        return features


def public_folder(name: str = "") -> Path:
    """The cache folder of a public set's features; without a name, that of all sets."""
    return cache_folder() / "features" / name


def _file(data: DataSet, features: str) -> FeatureFile | None:
    """The file of features that is named, or that is published with the set; None if there is none."""
    check_file(features)
    return FeatureFile(path=Path(features)) if is_feature_file(features) else published(data.name, features)


def _public(data: DataSet, features: str, place: Place) -> tuple[Backbone, FeatureCache]:
    net, extractor = _built(features, data.shape, place.device, place.compiled)
    cache = FeatureCache(public_folder(data.name), net.key, net.width, extractor)
    assert cache.folder is not None
    about = cache.folder / "about.json"
    if not about.exists():
        try:
            cache.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(about, {"set": data.name, "backbone": features, "key": net.key, "width": net.width})
        except OSError as error:
            if not about.exists():  # otherwise another process wrote the same at the same time
                raise ConfigError(
                    f"cannot keep features in {cache.folder}: {error.strerror}; set XDG_CACHE_HOME to a writable folder"
                ) from None
    return net, cache


@lru_cache(maxsize=2)
def _built(features: str, shape: tuple[int, ...], device: str, compiled: bool) -> tuple[Backbone, Extractor]:
    check_device(device)
    net = backbone(features, shape=shape)
    net.check(shape)
    return net, Extractor(net, net.width, device, compiled=compiled)


def _with(data: DataSet, width: int, train: Callable[[], Array], test: Callable[[], Array]) -> DataSet:
    """The same set with other features."""
    return replace(
        data,
        shape=(width,),
        read_train=lambda: replace(data.train, read=train),
        read_test=None if data.read_test is None else lambda: replace(cast(Samples, data.test), read=test),
    )
