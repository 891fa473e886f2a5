"""What an exit of the vault may use, and the base class of all exits."""

from dataclasses import dataclass, replace

from tacit.errors import VaultError
from tacit.privacy.ledger import Ledger, Ticket
from tacit.privacy.randomness.keys import NOISE
from tacit.privacy.vault.exits.billing import Biller
from tacit.privacy.vault.intake.admission import Admission
from tacit.privacy.vault.intake.blocks import Block
from tacit.privacy.vault.intake.records import Records
from tacit.privacy.vault.intake.store import Store


@dataclass(frozen=True, kw_only=True)
class Access:
    """The parts of a vault that its exits share.

    Attributes:
        admission: Holds the private records of each block.
        biller: Charges the ledger. An exit runs no code on records and draws no noise before its charge is durable.
        ledger: Holds the secret keys from which coins and noise are derived.
        store: The private folder on disk, if the vault has one.
        max_batch: The largest number of records that an exit computes on at a time.
    """

    admission: Admission
    biller: Biller
    ledger: Ledger
    store: Store | None
    max_batch: int

    def records(self, block: Block) -> Records:
        """The private records of a block.

        Raises:
            LedgerError: If the block was retired, or is not in the ledger.
            VaultError: If this process does not hold its records, or the handle states other facts than the ledger.
        """
        self.ledger.require_live(block.id)
        if replace(self.admission.find(block.stream, block.task, block.part), labels=block.labels) != block:
            raise VaultError(
                f"the ledger has other facts about {block} than this handle, and charges follow from them; use the "
                "handle that the vault returned"
            )
        return self.admission.records(block)

    def noise_key(self, ticket: Ticket) -> bytes:
        """The key of all noise that is drawn under one charge."""
        return self.ledger.keys.derive(NOISE, ticket.generation, ticket.grant)


class Exit:
    """A mechanism of the vault. Subclasses are callable, and are attributes of `Vault`."""

    _name = "exit"

    def __init__(self, access: Access) -> None:
        self._access = access

    def __repr__(self) -> str:
        return f"<vault.{self._name}>"
