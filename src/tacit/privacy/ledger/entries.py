"""The entries of the log, each with the streams and the tasks that it speaks of."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from tacit.privacy.ledger.tables import log


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of the chain, as it was written."""

    seq: int
    kind: str
    body: Mapping[str, Any]
    hash: str
    streams: tuple[str, ...]
    """The names of the streams that it is about; none where it is about the ledger."""
    tasks: tuple[str, ...]
    """The tasks, as task or task/part."""
    grant: str | None
    """The kind of work, of entries about a grant."""


def entries(connection: Connection) -> Iterator[Entry]:
    """All of them, the oldest first."""
    known = _Known()
    query = select(log.c.seq, log.c.kind, log.c.body, log.c.hash).order_by(log.c.seq)
    for seq, kind, text, sealed in connection.execute(query):
        body = json.loads(text)
        blocks, streams, tasks = known.after(kind, body)
        names = [known.streams[known.blocks[block][0]] for block in blocks] + [known.streams[one] for one in streams]
        yield Entry(
            seq=seq,
            kind=kind,
            body=body,
            hash=sealed,
            streams=tuple(dict.fromkeys(names)),
            tasks=tuple(dict.fromkeys([known.blocks[block][1] for block in blocks] + tasks)),
            grant=known.grants[body["grant"]][0] if "grant" in body else None,
        )


class _Known:
    """What earlier entries named."""

    def __init__(self) -> None:
        self.streams: dict[int, str] = {}
        self.blocks: dict[int, tuple[int, str]] = {}
        """Stream and name."""
        self.grants: dict[str, tuple[str, list[int]]] = {}
        """Kind and blocks."""

    def after(self, kind: str, body: Mapping[str, Any]) -> tuple[list[int], list[int], list[str]]:
        """The blocks, the streams and the tasks that an entry is about."""
        match kind:
            case "stream":
                self.streams[body["id"]] = body["name"]
                return [], [body["id"]], []
            case "raise":
                return [], [body["stream"]], []
            case "enroll":
                return [], [body["stream"]], [body["task"]]
            case "block":
                self.blocks[body["id"]] = (body["stream_id"], _named(body["task"], body["part"]))
                return [body["id"]], [], []
            case "split":
                stream, name = self.blocks[body["parent"]]
                task = name.partition("/")[0]
                self.blocks |= {child["id"]: (stream, _named(task, child["part"])) for child in body["children"]}
                return [body["parent"]], [], []
            case "commit":
                return _once(block for group in body["lists"] for block in group["blocks"]), [], []
            case "reserve":
                read = _once(block for block, _, _ in body["reads"])
                self.grants[body["grant"]] = (body["kind"], read)
                return read, [], []
            case "charge" | "release" | "void" | "resume":
                return self.grants[body["grant"]][1], [], []
            case "refresh" | "retire" | "expose":
                return [body["block"]], [], []
        return [], [], []


def _named(task: str, part: str) -> str:
    return task if part == "all" else f"{task}/{part}"


def _once(blocks: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(blocks))
