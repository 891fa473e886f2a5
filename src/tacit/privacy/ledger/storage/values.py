"""The values that a ledger accepts and returns. All are frozen, and none contains private data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tacit.errors import LedgerError
from tacit.privacy.accounting.budget import Budget

Mode = Literal["committed", "open"]
Overlap = Literal["enforced", "declared"]
BlockState = Literal["live", "split", "retired"]
GrantState = Literal["RESERVED", "CHARGED", "RELEASED", "VOID"]
FROM_DATA = "which labels occur (a label space from data)"
"""The recorded reason for exposing a block whose label set was read from its records."""

LabelPolicy = Literal[
    "declared public", "declared constant", "declared per task", "learned privately", "from data, not private", "none"
]
"""The source of a stream's label sets; `declared public` while the stream has only one task."""

UNBOUNDED = 2**31 - 1
"""The number of positions that is stored for a series without a horizon: what an integer column can hold."""
SHARED_NOISE = "all of them under one draw of noise, the functional mechanism as published"
"""The recorded reason for exposing a block whose records were released under one shared noise draw."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """The newest entry of a ledger's hash chain. Whoever knows it can tell whether the ledger was rolled back."""

    seq: int
    hash: str


@dataclass(frozen=True, kw_only=True)
class StreamTerms:
    """What is declared about a stream when it is registered.

    Attributes:
        name: The stream's name, unique in its ledger.
        budget: The most that one unit may lose over the whole stream.
        tasks_per_unit: The largest number of tasks that contain the same unit. The vault enforces it.
        records_per_unit: The largest number of records of one unit in one task. The vault enforces it.
        fixed_schedule: Whether the plans of all tasks were fixed in advance. Otherwise units that are in several tasks
            are limited by a Rényi filter, which stays valid when plans depend on earlier releases.
        public: Whether the data is public. Charges to public streams are recorded, without a claim of privacy.
    """

    name: str
    budget: Budget
    tasks_per_unit: int = 1
    records_per_unit: int = 1
    fixed_schedule: bool = True
    public: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            raise LedgerError("a stream needs a name; use one that stays the same as long as its data")
        for field in ("tasks_per_unit", "records_per_unit"):
            value = getattr(self, field)
            if not isinstance(value, int) or value < 1:
                raise LedgerError(f"{field} must be a whole number ≥ 1, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class BlockRow:
    """A block as the ledger records it."""

    id: int
    identity: str
    stream_id: int
    root_id: int
    """The block of the whole task; the block itself unless it is a part."""
    parent_id: int | None
    task: str
    part: str
    mode: Mode
    size: int
    """The declared, public size."""
    labels: tuple[Any, ...]
    overlap: Overlap
    """Whether the vault enforces the bounds per unit, or they are only declared."""
    exposed: bool
    """Whether raw records of the block were released; no finite ε holds for them."""
    committed: bool
    """Whether an event list was committed for the block."""
    state: BlockState


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work that a grant is requested for."""

    pin: str
    """Fingerprint of the work: plan, model, loss and configuration."""
    holder: str
    """The store that may run and resume the work."""
    kind: str
    """The mechanism, such as `gradient` or `sums`."""
    plan: Mapping[str, Any]
    series: str | None
    """The series of correlated noise that the grant belongs to, if any; each of its grants has its own position."""
    horizon: int | None
    """The number of positions of the series; None if it is not known."""
    lease_s: float
    """Seconds until an uncharged reservation expires."""

    @property
    def positions(self) -> int:
        """The number of positions that the ledger stores."""
        return UNBOUNDED if self.horizon is None else self.horizon

    def __post_init__(self) -> None:
        if not self.pin or not self.holder:
            raise LedgerError("a grant needs a pin (the hash of its work) and a holder; got an empty one")


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """The right to use one grant. Resuming a grant issues a new ticket and invalidates the earlier ones."""

    grant: str
    token: int
    """The fencing token: only the ticket with the grant's current token is valid."""
    generation: int
    """The generation of the noise keys."""
    series: tuple[str, ...] = ()
    """For a grant in a series of correlated noise: the grants at all positions up to its own, which is last. Noise is
    derived from these names, so a ledger that was rolled back or copied never repeats the noise of a position."""
    charged: bool = False
    """Whether the grant was already charged when this ticket was issued."""


@dataclass(frozen=True, kw_only=True)
class BlockStatement:
    """What a block is charged with: its whole event list (committed), or its filter (open)."""

    row: BlockRow
    fingerprints: tuple[str, ...]
    """Keyed hashes of the records at each admission."""
    events: tuple[str, ...]
    """Inherited events, then the block's own, as JSON (`accounting.events`). For open blocks: the events charged."""
    orders: tuple[float, ...] = ()
    limits: tuple[int, ...] = ()
    spent: tuple[int, ...] = ()
    epsilon: float = 0.0
    """The ε of a unit that is in this block only."""


@dataclass(frozen=True, kw_only=True)
class GrantStatement:
    """A grant on blocks of a stream."""

    id: str
    kind: str
    plan: Mapping[str, Any]
    pin: str
    holder: str
    state: GrantState
    generation: int
    output_hash: str | None
    position: int | None
    reads: tuple[tuple[int, str], ...]
    """Pairs of block id and event (JSON)."""


@dataclass(frozen=True, kw_only=True)
class BudgetRaise:
    """A decision to raise the budget of a stream."""

    seq: int
    by: str
    why: str
    signed: bool
    """Whether officers signed it; otherwise `by` is not authenticated."""
    before: Budget
    after: Budget


@dataclass(frozen=True, kw_only=True)
class StreamFacts:
    """What a statement and a summary of a stream have in common, read in one transaction."""

    ledger: str
    stream_id: int
    identity: str
    terms: StreamTerms
    epsilon: float
    accountant: str
    blocks: tuple[BlockStatement, ...]
    grants: tuple[GrantStatement, ...]
    raises: tuple[BudgetRaise, ...]
    policy: Mapping[str, Any]
    policy_digest: str
    reanchored: tuple[str, ...]
    """The reasons given for accepting a roll-back of this ledger."""
    head: Head


@dataclass(frozen=True, kw_only=True)
class StreamStatement(StreamFacts):
    """Every block and every grant of a stream."""

    exposures: tuple[tuple[int, str], ...]
    """(block id, reason) of every release of unprotected records; with any of them ε is infinite."""


@dataclass(frozen=True, kw_only=True)
class TaskGroup:
    """Tasks of a stream that have the same charges."""

    name: str
    tasks: int
    mode: Mode
    epsilon: float
    """The ε of one unit of one such task, in its costliest part; infinite where raw records were released."""
    events: tuple[str, ...]
    """The event list of the costliest part; empty if that part is an open block."""
    lists: tuple[tuple[str, ...], ...]
    """The event lists of all parts."""
    filters: tuple[tuple[tuple[int, int], ...], ...] = ()
    """The Rényi filters of all open parts that were charged: (index in the grid of orders, nano-RDP)."""


@dataclass(frozen=True, kw_only=True)
class GrantCount:
    """The number of grants of one kind on a stream; voided grants are not counted."""

    kind: str
    through: bool
    """Whether the records were read through a feature map."""
    participations: int
    """The tasks per unit that a series of correlated noise is calibrated for; 0 for independent noise."""
    grants: int


@dataclass(frozen=True, kw_only=True)
class StreamSummary(StreamFacts):
    """What a certificate states about a stream.

    Its size grows with the number of different plans, not with the number of tasks: of a long stream, the costliest and
    the latest tasks are listed, and all tasks are counted by group. `blocks` are those of the listed tasks, and
    `grants` the newest grants on them.
    """

    groups: tuple[TaskGroup, ...]
    """All tasks, grouped by their charges, the costliest group first."""
    listed: Mapping[int, str]
    """Root block of each listed task, with the name of its group."""
    counts: tuple[GrantCount, ...]
    """All grants, by kind."""
    enforced: bool
    """Whether the vault enforces the bounds per unit in every task."""
    label_sets: Literal["none", "the same", "several"]
    exposed: tuple[str, ...]
    """The distinct reasons for releasing unprotected records; with any of them ε is infinite."""
    moved: tuple[str, ...]
    """The reasons given for moving or restoring the ledger; each declares that no other copy is in use."""
    in_floats: bool
    """Whether a version that rounded sums and noise to floats released something of the stream."""
    several: tuple[tuple[float, ...], float] | None = None
    """Of a stream whose units are in several tasks: the Rényi curve on the grid of orders, and the additive δ, that
    bound a unit in as many tasks as it may be in; None if a unit is in one task."""

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return sum(group.tasks for group in self.groups)


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What `verify` checked: the head of the chain and the number of rows of each kind."""

    head: Head
    entries: int
    streams: int
    blocks: int
    grants: int
    lists: int
