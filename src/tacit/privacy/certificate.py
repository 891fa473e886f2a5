"""The certificate: whose data, against which observer, at what ε, on what assumptions, with what evidence.

Guarantee: `claims.certified` is recomputed from the events in the ledger and is null, with the reason, where nothing
finite is certified. A paper's claim stands beside it, under the paper's own neighbouring relation, and is never merged
with it. The file carries its events, so that anyone can price them again, and the head of the ledger's hash chain, so
that a ledger that was rolled back is noticed.
"""

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from tacit.errors import CertificateError
from tacit.privacy.budget import Adjacency, ClaimAdjacency, Unit

FROM_DATA = "which labels occur (a label space from data)"
"""Why a block is exposed whose labels were read off its records."""
LabelPolicy = Literal[
    "declared public",
    "declared constant",
    "declared per task",
    "learned privately",
    "from data, not private",
    "none",
]
"""Where the label sets of a stream come from; `declared public` where there is one task so far."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")


def _without_empty(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """What is not needed is not in the file, so certificates that were signed before it existed keep their text."""
    return {key: value for key, value in values.items() if key not in names or value}


class Library(_Section):
    name: str
    version: str
    git_commit: str | None = None
    wheel_sha256: str | None = None


class UnitSection(_Section):
    kind: Unit
    max_records_per_unit_per_task: int
    max_tasks_per_unit: int
    overlap_policy: Literal["enforced", "declared"]


class Observer(_Section):
    """What the certified bound lets an attacker see: everything that is not said to be secret."""

    models: Literal["all_steps", "per_task", "final"] = "all_steps"
    noisy_gradients: Literal["visible", "hidden"] = "visible"
    memory: Literal["secret", "exposed", "none"] = "secret"
    """none: a task's records are read in no later one."""
    block_index: Literal["public", "secret"] = "public"
    batch_membership: Literal["secret", "none"] = "secret"
    """none: nothing was read in batches."""
    per_record_budgets: Literal["secret"] = "secret"
    metrics_released: tuple[str, ...] = ()


class PaperClaim(_Section):
    """What a paper's formula says. Shown, never used."""

    paper: str
    formula: str
    adjacency: ClaimAdjacency
    epsilon: float | None
    delta: float
    max_order: int | None = None
    source: str


class TaskBound(_Section):
    """What one unit loses in one task (its part with the largest loss)."""

    task: str
    part: str
    mode: Literal["committed", "open"]
    epsilon: float | None
    delta: float
    events: tuple[dict[str, Any], ...]


class TasksAlike(_Section):
    """Tasks of a long stream that are not listed one by one: what one unit loses in each of them, at most."""

    tasks: int
    mode: Literal["committed", "open"]
    epsilon: float | None
    delta: float
    events: tuple[dict[str, Any], ...]
    """Of each such task; none where tasks with different events are counted together."""


class OverTasks(_Section):
    """One way to compose the tasks; `applies` marks the one that holds for this stream."""

    rule: Literal["parallel", "basic", "accountant", "adaptive filter"]
    epsilon: float | None
    delta: float
    tasks: int
    applies: bool
    holds_for: str


class Certified(_Section):
    epsilon: float | None
    """None: no finite epsilon is certified."""
    delta: float
    reason: str
    curve: tuple[tuple[float | None, float], ...]
    """(ε, δ) pairs of the bound that applies."""
    accountant: str
    direction: Literal["max(add, remove)"] = "max(add, remove)"
    tasks: tuple[TaskBound, ...]
    """Of a long stream the costliest and the last ones."""
    over_tasks: tuple[OverTasks, ...]
    alike: tuple[TasksAlike, ...] = ()
    """All other tasks."""

    @property
    def bounds(self) -> "tuple[TaskBound | TasksAlike, ...]":
        """Every task, by itself or among those alike."""
        return (*self.tasks, *self.alike)

    @property
    def all_tasks(self) -> int:
        """How many tasks there are."""
        return len(self.tasks) + sum(one.tasks for one in self.alike)

    @model_serializer(mode="wrap")
    def _as_before(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_empty(plain(self), "alike")


class Claims(_Section):
    paper: tuple[PaperClaim, ...]
    certified: Certified


class Mechanism(_Section):
    """One grant of the ledger: what was done, and the plan it was done by."""

    grant: str
    kind: str
    state: Literal["RESERVED", "CHARGED", "RELEASED"]
    plan: dict[str, Any]
    reads: tuple[dict[str, Any], ...]
    """Block and event of each read."""
    sampler: str
    denominator: str
    noise: str


class Assumption(_Section):
    name: str
    state: Literal["checked", "declared", "violated"]
    says: str


class Audit(_Section):
    """Evidence from an attack: a lower bound on ε. It can refute, never prove."""

    design: str
    runs: int
    delta: float
    confidence: float
    epsilon_lower_bound: float
    observer: str
    date: str
    verdict: Literal["consistent", "refuted"]


class Labels(_Section):
    policy: LabelPolicy
    dropped_count_released: Literal[False] = False


class Schedule(_Section):
    number_and_timing_public: Literal[True] = True
    empty_task_policy: Literal["release noise"] = "release noise"
    sizes: Literal["nominal"] = "nominal"
    plans_fixed_in_advance: bool


class LedgerSection(_Section):
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


class OtherStream(_Section):
    """Another private stream of the same ledger."""

    stream: str
    unit: Unit
    adjacency: Adjacency
    epsilon: float | None
    delta: float
    added: bool
    """Whether its loss is in the total: it protects the same kind of unit."""


class SameUnits(_Section):
    """What one unit may have lost over all streams of the ledger that may hold it: a worst case from declarations,
    where streams and plans were fixed in advance."""

    streams: tuple[OtherStream, ...]
    disjoint: tuple[tuple[str, ...], ...]
    """Streams of which a unit is in one only, as the policy declares: only the costliest of them is added."""
    adjacency: Adjacency
    epsilon: float | None
    """Of this stream and the others together; None: no finite epsilon is certified."""
    delta: float
    accountant: str


class ReleaseSection(_Section):
    """Which release the certificate speaks of: SHA-256 in hexadecimal."""

    tensors: dict[str, str]
    """Of each tensor of the model: its type, shape and values."""
    files: dict[str, str]
    """Of each file of the release, the certificate aside."""


class Signature(_Section):
    algorithm: Literal["Ed25519"] = "Ed25519"
    public_key: str
    value: str
    covers: Literal["certificate", "certificate and public key"] = "certificate"
    """The first signatures did not cover the public key that stands beside them."""


class Certificate(_Section):
    """Machine-readable; `print(certificate)` gives the text for people."""

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
    """Of a long stream the newest on the tasks that are listed."""
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
    """How many of each kind are not listed."""
    beside: tuple[str, ...] = ()
    """What else went into the release, in the learner's words: other streams, public records."""
    same_units: SameUnits | None = None
    """None: the ledger has no other private stream."""
    arithmetic: Literal["exact"] | None = None
    """exact: sums and noise were exact numbers, correctly rounded to a public grid. None: released, at least in part,
    by a version that added rounded noise to rounded sums, which gives records away."""
    release: ReleaseSection | None = None
    """None: of no release, or made before certificates named their model."""

    @property
    def epsilon(self) -> float | None:
        """The certified ε, or None."""
        return self.claims.certified.epsilon

    def canonical(self) -> bytes:
        """What is signed: everything but the signature, with sorted keys."""
        body = self.model_dump(mode="json", exclude={"signature"})
        return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    @model_serializer(mode="wrap")
    def _as_before(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_empty(plain(self), "other_mechanisms", "beside", "same_units", "arithmetic", "release")

    def to_json(self) -> str:
        return self.model_dump_json(indent=2)

    def save(self, path: str | Path) -> None:
        """The whole file or none of it."""
        draft = Path(f"{path}.new")
        draft.write_text(self.to_json() + "\n", encoding="utf-8")
        draft.replace(path)

    @classmethod
    def load(cls, path: str | Path) -> "Certificate":
        try:
            return cls.model_validate_json(Path(path).read_bytes())
        except OSError as error:
            raise CertificateError(f"cannot read the certificate {path}: {error.strerror}") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(step) for step in first["loc"]) or "the file"
            raise CertificateError(
                f"{path} is not a certificate of tacit: {where}: {first['msg']}; ask its issuer for the original"
            ) from None

    def __str__(self) -> str:
        from tacit.privacy.certificate_text import text

        return text(self)
