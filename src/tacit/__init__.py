"""tacit: differentially private continual learning for PyTorch.

    from tacit import Budget, Declared, GradientPlan, Ledger, Vault

Names are loaded when they are used, so that `import tacit` is instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.data.stream import Stream, StreamInfo, Task, TaskInfo
    from tacit.experiment.runner import run
    from tacit.learners.adaptive import AdaptiveDPSGD
    from tacit.learners.agem import AGEM
    from tacit.learners.centralised import Centralised
    from tacit.learners.cosine import CosineClassifier
    from tacit.learners.dpagem import DPAGEM
    from tacit.learners.dpcl import DPCL
    from tacit.learners.dper import DPER
    from tacit.learners.dpl2m import DPL2M
    from tacit.learners.ensemble import PEFTEnsemble
    from tacit.learners.experts import RoutedExperts
    from tacit.learners.joint import Joint
    from tacit.learners.l2dpml import L2DPML
    from tacit.learners.lifelong import LifelongDP
    from tacit.learners.metered import MeteredGD
    from tacit.learners.moments import MomentsClassifier
    from tacit.learners.naive import NaiveDPSGD
    from tacit.learners.naive_gaussian import NaiveGaussian
    from tacit.learners.pool import Pool
    from tacit.privacy.budget import Adjacency, Budget, Unit
    from tacit.privacy.certificate import Certificate
    from tacit.privacy.declared import Block, Declared, Read
    from tacit.privacy.labelspace import Constant, FromData, Learned, Prior
    from tacit.privacy.ledger import Ledger
    from tacit.privacy.meter import MeterPlan
    from tacit.privacy.plan import GradientPlan, LabelPlan, SumPlan
    from tacit.privacy.policy import Policy
    from tacit.privacy.tuning import TuningPlan
    from tacit.privacy.vault import Vault

__version__ = "0.1.0"

_HOMES = {
    "AGEM": "learners.agem",
    "AdaptiveDPSGD": "learners.adaptive",
    "Adjacency": "privacy.budget",
    "Block": "privacy.declared",
    "Budget": "privacy.budget",
    "Centralised": "learners.centralised",
    "Certificate": "privacy.certificate",
    "Constant": "privacy.labelspace",
    "CosineClassifier": "learners.cosine",
    "DPAGEM": "learners.dpagem",
    "DPCL": "learners.dpcl",
    "DPER": "learners.dper",
    "DPL2M": "learners.dpl2m",
    "Declared": "privacy.declared",
    "FromData": "privacy.labelspace",
    "GradientPlan": "privacy.plan",
    "Joint": "learners.joint",
    "L2DPML": "learners.l2dpml",
    "LabelPlan": "privacy.plan",
    "Learned": "privacy.labelspace",
    "Ledger": "privacy.ledger",
    "LifelongDP": "learners.lifelong",
    "MeterPlan": "privacy.meter",
    "MeteredGD": "learners.metered",
    "MomentsClassifier": "learners.moments",
    "NaiveDPSGD": "learners.naive",
    "NaiveGaussian": "learners.naive_gaussian",
    "PEFTEnsemble": "learners.ensemble",
    "Policy": "privacy.policy",
    "Pool": "learners.pool",
    "Prior": "privacy.labelspace",
    "Read": "privacy.declared",
    "RoutedExperts": "learners.experts",
    "Stream": "data.stream",
    "StreamInfo": "data.stream",
    "SumPlan": "privacy.plan",
    "Task": "data.stream",
    "TaskInfo": "data.stream",
    "TuningPlan": "privacy.tuning",
    "Unit": "privacy.budget",
    "Vault": "privacy.vault",
    "run": "experiment.runner",
}
__all__ = [  # noqa: RUF022
    "Budget", "Unit", "Adjacency", "GradientPlan", "SumPlan", "LabelPlan", "MeterPlan", "TuningPlan",
    "Ledger", "Policy", "Vault", "Declared", "Block", "Read", "Certificate",
    "Stream", "StreamInfo", "Task", "TaskInfo", "Constant", "Prior", "Learned", "FromData",
    "AGEM", "AdaptiveDPSGD", "Centralised", "CosineClassifier", "DPAGEM", "DPCL", "DPER", "DPL2M", "Joint", "L2DPML",
    "LifelongDP", "MeteredGD", "MomentsClassifier", "NaiveDPSGD", "NaiveGaussian", "PEFTEnsemble", "Pool",
    "RoutedExperts", "run",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    value = getattr(import_module(f"tacit.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
