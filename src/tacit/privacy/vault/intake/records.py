"""The records of a block, grouped by unit, as the vault holds them.

Records are private: nothing outside the vault holds them, and a learner gets a `Block`, which cannot be read. The
records of unit u are the rows `starts[u]` to `starts[u + 1]`.

Formal guarantees
  * Each record is in exactly one unit. Where the source names units, a unit has no more records than was declared: the
    others are dropped by their own keyed hash, in silence.
  * No record decides how another is read, converted or grouped.
"""

import ast
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.data.label_positions import positions
from tacit.data.stream import Label
from tacit.privacy.vault.sources.source import Source, column, open_source

Names = NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class Records:
    """Records grouped by unit. Private.

    Attributes:
        fetch: Returns the features of the given rows of the source.
        rows: Rows of the source, grouped by unit.
        y: Labels, in the order of `rows`.
        starts: The first record of each unit, and the number of records at the end.
        names: A keyed 64-bit name of each unit.
        fingerprint: A keyed hash of all records, independent of their order.
        origin: The same of the records before a feature map; it recognises the same data under another name, and
            after a split.
        map_key: The key of the feature map that the records came through; None without one.
        has_ids: Whether the source names the units, so that their bounds are enforced rather than assumed.
        lazy: Whether features are read from the source when they are fetched; otherwise they are in memory.
        single: Whether the declared bound is one record per unit. This public fact, and never the records, decides how
            units are computed: otherwise one unit could change the arithmetic of all others.
    """

    fetch: Callable[[Tensor], Tensor]
    rows: Tensor
    y: NDArray[Any]
    starts: NDArray[np.int64]
    names: Names
    fingerprint: str
    origin: str
    has_ids: bool
    single: bool
    lazy: bool = False
    map_key: str | None = None

    @property
    def units(self) -> int:
        return len(self.names)

    @property
    def mapping(self) -> dict[str, str]:
        """What a plan states about the feature map that the records came through."""
        return {} if self.map_key is None else {"map": self.map_key}

    @cached_property
    def mapped(self) -> dict[str, dict[tuple[int, int], Tensor]]:
        """Features of batches of all records, by the fingerprint of the map; see `kept_features`."""
        return {}

    @cached_property
    def digest(self) -> str:
        """A hash of the records after bounds, splits and label sets. Work is fingerprinted with it, so that the same
        noise is never added to a result of other records."""
        parts = (self.fingerprint.encode(), self.names.tobytes(), self.starts.tobytes(), repr(self.y.tolist()).encode())
        return hashlib.blake2b(b"|".join(parts), digest_size=16).hexdigest()

    def features(self, index: Tensor) -> Tensor:
        """The features of some records, by their position in the block."""
        return self.fetch(self.rows[index])

    def expand(self, units: Tensor) -> tuple[Tensor, Tensor]:
        """The positions of the records of some units, and for each the position of its unit among these."""
        count = torch.from_numpy(np.diff(self.starts))[units]
        group = torch.repeat_interleave(torch.arange(len(units)), count)
        first = torch.from_numpy(self.starts[:-1])[units] - (count.cumsum(0) - count)
        return first[group] + torch.arange(len(group)), group

    def only_units(self, keep: NDArray[np.bool_]) -> "Records":
        """The records of some of the units."""
        counts = np.diff(self.starts)
        return self._subset(np.repeat(keep, counts), counts[keep], self.names[keep])

    def only_records(self, keep: NDArray[np.bool_]) -> "Records":
        """Some of the records. A unit that loses all of its records stays as an empty unit."""
        owner = np.repeat(np.arange(self.units), np.diff(self.starts))
        return self._subset(keep, np.bincount(owner[keep], minlength=self.units), self.names)

    def with_labels(self, labels: Sequence[Label], other: Label | None = None) -> "Records":
        """The records with a label of the set; the others are dropped, or get the label `other`. Each record is decided
        by itself, so that adding or removing one unit changes one unit."""
        inside = positions(self.y, labels) >= 0
        if other is None:
            return self.only_records(inside)
        y = [label if known else other for label, known in zip(self.y.tolist(), inside.tolist(), strict=True)]
        return replace(self, y=np.asarray(y)) if y else self

    def hold_alone(self) -> None:
        """Lets go of the features of other records, which this block was split from."""
        if not self.lazy:
            x = self.features(torch.arange(len(self.rows)))
            object.__setattr__(self, "fetch", lambda rows: x[rows])
            object.__setattr__(self, "rows", torch.arange(len(x)))

    def _subset(self, keep: NDArray[np.bool_], counts: NDArray[np.int64], names: Names) -> "Records":
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return replace(self, rows=self.rows[torch.from_numpy(keep)], y=self.y[keep], starts=starts, names=names)


def read(
    source: Any,
    key: bytes,
    records_per_unit: int,
    shape: tuple[int, ...] | None = None,
    through: Callable[[Source], Tensor] | None = None,
    *,
    ids: bool = False,
    integers: bool = False,
    map_key: str | None = None,
) -> Records:
    """Reads the records of a source, grouped by unit.

    A unit with more than `records_per_unit` records keeps that many, chosen by keyed hashes of its own records; nothing
    is reported.

    Args:
        source: See `open_source`.
        key: The ledger's identity key.
        records_per_unit: The declared bound.
        shape: The declared shape of one record of the source, where there is one.
        through: Computes the features of all records of the opened source; None takes the records as they are.
        ids: See `open_source`.
        integers: See `open_source`.
        map_key: The key of the feature map behind `through`.
    """
    opened = open_source(source, shape, ids=ids, integers=integers)
    owners = None if opened.ids is None else _hash_ids(opened.ids, key)
    origin = content = _hash_records(opened.fetch, opened.labels, key, owners)
    fetch = opened.fetch
    if through is not None:
        fetch = through(opened).__getitem__
        content = _hash_records(fetch, opened.labels, key, owners)
    unit_names = origin if owners is None else owners  # not by features: another processor rounds them otherwise
    order = np.lexsort((content, unit_names))
    names, first, counts = np.unique(unit_names[order], return_index=True, return_counts=True)
    position = np.arange(len(order)) - np.repeat(first, counts)
    order = order[position < records_per_unit]
    return Records(
        fetch=fetch,
        rows=torch.from_numpy(order.astype(np.int64)),
        y=opened.labels[order],
        starts=np.concatenate([[0], np.cumsum(np.minimum(counts, records_per_unit))]).astype(np.int64),
        names=names,
        fingerprint=_hash(np.sort(content).tobytes(), key).hex(),
        origin=_hash(np.sort(origin).tobytes(), key).hex(),
        has_ids=opened.ids is not None,
        single=records_per_unit == 1,
        lazy=opened.lazy and through is None,
        map_key=map_key,
    )


def to_tensors(records: Records) -> dict[str, Tensor]:
    """The records as tensors for the store."""
    labels = np.asarray([repr(label) for label in records.y.tolist()], dtype=bytes)
    y = torch.from_numpy(np.frombuffer(labels.tobytes(), dtype=np.uint8).copy())
    return {
        "x": records.features(torch.arange(len(records.rows))),
        "y": y.view(len(labels), -1) if len(labels) else y.view(0, 1),
        "starts": torch.from_numpy(records.starts),
        "names": torch.from_numpy(records.names.view(np.int64)),
        "fingerprint": _from_hex(records.fingerprint),
        "origin": _from_hex(records.origin),
        "map_key": torch.tensor(list((records.map_key or "").encode()), dtype=torch.uint8),
        "has_ids": torch.tensor([records.has_ids]),
        "single": torch.tensor([records.single]),
        "mixed": torch.tensor([records.y.dtype.kind == "O"]),
    }


def from_tensors(tensors: dict[str, Tensor]) -> Records:
    """The records that `to_tensors` stored."""
    x = tensors["x"]
    labels = [ast.literal_eval(bytes(row.tolist()).rstrip(b"\0").decode()) for row in tensors["y"]]
    fingerprint = bytes(tensors["fingerprint"].tolist()).hex()
    origin = bytes(tensors["origin"].tolist()).hex() if "origin" in tensors else fingerprint
    mixed = "mixed" in tensors and bool(tensors["mixed"])
    return Records(
        fetch=lambda rows: x[rows],
        rows=torch.arange(len(x)),
        y=column(labels, "y") if mixed else np.asarray(labels) if labels else np.zeros(0, dtype=np.int64),
        starts=tensors["starts"].numpy(),
        names=tensors["names"].numpy().view(np.uint64),
        fingerprint=fingerprint,
        origin=origin,
        has_ids=bool(tensors["has_ids"]),
        single=bool(tensors["single"]) if "single" in tensors else bool((tensors["starts"].diff() <= 1).all()),
        map_key=bytes(tensors["map_key"].tolist()).decode() or None if "map_key" in tensors else None,
    )


def _from_hex(text: str) -> Tensor:
    return torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8)


def _hash_records(fetch: Callable[[Tensor], Tensor], given: NDArray[Any], key: bytes, owners: Names | None) -> Names:
    """A keyed 64-bit hash of each record and its owner; equal records of one owner are numbered.

    The owner is in the hash, so that no person's records decide which records of another person are kept."""
    n = len(given)
    out = np.empty(n, dtype=np.uint64)
    labels = [repr(label).encode() for label in given.tolist()]
    begun = hashlib.blake2b(key=key, digest_size=16)
    seen: dict[bytes, int] = {}
    for first in range(0, n, 1024):
        rows = torch.arange(first, min(first + 1024, n))
        block = fetch(rows).detach().cpu().contiguous().view(len(rows), -1).view(torch.uint8).numpy()
        for row, features in enumerate(block, start=first):
            hashed = begun.copy()
            if owners is not None:
                hashed.update(owners[row].tobytes())
            hashed.update(features)
            hashed.update(labels[row])
            name = digest = hashed.digest()
            again = seen.get(digest, 0)
            seen[digest] = again + 1
            if again:
                name = _hash(digest + again.to_bytes(8, "big"), key)
            out[row] = int.from_bytes(name[:8], "big")
    return out


def _hash_ids(ids: NDArray[Any], key: bytes) -> Names:
    values, inverse = np.unique(ids, return_inverse=True)
    hashed = [int.from_bytes(_hash(b"unit " + repr(value).encode(), key)[:8], "big") for value in values.tolist()]
    return np.asarray(hashed, dtype=np.uint64)[inverse]


def _hash(body: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(body, key=key, digest_size=16).digest()
