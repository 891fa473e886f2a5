"""L2DP-ML as published (Lai et al. 2022, Algorithms 1 and 2): NOT PRIVATE.

One projection of the stacked gradient {∇R̄, ∇L̄}. `batch=None` is Algorithm 1: a whole task is one batch and one step.
"""

from dataclasses import dataclass
from typing import ClassVar

from tacit.learners.base.gradient import Gradient
from tacit.learners.published.functional import Functional
from tacit.learners.replay.dpcl import project


@dataclass(kw_only=True, eq=False)
class L2DPML(Functional):
    """The functional mechanism with streaming batches, as published: NOT PRIVATE.

    Reference: Lai et al. 2022, L2DP-ML.
    Claim: ε₁ + ε₁/γ_x + ε₁/γ + ε₂ for ever (Theorem 2).
    Certified: no finite epsilon; `tacit audit lifelong-reconstruction` shows why.
    Sharp edges: records and labels are reconstructed from what it releases, so it runs only on public data, or
    where the policy allows it. Its ε is the paper's claim. It learns a first task, and loses it over many later
    ones.
    """

    counts_input: ClassVar[bool] = True
    reference: ClassVar[str] = "Lai et al. 2022, L2DP-ML"
    claim: ClassVar[str] = "eps1 + eps1/gamma_x + eps1/gamma + eps2 for ever"

    def projected(self, gradient: Gradient, reference: Gradient) -> Gradient:
        return project(gradient, reference, always=self.projection == "always")
