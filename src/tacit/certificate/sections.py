"""The sections of a certificate, as pydantic models. Their field names are the keys of the JSON file."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from tacit.privacy.accounting.budget import Adjacency, ClaimAdjacency, Unit
from tacit.privacy.ledger.storage.values import LabelPolicy


class Section(BaseModel):
    """A frozen part of a certificate; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")


def without_empty(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """Drop these keys where they are empty, so that certificates signed before the keys existed keep their text."""
    return {key: value for key, value in values.items() if key not in names or value}


class Library(Section):
    """The version of tacit that issued the certificate."""

    name: str
    version: str
    git_commit: str | None = None
    wheel_sha256: str | None = None


class UnitSection(Section):
    """The protected unit, and the bounds on its contributions."""

    kind: Unit
    max_records_per_unit_per_task: int
    max_tasks_per_unit: int
    overlap_policy: Literal["enforced", "declared"]


class Observer(Section):
    """What the certified bound allows an attacker to see: everything that is not listed as secret."""

    models: Literal["all_steps", "per_task", "final"] = "all_steps"
    noisy_gradients: Literal["visible", "hidden"] = "visible"
    memory: Literal["secret", "exposed", "none"] = "secret"
    """`none`: the records of a task are not read in later tasks."""
    block_index: Literal["public", "secret"] = "public"
    batch_membership: Literal["secret", "none"] = "secret"
    """`none`: nothing was sampled."""
    per_record_budgets: Literal["secret"] = "secret"
    metrics_released: tuple[str, ...] = ()


class PaperClaim(Section):
    """The bound that a paper's formula gives. It is printed and never used."""

    paper: str
    formula: str
    adjacency: ClaimAdjacency
    epsilon: float | None
    delta: float
    max_order: int | None = None
    source: str


class TaskBound(Section):
    """What one unit loses in one task, in the part with the largest loss."""

    task: str
    part: str
    mode: Literal["committed", "open"]
    epsilon: float | None
    delta: float
    events: tuple[dict[str, Any], ...]


class TaskGroupBound(Section):
    """Tasks of a long stream that are not listed one by one, and what one unit loses at most in each of them."""

    tasks: int
    mode: Literal["committed", "open"]
    epsilon: float | None
    delta: float
    events: tuple[dict[str, Any], ...]
    """The events of each such task; empty where tasks with different events are counted together."""


class OverTasks(Section):
    """One way to compose the tasks; `applies` marks the one that is valid for this stream."""

    rule: Literal["parallel", "basic", "accountant", "adaptive filter"]
    epsilon: float | None
    delta: float
    tasks: int
    applies: bool
    holds_for: str


class RenyiLimits(Section):
    """A Rényi curve that bounds what a unit loses: the filter of an open block, or all tasks of a unit together."""

    orders: tuple[float, ...]
    limits: tuple[float, ...]
    """The Rényi divergence at each order, at most."""
    additive_delta: float = 0.0

    @property
    def valid(self) -> bool:
        """Whether these are the limits of a curve: anything else would give bounds that are none."""
        points = len(self.orders) == len(self.limits) and self.additive_delta >= 0
        return points and all(order > 1 for order in self.orders) and all(limit >= 0 for limit in self.limits)


class OtherBlocks(Section):
    """What the blocks lose that `tasks` and `alike` do not show, because another part of their task loses more at δ.

    With it, a certificate has all that bounds on an attacker are computed from.
    """

    lists: tuple[tuple[dict[str, Any], ...], ...] = ()
    """The event lists that no task shows."""
    filters: tuple[RenyiLimits, ...] = ()
    """The filters of open blocks; where a unit may be in several tasks, one curve for all its tasks together."""


class Certified(Section):
    """The certified bound, per task and over tasks."""

    epsilon: float | None
    """None if no finite ε is certified."""
    delta: float
    reason: str
    """Why this bound holds, or why there is none."""
    curve: tuple[tuple[float | None, float], ...]
    """(ε, δ) pairs of the applicable bound."""
    accountant: str
    direction: Literal["max(add, remove)"] = "max(add, remove)"
    tasks: tuple[TaskBound, ...]
    """All tasks or, for a long stream, the costliest and the latest."""
    over_tasks: tuple[OverTasks, ...]
    alike: tuple[TaskGroupBound, ...] = ()
    """The tasks that are not listed, grouped by their events."""
    other_blocks: OtherBlocks | None = None
    """None where they are not known: in older certificates, and where there are too many different ones."""

    @property
    def bounds(self) -> "tuple[TaskBound | TaskGroupBound, ...]":
        """The bounds of all tasks, listed or grouped."""
        return (*self.tasks, *self.alike)

    @property
    def all_tasks(self) -> int:
        """The number of tasks."""
        return len(self.tasks) + sum(group.tasks for group in self.alike)

    @model_serializer(mode="wrap")
    def _as_before(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_empty(plain(self), "alike", "other_blocks")


class Claims(Section):
    """The papers' claims, and the certified bound."""

    paper: tuple[PaperClaim, ...]
    certified: Certified


class Mechanism(Section):
    """One grant of the ledger: the mechanism and its plan."""

    grant: str
    kind: str
    state: Literal["RESERVED", "CHARGED", "RELEASED"]
    plan: dict[str, Any]
    reads: tuple[dict[str, Any], ...]
    """The block and the event of each read."""
    sampler: str
    denominator: str
    noise: str


class Assumption(Section):
    """A condition of the bound: checked by the vault, declared by a person, or violated."""

    name: str
    state: Literal["checked", "declared", "violated"]
    says: str


class Audit(Section):
    """A lower bound on ε from an attack. It can refute the certified bound, not prove it."""

    design: str
    runs: int
    delta: float
    confidence: float
    epsilon_lower_bound: float
    observer: str
    date: str
    verdict: Literal["consistent", "refuted"]


class Labels(Section):
    """The source of the label sets."""

    policy: LabelPolicy
    dropped_count_released: Literal[False] = False


class Schedule(Section):
    """Public facts about the sequence of tasks."""

    number_and_timing_public: Literal[True] = True
    empty_task_policy: Literal["release noise"] = "release noise"
    sizes: Literal["nominal"] = "nominal"
    plans_fixed_in_advance: bool


class LedgerSection(Section):
    """The ledger that the certificate was issued from, with the head of its chain."""

    id: str
    stream: str
    budget_epsilon: float
    budget_delta: float
    head_seq: int
    head_hash: str
    policy: dict[str, Any]
    policy_digest: str
    raised: tuple[str, ...]
    roll_backs_accepted: tuple[str, ...]


class OtherStream(Section):
    """Another private stream of the same ledger."""

    stream: str
    unit: Unit
    adjacency: Adjacency
    epsilon: float | None
    delta: float
    added: bool
    """Whether its loss is part of the total, because it protects the same kind of unit."""


class SameUnits(Section):
    """What one unit may have lost over all streams of the ledger that may contain it.

    A worst case from declarations, valid if streams and plans were fixed in advance.
    """

    streams: tuple[OtherStream, ...]
    disjoint: tuple[tuple[str, ...], ...]
    """Groups of streams that the policy declares disjoint; only the costliest of each group is added."""
    adjacency: Adjacency
    epsilon: float | None
    """The ε of all streams together; None if no finite ε is certified."""
    delta: float
    accountant: str


class ReleaseSection(Section):
    """The release that the certificate belongs to, as SHA-256 hashes in hexadecimal."""

    tensors: dict[str, str]
    """Hash of the type, shape and values of each tensor of the model."""
    files: dict[str, str]
    """Hash of each file of the release except the certificate."""


class Signature(Section):
    """An Ed25519 signature of the certificate."""

    algorithm: Literal["Ed25519"] = "Ed25519"
    public_key: str
    value: str
    covers: Literal["certificate", "certificate and public key"] = "certificate"
    """The first signatures did not cover the public key."""


class Contents(Section):
    """The fields of a certificate.

    Attributes:
        id: A random id.
        created: The date of issue; for public data also the time.
        library: The version of tacit.
        method: The learning method.
        mode: Whether a finite ε is certified.
        unit: The protected unit, with the bounds on its contributions.
        adjacency: The neighbouring relation of the certified bound.
        observer: What the bound allows an attacker to see.
        claims: The papers' claims, and the certified bound.
        mechanisms: The grants of the ledger; for a long stream the newest on the listed tasks.
        other_mechanisms: The number of grants that are not listed, by kind.
        assumptions: The conditions of the bound.
        tuning: How hyper-parameters were tuned.
        not_accounted: Sources of leakage that the bound does not cover.
        audit: Lower bounds on ε from attacks.
        ledger: The ledger and the head of its chain.
        data_fingerprint: The keyed identity of the stream.
        beside: Other data in the release, as the learner describes it: other streams, public records.
        same_units: The total over all streams of the ledger; None if it has no other private stream.
        arithmetic: "exact" if sums and noise were exact numbers, correctly rounded to a public grid. None if a version
            that added rounded noise to rounded sums released something; such releases leak records.
        release: Hashes of the release; None if the certificate belongs to none, or is older than these hashes.
        signature: The signature, if any.
    """

    format: Literal[1] = 1
    id: str
    created: str
    library: Library
    method: str
    mode: Literal["certified", "paper_mode", "uncertified"]
    unit: UnitSection
    adjacency: Adjacency
    observer: Observer
    claims: Claims
    mechanisms: tuple[Mechanism, ...]
    labels: Labels
    task_schedule: Schedule
    assumptions: tuple[Assumption, ...]
    tuning: str
    not_accounted: tuple[str, ...]
    audit: tuple[Audit, ...]
    ledger: LedgerSection
    data_fingerprint: str
    signature: Signature | None = Field(default=None)
    other_mechanisms: dict[str, int] = Field(default_factory=dict)
    beside: tuple[str, ...] = ()
    same_units: SameUnits | None = None
    arithmetic: Literal["exact"] | None = None
    release: ReleaseSection | None = None
