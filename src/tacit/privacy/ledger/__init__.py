"""The ledger: a durable, tamper-evident account of what every unit may still lose."""

from tacit.privacy.ledger.ledger import Ledger
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
from tacit.privacy.ledger.view import LedgerView

__all__ = [
    "Alike",
    "BlockRow",
    "BlockStatement",
    "GrantStatement",
    "Head",
    "Ledger",
    "LedgerView",
    "Raise",
    "Statement",
    "StreamTerms",
    "Summary",
    "Ticket",
    "Use",
    "Verification",
]
