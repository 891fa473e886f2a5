"""Fixtures of the small world in `blobs`."""

from collections.abc import Callable

import pytest
import torch
from blobs import make_blobs, make_config

from tacit.data.stream import Stream
from tacit.experiment.config import Config


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def blobs() -> Callable[[int], Stream]:
    return make_blobs


@pytest.fixture
def config() -> Config:
    return make_config()
