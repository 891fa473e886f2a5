"""`tune(config, space, folder)`: choose the settings of a run in one of three ways, or as a paper did.

- public-proxy: Optuna on public data: another named set in place of the run's own, or the run's own benchmark.
- held-tasks: Optuna on the first tasks of the stream (`data.held`), declared public; they are never learned later.
- private: on the first task itself, by repeat-and-select under one charge (`private`).
- a paper's protocol (`paper_protocol`): on the data that is learned from, not charged; public benchmarks only.

The resulting configuration records how it was tuned and whether that was charged; certificates and `metrics.json` of
its run repeat it. Only private tuning reads private records. On public data, a call that was ended continues when it is
repeated with the same folder, with the same settings. Private tuning is never resumed.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from tacit.data.stream import Stream
from tacit.errors import ConfigError, TacitError
from tacit.experiment.config.config import Config
from tacit.experiment.config.loading import load_as, plain, with_settings
from tacit.experiment.features.features import Place
from tacit.experiment.files import lines, read_json, write_json
from tacit.experiment.progress import OnEvent, Stop, Stopped, ignore, stop_on_ctrl_c
from tacit.experiment.runs.charged_ledger import UnitCap
from tacit.experiment.runs.folder import flat, refuse_full
from tacit.experiment.runs.resolver import Streams, open_stream
from tacit.experiment.runs.runner import run
from tacit.experiment.tuning import paper_protocol, private
from tacit.experiment.tuning.search import LOG, SAMPLERS, Sampler, TuningResult, best, optuna_module, save, search
from tacit.experiment.tuning.space import Settings, Space
from tacit.words import nearest

Way = Literal["public-proxy", "held-tasks", "private"]
Objective = Literal["average", "first"]


def tune(
    config: Config | str | Path | Mapping[str, Any],
    space: Space | str | Path | Mapping[str, Any] | None,
    folder: str | Path,
    *,
    how: Way = "public-proxy",
    protocol: Literal["tobaben2025"] | None = None,
    trials: int = 20,
    sampler: Sampler = "tpe",
    objective: Objective = "average",
    proxy: str | Path | Mapping[str, Any] | None = None,
    held_are_public: bool = False,
    ledger: str | Path | None = None,
    unit_cap: UnitCap = None,
    shape: float = 1.0,
    seed: int = 0,
    stream: Streams | None = None,
    progress: OnEvent | None = None,
    stop: Stop | None = None,
) -> TuningResult:
    """Find the best settings of a search space; they are written to the folder (`settings.yaml`, `tuned.yaml`).

    Args:
        config: The configuration to tune, or the name of a preset, the path of a file, or plain values.
        space: The search space, or the path of its YAML file; None only with a protocol.
        folder: Where the trials and the result are written.
        how: On which data the settings are tried.
        protocol: Do what this paper did, in place of a search over `space`.
        trials: The number of trials; for private tuning, its expectation.
        sampler: How Optuna proposes settings.
        objective: The average accuracy of a whole run, or that of its first task.
        proxy: A configuration whose data are used in place of the run's own.
        held_are_public: The owner declares that the held-out tasks of a private stream are public.
        ledger: For private tuning, the ledger that is charged.
        unit_cap: For private tuning, as for `run`.
        shape: For private tuning, the shape of the distribution of the number of trials.
        seed: The random seed of the sampler.
        stream: Gives the stream of a seed, in place of the one that the configuration names.
        progress: Receives events.
        stop: Stops the search between two steps.

    Returns:
        The best settings, and the configuration with them.

    Raises:
        ConfigError: There is no space, it does not fit the configuration, or the folder holds another search.
    """
    config = config if isinstance(config, Config) else load_as(Config, config)
    folder_path, on_event, stop = Path(folder), progress or ignore, stop or Stop()
    if protocol is not None:
        if space is not None or how != "public-proxy":
            raise ConfigError(f"the protocol {protocol} brings its own space and data; leave the others out")
        optuna_module()
        begin(folder_path, config, {"protocol": protocol})
        with _kept(folder_path, stop):
            result = paper_protocol.tobaben2025(
                config, folder_path, trials=trials, stream=stream, progress=on_event, stop=stop
            )
        save(result, folder_path)
        return result
    if space is None:
        raise ConfigError(
            "tuning needs a search space: a YAML file such as 'learner.lr: {low: 0.001, high: 1, log: true}'"
        )
    search_space = Space.of(space)
    check_keys(search_space, config)
    if how == "private":
        return private.tune_privately(
            config,
            search_space,
            folder_path,
            trials=trials,
            shape=shape,
            ledger=ledger,
            stream=stream,
            unit_cap=unit_cap,
            progress=on_event,
            stop=stop,
        )
    features_place = Place(device=config.device, progress=on_event, stop=stop)
    streams, data_description = _public(config, how, proxy, held_are_public, stream, features_place)
    optuna_module()  # if it is missing, it is refused before a folder is made
    searched = {"sampler": sampler, "seed": seed, "space": search_space.plain()}
    begin(folder_path, config, {"how": how, "on": data_description, "objective": objective, **searched})

    def score(number: int, settings: Settings) -> float:
        def opened(one: int) -> Stream:
            return streams(one)[:1] if objective == "first" else streams(one)

        tried = with_settings(config, settings | {"data.held": 0, "tuned": {}})
        return accuracy(tried, folder_path / "trials" / f"{number + 1:03d}", opened, stop)

    with _kept(folder_path, stop):
        log = folder_path / LOG
        tried = search(
            search_space, score, trials=trials, sampler=sampler, seed=seed, progress=on_event, stop=stop, log=log
        )
        winner = best(tried)
    about = f"{search_space.keys}: {trials} trials of {SAMPLERS[sampler]} search on {data_description}"
    # Wherever the settings are used, the tasks that they were tuned on are left out.
    held = {"data.held": config.data.held} if how == "held-tasks" else {}
    settings = winner.settings | held | {"tuned.how": how, "tuned.charged": False, "tuned.about": about}
    result = TuningResult(settings=settings, score=winner.score, tried=tried, config=with_settings(config, settings))
    save(result, folder_path)
    return result


def check_keys(space: Space, config: Config) -> None:
    """Refuse a search space with a key that the configuration does not have, or a value that the key cannot take.

    Raises:
        ConfigError: With the nearest key.
    """
    first = {key: one.ends[0] for key, one in space.ranges.items()}
    keys = flat(config.plain())
    for key, one in space.ranges.items():
        for end in one.ends:
            try:
                with_settings(config, {key: end})
            except ConfigError as error:
                try:
                    with_settings(config, first | {key: end})  # a key of a learner that another key of the space names
                except ConfigError:
                    if key in keys:
                        raise error from None
                    raise ConfigError(f"{key} is not a key of this run's configuration; {nearest(key, keys)}") from None


def accuracy(config: Config, folder: Path, streams: Streams, stop: Stop) -> float:
    """The mean over seeds of the average accuracy of a run; a stopped run is resumed."""
    begun = (folder / "config.yaml").exists()
    summary = run(config, folder, stream=streams, processes=1, stop=stop, resume=True, moved=begun)
    found = summary.metrics["average_accuracy"]
    if found is None:
        raise ConfigError("the run has no accuracy to tune by; set evaluation.test to public or charged")
    return float(found["mean"])


def begin(folder: Path, config: Config, asked: Mapping[str, Any]) -> None:
    """Lay the folder out, or take up what was begun in it and not finished; with the same question only."""
    file = folder / "asked.json"
    wanted = json.loads(json.dumps({**asked, "config": config.plain()}))
    if not file.exists() or (folder / "settings.yaml").exists():
        refuse_full(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(file, wanted)
        return
    before = read_json(file)
    other = next((key for key in wanted if before.get(key) != wanted[key]), None)
    if other is not None:
        what = "another configuration" if other == "config" else f"{other} = {before.get(other)!r}"
        raise ConfigError(f"{folder} was begun with {what}; repeat the same call, or pass another folder with --out")


@contextmanager
def _kept(folder: Path, stop: Stop) -> Iterator[None]:
    """Ctrl-C stops between two steps; what is kept then is said. Where no trial could be run, nothing is kept."""
    try:
        with stop_on_ctrl_c(stop):
            yield
    except Stopped:
        raise Stopped(f"stopped; {len(_done(folder))} finished trials are kept in {folder}") from None
    except TacitError:
        if not any(line["score"] is not None for line in _done(folder)):
            shutil.rmtree(folder)  # it was empty when this began
        raise


def _done(folder: Path) -> list[dict[str, Any]]:
    return [line for log in folder.rglob(LOG) for line in lines(log)]


def _public(
    config: Config, how: Way, proxy: Any, held_are_public: bool, stream: Streams | None, at: Place
) -> tuple[Streams, str]:
    """The streams that are tuned on, all of them public, and what they are called."""
    if how == "held-tasks":
        return _held(config, held_are_public, stream, at)
    data = config.data
    if proxy is not None:
        values = proxy if isinstance(proxy, Mapping) else plain(proxy)
        base = values["base"] if values.get("kind") == "sweep" else values
        source = load_as(Config, base if isinstance(base, Mapping) else plain(base))
        data, stream = source.data, None

    def opened(seed: int) -> Stream:
        return open_stream(data, seed, at) if stream is None else stream(seed)

    info = opened(config.seeds[0]).info
    if not info.public:
        raise ConfigError(
            f"the stream {info.name!r} is private, and this way of tuning reads it without a charge; tune on public "
            "data by --proxy, on held tasks that are public, or privately"
        )
    return opened, f"{info.name} (public" + (", the data of the run itself)" if proxy is None else ")")


def _held(config: Config, held_are_public: bool, stream: Streams | None, at: Place) -> tuple[Streams, str]:
    """The first tasks, which a run leaves out."""
    held = config.data.held
    if not held:
        raise ConfigError("no task is held back for tuning; set data.held, as in --set data.held=3")
    whole = config.data.model_copy(update={"held": 0})

    def all_tasks(seed: int) -> Stream:
        return open_stream(whole, seed, at) if stream is None else stream(seed)

    def opened(seed: int) -> Stream:
        found = all_tasks(seed)[:held]
        return Stream(replace(found.info, name=f"{found.info.name}-held", public=True), found)

    info = all_tasks(config.seeds[0]).info
    if not info.public and not held_are_public:
        raise ConfigError(
            f"the stream {info.name!r} is private, and tuning reads its first {held} tasks without a charge; say so by "
            "--held-are-public if they are public, or tune privately"
        )
    return opened, f"the first {held} tasks of {info.name}, declared public and not learned after"
