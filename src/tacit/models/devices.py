"""Names of compute devices: `cpu`, `cuda`, or one of several GPUs by `cuda:1`."""

import re

import torch

from tacit.errors import ConfigError


def known_device(device: str) -> str:
    """Return the name; raise if it is no supported kind of device."""
    if not isinstance(device, str) or re.fullmatch(r"cpu|cuda(:\d+)?", device) is None:
        raise ConfigError(f"device must be 'cpu' or 'cuda' (one of several GPUs: 'cuda:1'), got {device!r}")
    return device


def check_device(device: str) -> None:
    """Raise if the device is not available on this machine."""
    number = int(known_device(device).partition(":")[2] or 0)
    if device != "cpu" and number >= torch.cuda.device_count():
        raise ConfigError(f"there is no GPU for device = {device!r}; use 'cpu'")
