"""The scenarios that turn public data sets into streams, by name."""

from collections.abc import Callable
from importlib import import_module

from tacit.data.stream import Stream

SCENARIOS = {
    "concatenate": "concatenation",
    "domains": "sharp",
    "drifting": "drifting",
    "iblurry": "blurry",
    "mixed": "blurry",
    "permuted": "sharp",
    "rates": "sharp",
    "siblurry": "blurry",
    "single": "sharp",
    "split": "sharp",
}


def scenario(name: str) -> Callable[..., Stream]:
    """The function that makes a stream of data sets; `name` is one of `SCENARIOS`.

    Args:
        name: A name of `SCENARIOS`.

    Returns:
        A function of data sets and settings.
    """
    module = import_module(f"tacit.data.scenarios.{SCENARIOS[name]}")
    make: Callable[..., Stream] = getattr(module, name)
    return make
