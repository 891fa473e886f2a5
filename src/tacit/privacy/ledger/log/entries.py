"""Log entries with the streams, tasks and grants that they refer to."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from tacit.privacy.ledger.storage.tables import log


@dataclass(frozen=True, kw_only=True)
class LogEntry:
    """One entry of the chain, with the names it refers to."""

    seq: int
    kind: str
    body: Mapping[str, Any]
    hash: str
    streams: tuple[str, ...]
    """The names of its streams; empty for entries about the whole ledger."""
    tasks: tuple[str, ...]
    """Its tasks, as `task` or `task/part`."""
    grant: str | None
    """The kind of its grant, for entries about a grant."""


def entries(connection: Connection) -> Iterator[LogEntry]:
    """All entries, the oldest first."""
    known = _Known()
    query = select(log.c.seq, log.c.kind, log.c.body, log.c.hash).order_by(log.c.seq)
    for seq, kind, text, sealed in connection.execute(query):
        body = json.loads(text)
        blocks, streams, tasks = known.after(kind, body)
        names = [known.streams[stream] for stream in (*(known.blocks[block][0] for block in blocks), *streams)]
        yield LogEntry(
            seq=seq,
            kind=kind,
            body=body,
            hash=sealed,
            streams=tuple(dict.fromkeys(names)),
            tasks=tuple(dict.fromkeys([known.blocks[block][1] for block in blocks] + tasks)),
            grant=known.grants[body["grant"]][0] if "grant" in body else None,
        )


class _Known:
    """The names that earlier entries introduced."""

    def __init__(self) -> None:
        self.streams: dict[int, str] = {}
        self.blocks: dict[int, tuple[int, str]] = {}
        """Stream id and task name."""
        self.grants: dict[str, tuple[str, list[int]]] = {}
        """Kind and block ids."""

    def after(self, kind: str, body: Mapping[str, Any]) -> tuple[list[int], list[int], list[str]]:
        """The blocks, streams and tasks that an entry refers to."""
        match kind:
            case "stream":
                self.streams[body["id"]] = body["name"]
                return [], [body["id"]], []
            case "raise":
                return [], [body["stream"]], []
            case "enroll":
                return [], [body["stream"]], [body["task"]]
            case "block":
                self.blocks[body["id"]] = (body["stream_id"], _task_name(body["task"], body["part"]))
                return [body["id"]], [], []
            case "split":
                stream, name = self.blocks[body["parent"]]
                task = name.partition("/")[0]
                self.blocks |= {child["id"]: (stream, _task_name(task, child["part"])) for child in body["children"]}
                return [body["parent"]], [], []
            case "commit":
                return _distinct(block for group in body["lists"] for block in group["blocks"]), [], []
            case "reserve":
                read = _distinct(block for block, _, _ in body["reads"])
                self.grants[body["grant"]] = (body["kind"], read)
                return read, [], []
            case "charge" | "release" | "void" | "resume":
                return self.grants[body["grant"]][1], [], []
            case "refresh" | "retire" | "expose":
                return [body["block"]], [], []
        return [], [], []


def _task_name(task: str, part: str) -> str:
    return task if part == "all" else f"{task}/{part}"


def _distinct(blocks: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(blocks))
