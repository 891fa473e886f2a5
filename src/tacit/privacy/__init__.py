"""The privacy guarantee: the vault that holds private records, the accounting, and the ledger of all charges."""

from typing import TYPE_CHECKING

from tacit.lazy import attach

if TYPE_CHECKING:
    from tacit.privacy.accounting.budget import Adjacency, Budget, Unit
    from tacit.privacy.ledger import Ledger, LedgerView, Officer
    from tacit.privacy.ledger.limits.policy import Policy
    from tacit.privacy.vault import (
        Block,
        Constant,
        Declared,
        FeatureMap,
        FilterPlan,
        FromData,
        GradientPlan,
        LabelPlan,
        Learned,
        Prior,
        Read,
        SumPlan,
        TuningPlan,
        Vault,
        from_arrays,
        from_datasets,
        from_frame,
        open_declared,
    )

__all__ = [
    "Adjacency",
    "Block",
    "Budget",
    "Constant",
    "Declared",
    "FeatureMap",
    "FilterPlan",
    "FromData",
    "GradientPlan",
    "LabelPlan",
    "Learned",
    "Ledger",
    "LedgerView",
    "Officer",
    "Policy",
    "Prior",
    "Read",
    "SumPlan",
    "TuningPlan",
    "Unit",
    "Vault",
    "from_arrays",
    "from_datasets",
    "from_frame",
    "open_declared",
]

__getattr__, __dir__ = attach(__name__, __file__)
