"""Record sets as the vault holds them: features, labels, and whose they are.

A record set is private: nothing outside `tacit.privacy` reads one; a learner gets a `Block`, which has nothing to read.
Records of one unit lie side by side, so that unit u is the range `starts[u] … starts[u + 1]`.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.data.places import positions
from tacit.data.sources import open_source
from tacit.data.stream import Label

Names = NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class Records:
    """Private."""

    fetch: Callable[[Tensor], Tensor]
    rows: Tensor
    """Row numbers of the source, in the order of units."""
    y: NDArray[Any]
    """Labels as given, in the order of `rows`."""
    starts: NDArray[np.int64]
    names: Names
    """A keyed 64-bit name for each unit."""
    fingerprint: str
    """Keyed hash of all records, whatever their order."""
    origin: str
    """The same of what they were made from: by it the same data under two names are recognised."""
    has_ids: bool
    """Units were named by the source, so that their bounds are enforced; otherwise they are declared."""
    single: bool
    """No unit may have more than one record, as is declared: public. By this, and never by the records, it is decided
    how units are computed, or one of them would change the arithmetic of all others."""

    @property
    def units(self) -> int:
        return len(self.names)

    @cached_property
    def digest(self) -> str:
        """Hash of what is held now, after bounds, splits and label sets: the same noise never meets other records."""
        parts = (self.fingerprint.encode(), self.names.tobytes(), self.starts.tobytes(), repr(self.y.tolist()).encode())
        return hashlib.blake2b(b"|".join(parts), digest_size=16).hexdigest()

    def features(self, index: Tensor) -> Tensor:
        return self.fetch(self.rows[index])

    def expand(self, units: Tensor) -> tuple[Tensor, Tensor]:
        """The records of some units, and to which of these units (0, 1, …) each belongs."""
        count = torch.from_numpy(np.diff(self.starts))[units]
        group = torch.repeat_interleave(torch.arange(len(units)), count)
        first = torch.from_numpy(self.starts[:-1])[units] - (count.cumsum(0) - count)
        return first[group] + torch.arange(len(group)), group

    def only_units(self, keep: NDArray[np.bool_]) -> "Records":
        """Some of the units, whole."""
        counts = np.diff(self.starts)
        return self._cut(np.repeat(keep, counts), counts[keep], self.names[keep])

    def only_records(self, keep: NDArray[np.bool_]) -> "Records":
        """Some of the records; a unit that loses all of them stays, empty and unseen."""
        owner = np.repeat(np.arange(self.units), np.diff(self.starts))
        return self._cut(keep, np.bincount(owner[keep], minlength=self.units), self.names)

    def under(self, labels: Sequence[Label], other: Label | None = None) -> "Records":
        """The records with a label of the set; the others are left out, or get the label `other` of it. Either acts on
        each record by itself: one unit more or less changes one unit."""
        inside = positions(self.y, labels) >= 0
        if other is None:
            return self.only_records(inside)
        named = [label if known else other for label, known in zip(self.y.tolist(), inside.tolist(), strict=True)]
        return replace(self, y=np.asarray(named)) if named else self

    def _cut(self, keep: NDArray[np.bool_], counts: NDArray[np.int64], names: Names) -> "Records":
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return replace(self, rows=self.rows[torch.from_numpy(keep)], y=self.y[keep], starts=starts, names=names)


def read(source: Any, key: bytes, records_per_unit: int, shape: tuple[int, ...] | None = None) -> Records:
    """Records of a source, grouped by unit. A unit with more than `records_per_unit` keeps that many, chosen by keyed
    hashes of the records themselves; nothing is reported."""
    opened = open_source(source, shape)
    owners = None if opened.ids is None else _hash_ids(opened.ids, key)
    content = _hash_records(opened.fetch, opened.labels, key, owners)
    origin = content if opened.raw is None else _hash_records(opened.raw, opened.labels, key, owners)
    named = content if owners is None else owners
    order = np.lexsort((content, named))
    names, first, counts = np.unique(named[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(first, counts)
    order = order[place < records_per_unit]
    return Records(
        fetch=opened.fetch,
        rows=torch.from_numpy(order.astype(np.int64)),
        y=opened.labels[order],
        starts=np.concatenate([[0], np.cumsum(np.minimum(counts, records_per_unit))]).astype(np.int64),
        names=names,
        fingerprint=_hash(np.sort(content).tobytes(), key).hex(),
        origin=_hash(np.sort(origin).tobytes(), key).hex(),
        has_ids=opened.ids is not None,
        single=records_per_unit == 1,
    )


def to_tensors(records: Records) -> dict[str, Tensor]:
    """For the store: everything but the function that fetches."""
    labels = np.asarray([repr(label) for label in records.y.tolist()], dtype=bytes)
    return {
        "x": records.features(torch.arange(len(records.rows))),
        "y": torch.from_numpy(np.frombuffer(labels.tobytes(), dtype=np.uint8).copy()).view(len(labels), -1)
        if len(labels)
        else torch.zeros(0, 1, dtype=torch.uint8),
        "starts": torch.from_numpy(records.starts),
        "names": torch.from_numpy(records.names.view(np.int64)),
        "fingerprint": torch.frombuffer(bytearray(bytes.fromhex(records.fingerprint)), dtype=torch.uint8),
        "has_ids": torch.tensor([records.has_ids]),
        "single": torch.tensor([records.single]),
    }


def from_tensors(tensors: dict[str, Tensor]) -> Records:
    import ast

    x = tensors["x"]
    labels = [ast.literal_eval(bytes(row.tolist()).rstrip(b"\0").decode()) for row in tensors["y"]]
    fingerprint = bytes(tensors["fingerprint"].tolist()).hex()
    return Records(
        fetch=lambda rows: x[rows],
        rows=torch.arange(len(x)),
        y=np.asarray(labels) if labels else np.zeros(0, dtype=np.int64),
        starts=tensors["starts"].numpy(),
        names=tensors["names"].numpy().view(np.uint64),
        fingerprint=fingerprint,
        origin=fingerprint,  # asked for at admission alone
        has_ids=bool(tensors["has_ids"]),
        single=bool(tensors["single"]) if "single" in tensors else bool((tensors["starts"].diff() <= 1).all()),
    )


def _hash_records(fetch: Callable[[Tensor], Tensor], given: NDArray[Any], key: bytes, owners: Names | None) -> Names:
    """A keyed 64-bit hash of each record and its owner; equal records of one owner are told apart by counting them.

    The owner is in the hash, so that nobody's records decide which of another person's are kept."""
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
