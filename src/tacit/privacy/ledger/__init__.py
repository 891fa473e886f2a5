"""The ledger: a durable, tamper-evident account of what every unit may still lose."""

from tacit.privacy.ledger.ledger import Ledger
from tacit.privacy.ledger.terms import (
    BlockRow,
    BlockStatement,
    GrantStatement,
    Head,
    Raise,
    Statement,
    StreamTerms,
    Ticket,
    Verification,
)

__all__ = [
    "BlockRow",
    "BlockStatement",
    "GrantStatement",
    "Head",
    "Ledger",
    "Raise",
    "Statement",
    "StreamTerms",
    "Ticket",
    "Verification",
]
