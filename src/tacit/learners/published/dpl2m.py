"""DPL2M as published (Phan et al. 2019, Algorithm 1): NOT PRIVATE.

The gradients of the auto-encoder (θ₁) and of the classifier (θ₂) are projected separately.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tacit.learners.base.gradient import Gradient
from tacit.learners.published.functional import Functional
from tacit.learners.replay.dpcl import project


@dataclass(kw_only=True, eq=False)
class DPL2M(Functional):
    """The functional mechanism with two projections, as published: NOT PRIVATE.

    Reference: Phan et al. 2019, DPL2M.
    Claim: ε₁ + ε₁/γ + ε₂ for ever.
    Certified: no finite epsilon; `tacit audit lifelong-reconstruction` shows why.
    Sharp edges: records and labels are reconstructed from what it releases, so it runs only on public data, or
    where the policy allows it. Its ε is the paper's claim, nothing else.
    """

    counts_input: ClassVar[bool] = False
    reference: ClassVar[str] = "Phan et al. 2019, DPL2M"
    claim: ClassVar[str] = "eps1 + eps1/gamma + eps2 for ever"

    def projected(self, gradient: Gradient, reference: Gradient) -> Gradient:
        always = self.projection == "always"
        out: dict[str, Tensor] = {}
        for first in (True, False):
            part = [name for name in gradient if name.startswith("encoder.") == first]
            mine, theirs = ({name: g[name] for name in part} for g in (gradient, reference))
            out |= project(mine, theirs, always=always)
        return out
