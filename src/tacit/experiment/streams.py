"""From a configuration to a stream: a named data set cut by a scenario, or what a declaration describes."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.data.cut import generator
from tacit.data.stream import Stream
from tacit.errors import ConfigError
from tacit.experiment.config import DataSection
from tacit.experiment.settings import parameters, unknown

if TYPE_CHECKING:
    from tacit.experiment.features import Place

SCENARIOS = {
    "concatenate": "concatenation",
    "declared": "own",
    "domains": "scenarios",
    "drifting": "drifting",
    "iblurry": "blurry",
    "mixed": "blurry",
    "permuted": "scenarios",
    "rates": "scenarios",
    "siblurry": "blurry",
    "single": "scenarios",
    "split": "scenarios",
}


def scenario(name: str) -> Callable[..., Stream]:
    """The function of this scenario."""
    if name not in SCENARIOS:
        raise ConfigError(unknown("data.scenario", name, SCENARIOS, "a scenario", name=name))
    home = import_module(f"tacit.data.{SCENARIOS[name]}")
    found: Callable[..., Stream] = getattr(home, "open_declared" if name == "declared" else name)
    return found


def open_stream(data: DataSection, seed: int, place: "Place | None" = None) -> Stream:
    """The stream of one seed: it decides permutations and class orders; a declared stream has none. The first tasks
    that are held back are in its `held`.

    `place`: where features are made and kept, if the records are to become features."""
    make = scenario(data.scenario)
    options: dict[str, Any] = data.options | ({"seed": seed} if "seed" in parameters(make) else {})
    source = _source(data, place)
    stream = make(source, **options)
    if data.features is not None and data.scenario == "declared":
        from tacit.experiment.features import Place, of_stream

        stream = of_stream(stream, data.features, place or Place())
    elif data.features is not None:
        named = (source[0] if isinstance(source, list) else source).features
        stream = stream.of_features(named)
    if data.held >= len(stream):
        raise ConfigError(f"data.held = {data.held} leaves no task of {len(stream)}; hold back fewer")
    held = stream[: data.held] if data.held else None
    stream = stream if held is None else stream[data.held :]
    if data.shuffled:
        stream = stream.in_order(generator(seed, "order").permutation(len(stream)).tolist())
    stream.held = held
    return stream


def check_sources(data: DataSection) -> None:
    """Refuse named sets, or a file of their features, that are not here: said before anything is made."""
    if data.scenario == "declared":
        return
    from tacit.data.named import load
    from tacit.experiment.feature_files import check_file

    for name in (data.source,) if isinstance(data.source, str) else data.source:
        load(name)
    if data.features is not None:
        check_file(data.features)


def caveats(data: DataSection) -> list[str]:
    """What has to be said beside numbers that were measured on these data."""
    if data.scenario == "declared":
        return []
    from tacit.data.named import caveat

    found = (caveat(name) for name in ((data.source,) if isinstance(data.source, str) else data.source))
    return [one for one in found if one is not None]


def _source(data: DataSection, place: "Place | None") -> Any:
    """What the scenario starts from: a path, one data set or a list of them."""
    if data.scenario == "declared":
        return _declaration(data.source)
    from tacit.data.named import load

    several = data.scenario == "concatenate"
    names = (data.source,) if isinstance(data.source, str) else data.source
    if not several and len(names) != 1:
        raise ConfigError(f"data.source must be one name for the scenario {data.scenario!r}, got {list(names)}")
    found = [load(name) for name in names]
    if data.features is not None:
        from tacit.experiment.features import Place, of_set

        found = [of_set(one, data.features, place or Place()) for one in found]
    return found if several else found[0]


def _declaration(source: str | tuple[str, ...]) -> str:
    """The path of a declaration; a name of a public set is none."""
    from tacit.data.named import NAMED

    if not isinstance(source, str):
        raise ConfigError(
            f"data.source must be the path of one declaration for the scenario 'declared', got {list(source)}"
        )
    if source in NAMED and not Path(source).exists():
        raise ConfigError(
            f"data.source = {source!r} is a public data set, and the scenario 'declared' reads a declaration; set "
            "data.scenario as well, such as data.scenario=split"
        )
    return source
