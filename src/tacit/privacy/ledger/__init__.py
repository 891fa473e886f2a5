"""The ledger: a durable, tamper-evident record of every privacy charge, and the limits that charges must respect."""

from typing import TYPE_CHECKING

from tacit.lazy import attach

if TYPE_CHECKING:
    from tacit.privacy.ledger.ledger import Ledger
    from tacit.privacy.ledger.ledger_view import LedgerView
    from tacit.privacy.ledger.limits.policy import Policy
    from tacit.privacy.ledger.log.entries import LogEntry
    from tacit.privacy.ledger.officers import NOT_AUTHENTICATED, Officer
    from tacit.privacy.ledger.recovery import rebuild
    from tacit.privacy.ledger.storage.values import (
        BlockRow,
        BlockStatement,
        BudgetRaise,
        GrantCount,
        GrantStatement,
        Head,
        StreamStatement,
        StreamSummary,
        StreamTerms,
        TaskGroup,
        Ticket,
        Verification,
    )
    from tacit.privacy.ledger.totals import StreamLoss, UnitTotal

__all__ = [
    "NOT_AUTHENTICATED",
    "BlockRow",
    "BlockStatement",
    "BudgetRaise",
    "GrantCount",
    "GrantStatement",
    "Head",
    "Ledger",
    "LedgerView",
    "LogEntry",
    "Officer",
    "Policy",
    "StreamLoss",
    "StreamStatement",
    "StreamSummary",
    "StreamTerms",
    "TaskGroup",
    "Ticket",
    "UnitTotal",
    "Verification",
    "rebuild",
]

__getattr__, __dir__ = attach(__name__, __file__)
