"""Continual learners, one method in each file; `find` returns a learner class by its name."""

from typing import TYPE_CHECKING

from tacit.lazy import attach

if TYPE_CHECKING:
    from tacit.learners.adaptive.adaptive import AdaptiveDPSGD
    from tacit.learners.adaptive.metered import MeteredGD
    from tacit.learners.base.gradient import GradientLearner
    from tacit.learners.base.learner import Learner
    from tacit.learners.base.registry import LEARNERS, find, load_learner, matching
    from tacit.learners.base.release import Release
    from tacit.learners.baselines.agem import AGEM
    from tacit.learners.baselines.centralised import Centralised
    from tacit.learners.baselines.fecam import FeCAM
    from tacit.learners.baselines.joint import Joint
    from tacit.learners.baselines.naive import NaiveDPSGD
    from tacit.learners.baselines.ranpac import RanPAC
    from tacit.learners.closed_form.cosine import CosineClassifier
    from tacit.learners.closed_form.dpfc import DPFC
    from tacit.learners.closed_form.lifelong import LifelongDP
    from tacit.learners.closed_form.moments import MomentsClassifier
    from tacit.learners.experts.ensemble import PEFTEnsemble
    from tacit.learners.experts.experts import RoutedExperts
    from tacit.learners.pool.pool import Pool
    from tacit.learners.published.dpl2m import DPL2M
    from tacit.learners.published.l2dpml import L2DPML
    from tacit.learners.published.published_dpcl import PublishedDPCL
    from tacit.learners.published.published_robust_dpcl import PublishedRobustDPCL
    from tacit.learners.replay.dpagem import DPAGEM
    from tacit.learners.replay.dpcl import DPCL
    from tacit.learners.replay.dper import DPER
    from tacit.learners.replay.generative import DPGenerativeReplay
    from tacit.learners.replay.naive_gaussian import NaiveGaussian

__all__ = [
    "AGEM",
    "DPAGEM",
    "DPCL",
    "DPER",
    "DPFC",
    "DPL2M",
    "L2DPML",
    "LEARNERS",
    "AdaptiveDPSGD",
    "Centralised",
    "CosineClassifier",
    "DPGenerativeReplay",
    "FeCAM",
    "GradientLearner",
    "Joint",
    "Learner",
    "LifelongDP",
    "MeteredGD",
    "MomentsClassifier",
    "NaiveDPSGD",
    "NaiveGaussian",
    "PEFTEnsemble",
    "Pool",
    "PublishedDPCL",
    "PublishedRobustDPCL",
    "RanPAC",
    "Release",
    "RoutedExperts",
    "find",
    "load_learner",
    "matching",
]

__getattr__, __dir__ = attach(__name__, __file__)
