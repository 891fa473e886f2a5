"""The vault: private records come in, and only the results of a few charged mechanisms come out.

Formal guarantees
  * Before the charge of an exit is durable, no user code runs on records, no noise is drawn, and nothing that depends
    on records leaves the vault: only their keyed hash, labels and number are computed.
  * What an exit returns is the output of its mechanism (`exits/`): noisy clipped gradients, noisy sums, a noisy second
    moment, a noisy count or accuracy, a private label set, or the best trial of a private tuning.
  * So a learner that holds a vault, blocks and released values is post-processing of these mechanisms.

Conditions: the declarations are true (`Declared`), the store and the key file are secret, and the process is trusted.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, get_type_hints

from dp_accounting import dp_event
from torch import nn

from tacit.data.stream import Label
from tacit.errors import VaultError
from tacit.gradients.exact import ROOM
from tacit.privacy.accounting.filters import RenyiFilter
from tacit.privacy.ledger import Ledger
from tacit.privacy.vault.exits.access import Access, Exit
from tacit.privacy.vault.exits.accuracy import AccuracyExit
from tacit.privacy.vault.exits.billing import Biller
from tacit.privacy.vault.exits.count import CountExit
from tacit.privacy.vault.exits.gradient_exit import GradientExit
from tacit.privacy.vault.exits.individual_filter import FilterPlan, IndividualFilterExit
from tacit.privacy.vault.exits.label_set import LabelSetExit
from tacit.privacy.vault.exits.repeat_and_select import Plan, TuningExit
from tacit.privacy.vault.exits.second_moment import SecondMomentExit
from tacit.privacy.vault.exits.sums import SumsExit
from tacit.privacy.vault.exits.unsafe import UnsafeExits
from tacit.privacy.vault.intake import row_checks
from tacit.privacy.vault.intake.admission import Admission
from tacit.privacy.vault.intake.blocks import Block, Declared
from tacit.privacy.vault.intake.feature_map import FeatureMap
from tacit.privacy.vault.intake.store import Store


class Vault:
    """Holds private records, and offers the charged exits through which a learner uses them.

    `Vault(ledger)` keeps records in memory. `Vault(ledger, store=folder)` can also keep blocks on disk and resume work
    after a crash.

    Args:
        ledger: The ledger that is charged. It holds the secret keys.
        store: A private folder for kept blocks and unfinished work.
        max_batch: The largest number of records that an exit computes on at a time.

    Attributes:
        ledger: The ledger that is charged.
        grant: Noisy clipped gradients; see `GradientExit`.
        individual_filter: Gradients until each unit's own losses reach a bound; see `IndividualFilterExit`.
        sums: Noisy sums of features for each label; see `SumsExit`.
        second_moment: A noisy second-moment matrix; see `SecondMomentExit`.
        count: A noisy number of units; see `CountExit`.
        accuracy: The noisy accuracy of a released model; see `AccuracyExit`.
        label_set: A privately learned label set; see `LabelSetExit`.
        umbrella: Private tuning under one charge; see `TuningExit`.

    Raises:
        VaultError: If the ledger or `max_batch` is not valid, or the store cannot be used.
    """

    # Adding a line here adds an exit; see docs/adding-an-exit.md.
    grant: GradientExit
    individual_filter: IndividualFilterExit
    sums: SumsExit
    second_moment: SecondMomentExit
    count: CountExit
    accuracy: AccuracyExit
    label_set: LabelSetExit
    umbrella: TuningExit

    def __init__(self, ledger: Ledger, store: str | Path | None = None, *, max_batch: int = 4096) -> None:
        if not isinstance(ledger, Ledger):
            raise VaultError(f"a vault is opened with a ledger: Vault(Ledger(path)), got {type(ledger).__name__}")
        if max_batch < 1:
            raise VaultError(f"max_batch must be ≥ 1, got {max_batch}; it is how many records fit in memory at a time")
        self.ledger = ledger
        self._store = None if store is None else Store(store)
        self._admission = Admission(ledger, self._store)
        self._max_batch = min(max_batch, ROOM)
        self._connect(Biller(ledger, self._store))

    def _connect(self, biller: Biller) -> None:
        """Connects the exits to the intake and the biller."""
        self._biller = biller
        access = Access(
            admission=self._admission, biller=biller, ledger=self.ledger, store=self._store, max_batch=self._max_batch
        )
        for name, exit in EXITS.items():
            made = exit(access)
            made._name = name
            setattr(self, name, made)

    def __enter__(self) -> "Vault":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Vault({self.ledger!r}, store={None if self._store is None else str(self._store.path)!r})"

    def close(self) -> None:
        """Unlocks unfinished work. With a store it can be resumed, in this process or another. Charges stand."""
        if self._store is not None:
            self._store.close()

    @property
    def has_store(self) -> bool:
        """Whether blocks can be kept for a later process."""
        return self._store is not None

    @property
    def unsafe(self) -> UnsafeExits:
        """Exits without a privacy guarantee: raw records, raw labels, records under shared noise.

        Raises:
            PolicyError: If the ledger's policy forbids unsafe exits, and no data of this vault is declared public.
        """
        if not self._admission.has_public:
            self.ledger.policy.require("allow_unsafe", what="an unsafe exit of a vault without public data")
        return UnsafeExits(self._admission, self.ledger)

    def admit(self, source: Any, declared: Declared, *, through: FeatureMap | None = None) -> Block:
        """Admits the records of a task, and finds or creates their block in the ledger.

        Args:
            source: Arrays (x, y) or (x, y, ids), a torch `Dataset` of (x, y[, id]), an iterable of such, or a function
                that returns one of these, or the `records` of a task. Ids name the units. A unit that exceeds a
                declared bound is skipped silently, and no id is stored in the clear. Errors of the source are withheld
                for private data.
            declared: The public facts about the records.
            through: A frozen feature map that is applied to every record here; the block then holds features, and is
                still recognised by the records that they were computed from.

        Returns:
            A handle to the records.

        Raises:
            VaultError: If the source fails, or lacks ids although the budget protects persons.
            LedgerError: If the declaration contradicts the ledger.
        """
        return self._admission.admit(source, declared, through=through)

    def find(self, stream: str, task: str, part: str = "all") -> Block:
        """The handle of a block that is in the ledger. `reopen` reads its records back from the store.

        Args:
            stream: The name of the stream.
            task: The name of the task.
            part: The part of a split block.

        Returns:
            The handle.

        Raises:
            LedgerError: If there is no such block.
        """
        return self._admission.find(stream, task, part)

    def split(self, block: Block, parts: Mapping[str, float]) -> tuple[Block, ...]:
        """Splits a block by a keyed pseudorandom draw for each unit. The block itself cannot be read afterwards.

        Args:
            block: The block to split.
            parts: The share of each part, by name; the shares add up to 1.

        Returns:
            The handles of the parts, in the order in which they are named.

        Raises:
            VaultError: If the shares are not valid, or the block's records are not held.
        """
        return self._admission.split(block, parts)

    def with_labels(self, block: Block, labels: Sequence[Label], *, other: Label | None = None) -> Block:
        """The block under a public or privately learned label set.

        Args:
            block: The block.
            labels: The label set.
            other: A label of the set that records outside it get. By default these are skipped silently.

        Returns:
            A handle of the same block, with the labels.

        Raises:
            VaultError: If the labels cannot be a label set, or `other` is not one of them.
        """
        return self._admission.with_labels(block, labels, other=other)

    def keep(self, block: Block) -> None:
        """Writes a block's records to the store, so that a later process can `reopen` it (episodic memory).

        Args:
            block: The block.

        Raises:
            VaultError: If the vault has no store, or does not hold the records.
        """
        self._admission.keep(block)

    def reopen(self, block: Block) -> Block:
        """Reads a kept block back from the store.

        Args:
            block: The block.

        Returns:
            The same handle, whose records are held again.

        Raises:
            VaultError: If the vault has no store, or the store has no such block.
        """
        return self._admission.reopen(block)

    def drop(self, block: Block) -> None:
        """Frees the memory of a block's records; the ledger and the store keep theirs.

        Inside a trial of private tuning nothing is freed, because the next trial reads the same records.

        Args:
            block: The block.
        """
        if not self._biller.in_trial:
            self._admission.drop(block)

    def retire(self, block: Block) -> None:
        """Deletes a block's records, in memory and in the store, and closes its individual filter. Charges stand.

        Args:
            block: The block.

        Raises:
            VaultError: Inside a trial of private tuning.
        """
        if self._biller.in_trial:
            raise VaultError("a trial of private tuning cannot retire records: the next trial reads them too")
        self.ledger.retire(block.id)
        self.individual_filter.end(block)  # before the files are deleted: after a crash the next call resumes here
        self._admission.forget(block)

    def commit(self, reads: Mapping[Block, Sequence[Plan | FilterPlan | dp_event.DpEvent]]) -> None:
        """Charges everything that will ever be read from these blocks, in one transaction.

        The exits then use the committed events.

        Args:
            reads: For each block, the plans or events of all its reads.

        Raises:
            BudgetExceeded: If the reads of a block do not fit in its budget.
        """
        self.ledger.commit(
            {
                block.id: [plan if isinstance(plan, dp_event.DpEvent) else plan.event for plan in plans]
                for block, plans in reads.items()
            }
        )

    def remaining_budget(self, block: Block) -> RenyiFilter:
        """What an open block may still lose, as its Rényi filter. Public: no record is read.

        Work that was begun and not finished counts as not begun, so that a learner that resumes decides as before.

        Args:
            block: An open block.

        Returns:
            The filter, with what is left of its limits.
        """
        return self._biller.remaining_budget(block)

    def until_saved(self) -> AbstractContextManager[None]:
        """`with vault.until_saved(): …; save(…)`: after a crash inside, the same calls give the same results.

        Returns:
            A context manager. Work that is finished inside it stays resumable until it ends without an error.
        """
        return self._biller.until_saved()

    def corrected(self) -> AbstractContextManager[None]:
        """Inside it, a grant may continue a charge whose work failed under other settings.

        The new work starts at the first step that was not drawn, and nothing is charged a second time.

        Returns:
            A context manager.
        """
        return self._biller.corrected()

    def settle(self, block: Block) -> None:
        """Marks all finished work on the block's stream as released, after a crash between its save and its mark.

        Args:
            block: Any block of the stream.
        """
        self._biller.settle(block.stream_id)

    def check_map(self, block: Block, through: nn.Module) -> None:
        """Tests a feature map on synthetic rows, as the exits do before they charge.

        Args:
            block: The block whose rows it would meet.
            through: The feature map.

        Raises:
            VaultError: If the map mixes rows, is in training mode, or has a noise layer.
        """
        row_checks.check_map(self._admission.records(block), through)


EXITS: dict[str, type[Exit]] = get_type_hints(Vault)
"""The exits, by the names under which a vault offers them."""
