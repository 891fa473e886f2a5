"""From the sections of a configuration, which hold names and plain values, to the objects of a run.

Configurations import nothing of this: they are read, checked and written without a stream, a learner or a vault.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.certificate.certificate import Tuned
from tacit.data.benchmarks.named import NAMED, caveat, load
from tacit.data.scenarios.scenario_registry import scenario
from tacit.data.scenarios.task import generator
from tacit.data.stream import Stream, StreamInfo
from tacit.errors import ConfigError
from tacit.experiment.config.config import BudgetSection, Config, DataSection, EvaluationSection
from tacit.experiment.config.setting_types import parameters
from tacit.experiment.config.tuned import CERTIFIED_AS, TunedSection
from tacit.experiment.features.feature_files import check_file
from tacit.experiment.features.features import Place, of_set, of_stream
from tacit.experiment.progress import OnEvent, Stop
from tacit.experiment.runs.evaluation import ChargedQueries, Evaluation, NoTests, PublicTests
from tacit.experiment.runs.folder import SeedFolder
from tacit.experiment.runs.labels import DeclaredSets, LearnedSets, SetsFromData, declare_labels
from tacit.learners import find
from tacit.learners.base.learner import Learner
from tacit.learners.base.networks import NamedNetwork
from tacit.privacy.accounting.budget import Budget, Unit
from tacit.privacy.vault.sources.declared import open_declared
from tacit.privacy.vault.vault import Vault

Streams = Callable[[int], Stream]
"""Gives the stream of a seed."""


def make_budget(section: BudgetSection, unit: str) -> Budget:
    """The budget for a stream whose sizes count these units."""
    if section.unit is not None and section.unit != unit:
        raise ConfigError(
            f"budget.unit = {str(section.unit)!r} does not fit a stream whose unit is a {unit}; omit it, or set "
            "the unit in the declaration of the data"
        )
    return Budget(
        epsilon=section.epsilon,
        delta=section.delta,
        unit=Unit(unit),
        adjacency=section.adjacency,
        accept_large_delta=section.accept_large_delta,
    )


def make_learner(config: Config, budget: Budget, seed: int) -> Learner:
    """The learner of a configuration with its network, not started."""
    network = NamedNetwork(name=config.model.network, options=config.model.options)
    learner: Learner = find(config.learner.method)(
        budget=budget, network=network, seed=seed, device=config.device, **config.learner.options
    )
    learner.tuned_ = make_tuning_record(config.tuned)
    return learner


def make_tuning_record(section: TunedSection) -> Tuned:
    """What the certificate says about how the settings were chosen."""
    return Tuned(on=CERTIFIED_AS[section.how], about=section.about)


def declare(stream: Stream, data: DataSection, seed: int) -> Stream:
    """The stream under the label sets of the configuration."""
    return declare_labels(
        stream, label_space=data.label_space, missing=data.prior_missing, outside=data.outside, seed=seed
    )


def make_label_sets(data: DataSection, info: StreamInfo, vault: Vault, budget: Budget) -> DeclaredSets:
    """The source of each task's label set: declared, learned by a charged query, or read off the data."""
    if data.label_space == "learned":
        return LearnedSets(info=info, vault=vault, budget=budget, share=data.labels_share)
    if data.label_space == "data":
        return SetsFromData(info=info, vault=vault)
    return DeclaredSets(info=info)


def make_evaluation(section: EvaluationSection, stream: Stream, vault: Vault, budget: Budget) -> Evaluation:
    """The source of accuracies; `auto` means public tests where every task has a test set, and charged queries else."""
    tested = all(task.test is not None for task in stream)
    source = ("public" if tested else "charged") if section.test == "auto" else section.test
    if source == "public" and not tested:
        raise ConfigError(
            "evaluation.test = 'public' needs a public test set for every task and this stream has none; use 'charged' "
            "(noisy queries on a part of the records, which is not trained on) or 'none'"
        )
    if source == "charged":
        return ChargedQueries(stream=stream.info, vault=vault, budget=budget, share=section.share)
    return PublicTests(stream, budget) if source == "public" else NoTests(stream.info, budget)


def features_at(config: Config, folder: SeedFolder, progress: OnEvent, stop: Stop) -> Place:
    """Where features are computed, and where those of private records are kept until their task is settled."""
    return Place(device=config.device, private=folder.features, progress=progress, stop=stop)


def open_stream(data: DataSection, seed: int, place: Place = Place()) -> Stream:
    """Open the stream of one seed, without its held-out tasks, which are in `held`.

    Args:
        data: The section `data` of a configuration.
        seed: Decides permutations, class orders and, with `data.shuffled`, the order of tasks.
        place: Where features are computed and kept, if records are put through a backbone.
    """
    stream = _declared(data, place) if data.scenario == "declared" else _benchmark(data, seed, place)
    if data.held >= len(stream):
        raise ConfigError(f"data.held = {data.held} leaves no task of {len(stream)}; hold back fewer")
    held = stream[: data.held] if data.held else None
    stream = stream if held is None else stream[data.held :]
    if data.shuffled:
        stream = stream.in_order(generator(seed, "order").permutation(len(stream)).tolist())
    stream.held = held
    return stream


def check_sources(data: DataSection) -> None:
    """Refuse named sets, or a file of their features, that are not on this machine."""
    if data.scenario == "declared":
        return
    for name in data.sources:
        load(name)
    if data.features is not None:
        check_file(data.features)


def caveats(data: DataSection) -> list[str]:
    """What a report must say beside numbers that were measured on these data."""
    if data.scenario == "declared":
        return []
    return [text for name in data.sources if (text := caveat(name)) is not None]


def _declared(data: DataSection, place: Place) -> Stream:
    """The stream of a declaration, with a feature map where `data.features` names one."""
    stream = open_declared(_declaration(data.source))
    return stream if data.features is None else of_stream(stream, data.features, place)


def _benchmark(data: DataSection, seed: int, place: Place) -> Stream:
    """The stream that a scenario makes of named data sets."""
    make = scenario(data.scenario)
    options: dict[str, Any] = data.options | ({"seed": seed} if "seed" in parameters(make) else {})
    source = _named_sets(data, place)
    stream = make(source, **options)
    if data.features is None:
        return stream
    return stream.of_features((source[0] if isinstance(source, list) else source).features)


def _named_sets(data: DataSection, place: Place) -> Any:
    """The data set of a scenario, or a list of them."""
    several = data.scenario == "concatenate"
    if not several and len(data.sources) != 1:
        raise ConfigError(f"data.source must be one name for the scenario {data.scenario!r}, got {list(data.sources)}")
    sets = [load(name) for name in data.sources]
    if data.features is not None:
        sets = [of_set(data_set, data.features, place) for data_set in sets]
    return sets if several else sets[0]


def _declaration(source: str | tuple[str, ...]) -> str:
    """The path of a declaration, which is not the name of a public set."""
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
