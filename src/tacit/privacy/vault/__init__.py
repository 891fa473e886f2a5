"""The vault: private records come in, and only the results of a few charged mechanisms come out.

`sources/` reads what is admitted; `intake/` admits, holds and keeps records; `exits/` has one file for each mechanism;
`vault.py` joins them.
"""

from typing import TYPE_CHECKING

from tacit.lazy import attach

if TYPE_CHECKING:
    from tacit.privacy.vault.dry_run import Rehearsal
    from tacit.privacy.vault.exits.grant import Grant
    from tacit.privacy.vault.exits.individual_filter import FilterPlan, IndividualFilter
    from tacit.privacy.vault.exits.label_set import LabelPlan
    from tacit.privacy.vault.exits.plans import GradientPlan, SumPlan
    from tacit.privacy.vault.exits.repeat_and_select import Plan, TuningPlan, Winner
    from tacit.privacy.vault.exits.unsafe import FunctionalPlan, Perturbed
    from tacit.privacy.vault.intake.blocks import Block, Declared, Loss, Read
    from tacit.privacy.vault.intake.feature_map import FeatureMap
    from tacit.privacy.vault.label_spaces import Constant, FromData, LabelSpace, Learned, Prior
    from tacit.privacy.vault.sources.declared import from_arrays, from_datasets, from_frame, open_declared
    from tacit.privacy.vault.vault import Vault

__all__ = [  # noqa: RUF022
    "Vault", "Declared", "Block", "Read", "Loss", "Grant", "IndividualFilter", "Winner", "Perturbed", "Rehearsal",
    "Plan", "GradientPlan", "SumPlan", "LabelPlan", "FilterPlan", "TuningPlan", "FunctionalPlan",
    "LabelSpace", "Constant", "Prior", "Learned", "FromData",
    "FeatureMap", "from_arrays", "from_datasets", "from_frame", "open_declared",
]  # fmt: skip

__getattr__, __dir__ = attach(__name__, __file__)
