"""Fetching, against a local folder that stands in for the hub."""

import builtins
import io
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

from tacit.data.benchmarks.hub import fetch
from tacit.data.benchmarks.named import NAMED, load
from tacit.errors import DataError


def stand_in(folder: Path, name: str, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """A set with the hub's columns, as the hub stores it: Parquet with encoded images."""
    hub, rng, held = NAMED[name].hub, np.random.default_rng(0), {}
    assert hub is not None
    for part, count in (("train", 12), ("test", 5)):
        held[part] = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
        features = datasets.Features({hub.image: datasets.Image(), hub.label: datasets.Value("int64")})
        columns = {hub.image: [Image.fromarray(image) for image in held[part]], hub.label: list(range(count))}
        folder.mkdir(exist_ok=True)
        datasets.Dataset.from_dict(columns, features=features).to_parquet(folder / f"{part}.parquet")
    return held


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub-cache")
    datasets.disable_progress_bars()


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_grey_images_become_idx_files(name: str, tmp_path: Path) -> None:
    held = stand_in(tmp_path / "source", name, (28, 28))
    folder = fetch(name, tmp_path / "data", source=str(tmp_path / "source"))
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{file}.gz" for file in NAMED[name].files)
    data = load(name, tmp_path / "data")
    assert (data.train.x[:, 0] == held["train"]).all() and data.train.y.tolist() == list(range(12))
    assert data.test is not None and (data.test.x[:, 0] == held["test"]).all()


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_colour_images_become_parquet(name: str, tmp_path: Path) -> None:
    held = stand_in(tmp_path / "source", name, (32, 32, 3))
    fetch(name, tmp_path / "data", source=str(tmp_path / "source"))
    data = load(name, tmp_path / "data")
    assert (data.train.x == held["train"].transpose(0, 3, 1, 2)).all()
    assert data.test is not None and data.test.y.tolist() == list(range(5))


def test_another_set_is_refused(tmp_path: Path) -> None:
    stand_in(tmp_path / "source", "mnist", (28, 28))
    with pytest.raises(DataError, match="no part 'train' with columns 'img' and 'label'; it is not cifar10"):
        fetch("cifar10", tmp_path / "data", source=str(tmp_path / "source"))


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="could not be fetched from") as error:
        fetch("mnist", tmp_path, source=str(tmp_path / "nowhere"))
    assert "\n" not in str(error.value)


def test_retries_are_not_shown_and_the_loggers_are_left_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("huggingface_hub.utils._http")

    def offline(source: str) -> None:
        logger.warning("Retrying in 1s")
        raise ConnectionError("no way to the hub")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    # The package hands nothing to the root by itself.
    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "propagate", True)
    with pytest.raises(DataError, match=r"mnist could not be fetched from .*: no way to the hub"):
        fetch("mnist", tmp_path)
    assert not caplog.messages
    logger.warning("after")
    assert caplog.messages == ["after"]


def test_what_no_hub_has(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no hub is known to have hmp; put its files \(wrist_accel_32hz.parquet\)"):
        fetch("hmp", tmp_path)
    with pytest.raises(DataError, match="always there"):
        fetch("digits", tmp_path)


def test_a_missing_extra_names_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "datasets")
    with pytest.raises(DataError, match=r"pip install '\.\[hub\]'"):
        fetch("mnist", tmp_path)


def test_a_missing_decoder_names_itself(idx_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.data.benchmarks.formats import decode

    without(monkeypatch, "PIL")
    with pytest.raises(DataError, match=r"pip install '\.\[images\]'"):
        decode(io.BytesIO().getvalue(), (1, 2, 2))


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """As if the package were not installed."""
    plain: Callable[..., Any] = builtins.__import__

    def importing(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == package:
            raise ImportError(name)
        return plain(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", importing)
    monkeypatch.delitem(sys.modules, package, raising=False)
