"""The configuration of a run as typed sections: data, learner, model, budget, seeds. Checked before anything runs.

Sections hold names and plain values; `tacit.experiment.runs.resolver` turns them into objects. A `Config` is complete:
it includes all settings of the method, the network and the scenario, also defaults, so that the file in a run folder
reads back as the same value. The names and types of these settings are taken from the code (`setting_types`).
"""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from tacit.errors import ConfigError, LearnerError
from tacit.experiment.config import setting_types
from tacit.experiment.config.attack_section import AttackSection
from tacit.experiment.config.setting_types import unknown
from tacit.experiment.config.tuned import TunedSection
from tacit.experiment.config.validation import FixedSection, validated
from tacit.privacy.accounting.budget import Adjacency, Unit

ADAPTED = "pretrained"
"""The network that is a backbone with an adapter."""
Test = Literal["auto", "public", "charged", "none"]


class OpenSection(BaseModel):
    """A section with fixed keys and the settings of what it names; both are checked."""

    model_config = ConfigDict(frozen=True, extra="allow")
    section: ClassVar[str]

    @property
    def options(self) -> dict[str, Any]:
        """The settings of what the section names, by name."""
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _check(self) -> Self:
        owner, make, but = self.target()
        keys = type(self).model_fields
        found = setting_types.checked(self.section, owner, make, self.options, but={*but, *keys}, keys=keys)
        assert self.model_extra is not None  # not None with extra="allow"
        self.model_extra.update(found)
        return self

    def target(self) -> tuple[str, Callable[..., Any], set[str]]:
        """What takes the settings: its name in messages, the callable, and the parameters that the run fills in."""
        raise NotImplementedError


class DataSection(OpenSection):
    """Where the stream comes from, and how it is divided into tasks."""

    section = "data"
    source: str | tuple[str, ...]
    """A named data set, several of them, or the path of a declaration."""
    scenario: str = "declared"
    """How tasks are made; `declared`: by the declaration."""
    held: int = Field(default=0, ge=0)
    """Number of first tasks that are held out (for tuning, or for learners that are pretrained on them)."""
    shuffled: bool = False
    """Shuffle the tasks by the seed. Lists in learner settings follow the shuffled order, `limit` the original one."""
    features: str | None = None
    """Replace records by features of a frozen public backbone: its name (efficientnet-lite0, scattering), the directory
    or hub id of a ViT, or file.py:Class; or, for a named set, a file of features (.npy, .npy.xz, .parquet; one row per
    record, in the order that `tacit features order` writes)."""
    label_space: Literal["task", "constant", "learned", "data"] = "task"
    """The label set of a task. task: its declared labels. constant: all labels of the stream. learned: the labels of
    the stream that a charged query on held-out units finds. data: the labels that occur, which is not private
    (benchmarks only)."""
    labels_share: float = Field(default=0.05, gt=0, lt=1)
    """learned: the share of units that are used for the query and never for training."""
    prior_missing: float = Field(default=0.0, ge=0, lt=1)
    """Share of each declared label set that is removed, by the seed, to measure the effect of a wrong prior."""
    outside: Literal["drop", "remap"] = "drop"
    """Skip records with a label outside the set, or give them an extra label (`other`, or the next number)."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the data sets, or the path of the declaration."""
        return (self.source,) if isinstance(self.source, str) else self.source

    def target(self) -> tuple[str, Callable[..., Any], set[str]]:
        from tacit.data.scenarios.scenario_registry import SCENARIOS, scenario

        if self.scenario == "declared":
            return "the scenario 'declared'", _without_settings, set()
        if self.scenario not in SCENARIOS:
            names = sorted(("declared", *SCENARIOS))
            raise ConfigError(unknown("data.scenario", self.scenario, names, "a scenario", name=self.scenario))
        make = scenario(self.scenario)
        first = next(iter(setting_types.parameters(make)))
        return f"the scenario {self.scenario!r}", make, {first, "seed"}


def _without_settings() -> None:
    """The scenario `declared` has no settings: everything is in the declaration."""


class LearnerSection(OpenSection):
    """The method, and its settings."""

    section = "learner"
    method: str = "DPCL"
    """The name of a learner or an unambiguous prefix of one; or file.py:Class."""

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, given: Any) -> Any:
        """Accepts `learner: NAME` for `learner: {method: NAME}`."""
        if not isinstance(given, str | Mapping | LearnerSection):
            raise ConfigError(f"learner must be the name of a method, such as DPCL, or its settings, got {given!r}")
        return {"method": given} if isinstance(given, str) else given

    @field_validator("method")
    @classmethod
    def _whole_name(cls, name: str) -> str:
        return learner_name(name)

    def target(self) -> tuple[str, Callable[..., Any], set[str]]:
        from tacit.learners import find

        name = learner_name(self.method)
        return name, find(name), {"budget", "network", "seed", "device", "stream", "ledger", "store"}

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        from tacit.learners import find
        from tacit.learners.base.ranges import check_values

        try:
            check_values(find(self.method), self.options, prefix="learner.")
        except LearnerError as error:
            raise ConfigError(str(error)) from None
        return self

    @property
    def has_network(self) -> bool:
        from tacit.learners import find

        return find(self.method).has_network


def learner_name(name: str) -> str:
    """The full name of a learner: LifelongDP for `lifelong`. A file.py:Class is unchanged."""
    from tacit.learners import LEARNERS, matching
    from tacit.learners.base.registry import GROUP
    from tacit.plugins import installed

    meant = [name] if ":" in name else matching(name)
    if len(meant) > 1:
        raise ConfigError(f"learner.method = {name!r} is ambiguous: {' or '.join(meant)}; write the full name")
    if not meant:
        raise ConfigError(unknown("learner.method", name, (*LEARNERS, *installed(GROUP)), "a learner", name=name))
    return meant[0]


class ModelSection(OpenSection):
    """The network, and its options."""

    section = "model"
    network: str = "mlp"

    def target(self) -> tuple[str, Callable[..., Any], set[str]]:
        from tacit.models import NETWORKS

        if self.network not in NETWORKS:
            raise ConfigError(unknown("model.network", self.network, NETWORKS, "a network", name=self.network))
        return self.network, NETWORKS[self.network], {"shape", "classes"}


class BudgetSection(FixedSection):
    """The privacy budget of one unit over the whole stream."""

    epsilon: float = 1.0
    delta: float = Field(default=1e-5, gt=0, lt=1)
    unit: Unit | None = None
    """The protected unit. None: the unit in which the sizes of the stream are counted."""
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE
    accept_large_delta: bool = False
    """Accept a delta above one over the declared number of units, which is refused otherwise."""

    @field_validator("epsilon")
    @classmethod
    def _finite(cls, epsilon: float) -> float:
        if not 0 < epsilon < math.inf:  # also of NaN
            raise ConfigError(f"budget.epsilon must be a finite number > 0, got {epsilon:g}; 1 is a common choice")
        return epsilon


class EvaluationSection(FixedSection):
    """How accuracy is measured."""

    test: Test = "auto"
    """public: the tasks' public test sets. charged: noisy queries on records that are set aside for them. auto: public
    where every task has a test set, else charged."""
    share: float = Field(default=0.1, gt=0, lt=1)
    """charged: the share of units that is queried and never trained on."""


MOST_SEEDS = 10_000
LARGEST_SEED = 2**63 - 1
"""What torch's generators take."""


def _seeds(value: Any) -> Any:
    """A list of seeds, or how many there are."""
    if isinstance(value, list | tuple) and any(isinstance(one, bool) for one in value):
        raise ConfigError(f"seeds must be different whole numbers ≥ 0, got {list(value)}")
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    if not 1 <= value <= MOST_SEEDS:
        raise ConfigError(f"seeds must be a list, or how many there are, from 1 to {MOST_SEEDS:,}, got {value}")
    return tuple(range(value))


class Config(FixedSection):
    """One run."""

    kind: Literal["run", "endless"] = "run"
    name: str = Field(min_length=1)
    description: str = ""
    data: DataSection
    learner: LearnerSection = Field(default_factory=LearnerSection)
    model: ModelSection = Field(default_factory=ModelSection)
    """For learners that have a network."""
    budget: BudgetSection = Field(default_factory=BudgetSection)
    seeds: Annotated[tuple[int, ...], BeforeValidator(_seeds)] = Field(default=(0,), min_length=1)
    """A list of seeds, or their number. A seed determines class order, permutations and initial weights, not noise."""
    per_seed: tuple[dict[str, Any], ...] = ()
    """Settings by key for each seed, in the order of the seeds; empty: all seeds have the same settings."""
    lca: int = Field(default=10, ge=1)
    """Learning curves are measured after each of the first `lca` steps of a task."""
    evaluation: EvaluationSection = Field(default_factory=EvaluationSection)
    tuned: TunedSection = Field(default_factory=TunedSection)
    repeatable_noise: bool = False
    """For public data only: noise is drawn from the seed and can be recomputed. Certificates then state no privacy."""
    device: str = "cpu"
    """cpu, cuda, or a GPU by its number, such as cuda:1."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """Number of threads per process. Results depend on it, because it changes the order of additions. None: chosen when
    a run begins, and saved in its folder."""

    @field_validator("device")
    @classmethod
    def _known(cls, device: str) -> str:
        from tacit.models.devices import known_device

        return known_device(device)

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if len(set(self.seeds)) != len(self.seeds) or min(self.seeds) < 0:
            raise ConfigError(f"seeds must be different whole numbers ≥ 0, got {list(self.seeds)}")
        if max(self.seeds) > LARGEST_SEED:
            raise ConfigError(f"seeds must be below 2^63, got {max(self.seeds)}")
        if self.per_seed and len(self.per_seed) != len(self.seeds):
            raise ConfigError(
                f"per_seed has settings for {len(self.per_seed)} seeds, and there are {len(self.seeds)}; give one for "
                "each seed, or none"
            )
        if self.tuned.how == "held-tasks" and not self.data.held:
            raise ConfigError(
                "tuned.how = 'held-tasks' requires that the tasks used for tuning are not learned later, and data.held "
                "= 0 learns all tasks; set data.held to the number of these tasks"
            )
        if not self.learner.has_network:
            if self.model.network == ADAPTED:
                raise ConfigError(
                    f"{self.learner.method} trains no network, so model.network = {ADAPTED!r} and its adapter would "
                    "have no effect; omit model, or use a learner that trains a network, such as PEFTEnsemble"
                )
            object.__setattr__(self, "model", ModelSection())  # it has no effect and is not saved
        return self

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The configuration of plain values, as read from YAML.

        Args:
            values: Nested plain values.

        Raises:
            ConfigError: A key or value is wrong.
        """
        return validated(cls, values)

    def plain(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude=None if self.learner.has_network else {"model"})

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.plain(), sort_keys=False, allow_unicode=True)


class Accumulation(OpenSection):
    """Curves over tasks that follow from plans, computed without data or training."""

    section = "curves"
    kind: Literal["accumulation", "accounting", "consumption"]
    name: str
    description: str = ""

    def target(self) -> tuple[str, Callable[..., Any], set[str]]:
        from tacit.experiment.papers import accounting, accumulation, consumption

        makers: dict[str, Callable[..., Any]] = {
            "accumulation": accumulation.run,
            "accounting": accounting.run,
            "consumption": consumption.run,
        }
        what = "the consumption of records" if self.kind == "consumption" else f"the {self.kind} of losses"
        return what, makers[self.kind], {"folder", "progress"}


class Sweep(FixedSection):
    """Several runs: a base configuration, and the changes of each run."""

    kind: Literal["sweep"]
    name: str = Field(min_length=1)
    description: str = ""
    reference: str | None = None
    """A table of the paper, such as tobaben2025/A3, that is printed next to the results."""
    base: str | dict[str, Any]
    """A preset, a file, or a configuration."""
    grid: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    """Lists of values by key; every combination is a cell."""
    cells: tuple[dict[str, Any], ...] = ()
    """Alternatively, the changes of each cell, by key; with a grid, each is combined with every point of the grid."""
    baseline: dict[str, Any] | None = None
    """Settings of the cell that the other cells of its method are tested against; None: no test."""
    attacks: AttackSection | None = None
    """Attacks on the releases of every cell, on public test sets; None: no attacks."""
