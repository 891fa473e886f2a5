"""The tables of a ledger. `log` is the truth; every other table is a projection that `verify` recomputes.

Nothing here needs SQLite. Values that carry the guarantee are integers (nano-ε, nano-RDP) or canonical JSON text.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

log = Table(
    "log",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("body", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False, unique=True),
    Column("format", String(4)),
    Index("ix_log_kind", "kind", "seq"),
)
"""`format` is that of the code that wrote the entry; the first format did not say it."""

streams = Table(
    "streams",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("identity", String(64), nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("unit", String(16), nullable=False),
    Column("adjacency", String(16), nullable=False),
    Column("epsilon", Float(53), nullable=False),
    Column("delta", Float(53), nullable=False),
    Column("tasks_per_unit", Integer, nullable=False),
    Column("records_per_unit", Integer, nullable=False),
    Column("fixed_schedule", Boolean, nullable=False),
    Column("public", Boolean, nullable=False),
)

lists = Table(
    "lists",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("events", Text, nullable=False),
)

prices = Table(
    "prices",
    metadata,
    Column("list_hash", ForeignKey("lists.hash"), primary_key=True),
    Column("adjacency", String(16), primary_key=True),
    Column("delta", Float(53), primary_key=True),
    Column("times", Integer, primary_key=True),
    Column("nano", BigInteger, nullable=False),
)

rates = Table(
    "rates",
    metadata,
    Column("list_hash", ForeignKey("lists.hash"), primary_key=True),
    Column("adjacency", String(16), primary_key=True),
    Column("curve", Text, nullable=False),
)

blocks = Table(
    "blocks",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("identity", String(64), nullable=False, unique=True),
    Column("stream_id", ForeignKey("streams.id"), nullable=False),
    Column("root_id", Integer, nullable=False, index=True),
    Column("parent_id", ForeignKey("blocks.id"), index=True),
    Column("task", Text, nullable=False),
    Column("part", Text, nullable=False),
    Column("mode", String(9), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("labels", Text, nullable=False),
    Column("share", Float(53)),
    Column("overlap", String(8), nullable=False),
    Column("exposed", Boolean, nullable=False),
    Column("list_hash", ForeignKey("lists.hash")),
    Column("inherited_hash", ForeignKey("lists.hash")),
    Column("effective_hash", ForeignKey("lists.hash")),
    Column("filter_hash", String(64)),
    Column("implicit", Boolean, nullable=False),
    Column("state", String(7), nullable=False),
    CheckConstraint("mode IN ('committed', 'open')", name="mode"),
    CheckConstraint("state IN ('live', 'split', 'retired')", name="state"),
    Index("ix_blocks_stream", "stream_id", "task"),
    Index("ix_blocks_effective", "stream_id", "effective_hash", "filter_hash", "state"),
)

curves = Table(
    "curves",
    metadata,
    Column("block_id", ForeignKey("blocks.id"), primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("order", Float(53), nullable=False),
    Column("limit", BigInteger, nullable=False),
    Column("spent", BigInteger, nullable=False),
    CheckConstraint('spent >= 0 AND spent <= "limit"', name="filter"),
)

grants = Table(
    "grants",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("pin", Text, nullable=False, index=True),
    Column("holder", Text, nullable=False),
    Column("token", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("plan", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("state", String(8), nullable=False, index=True),
    Column("lease_until", BigInteger, nullable=False),
    Column("output_hash", Text),
    Column("seq", BigInteger, nullable=False),
    CheckConstraint("state IN ('RESERVED', 'CHARGED', 'RELEASED', 'VOID')", name="state"),
)

charges = Table(
    "charges",
    metadata,
    Column("grant_id", ForeignKey("grants.id"), primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("block_id", ForeignKey("blocks.id"), nullable=False, index=True),
    Column("event", Text, nullable=False),
    Column("additive_delta", Float(53), nullable=False),
)

positions = Table(
    "positions",
    metadata,
    Column("series", String(64), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("horizon", Integer, nullable=False),
    Column("grant_id", ForeignKey("grants.id"), nullable=False),
    UniqueConstraint("grant_id"),
)

fingerprints = Table(
    "fingerprints",
    metadata,
    Column("fingerprint", String(128), primary_key=True),
    Column("block_id", ForeignKey("blocks.id"), primary_key=True, index=True),
)

members = Table(
    "members",
    metadata,
    Column("stream_id", ForeignKey("streams.id"), primary_key=True),
    Column("unit", BigInteger, primary_key=True),
    Column("task", Text, primary_key=True),
    Index("ix_members_task", "stream_id", "task", "unit"),
)

roots = Table(
    "roots",
    metadata,
    Column("id", ForeignKey("blocks.id"), primary_key=True, autoincrement=False),
    Column("stream_id", ForeignKey("streams.id"), nullable=False),
    Column("label_set", String(64), nullable=False),
    Column("enforced", Boolean, nullable=False),
    Column("shows", String(64), nullable=False),
    Index("ix_roots_stream", "stream_id", "id"),
    Index("ix_roots_shows", "stream_id", "shows", "id"),
    Index("ix_roots_label_set", "stream_id", "label_set"),
    Index("ix_roots_enforced", "stream_id", "enforced"),
)
"""One row a task; `shows` names its row in `profiles`."""

profiles = Table(
    "profiles",
    metadata,
    Column("stream_id", ForeignKey("streams.id"), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("faces", Text, nullable=False),
    Column("roots", Integer, nullable=False),
)
"""What the parts of a task promise, and how many tasks of the stream promise just that."""

uses = Table(
    "uses",
    metadata,
    Column("stream_id", ForeignKey("streams.id"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("through", Boolean, primary_key=True),
    Column("participations", Integer, primary_key=True),
    Column("grants", Integer, nullable=False),
)
"""How many grants of each kind a stream has; those that were given back do not count."""

exposures = Table(
    "exposures",
    metadata,
    Column("block_id", ForeignKey("blocks.id"), primary_key=True),
    Column("why", Text, primary_key=True),
    Column("stream_id", ForeignKey("streams.id"), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Index("ix_exposures_why", "stream_id", "why"),
)

PROJECTION = (
    streams,
    lists,
    blocks,
    curves,
    grants,
    charges,
    positions,
    fingerprints,
    roots,
    profiles,
    uses,
    exposures,
)
