"""The spending of a stream: what each block was charged, for which reader, and what is left.

It contains public facts of the ledger only, and never what individual units spent under individual filters. For each
reader (such as a learner of a pool) it also composes the training steps of its tasks by the moments accountant, as
papers do, without reads of the memory or other streams. That is a claim and not a bound: a record that two readers read
pays for both.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.certificate.claims import LEARNER_ORDER, moments_of
from tacit.privacy.ledger import GrantStatement, StreamStatement, UnitTotal

MEMORY = "memory"
"""Parts of tasks with this name are memory and not trained on."""


@dataclass(frozen=True, kw_only=True)
class ChargeLine:
    """One charge of a block."""

    reader: str | None
    kind: str
    what: str
    """The event in words."""
    state: str


@dataclass(frozen=True, kw_only=True)
class BlockSpending:
    """The spending of a block: a task, or a part of one."""

    task: str
    part: str
    state: str
    epsilon: float
    """The certified ε of a unit that is in this block only, for all committed reads, used or not."""
    left: float
    """What is left of the budget for a unit that is in this block only; a unit in several tasks shares it among
    them."""
    charges: tuple[ChargeLine, ...]

    @property
    def remembered(self) -> bool:
        """Whether the block is memory."""
        return MEMORY in self.part.split("/")


@dataclass(frozen=True, kw_only=True)
class ReaderSpending:
    """The spending of one reader over all blocks that it read."""

    reader: str
    tasks: tuple[str, ...]
    """The tasks that it was trained on."""
    claimed: float
    """The ε of the training steps of these tasks by the moments accountant, at the budget's δ; a claim."""
    certified: float
    """The largest certified ε of a block that it read, with the charges of other readers."""


@dataclass(frozen=True, kw_only=True)
class UnitSpending:
    """The spending of a unit that is in as many tasks of the stream as declared; a worst case from declarations."""

    unit: str
    tasks: int
    epsilon: float
    """The ε that it may have lost over its tasks."""
    left: float
    """What is left of the stream's budget, or of the policy's unit_cap if that is less."""
    other_streams: tuple[str, ...]
    """Other streams of the ledger that may contain it."""
    all_streams: float
    """The ε over all of them and this one."""
    all_streams_delta: float


@dataclass(frozen=True, kw_only=True)
class StreamSpending:
    """The spending of a stream."""

    stream: str
    budget: float
    delta: float
    blocks: tuple[BlockSpending, ...]
    readers: tuple[ReaderSpending, ...]
    unit: UnitSpending


def spending(statement: StreamStatement, totals: Sequence[UnitTotal] = ()) -> StreamSpending:
    """The spending of blocks, readers and one unit of a stream.

    Args:
        statement: The stream's statement.
        totals: The ledger's totals, for what a unit lost in other streams.
    """
    budget = statement.terms.budget
    used = [grant for grant in statement.grants if grant.state != "VOID"]
    charges: dict[int, list[ChargeLine]] = {}
    for grant in used:
        for block, event in grant.reads:
            what = describe(json.loads(event))
            line = ChargeLine(reader=grant.plan.get("reader"), kind=grant.kind, what=what, state=grant.state)
            charges.setdefault(block, []).append(line)
    blocks = tuple(
        BlockSpending(
            task=block.row.task,
            part=block.row.part,
            state="exposed" if block.row.exposed else block.row.state,
            epsilon=float("inf") if block.row.exposed else block.epsilon,
            left=0.0 if block.row.exposed else max(0.0, budget.epsilon - block.epsilon),
            charges=tuple(charges.get(block.row.id, ())),
        )
        for block in statement.blocks
    )
    by_id = {block.row.id: spent for block, spent in zip(statement.blocks, blocks, strict=True)}
    return StreamSpending(
        stream=statement.terms.name,
        budget=budget.epsilon,
        delta=budget.delta,
        blocks=blocks,
        readers=tuple(_readers(used, by_id, budget.delta)),
        unit=_unit(statement, totals),
    )


def _unit(statement: StreamStatement, totals: Sequence[UnitTotal]) -> UnitSpending:
    terms, budget = statement.terms, statement.terms.budget
    total = next((total for total in totals if total.unit == budget.unit and not terms.public), None)
    left = max(0.0, budget.epsilon - statement.epsilon)
    if total is not None and total.left is not None:
        left = min(left, total.left)
    roots = {block.row.root_id for block in statement.blocks}
    losses = () if total is None else total.streams
    return UnitSpending(
        unit=str(budget.unit),
        tasks=min(terms.tasks_per_unit, len(roots)),
        epsilon=statement.epsilon,
        left=left,
        other_streams=tuple(loss.stream for loss in losses if loss.stream != terms.name),
        all_streams=statement.epsilon if total is None else total.epsilon,
        all_streams_delta=budget.delta if total is None else total.delta,
    )


def _readers(
    grants: list[GrantStatement], blocks: Mapping[int, BlockSpending], delta: float
) -> Iterator[ReaderSpending]:
    for name in sorted({grant.plan["reader"] for grant in grants if "reader" in grant.plan}, key=_numbered):
        own = [grant for grant in grants if grant.plan.get("reader") == name]
        steps: Counter[tuple[float, float]] = Counter()
        for grant in own:
            steps.update(_steps(grant, blocks))
        read = [blocks[block] for grant in own for block, _ in grant.reads if block in blocks]
        yield ReaderSpending(
            reader=name,
            tasks=tuple(dict.fromkeys(block.task for block in read if not block.remembered)),
            claimed=moments_of(steps, delta, LEARNER_ORDER) if steps else 0.0,
            certified=max((block.epsilon for block in read), default=0.0),
        )


def _steps(grant: GrantStatement, blocks: Mapping[int, BlockSpending]) -> dict[tuple[float, float], int]:
    """The training steps of a grant by (rate, noise). It is one mechanism for its reader: the block with most steps
    counts."""
    trained = [text for block, text in grant.reads if block not in blocks or not blocks[block].remembered]
    each = [{(r, n): t for r, n, t in _parts(json.loads(text), 1)} for text in trained]
    return max(each, key=lambda steps: sum(t * r**2 / n**2 for (r, n), t in steps.items()), default={})


def _parts(event: Mapping[str, Any], times: int, rate: float = 1.0) -> Iterator[tuple[float, float, int]]:
    """(rate, noise, times) of the Gaussians in an event."""
    match event["type"]:
        case "gaussian":
            yield rate, event["noise"], times
        case "repeated":
            yield from _parts(event["event"], times * event["times"], rate)
        case "poisson":
            yield from _parts(event["event"], times, event["rate"])
        case "composed":
            for part in event["events"]:
                yield from _parts(part, times, rate)


def _numbered(name: str) -> tuple[str, int]:
    """A sort key that puts "learner 2" before "learner 10"."""
    words = name.rsplit(" ", 1)
    return (words[0], int(words[1])) if len(words) == 2 and words[1].isdecimal() else (name, 0)


def summarize(charges: Sequence[ChargeLine]) -> list[tuple[str, str]]:
    """(reader, mechanism) of a block's charges, with equal kinds and readers merged."""
    found: dict[tuple[str, str], list[str]] = {}
    for charge in charges:
        found.setdefault((charge.reader or "–", charge.kind), []).append(charge.what)
    return [(reader, _merged(kind, whats)) for (reader, kind), whats in found.items()]


def _merged(kind: str, whats: Sequence[str]) -> str:
    times = f"{kind} ×{len(whats)}" if len(whats) > 1 else kind
    return f"{times}: {whats[0]}" if len(set(whats)) == 1 else times


def describe(event: Mapping[str, Any]) -> str:
    """An event in words."""
    match event["type"]:
        case "gaussian":
            return f"noise {event['noise']:.4g}"
        case "laplace":
            return f"Laplace noise {event['noise']:.4g}"
        case "zcdp":
            return f"each unit up to ρ = {event['rho']:.4g}"
        case "poisson":
            return f"{describe(event['event'])} at rate {event['rate']:.4g}"
        case "repeated":
            return f"{event['times']} × {describe(event['event'])}"
        case "composed":
            return " + ".join(map(describe, event["events"]))
    return str(event["type"])
