"""The privacy meter as a view of the ledger: what each block was charged, for whom, and what is left.

Guarantee: public facts of the ledger only; how much of it single units used, where they are metered, is not among them.
For each reader (a learner of a pool, say) the view also adds up the training steps of its tasks by the moments
accountant, as the papers do: what a learner's own claim counts too. Reads of the memory are not in it, nor are other
streams. That is a claim and no bound: budgets belong to records, and a record that two readers read pays for both.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.privacy.claims import LEARNER_ORDER, moments_of
from tacit.privacy.ledger import GrantStatement, Statement, UnitTotal

MEMORY = "memory"
"""Parts of tasks that are called so are remembered and not trained on."""


@dataclass(frozen=True, kw_only=True)
class Charged:
    """One charge of a block."""

    reader: str | None
    kind: str
    what: str
    """The event, in words."""
    state: str


@dataclass(frozen=True, kw_only=True)
class BlockMeter:
    """A block: a task, or a part of one."""

    task: str
    part: str
    state: str
    epsilon: float
    """Certified, of a unit that is in this block only; all that was promised, read or not."""
    left: float
    """Of the budget, for a unit that is in this block only; one of several tasks has to pay for all of them from it."""
    charges: tuple[Charged, ...]

    @property
    def remembered(self) -> bool:
        return MEMORY in self.part.split("/")


@dataclass(frozen=True, kw_only=True)
class ReaderMeter:
    """One reader, over all blocks it read."""

    reader: str
    tasks: tuple[str, ...]
    """That it was trained on."""
    claimed: float
    """ε by the moments accountant over the training steps of these tasks, at the budget's δ; a claim."""
    certified: float
    """The largest ε of a block that it read, other readers included."""


@dataclass(frozen=True, kw_only=True)
class UnitMeter:
    """One unit that is in as many tasks of the stream as was declared; a worst case from declarations."""

    unit: str
    tasks: int
    epsilon: float
    """That it may have lost over its tasks."""
    left: float
    """Of the stream's budget, and of the policy's unit_cap where that leaves less."""
    other_streams: tuple[str, ...]
    """Streams of the ledger that may hold it, too."""
    all_streams: float
    """ε over all of them and this one."""
    all_streams_delta: float


@dataclass(frozen=True, kw_only=True)
class MeterView:
    stream: str
    budget: float
    delta: float
    blocks: tuple[BlockMeter, ...]
    readers: tuple[ReaderMeter, ...]
    unit: UnitMeter


def view(statement: Statement, totals: Sequence[UnitTotal] = ()) -> MeterView:
    """What a statement says about blocks, readers and one unit; `totals` of the ledger, for what it lost elsewhere."""
    budget = statement.terms.budget
    used = [grant for grant in statement.grants if grant.state != "VOID"]
    charges: dict[int, list[Charged]] = {}
    for grant in used:
        for block, event in grant.reads:
            what = said(json.loads(event))
            one = Charged(reader=grant.plan.get("reader"), kind=grant.kind, what=what, state=grant.state)
            charges.setdefault(block, []).append(one)
    blocks = tuple(
        BlockMeter(
            task=block.row.task,
            part=block.row.part,
            state="exposed" if block.row.exposed else block.row.state,
            epsilon=float("inf") if block.row.exposed else block.epsilon,
            left=0.0 if block.row.exposed else max(0.0, budget.epsilon - block.epsilon),
            charges=tuple(charges.get(block.row.id, ())),
        )
        for block in statement.blocks
    )
    found = {block.row.id: one for block, one in zip(statement.blocks, blocks, strict=True)}
    return MeterView(
        stream=statement.terms.name,
        budget=budget.epsilon,
        delta=budget.delta,
        blocks=blocks,
        readers=tuple(_readers(used, found, budget.delta)),
        unit=_unit(statement, totals),
    )


def _unit(statement: Statement, totals: Sequence[UnitTotal]) -> UnitMeter:
    terms, budget = statement.terms, statement.terms.budget
    total = next((one for one in totals if one.unit == budget.unit and not terms.public), None)
    left = max(0.0, budget.epsilon - statement.epsilon)
    if total is not None and total.left is not None:
        left = min(left, total.left)
    roots = {block.row.root_id for block in statement.blocks}
    return UnitMeter(
        unit=str(budget.unit),
        tasks=min(terms.tasks_per_unit, len(roots)),
        epsilon=statement.epsilon,
        left=left,
        other_streams=() if total is None else tuple(one.stream for one in total.streams if one.stream != terms.name),
        all_streams=statement.epsilon if total is None else total.epsilon,
        all_streams_delta=budget.delta if total is None else total.delta,
    )


def _readers(grants: list[GrantStatement], blocks: Mapping[int, BlockMeter], delta: float) -> Iterator[ReaderMeter]:
    for name in sorted({grant.plan["reader"] for grant in grants if "reader" in grant.plan}, key=_numbered):
        own = [grant for grant in grants if grant.plan.get("reader") == name]
        steps: dict[tuple[float, float], int] = {}
        for grant in own:
            for kind, count in _steps(grant, blocks).items():
                steps[kind] = steps.get(kind, 0) + count
        read = [blocks[block] for grant in own for block, _ in grant.reads if block in blocks]
        yield ReaderMeter(
            reader=name,
            tasks=tuple(dict.fromkeys(block.task for block in read if not block.remembered)),
            claimed=moments_of(steps, delta, LEARNER_ORDER) if steps else 0.0,
            certified=max((block.epsilon for block in read), default=0.0),
        )


def _steps(grant: GrantStatement, blocks: Mapping[int, BlockMeter]) -> dict[tuple[float, float], int]:
    """The training steps of a grant. It is one mechanism for its reader, however many blocks it reads: the one it reads
    most often counts."""
    trained = [text for block, text in grant.reads if block not in blocks or not blocks[block].remembered]
    each = [{(r, n): t for r, n, t in _parts(json.loads(text), 1)} for text in trained]
    return max(each, key=_size, default={})


def _size(steps: Mapping[tuple[float, float], int]) -> float:
    return sum(count * rate**2 / noise**2 for (rate, noise), count in steps.items())


def _parts(event: Mapping[str, Any], times: int, rate: float = 1.0) -> Iterator[tuple[float, float, int]]:
    """(rate, noise, how often) of the Gaussians in an event."""
    match event["type"]:
        case "gaussian":
            yield rate, event["noise"], times
        case "repeated":
            yield from _parts(event["event"], times * event["times"], rate)
        case "poisson":
            yield from _parts(event["event"], times, event["rate"])
        case "composed":
            for one in event["events"]:
                yield from _parts(one, times, rate)


def _numbered(name: str) -> tuple[str, int]:
    """learner 2 before learner 10."""
    words = name.rsplit(" ", 1)
    return (words[0], int(words[1])) if len(words) == 2 and words[1].isdecimal() else (name, 0)


def in_short(charges: Sequence[Charged]) -> list[tuple[str, str]]:
    """(by whom, for what) of a block's charges, those of one kind and reader together."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in charges:
        found.setdefault((one.reader or "–", one.kind), []).append(one.what)
    return [(reader, _merged(kind, whats)) for (reader, kind), whats in found.items()]


def _merged(kind: str, whats: Sequence[str]) -> str:
    times = f"{kind} ×{len(whats)}" if len(whats) > 1 else kind
    return f"{times}: {whats[0]}" if len(set(whats)) == 1 else times


def said(event: Mapping[str, Any]) -> str:
    """An event in words."""
    match event["type"]:
        case "gaussian":
            return f"noise {event['noise']:.4g}"
        case "laplace":
            return f"Laplace noise {event['noise']:.4g}"
        case "zcdp":
            return f"each unit up to ρ = {event['rho']:.4g}"
        case "poisson":
            return f"{said(event['event'])} at rate {event['rate']:.4g}"
        case "repeated":
            return f"{event['times']} × {said(event['event'])}"
        case "composed":
            return " + ".join(map(said, event["events"]))
    return str(event["type"])
