"""The first tables. Frozen: a change of the schema is a new file beside this one."""

import sqlalchemy as sa
from alembic import op

from tacit.privacy.ledger.storage import triggers

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "log",
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.UniqueConstraint("hash", name="uq_log_hash"),
    )
    op.create_index("ix_log_kind", "log", ["kind", "seq"])
    op.create_table(
        "streams",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("identity", sa.String(64), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("unit", sa.String(16), nullable=False),
        sa.Column("adjacency", sa.String(16), nullable=False),
        sa.Column("epsilon", sa.Float(53), nullable=False),
        sa.Column("delta", sa.Float(53), nullable=False),
        sa.Column("tasks_per_unit", sa.Integer, nullable=False),
        sa.Column("records_per_unit", sa.Integer, nullable=False),
        sa.Column("fixed_schedule", sa.Boolean, nullable=False),
        sa.Column("public", sa.Boolean, nullable=False),
        sa.UniqueConstraint("identity", name="uq_streams_identity"),
    )
    op.create_table(
        "lists",
        sa.Column("hash", sa.String(64), primary_key=True),
        sa.Column("events", sa.Text, nullable=False),
    )
    op.create_table(
        "prices",
        sa.Column("list_hash", sa.String(64), sa.ForeignKey("lists.hash"), primary_key=True),
        sa.Column("adjacency", sa.String(16), primary_key=True),
        sa.Column("delta", sa.Float(53), primary_key=True),
        sa.Column("times", sa.Integer, primary_key=True),
        sa.Column("nano", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "rates",
        sa.Column("list_hash", sa.String(64), sa.ForeignKey("lists.hash"), primary_key=True),
        sa.Column("adjacency", sa.String(16), primary_key=True),
        sa.Column("curve", sa.Text, nullable=False),
    )
    op.create_table(
        "blocks",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("identity", sa.String(64), nullable=False),
        sa.Column("stream_id", sa.Integer, sa.ForeignKey("streams.id"), nullable=False),
        sa.Column("root_id", sa.Integer, nullable=False),
        sa.Column("parent_id", sa.Integer, sa.ForeignKey("blocks.id")),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("part", sa.Text, nullable=False),
        sa.Column("mode", sa.String(9), nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("share", sa.Float(53)),
        sa.Column("overlap", sa.String(8), nullable=False),
        sa.Column("exposed", sa.Boolean, nullable=False),
        sa.Column("list_hash", sa.String(64), sa.ForeignKey("lists.hash")),
        sa.Column("inherited_hash", sa.String(64), sa.ForeignKey("lists.hash")),
        sa.Column("effective_hash", sa.String(64), sa.ForeignKey("lists.hash")),
        sa.Column("filter_hash", sa.String(64)),
        sa.Column("implicit", sa.Boolean, nullable=False),
        sa.Column("state", sa.String(7), nullable=False),
        sa.UniqueConstraint("identity", name="uq_blocks_identity"),
        sa.CheckConstraint("mode IN ('committed', 'open')", name="ck_blocks_mode"),
        sa.CheckConstraint("state IN ('live', 'split', 'retired')", name="ck_blocks_state"),
    )
    op.create_index("ix_blocks_root_id", "blocks", ["root_id"])
    op.create_index("ix_blocks_parent_id", "blocks", ["parent_id"])
    op.create_index("ix_blocks_stream", "blocks", ["stream_id", "task"])
    faces = ["stream_id", "effective_hash", "filter_hash", "state"]
    op.create_index("ix_blocks_effective", "blocks", faces)
    op.create_table(
        "curves",
        sa.Column("block_id", sa.Integer, sa.ForeignKey("blocks.id"), primary_key=True),
        sa.Column("place", sa.Integer, primary_key=True),
        sa.Column("order", sa.Float(53), nullable=False),
        sa.Column("limit", sa.BigInteger, nullable=False),
        sa.Column("spent", sa.BigInteger, nullable=False),
        sa.CheckConstraint('spent >= 0 AND spent <= "limit"', name="ck_curves_filter"),
    )
    op.create_table(
        "grants",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("pin", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("token", sa.Integer, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        sa.Column("lease_until", sa.BigInteger, nullable=False),
        sa.Column("output_hash", sa.Text),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.CheckConstraint("state IN ('RESERVED', 'CHARGED', 'RELEASED', 'VOID')", name="ck_grants_state"),
    )
    op.create_index("ix_grants_pin", "grants", ["pin"])
    op.create_index("ix_grants_state", "grants", ["state"])
    op.create_table(
        "charges",
        sa.Column("grant_id", sa.String(32), sa.ForeignKey("grants.id"), primary_key=True),
        sa.Column("place", sa.Integer, primary_key=True),
        sa.Column("block_id", sa.Integer, sa.ForeignKey("blocks.id"), nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("additive_delta", sa.Float(53), nullable=False),
    )
    op.create_index("ix_charges_block_id", "charges", ["block_id"])
    op.create_table(
        "positions",
        sa.Column("series", sa.String(64), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("horizon", sa.Integer, nullable=False),
        sa.Column("grant_id", sa.String(32), sa.ForeignKey("grants.id"), nullable=False),
        sa.UniqueConstraint("grant_id", name="uq_positions_grant_id"),
    )
    op.create_table(
        "fingerprints",
        sa.Column("fingerprint", sa.String(128), primary_key=True),
        sa.Column("block_id", sa.Integer, sa.ForeignKey("blocks.id"), primary_key=True),
    )
    op.create_table(
        "members",
        sa.Column("stream_id", sa.Integer, sa.ForeignKey("streams.id"), primary_key=True),
        sa.Column("unit", sa.BigInteger, primary_key=True),
        sa.Column("task", sa.Text, primary_key=True),
    )
    triggers.install(op.get_bind(), triggers.RULES_0001)
