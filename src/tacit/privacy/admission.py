"""What comes into the vault: records, under the declarations of the person who admits them.

Guarantee: admission, splits and label sets act on each unit by itself (keyed hashes of its own id and records), so one
unit more or less changes one unit inside. Bounds are enforced in silence; no count, id or message depends on the data.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from tacit.data import records as data
from tacit.data.places import as_declared
from tacit.data.records import Records
from tacit.data.stream import Label
from tacit.errors import VaultError
from tacit.privacy.billing import Biller
from tacit.privacy.budget import Unit
from tacit.privacy.declared import Block, Declared, in_the_set, label_set
from tacit.privacy.exits import guarded
from tacit.privacy.filters import RenyiFilter
from tacit.privacy.ledger import Ledger, StreamTerms
from tacit.privacy.sampling import coins
from tacit.privacy.store import Store

_SOURCE = "the source failed while its records were read"


class Admission:
    """The way in. `Vault` adds the ways out."""

    def __init__(self, ledger: Ledger, store: Store | None) -> None:
        self.ledger = ledger
        self._store = store
        self._billing = Biller(ledger, store)
        self._records: dict[int, Records] = {}

    def admit(self, source: Any, declared: Declared) -> Block:
        """Take records in, and find or make their block in the ledger.

        `source`: arrays (x, y) or (x, y, ids), a torch Dataset of (x, y[, id]), an iterable of such, or a function that
        returns one of these. Ids name the units; a unit that exceeds a declared bound is skipped in silence, and no id
        is stored in the clear. What the source raises is withheld.
        """
        keys = self.ledger.keys
        if keys.test and not declared.public:
            self.ledger.policy.require("allow_test_keys", what=f"test keys on the private stream {declared.stream!r}")
        if not declared.public:
            declared.budget.check_units(declared.size, f"task {declared.task!r} of {declared.stream!r}")
        read = partial(data.read, source, keys.identity_key, declared.records_per_unit, declared.shape)
        found = read() if declared.public else guarded(read, _SOURCE)
        if declared.budget.unit is Unit.PERSON and not found.has_ids:
            raise VaultError("the budget protects persons, so the source must say whose each record is: (x, y, ids)")
        stream = self.ledger.stream(
            StreamTerms(
                name=declared.stream,
                budget=declared.budget,
                tasks_per_unit=declared.tasks_per_unit,
                records_per_unit=declared.records_per_unit,
                fixed_schedule=declared.fixed_schedule,
                public=declared.public,
            )
        )
        self.ledger.block(
            stream,
            declared.task,
            mode="open" if declared.open else "committed",
            like=getattr(declared.like, "event", declared.like) if declared.open else None,
            size=declared.size,
            labels=declared.labels or (),
            # Two empty tasks are not the same records.
            fingerprint=found.origin if found.units else keys.identity("empty", declared.stream, declared.task),
            overlap="enforced" if found.has_ids else "declared",
        )
        if found.has_ids:
            found = found.only_units(self.ledger.enroll(stream, declared.task, found.names, declared.tasks_per_unit))
        if declared.labels is not None:
            kind = as_declared(found.y, declared.labels)  # one odd label is one label outside, whatever its kind
            found = replace(found, y=kind).under(declared.labels, declared.other)
        return self._hold(self.find(declared.stream, declared.task), found)

    def find(self, stream: str, task: str, part: str = "all") -> Block:
        """The handle of a block that is in the ledger; with `reopen`, a later process takes up what was kept."""
        row, terms = self.ledger.find(stream, task, part)
        return Block(
            id=row.id,
            name=row.identity,
            root=row.root_id,
            stream_id=row.stream_id,
            stream=stream,
            task=task,
            part=row.part,
            size=row.size,
            labels=row.labels or None,
            budget=terms.budget,
            tasks_per_unit=terms.tasks_per_unit,
            records_per_unit=terms.records_per_unit,
            public=terms.public,
        )

    def split(self, block: Block, parts: Mapping[str, float]) -> tuple[Block, ...]:
        """Cut a block by one keyed coin per unit (never by exact sizes); the block itself is then read no more."""
        shares = list(parts.values())
        if len(parts) < 2 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
            raise VaultError(f"a split needs two or more shares > 0 that add up to 1, got {dict(parts)}")
        records = self._of(block)
        sizes = {name: max(1, round(share * block.size)) for name, share in parts.items()}
        rows = self.ledger.split(block.id, sizes, parts)
        keys, order = self.ledger.keys, sorted(parts)  # the order in which the parts are named must not matter
        where = coins(
            records.names, keys.subkey(keys.identity_key, "split", block.name), [parts[name] for name in order]
        )
        made = tuple(
            self._hold(
                replace(block, id=row.id, name=row.identity, part=row.part, size=row.size),
                records.only_units(where == order.index(name)),
            )
            for name, row in zip(parts, rows, strict=True)
        )
        del self._records[block.id]
        return made

    def with_labels(self, block: Block, labels: Sequence[Label], *, other: Label | None = None) -> Block:
        """The block under a public or privately learned label set; records outside it are skipped in silence, or get
        the label `other` of it."""
        records, space = self._of(block), label_set(labels)
        in_the_set(other, space)
        return self._hold(replace(block, labels=space), records.under(space, other))

    def keep(self, block: Block) -> None:
        """Write a block's records to the store, so that a later process can `reopen` it (episodic memory)."""
        self.ledger.require_live(block.id)
        records = self._of(block)
        tensors = guarded(lambda: data.to_tensors(records), _SOURCE)
        self._folder().save(block.name, tensors)

    def reopen(self, block: Block) -> Block:
        """Take a kept block back into memory."""
        tensors = self._folder().load(block.name)
        return self._hold(block, guarded(lambda: data.from_tensors(tensors), "what the store holds cannot be read"))

    def until_saved(self) -> AbstractContextManager[None]:
        """`with vault.until_saved(): …; save(…)`: after a crash inside, the same calls give the same results."""
        return self._billing.until_saved()

    def corrected(self) -> AbstractContextManager[None]:
        """`with vault.corrected(): …`: what was charged for under other settings, and failed, is gone on with from the
        first step that was not drawn."""
        return self._billing.corrected()

    def settle(self, block: Block) -> None:
        """Mark all finished work on the block's stream as released: after a crash between its save and its mark."""
        self._billing.settle(block.stream_id)

    def left(self, block: Block) -> RenyiFilter:
        """What an open block may still lose, as its filter; no record is looked at. Work that was begun and not
        finished counts as not begun, so that a learner which is taken up again decides as it did."""
        return self._billing.left(block)

    @property
    def has_store(self) -> bool:
        """Whether records can be kept for a later process."""
        return self._store is not None

    def drop(self, block: Block) -> None:
        """Let go of a block's records in this process, to save memory; the ledger and the store keep theirs.

        In a trial of private tuning they stay: the next trial reads them too."""
        if not self._billing.in_trial:
            self._records.pop(block.id, None)

    def retire(self, block: Block) -> None:
        """Forget a block's records, in memory and in the store, and end its meter. What was charged stays charged."""
        if self._billing.in_trial:
            raise VaultError("a trial of private tuning cannot retire records: the next trial reads them too")
        self.ledger.retire(block.id)
        self._end(block)  # before the files: a kill in between, and the next call goes on here
        self._records.pop(block.id, None)
        if self._store is not None:
            self._store.delete(block.name)

    def _end(self, block: Block) -> None:
        """End what goes on until its block is retired."""
        return

    def _of(self, block: Block) -> Records:
        try:
            return self._records[block.id]
        except KeyError:
            raise VaultError(
                f"the vault does not hold the records of {block}: it was split (read its parts), or not admitted here"
            ) from None

    def _exposed(self, block: Block, why: str) -> Records:
        """Records that leave the vault unprotected: written down before, for public data or where the policy allows."""
        if not block.public:
            self.ledger.policy.require("allow_unsafe", what=f"an unsafe exit for the records of {block} ({why})")
        self.ledger.expose(block.id, why)
        return self._of(block)

    def _hold(self, block: Block, records: Records) -> Block:
        self._records[block.id] = records
        return block

    def _folder(self) -> Store:
        if self._store is None:
            raise VaultError(
                "this vault has no store; open it with Vault(ledger, store=folder) to keep records on disk"
            )
        return self._store
