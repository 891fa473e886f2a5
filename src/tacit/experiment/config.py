"""What a run does, as a typed value: data, learner, model, budget, seeds. It is checked before anything runs.

A `Config` is always resolved: the settings of the method, the network and the scenario are all in it, defaults too, so
that the file in a run's folder says everything and reads back as the same value. Names and types of these settings are
those of the code (`settings`), not a second list.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from tacit.errors import ConfigError
from tacit.experiment import settings
from tacit.experiment.attack_section import AttackSection
from tacit.experiment.settings import unknown
from tacit.experiment.tuned import TunedSection
from tacit.experiment.validation import validated
from tacit.privacy.budget import Adjacency, Budget, Unit

ADAPTED = "pretrained"
"""The network that is a backbone with an adapter."""
Test = Literal["auto", "public", "charged", "none"]


class Section(BaseModel):
    """Fixed keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Open(BaseModel):
    """Some keys are fixed, the others are settings of what the section names; both are checked."""

    model_config = ConfigDict(frozen=True, extra="allow")
    section: ClassVar[str]

    @property
    def options(self) -> dict[str, Any]:
        """The settings of what the section names, by name."""
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _check(self) -> Self:
        owner, make, but = self.target()
        found = settings.checked(self.section, owner, make, self.options, but={*but, *type(self).model_fields})
        assert self.model_extra is not None  # empty it is there, too
        self.model_extra.update(found)
        return self

    def target(self) -> tuple[str, Callable[..., Any], set[str]]:
        """What takes the settings: its name, itself, and what the run fills in."""
        raise NotImplementedError


class DataSection(Open):
    """Where the stream comes from, and how it is cut into tasks."""

    section = "data"
    source: str | tuple[str, ...]
    """A named data set, several of them, or the path of a declaration."""
    scenario: str = "declared"
    """How tasks are made; `declared`: as the declaration says."""
    held: int = Field(default=0, ge=0)
    """So many first tasks are left out (kept for tuning)."""
    shuffled: bool = False
    """Tasks come in a random order, by the seed. A learner's lists are in this order, `limit` in that before."""
    features: str | None = None
    """Records become features of a frozen public backbone: its name, the directory or hub id of a ViT, file.py:Class;
    or, for a named set, a file of features (.npy, .npy.xz, .parquet; a row for each record, in the order that `tacit
    features order` writes)."""
    label_space: Literal["task", "constant", "learned", "data"] = "task"
    """Which labels a task has. task: its own, declared. constant: all of the stream's. learned: those of the stream's
    that a charged query on units kept apart finds. data: those that occur, which is not private (benchmarks only)."""
    labels_share: float = Field(default=0.05, gt=0, lt=1)
    """learned: the share of units that answer the query and are never learnt from."""
    prior_missing: float = Field(default=0.0, ge=0, lt=1)
    """So large a share of each declared set is left out of it, by the seed: to see what a wrong prior costs."""
    outside: Literal["drop", "remap"] = "drop"
    """Records with a label outside the set are skipped, or get a label of their own (`other`, or the next number)."""

    def target(self) -> tuple[str, Callable[..., Any], set[str]]:
        from tacit.experiment.streams import scenario

        make = scenario(self.scenario)
        first = next(iter(settings.parameters(make)))
        return f"the scenario {self.scenario!r}", make, {first, "seed"}


class LearnerSection(Open):
    """The method, and its settings."""

    section = "learner"
    method: str = "DPCL"
    """A name of `tacit.learners`, or the beginning of one; or file.py:Class."""

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, given: Any) -> Any:
        """`learner: NAME` is `learner: {method: NAME}`."""
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

    @property
    def has_network(self) -> bool:
        from tacit.learners import find

        return find(self.method).has_network


def learner_name(name: str) -> str:
    """The whole name of a learner: `lifelong` is LifelongDP. One of your own (file.py:Class) stays as it is."""
    from tacit.learners import HOMES, matching

    meant = [name] if ":" in name else matching(name)
    if len(meant) > 1:
        raise ConfigError(f"learner.method = {name!r} may be {' or '.join(meant)}; write more of it")
    if not meant:
        raise ConfigError(unknown("learner.method", name, HOMES, "a learner", name=name))
    return meant[0]


class ModelSection(Open):
    """The network, and its options."""

    section = "model"
    network: str = "mlp"

    def target(self) -> tuple[str, Callable[..., Any], set[str]]:
        from tacit.models import NETWORKS

        if self.network not in NETWORKS:
            raise ConfigError(unknown("model.network", self.network, NETWORKS, "a network", name=self.network))
        return self.network, NETWORKS[self.network], {"shape", "classes"}


class BudgetSection(Section):
    """What one unit may lose over the whole stream."""

    epsilon: float = Field(default=1.0, gt=0)
    delta: float = Field(default=1e-5, gt=0, lt=1)
    unit: Unit | None = None
    """Whom it protects. None: whom the stream's tasks are counted in."""
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE
    accept_large_delta: bool = False
    """Said beside a delta above one over the declared number of units, which is refused otherwise."""

    def make(self, counted: str) -> Budget:
        """The budget for a stream whose sizes count these units."""
        if self.unit is not None and self.unit != counted:
            raise ConfigError(
                f"budget.unit = {str(self.unit)!r} does not fit a stream whose unit is a {counted}; leave it out, or "
                "let the data say so"
            )
        return Budget(
            epsilon=self.epsilon,
            delta=self.delta,
            unit=Unit(counted),
            adjacency=self.adjacency,
            accept_large_delta=self.accept_large_delta,
        )


class EvaluationSection(Section):
    """Where accuracy comes from."""

    test: Test = "auto"
    """public: the tasks' public test sets. charged: noisy queries on records that are kept apart for them. auto: public
    where every task has a test set, else charged."""
    share: float = Field(default=0.1, gt=0, lt=1)
    """charged: the share of units that is asked and never learnt from."""


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


class Config(Section):
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
    """A list, or how many (from 0). A seed decides class order, permutations and initial weights, never the noise."""
    per_seed: tuple[dict[str, Any], ...] = ()
    """Settings of each seed's own, key → value, in the order of the seeds; empty: all seeds have the same."""
    lca: int = Field(default=10, ge=1)
    """Learning curves are measured after 0 to so many steps of a task."""
    evaluation: EvaluationSection = Field(default_factory=EvaluationSection)
    tuned: TunedSection = Field(default_factory=TunedSection)
    repeatable_noise: bool = False
    """Public data only: noise that anyone can recompute from the seed. Certificates then say: not private."""
    device: str = "cpu"
    """cpu, cuda, or one of several GPUs by cuda:1."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """Of one process; part of the result, since the order of additions depends on it. None: chosen when a run begins,
    and written to its folder."""

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
                f"per_seed has settings for {len(self.per_seed)} seeds, and there are {len(self.seeds)}; give each its "
                "own, or none"
            )
        if self.tuned.how == "held-tasks" and not self.data.held:
            raise ConfigError(
                "tuned.how = 'held-tasks' says that the settings were tuned on first tasks which are not learnt after, "
                "and data.held = 0 learns them; set data.held to their number"
            )
        if not self.learner.has_network:
            if self.model.network == ADAPTED:
                raise ConfigError(
                    f"{self.learner.method} trains no network, so model.network = {ADAPTED!r} and its adapter would "
                    "play no part; leave model out, or use a learner that trains one, such as PEFTEnsemble"
                )
            object.__setattr__(self, "model", ModelSection())  # it plays no part, and is written down nowhere
        return self

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From plain values, as YAML gives them."""
        return validated(cls, values)

    def plain(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude=None if self.learner.has_network else {"model"})

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.plain(), sort_keys=False, allow_unicode=True)


class Accumulation(Open):
    """Claimed and certified curves over tasks: no data, no learner."""

    section = "curves"
    kind: Literal["accumulation", "accounting"]
    name: str
    description: str = ""

    def target(self) -> tuple[str, Callable[..., Any], set[str]]:
        from tacit.experiment import accounting, accumulation

        make: Callable[..., Any] = accounting.run if self.kind == "accounting" else accumulation.run
        return f"the {self.kind} of losses", make, {"folder", "tell"}


class Sweep(Section):
    """Many runs: a base, and what is changed in each."""

    kind: Literal["sweep"]
    name: str = Field(min_length=1)
    description: str = ""
    reference: str | None = None
    """A table of the paper, such as tobaben2025/A3, that is printed beside what is found."""
    base: str | dict[str, Any]
    """A preset, a file, or a configuration."""
    grid: dict[str, tuple[Any, ...]] = {}
    """Key → values; every combination is a cell."""
    cells: tuple[dict[str, Any], ...] = ()
    """Or the changes of each cell, key → value; with a grid, each of them at every point of it."""
    baseline: dict[str, Any] | None = None
    """The values of the cell that the others of its method are compared with, by p values; None: no comparison."""
    attacks: AttackSection | None = None
    """What every cell's releases are put through, on public test sets; None: nothing."""
