"""The ledger: a durable, tamper-evident account of what every unit may still lose."""

from tacit.privacy.ledger.ledger import Ledger
from tacit.privacy.ledger.rebuilding import rebuild
from tacit.privacy.ledger.terms import (
    Alike,
    BlockRow,
    BlockStatement,
    GrantStatement,
    Head,
    Raise,
    Statement,
    StreamTerms,
    Summary,
    Ticket,
    Use,
    Verification,
)

__all__ = [
    "Alike",
    "BlockRow",
    "BlockStatement",
    "GrantStatement",
    "Head",
    "Ledger",
    "Raise",
    "Statement",
    "StreamTerms",
    "Summary",
    "Ticket",
    "Use",
    "Verification",
    "rebuild",
]
