"""The tables of a ledger. `log` is authoritative; all others follow from it, and `verify` recomputes them.

Nothing here depends on SQLite. Values that the guarantee rests on are integers (nano-ε, nano-RDP) or canonical JSON.
"""

import sqlalchemy as sa

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

log = sa.Table(
    "log",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("previous", sa.String(64), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False, unique=True),
    sa.Column("format", sa.String(4)),
    sa.Index("ix_log_kind", "kind", "seq"),
)
"""`format` is that of the code that wrote the entry; the first format did not record it."""

streams = sa.Table(
    "streams",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("identity", sa.String(64), nullable=False, unique=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("unit", sa.String(16), nullable=False),
    sa.Column("adjacency", sa.String(16), nullable=False),
    sa.Column("epsilon", sa.Float(53), nullable=False),
    sa.Column("delta", sa.Float(53), nullable=False),
    sa.Column("tasks_per_unit", sa.Integer, nullable=False),
    sa.Column("records_per_unit", sa.Integer, nullable=False),
    sa.Column("fixed_schedule", sa.Boolean, nullable=False),
    sa.Column("public", sa.Boolean, nullable=False),
)

lists = sa.Table(
    "lists", metadata, sa.Column("hash", sa.String(64), primary_key=True), sa.Column("events", sa.Text, nullable=False)
)

prices = sa.Table(
    "prices",
    metadata,
    sa.Column("list_hash", sa.ForeignKey("lists.hash"), primary_key=True),
    sa.Column("adjacency", sa.String(16), primary_key=True),
    sa.Column("delta", sa.Float(53), primary_key=True),
    sa.Column("times", sa.Integer, primary_key=True),
    sa.Column("nano", sa.BigInteger, nullable=False),
)

rates = sa.Table(
    "rates",
    metadata,
    sa.Column("list_hash", sa.ForeignKey("lists.hash"), primary_key=True),
    sa.Column("adjacency", sa.String(16), primary_key=True),
    sa.Column("curve", sa.Text, nullable=False),
)

blocks = sa.Table(
    "blocks",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("identity", sa.String(64), nullable=False, unique=True),
    sa.Column("stream_id", sa.ForeignKey("streams.id"), nullable=False),
    sa.Column("root_id", sa.Integer, nullable=False, index=True),
    sa.Column("parent_id", sa.ForeignKey("blocks.id"), index=True),
    sa.Column("task", sa.Text, nullable=False),
    sa.Column("part", sa.Text, nullable=False),
    sa.Column("mode", sa.String(9), nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("labels", sa.Text, nullable=False),
    sa.Column("share", sa.Float(53)),
    sa.Column("overlap", sa.String(8), nullable=False),
    sa.Column("exposed", sa.Boolean, nullable=False),
    sa.Column("list_hash", sa.ForeignKey("lists.hash")),
    sa.Column("inherited_hash", sa.ForeignKey("lists.hash")),
    sa.Column("effective_hash", sa.ForeignKey("lists.hash")),
    sa.Column("filter_hash", sa.String(64)),
    sa.Column("implicit", sa.Boolean, nullable=False),
    sa.Column("state", sa.String(7), nullable=False),
    sa.CheckConstraint("mode IN ('committed', 'open')", name="mode"),
    sa.CheckConstraint("state IN ('live', 'split', 'retired')", name="state"),
    sa.Index("ix_blocks_stream", "stream_id", "task"),
    sa.Index("ix_blocks_effective", "stream_id", "effective_hash", "filter_hash", "state"),
)

curves = sa.Table(
    "curves",
    metadata,
    sa.Column("block_id", sa.ForeignKey("blocks.id"), primary_key=True),
    sa.Column("place", sa.Integer, primary_key=True),
    sa.Column("order", sa.Float(53), nullable=False),
    sa.Column("limit", sa.BigInteger, nullable=False),
    sa.Column("spent", sa.BigInteger, nullable=False),
    sa.CheckConstraint('spent >= 0 AND spent <= "limit"', name="filter"),
)

grants = sa.Table(
    "grants",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("pin", sa.Text, nullable=False, index=True),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("token", sa.Integer, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("state", sa.String(8), nullable=False, index=True),
    sa.Column("lease_until", sa.BigInteger, nullable=False),
    sa.Column("output_hash", sa.Text),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.CheckConstraint("state IN ('RESERVED', 'CHARGED', 'RELEASED', 'VOID')", name="state"),
)

charges = sa.Table(
    "charges",
    metadata,
    sa.Column("grant_id", sa.ForeignKey("grants.id"), primary_key=True),
    sa.Column("place", sa.Integer, primary_key=True),
    sa.Column("block_id", sa.ForeignKey("blocks.id"), nullable=False, index=True),
    sa.Column("event", sa.Text, nullable=False),
    sa.Column("additive_delta", sa.Float(53), nullable=False),
)

positions = sa.Table(
    "positions",
    metadata,
    sa.Column("series", sa.String(64), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("horizon", sa.Integer, nullable=False),
    sa.Column("grant_id", sa.ForeignKey("grants.id"), nullable=False),
    sa.UniqueConstraint("grant_id"),
)

fingerprints = sa.Table(
    "fingerprints",
    metadata,
    sa.Column("fingerprint", sa.String(128), primary_key=True),
    sa.Column("block_id", sa.ForeignKey("blocks.id"), primary_key=True, index=True),
)

members = sa.Table(
    "members",
    metadata,
    sa.Column("stream_id", sa.ForeignKey("streams.id"), primary_key=True),
    sa.Column("unit", sa.BigInteger, primary_key=True),
    sa.Column("task", sa.Text, primary_key=True),
    sa.Index("ix_members_task", "stream_id", "task", "unit"),
)

roots = sa.Table(
    "roots",
    metadata,
    sa.Column("id", sa.ForeignKey("blocks.id"), primary_key=True, autoincrement=False),
    sa.Column("stream_id", sa.ForeignKey("streams.id"), nullable=False),
    sa.Column("label_set", sa.String(64), nullable=False),
    sa.Column("enforced", sa.Boolean, nullable=False),
    sa.Column("shows", sa.String(64), nullable=False),
    sa.Index("ix_roots_stream", "stream_id", "id"),
    sa.Index("ix_roots_shows", "stream_id", "shows", "id"),
    sa.Index("ix_roots_label_set", "stream_id", "label_set"),
    sa.Index("ix_roots_enforced", "stream_id", "enforced"),
)
"""One row per task; `shows` is the name of its row in `profiles`."""

profiles = sa.Table(
    "profiles",
    metadata,
    sa.Column("stream_id", sa.ForeignKey("streams.id"), primary_key=True),
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("faces", sa.Text, nullable=False),
    sa.Column("roots", sa.Integer, nullable=False),
)
"""The leaf bounds of a task (`faces`), and the number of tasks of the stream that have them."""

uses = sa.Table(
    "uses",
    metadata,
    sa.Column("stream_id", sa.ForeignKey("streams.id"), primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("through", sa.Boolean, primary_key=True),
    sa.Column("participations", sa.Integer, primary_key=True),
    sa.Column("grants", sa.Integer, nullable=False),
)
"""The number of grants of each kind on a stream, except voided ones."""

exposures = sa.Table(
    "exposures",
    metadata,
    sa.Column("block_id", sa.ForeignKey("blocks.id"), primary_key=True),
    sa.Column("why", sa.Text, primary_key=True),
    sa.Column("stream_id", sa.ForeignKey("streams.id"), nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Index("ix_exposures_why", "stream_id", "why"),
)

_OTHERS = ("log", "prices", "rates", "members")
PROJECTION = tuple(table for name, table in metadata.tables.items() if name not in _OTHERS)
"""The tables that follow from the log."""
