"""The unsafe exits of the vault: NOT PRIVATE, for baselines, for mechanisms that do not hold, and for attacks on them.

Guarantee: none for what leaves here, and no silence about it. It is refused unless the data is declared public or the
ledger's policy allows it; the ledger writes it down, durably, before a record is read; every certificate of the stream
from then on has no finite ε and gives the reason.
"""

import torch
from torch import Tensor

from tacit.data.stream import Label
from tacit.errors import VaultError
from tacit.privacy.admission import Admission
from tacit.privacy.certificate import FROM_DATA
from tacit.privacy.declared import Block
from tacit.privacy.functional import SHARED_NOISE, FunctionalPlan, Perturbed, perturbed
from tacit.privacy.grant import targets


class Unsafe(Admission):
    """Ways out without a guarantee. `Vault` adds those with one."""

    def unsafe(self, block: Block, why: str) -> tuple[Tensor, Tensor]:
        """The raw records: NOT PRIVATE. For public data, or where the policy allows it; every certificate says so."""
        if why in (FROM_DATA, SHARED_NOISE):
            raise VaultError(f"{why!r} is the reason of another exit; say in your own words why raw records leave")
        records = self._exposed(block, why)
        return records.features(torch.arange(len(records.rows))), targets(block, records)

    def unsafe_labels(self, block: Block) -> tuple[Label, ...]:
        """Which labels occur: NOT PRIVATE, one record decides it. Refused and certified as `unsafe`."""
        return tuple(sorted(set(self._exposed(block, FROM_DATA).y.tolist())))

    def unsafe_perturbed(self, block: Block, plan: FunctionalPlan, *, dtype: torch.dtype = torch.float32) -> Perturbed:
        """All records under one draw of noise for the whole stream, with their labels: NOT PRIVATE.

        The raw features do not leave, x + χ₁/λ does, and that is no protection: all records share χ₁, so their
        differences are exact. Refused as `unsafe`, and certified with that reason.
        """
        records = self._exposed(block, SHARED_NOISE)
        x = records.features(torch.arange(len(records.rows)))
        return perturbed(x, targets(block, records), plan, self.ledger.keys, block.stream, dtype)
