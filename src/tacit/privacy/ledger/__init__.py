"""The ledger: a durable, tamper-evident account of what every unit may still lose."""

from tacit.privacy.ledger.entries import Entry
from tacit.privacy.ledger.ledger import Ledger
from tacit.privacy.ledger.officers import NOT_AUTHENTICATED, Officer
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
from tacit.privacy.ledger.totals import StreamLoss, UnitTotal
from tacit.privacy.ledger.view import LedgerView

__all__ = [
    "NOT_AUTHENTICATED",
    "Alike",
    "BlockRow",
    "BlockStatement",
    "Entry",
    "GrantStatement",
    "Head",
    "Ledger",
    "LedgerView",
    "Officer",
    "Raise",
    "Statement",
    "StreamLoss",
    "StreamTerms",
    "Summary",
    "Ticket",
    "UnitTotal",
    "Use",
    "Verification",
    "rebuild",
]
