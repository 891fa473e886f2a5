"""The values that go into a ledger and come out of it. All are frozen; none holds private data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tacit.errors import LedgerError
from tacit.privacy.budget import Budget

Mode = Literal["committed", "open"]
Overlap = Literal["enforced", "declared"]
BlockState = Literal["live", "split", "retired"]
GrantState = Literal["RESERVED", "CHARGED", "RELEASED", "VOID"]


@dataclass(frozen=True, kw_only=True)
class Head:
    """The end of the chain: who knows it can tell whether a ledger was rolled back."""

    seq: int
    hash: str


@dataclass(frozen=True, kw_only=True)
class StreamTerms:
    """What one unit of a stream may lose over the whole stream, and how often it takes part.

    `tasks_per_unit` and `records_per_unit` are bounds that the vault enforces. `fixed_schedule` declares that the
    plans of all tasks were fixed in advance; without it, units of several tasks are gated by a Rényi filter.
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
    """A block as the ledger knows it."""

    id: int
    identity: str
    stream_id: int
    root_id: int
    parent_id: int | None
    task: str
    part: str
    mode: Mode
    size: int
    labels: tuple[Any, ...]
    overlap: Overlap
    """Whether the vault enforces how often a unit recurs, or it is only declared."""
    exposed: bool
    """Raw records left the vault: no finite ε."""
    committed: bool
    state: BlockState


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a grant is for, and who asks."""

    pin: str
    """A hash of the work: plan, model, loss, configuration."""
    holder: str
    kind: str
    plan: Mapping[str, Any]
    series: str | None
    """Grants of one series share correlated noise, each at its own position."""
    horizon: int
    lease_s: float

    def __post_init__(self) -> None:
        if not self.pin or not self.holder:
            raise LedgerError("a grant needs a pin (the hash of its work) and a holder; got an empty one")


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """The right to one grant. A newer ticket of the same grant fences this one off."""

    grant: str
    token: int
    generation: int
    series: tuple[str, ...] = ()
    """In a series of correlated noise: what each position up to its own was granted as, itself last. Noise is derived
    from these names, so a ledger that was rolled back or copied never gives the noise of a position twice."""
    charged: bool = False
    """Whether the grant was charged when this ticket was made."""


@dataclass(frozen=True, kw_only=True)
class BlockStatement:
    """What a block has promised: its whole event list (committed), or its filter (open)."""

    row: BlockRow
    fingerprints: tuple[str, ...]
    """Keyed hashes of the records it was admitted with, over time."""
    events: tuple[str, ...]
    """Inherited events, then its own: JSON texts of `tacit.privacy.events`. For open blocks: what was spent."""
    orders: tuple[float, ...] = ()
    limits: tuple[int, ...] = ()
    spent: tuple[int, ...] = ()
    epsilon: float = 0.0
    """The ε of one unit that was in this block only."""


@dataclass(frozen=True, kw_only=True)
class GrantStatement:
    """A grant on blocks of the stream."""

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
    """(block, event as JSON text)."""


@dataclass(frozen=True, kw_only=True)
class Raise:
    """A budget that was raised: when, by whom and why."""

    seq: int
    by: str
    why: str
    signed: bool
    """By an officer's key; otherwise who it was is their word."""
    before: Budget
    after: Budget


@dataclass(frozen=True, kw_only=True)
class Statement:
    """Everything a certificate says about a stream, read in one transaction."""

    ledger: str
    stream_id: int
    identity: str
    terms: StreamTerms
    epsilon: float
    accountant: str
    blocks: tuple[BlockStatement, ...]
    grants: tuple[GrantStatement, ...]
    raises: tuple[Raise, ...]
    policy: Mapping[str, Any]
    policy_digest: str
    exposures: tuple[tuple[int, str], ...]
    """(block, why) wherever records left the vault unprotected; ε is infinite then."""
    reanchored: tuple[str, ...]
    """Reasons why someone accepted a roll-back of this ledger; empty for one that never was."""
    head: Head


@dataclass(frozen=True, kw_only=True)
class Alike:
    """Tasks of a stream that promise the same."""

    name: str
    tasks: int
    mode: Mode
    epsilon: float
    """Of one unit of one such task (its costliest part); infinite where records left the vault raw."""
    events: tuple[str, ...]
    """The list of the costliest part; none where that is a filter."""
    lists: tuple[tuple[str, ...], ...]
    """The lists of all parts."""


@dataclass(frozen=True, kw_only=True)
class Use:
    """How many grants of one kind were made, those that were given back aside."""

    kind: str
    through: bool
    """Through a feature map."""
    participations: int
    """Of a unit in a series of correlated noise; 0 where every draw is its own."""
    grants: int


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a certificate says about a stream, read in one transaction. It grows with the number of different plans,
    not with the number of tasks: a long stream's costliest and last tasks are listed, the others counted."""

    ledger: str
    stream_id: int
    identity: str
    terms: StreamTerms
    epsilon: float
    accountant: str
    alike: tuple[Alike, ...]
    """All tasks."""
    listed: Mapping[int, str]
    """Of each task that is listed, by its root: which of `alike` it is."""
    blocks: tuple[BlockStatement, ...]
    """Those of the listed tasks."""
    grants: tuple[GrantStatement, ...]
    """The newest that read listed tasks."""
    uses: tuple[Use, ...]
    """All grants."""
    enforced: bool
    """Whether the vault enforces for every task how often a unit recurs."""
    label_sets: Literal["none", "the same", "several"]
    raises: tuple[Raise, ...]
    policy: Mapping[str, Any]
    policy_digest: str
    exposed: tuple[str, ...]
    """Why records left the vault unprotected, each reason once; ε is infinite then."""
    reanchored: tuple[str, ...]
    moved: tuple[str, ...]
    """Reasons why the ledger was moved or restored; no other copy of it is in use, somebody said."""
    in_floats: bool
    """Something was released by a version whose sums and noise were rounded floats."""
    head: Head

    @property
    def tasks(self) -> int:
        """How many there are in all."""
        return sum(one.tasks for one in self.alike)


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What `verify` looked at and found in order."""

    head: Head
    entries: int
    streams: int
    blocks: int
    grants: int
    lists: int
