"""`data.features`: a data set or a stream of pictures becomes one of features; any learner then runs on it.

A value is the name of a backbone (or what `models.backbones.backbone` takes), or a file of precomputed features. Public
sets: features lie in tacit's cache folder, and a file that is published beside a set is used in place of the backbone.
Private records: features lie in the run's `private/` folder, are readable by the owner alone, and go when their task is
settled.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache as cache_once
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from tacit.data.formats import cache_folder
from tacit.data.named import NAMED
from tacit.data.samples import Array, DataSet, Samples
from tacit.data.sources import Made
from tacit.data.stream import Loader, Stream, Task
from tacit.errors import ConfigError, DataError
from tacit.experiment.events import Said, Stop, Stopped, Tell
from tacit.experiment.extraction import Extractor
from tacit.experiment.feature_cache import FeatureCache, Progress
from tacit.experiment.feature_files import FeatureFile, check_file, is_feature_file, published
from tacit.experiment.folder import write_json
from tacit.models.backbones import Backbone, backbone
from tacit.privacy.exits import guarded
from tacit.privacy.rowwise import check_rows
from tacit.privacy.still import unchanged


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where features are made, where those of private records are kept, and who is told."""

    device: str = "cpu"
    private: Path | None = None
    """None: they are made anew each time, and kept nowhere."""
    compiled: bool = False
    tell: Tell | None = None
    stop: Stop | None = None


def of_set(data: DataSet, features: str, place: Place) -> DataSet:
    """A public set as one of features, which are made when they are first read."""
    file = _file(data, features)
    if file is not None:
        named = replace(data, features=_file_name(file, features))
        return _with(named, file.width, lambda: file.parts(data)[0], lambda: file.parts(data)[1])
    net, cache = _public(data, features, place)

    def rows(samples: Samples | None) -> Array:
        assert samples is not None
        return cast(Array, FeatureRows(samples, cache, _told(place, data.name)))

    named = replace(data, features=net.key)
    return _with(named, net.width, lambda: rows(data.train), lambda: rows(data.test))


def of_stream(stream: Stream, features: str, place: Place) -> Stream:
    """A declared stream as one of features. What a task holds is said nowhere: no bar, no count, no error of a module.

    Features are made before records are admitted, so what holds for a map inside the vault is checked here: before the
    first record is read, the backbone shows on synthetic ones that it treats each by itself."""
    if is_feature_file(features):
        raise ConfigError(
            f"data.features = {features!r} is a file, and its rows cannot be told apart by task; declare the table of "
            "features itself (tacit data declare), and leave data.features out"
        )
    net, extractor = _built(features, stream.info.shape, place.device, place.compiled)

    def check(_done: int, _of: int) -> None:
        if place.stop is not None:
            place.stop.check()

    @cache_once
    def shown() -> None:
        check_rows(torch.rand(extractor.batch, *stream.info.shape, generator=torch.Generator().manual_seed(0)), net)

    def mapped(load: Loader, kept: Path | None) -> Loader:
        cache = FeatureCache(kept, net, extractor)

        def read() -> tuple[Any, ...]:
            found = load()
            if not isinstance(found, tuple):
                raise DataError("data.features needs records as arrays (x, y) or (x, y, ids); give them so")
            shown()
            raw = np.asarray(found[0])
            with unchanged(net):
                made = guarded(lambda: cache.take(raw, check), "the backbone failed on private records")
            return Made((made.astype(np.float32), *found[1:]), raw)

        return read

    def through(task: Task) -> Task:
        # Each task has its own folder, so that what was made of its records can go when it is settled.
        records = mapped(task.records, None if place.private is None else task_folder(place.private, task.info.name))
        tests = None if place.private is None else place.private / "tests"
        return replace(task, records=records, test=None if task.test is None else mapped(task.test, tests))

    tasks = [through(task) for task in stream]
    return Stream(replace(stream.info, shape=(net.width,), features=net.key), tasks)


def task_folder(private: Path, task: str) -> Path:
    """Where the features of a task's private records lie; the name tells the task only to who knows it."""
    return private / hashlib.blake2b(task.encode(), digest_size=8).hexdigest()


def make(data: DataSet, features: str, place: Place, limit: int | None = None) -> Path | None:
    """Make and keep the features of a public set now, or of its first `limit` records in each part; where they are.

    None: a published file holds them already."""
    if _file(data, features) is not None:
        return None
    _, cache = _public(data, features, place)
    try:
        for samples in (data.train, data.test):
            if samples is not None:
                cache.take(samples.x[:limit], _told(place, data.name))
    except Stopped:
        raise Stopped(f"stopped; the features of {len(cache)} records of {data.name} are kept") from None
    return cache.folder


def notice(source: str | tuple[str, ...], features: str | None) -> list[str]:
    """What a person should know about where features come from."""
    names = (source,) if isinstance(source, str) else source
    found = {name: published(name, features) for name in names if features is not None and name in NAMED}
    return [
        f"features of {name} by {features} are read from {file.path}, as published with the set; they are not computed"
        for name, file in found.items()
        if file is not None
    ]


class FeatureRows:
    """Features of a public set's samples, made for the rows that are asked for; then kept in memory.

    It stands where an array of stored features could: rows are taken by an array of their numbers."""

    def __init__(self, samples: Samples, cache: FeatureCache, progress: Progress) -> None:
        self._samples, self._cache, self._progress = samples, cache, progress
        self._rows = np.empty((len(samples), cache.width), dtype=np.float16)
        self._here = np.zeros(len(samples), dtype=np.bool_)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Array:
        asked = np.arange(len(self))[index]
        missing = np.unique(asked[~self._here[asked]])
        if len(missing):
            self._rows[missing] = self._cache.take(self._samples.x[missing], self._progress)
            self._here[missing] = True
        found: Array = self._rows[asked]
        return found


def public_folder(name: str = "") -> Path:
    """Where the features of a public set are kept; of all of them."""
    return cache_folder() / "features" / name


def _file(data: DataSet, features: str) -> FeatureFile | None:
    """A file that holds the features: the one that is named, or the one that is published with the set."""
    check_file(features)
    return FeatureFile(path=Path(features)) if is_feature_file(features) else published(data.name, features)


def _file_name(file: FeatureFile, features: str) -> str:
    """What a release calls features that come from a file."""
    return (
        f"{features}, the file {file.path.name} that is published with the set"
        if file.in_steps
        else str(file.path.resolve())
    )


def _public(data: DataSet, features: str, place: Place) -> tuple[Backbone, FeatureCache]:
    net, extractor = _built(features, data.shape, place.device, place.compiled)
    cache = FeatureCache(public_folder(data.name), net, extractor)
    assert cache.folder is not None
    about = cache.folder / "about.json"
    if not about.exists():
        try:
            cache.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(about, {"set": data.name, "backbone": features, "key": net.key, "width": net.width})
        except OSError as error:
            if not about.exists():  # otherwise another process wrote the same at the same time
                raise ConfigError(
                    f"cannot keep features in {cache.folder}: {error.strerror}; say by XDG_CACHE_HOME where caches go"
                ) from None
    return net, cache


@lru_cache(maxsize=2)
def _built(features: str, shape: tuple[int, ...], device: str, compiled: bool) -> tuple[Backbone, Extractor]:
    net = backbone(features, shape=shape)
    net.check(shape)
    return net, Extractor(net, device, compiled=compiled)


def _with(data: DataSet, width: int, train: Callable[[], Array], test: Callable[[], Array]) -> DataSet:
    """The same set with other features: labels, persons and groups are as they were."""
    return replace(
        data,
        shape=(width,),
        read_train=lambda: replace(data.train, read=train),
        read_test=None if data.read_test is None else lambda: replace(cast(Samples, data.test), read=test),
    )


def _told(place: Place, name: str) -> Progress:
    def progress(done: int, of: int) -> None:
        if place.tell is not None and of:
            place.tell(Said(kind="features", name=name, step=done, of=of))
        if place.stop is not None:
            place.stop.check()

    return progress
