"""tacit: differentially private continual learning for PyTorch.

    from tacit import Budget, Declared, GradientPlan, Ledger, Vault

Names are loaded when they are used, so that `import tacit` is instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.privacy.budget import Adjacency, Budget, Unit
    from tacit.privacy.certificate import Certificate
    from tacit.privacy.declared import Block, Declared, Read
    from tacit.privacy.ledger import Ledger
    from tacit.privacy.plan import GradientPlan, LabelPlan, SumPlan
    from tacit.privacy.policy import Policy
    from tacit.privacy.tuning import TuningPlan
    from tacit.privacy.vault import Vault

__version__ = "0.1.0"

_HOMES = {
    "Adjacency": "budget",
    "Block": "declared",
    "Budget": "budget",
    "Certificate": "certificate",
    "Declared": "declared",
    "GradientPlan": "plan",
    "LabelPlan": "plan",
    "Ledger": "ledger",
    "Policy": "policy",
    "Read": "declared",
    "SumPlan": "plan",
    "TuningPlan": "tuning",
    "Unit": "budget",
    "Vault": "vault",
}
__all__ = [  # noqa: RUF022
    "Budget", "Unit", "Adjacency", "GradientPlan", "SumPlan", "LabelPlan", "TuningPlan",
    "Ledger", "Policy", "Vault", "Declared", "Block", "Read", "Certificate",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    value = getattr(import_module(f"tacit.privacy.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
