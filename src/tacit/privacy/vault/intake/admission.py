"""Admission of records to the vault, under the public facts that their owner declares.

Formal guarantees:
    * Adding or removing one unit of the source adds or removes at most one unit of the block. Bounds, splits and label
      sets are decided for each unit by itself, by keyed hashes of its id and its own records.
    * No unit exceeds its declared bounds (tasks per unit, records per task), provided that the source has ids. Without
      ids the bounds are an assumption, which the ledger records as declared.
    * Nothing is reported: no count, no id, and no message that depends on a record.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tacit.data.label_positions import as_declared
from tacit.data.stream import Label
from tacit.errors import VaultError
from tacit.privacy.accounting.budget import Unit
from tacit.privacy.ledger import Ledger, StreamTerms
from tacit.privacy.randomness.sampling import coins
from tacit.privacy.vault.intake import records
from tacit.privacy.vault.intake.blocks import Block, Declared, check_other_label, label_set
from tacit.privacy.vault.intake.feature_map import FeatureMap
from tacit.privacy.vault.intake.isolation import guarded
from tacit.privacy.vault.intake.records import Records
from tacit.privacy.vault.intake.store import Store

_SOURCE = "the source failed while its records were read"


class Admission:
    """Admits records, and holds them for the exits."""

    def __init__(self, ledger: Ledger, store: Store | None) -> None:
        self.ledger = ledger
        self._store = store
        self._records: dict[int, Records] = {}
        self._parts: dict[int, set[int]] = {}
        self._maps: dict[int, FeatureMap] = {}
        self.has_public = False
        """Whether data that is declared public was admitted or reopened."""

    def admit(self, source: Any, declared: Declared, *, through: FeatureMap | None = None) -> Block:
        """See `Vault.admit`."""
        keys = self.ledger.keys
        if keys.test and not declared.public:
            self.ledger.policy.require("allow_test_keys", what=f"test keys on the private stream {declared.stream!r}")
        if not declared.public:
            declared.budget.check_units(declared.size, f"task {declared.task!r} of {declared.stream!r}")
        shape, features = declared.shape, None
        if through is not None:
            through.check()
            shape, features = through.shape, partial(through.apply, task=declared.task)
        read = partial(
            records.read,
            source,
            keys.identity_key,
            declared.records_per_unit,
            shape,
            features,
            ids=declared.has_ids,
            integers=declared.integers and through is None,
            map_key=None if through is None else through.key,
        )
        admitted = read() if declared.public else guarded(read, _SOURCE)
        if declared.budget.unit is Unit.PERSON and not admitted.has_ids:
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
            fingerprint=self._origin(admitted, declared.stream, declared.task),
            overlap="enforced" if admitted.has_ids else "declared",
        )
        if admitted.has_ids:
            within = self.ledger.enroll(stream, declared.task, admitted.names, declared.tasks_per_unit)
            admitted = admitted.only_units(within)
        if declared.labels is not None:
            converted = replace(admitted, y=as_declared(admitted.y, declared.labels))
            admitted = converted.with_labels(declared.labels, declared.other)
        block = self.find(declared.stream, declared.task)
        if through is not None:
            self._maps[block.root] = through
        return self._hold(block, admitted)

    def _origin(self, held: records.Records, stream: str, task: str) -> str:
        """The fingerprint by which a ledger recognises the records. Two empty tasks are not the same records."""
        return held.origin if held.units else self.ledger.keys.identity("empty", stream, task)

    def find(self, stream: str, task: str, part: str = "all") -> Block:
        """See `Vault.find`."""
        row, terms = self.ledger.find_block(stream, task, part)
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
        """Splits a block by one keyed coin per unit, never by exact sizes: with exact sizes, adding one unit would move
        another one to the other part. The block itself can no longer be read."""
        shares = list(parts.values())
        if len(parts) < 2 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
            raise VaultError(f"a split needs two or more shares > 0 that add up to 1, got {dict(parts)}")
        held = self.records(block)
        sizes = {name: max(1, round(share * block.size)) for name, share in parts.items()}
        rows = self.ledger.split(block.id, sizes, parts, fingerprint=self._origin(held, block.stream, block.task))
        keys, order = self.ledger.keys, sorted(parts)  # the order in which parts are named must not matter
        drawn = coins(held.names, keys.subkey(keys.identity_key, "split", block.name), [parts[name] for name in order])
        blocks = tuple(
            self._hold(
                replace(block, id=row.id, name=row.identity, part=row.part, size=row.size),
                held.only_units(drawn == order.index(name)),
            )
            for name, row in zip(parts, rows, strict=True)
        )
        del self._records[block.id]
        if self._store is not None and self._store.holds(block.name):  # what was kept stays kept, part by part
            for part in blocks:
                if self.ledger.is_live(part.id):
                    self.keep(part)
            self._store.delete(block.name)
        return blocks

    def with_labels(self, block: Block, labels: Sequence[Label], *, other: Label | None = None) -> Block:
        """See `Vault.with_labels`."""
        held, space = self.records(block), label_set(labels)
        check_other_label(other, space)
        return self._hold(replace(block, labels=space), held.with_labels(space, other))

    def keep(self, block: Block) -> None:
        """Writes a block's records to the store, so that a later process can `reopen` it (episodic memory)."""
        self.ledger.require_live(block.id)
        held = self.records(block)
        self._folder().save(block.name, guarded(lambda: records.to_tensors(held), _SOURCE))

    def reopen(self, block: Block) -> Block:
        """Reads the records of a kept block from the store."""
        tensors = self._folder().load(block.name)
        return self._hold(block, guarded(lambda: records.from_tensors(tensors), "the stored records cannot be read"))

    def drop(self, block: Block) -> None:
        """Frees the memory of a block's records; the ledger and the store keep theirs."""
        self._records.pop(block.id, None)

    def forget(self, block: Block) -> None:
        """Deletes a block's records, in memory, in the store and in the cache of the feature map they came through."""
        self.drop(block)
        for number in self._parts.get(block.root, ()):
            if number in self._records:
                self._records[number].hold_alone()
        if block.root in self._maps:
            self._maps[block.root].forget(block.task)
        if self._store is not None:
            self._store.delete(block.name)

    def records(self, block: Block) -> Records:
        """The private records of a block that this process holds."""
        try:
            return self._records[block.id]
        except KeyError:
            raise VaultError(
                f"the vault does not hold the records of {block}: it was split (read its parts), or not admitted here"
            ) from None

    def _hold(self, block: Block, records: Records) -> Block:
        self._records[block.id] = records
        self._parts.setdefault(block.root, set()).add(block.id)
        self.has_public |= block.public
        return block

    def _folder(self) -> Store:
        if self._store is None:
            raise VaultError(
                "this vault has no store; open it with Vault(ledger, store=folder) to keep records on disk"
            )
        return self._store
