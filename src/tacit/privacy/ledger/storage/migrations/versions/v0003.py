"""Entries that say when, and decisions that officers sign. No table changes. Frozen, like v0002.

Code of the format before cannot write to a ledger after this, since it would let anybody adopt a policy in
a ledger that has officers.
"""

from alembic import op

from tacit.privacy.ledger.storage import triggers

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    triggers.remove(op.get_bind(), triggers.RULES_0002)
    triggers.install(op.get_bind(), triggers.RULES_0003)
