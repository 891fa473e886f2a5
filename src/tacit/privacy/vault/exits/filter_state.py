"""The state of an individual filter: the privacy loss of each unit so far, in memory or in a private file.

Formal guarantees
  * `FilterStateFile.write` is durable when it returns, and atomic.
  * A state that is older than the last time the filter was opened is refused: the ledger raises the filter's token at
    every opening, and the state holds the token under which it was written.
  * `admit_units` lets a unit contribute if and only if its own losses stay within the filter's bound; a unit that is
    refused once stays out. The decision looks at the unit itself alone, and every cost is rounded up.

A store that is restored to a moment since the last opening cannot be distinguished from a crash, and is not noticed.
Its noise keys are new all the same, because they depend on the token.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, tensor

from tacit.errors import LedgerError, VaultError
from tacit.privacy.ledger import Ledger, Ticket
from tacit.privacy.vault.intake.blocks import Block
from tacit.privacy.vault.intake.store import Store, save_tensors

FULL = 2**50
"""The bound ρ in whole units, to which costs are rounded up; they are added exactly. More than this: out for good."""
_UP = 1 + 1e-9  # more than the rounding of a cost in float64 can take off


@dataclass(frozen=True, kw_only=True)
class FilterState:
    """One state of an individual filter.

    Attributes:
        spent: The loss of each unit so far, in multiples of ρ/`FULL`. Private.
        steps: The number of steps in the journal.
        token: The newest token of the grant under which this may have been spent.
    """

    spent: Tensor
    steps: int
    token: int


class FilterStateFile:
    """Holds the newest `FilterState`, in a file or, without a path, in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._state: FilterState | None = None

    def read(self) -> FilterState | None:
        """The newest state; None if there is none, or if the file cannot be read."""
        if self._path is None:
            return self._state
        try:
            tensors = load_file(self._path)
            steps, token = tensors["place"].tolist()
            return FilterState(spent=tensors["spent"], steps=steps, token=token)
        except (OSError, SafetensorError, KeyError, ValueError):
            return None

    def write(self, state: FilterState) -> None:
        """Replaces the state, durably."""
        if self._path is None:
            self._state = state
            return
        try:
            tensors = {"spent": state.spent, "place": tensor([state.steps, state.token])}
            save_tensors(tensors, self._path, durable=True)
        except (OSError, SafetensorError):
            raise VaultError(
                "cannot write the state of this block's individual filter: is the disk full? Nothing was released"
            ) from None

    def delete(self) -> None:
        self._state = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def admit_units(spent: Tensor, norms: Tensor, clip: float, cost: float) -> Tensor:
    """Charges units for their own gradients, and says which of them contribute.

    Args:
        spent: The losses of the units so far; changed in place.
        norms: The norms of their gradients. One that is not finite adds nothing to the sum, and costs as `clip` does.
        clip: The clipping norm.
        cost: The cost of a gradient of norm `clip`, as a share of ρ.

    Returns:
        A mask of the units whose gradients are added.
    """
    share = (norms / clip).nan_to_num(nan=1.0, posinf=1.0).clamp(max=1.0).square()
    costs = (share * (cost * _UP * FULL)).nan_to_num(nan=math.inf).clamp(1, FULL + 1).ceil().to(torch.int64)
    admitted = spent + costs <= FULL
    spent.copy_(torch.where(admitted, spent + costs, FULL + 1))
    return admitted


def announce_opening(ledger: Ledger, store: Store, block: Block, fingerprint: str) -> None:
    """Writes the next token into a filter's state before the ledger raises it; refuses a state that is too old.

    So the ledger's token is ahead of the state only if the filter was opened elsewhere, or the store was restored. A
    crash before the ledger raises the token leaves a state that is one ahead, a crash after it one that is equal;
    nothing was released in between, and both can be opened.
    """
    ledger.require_live(block.id)
    for grant, path in store.filter_files(block.name, fingerprint).items():
        journal = store.journal(fingerprint)  # locks it: nobody else writes the state
        file = FilterStateFile(path)
        try:
            if (state := file.read()) is None:
                continue
            if _is_newest(ledger, grant, state.token):
                file.write(replace(state, token=state.token + 1))
            elif not _is_newest(ledger, grant, state.token - 1):
                raise stale_state_error(block)
        finally:
            journal.close()


def _is_newest(ledger: Ledger, grant: str, token: int) -> bool:
    try:
        ledger.check_ticket(Ticket(grant=grant, token=token, generation=0))
    except LedgerError:
        return False
    return True


def stale_state_error(block: Block) -> VaultError:
    """The error for a state that is older than the last opening of its filter."""
    return VaultError(
        f"the individual filter of {block} was opened after this state was written: the store was restored, and the "
        "losses since then are lost; restore its newest files, without which the block can no longer be read"
    )
