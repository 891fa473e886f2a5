"""tacit: differentially private continual learning for PyTorch.

    from tacit import Budget, Ledger, MomentsClassifier, StreamInfo

The names below are those most programs need; each subpackage (`tacit.learners`, `tacit.privacy`, `tacit.data`,
`tacit.certificate`, `tacit.experiment`, …) exports the rest. Names are imported on first use.
"""

from typing import TYPE_CHECKING

from tacit.lazy import attach

if TYPE_CHECKING:
    from tacit.certificate import Certificate, issue
    from tacit.data import Stream, StreamInfo, Task, TaskInfo
    from tacit.experiment import run
    from tacit.learners import (
        AGEM,
        DPAGEM,
        DPCL,
        DPER,
        CosineClassifier,
        Joint,
        LifelongDP,
        MomentsClassifier,
        NaiveDPSGD,
        PEFTEnsemble,
        Pool,
        RoutedExperts,
    )
    from tacit.prediction import load
    from tacit.privacy import (
        Block,
        Budget,
        Declared,
        GradientPlan,
        LabelPlan,
        Ledger,
        Policy,
        Read,
        SumPlan,
        TuningPlan,
        Vault,
    )

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022
    "Budget", "GradientPlan", "SumPlan", "LabelPlan", "TuningPlan",
    "Ledger", "Policy", "Vault", "Declared", "Block", "Read", "Certificate", "issue",
    "Stream", "StreamInfo", "Task", "TaskInfo",
    "AGEM", "CosineClassifier", "DPAGEM", "DPCL", "DPER", "Joint", "LifelongDP", "MomentsClassifier", "NaiveDPSGD",
    "PEFTEnsemble", "Pool", "RoutedExperts", "load", "run",
]  # fmt: skip

__getattr__, __dir__ = attach(__name__, __file__)
