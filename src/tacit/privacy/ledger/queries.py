"""The queries of a ledger. They change nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from dp_accounting.dp_event import DpEvent

from tacit.errors import LedgerError
from tacit.privacy.accounting.filters import RenyiFilter
from tacit.privacy.ledger import grants, opening, statement, stream_summary, totals
from tacit.privacy.ledger.ledger_file import LedgerFile
from tacit.privacy.ledger.limits import gate
from tacit.privacy.ledger.log.entries import LogEntry, entries
from tacit.privacy.ledger.storage import lookup
from tacit.privacy.ledger.storage.values import (
    BlockRow,
    StreamStatement,
    StreamSummary,
    StreamTerms,
    Ticket,
    Verification,
)
from tacit.privacy.ledger.totals import UnitTotal
from tacit.privacy.ledger.verification import verify


class LedgerQueries(LedgerFile):
    """What can be asked of a ledger; every answer comes from one snapshot of the database."""

    def streams(self) -> list[tuple[int, StreamTerms]]:
        """Every stream: its id and its declared terms.

        Returns:
            The pairs, in the order of their registration.
        """
        with self._read() as connection:
            return [(row.id, lookup.terms_of(row)) for row in lookup.all_streams(connection)]

    def epsilon(self, stream_id: int) -> float:
        """The ε that one unit of the stream may have lost so far, over all its tasks.

        Args:
            stream_id: The stream.

        Returns:
            The certified ε; infinite where no finite ε holds.
        """
        with self._read() as connection:
            return statement.epsilon(connection, lookup.stream_row(connection, stream_id), self._prices)[0]

    def summary(self, stream_id: int) -> StreamSummary:
        """What a certificate needs. The cost does not grow with the number of tasks.

        Args:
            stream_id: The stream.

        Returns:
            The terms, the certified ε and the events of the stream.
        """
        with self._read() as connection:
            policy = opening.recorded_policy(connection)
            return stream_summary.of_stream(connection, stream_id, self.id, policy, self._prices)

    def statement(self, stream_id: int) -> StreamStatement:
        """Every block and every grant of a stream, for audits. Its size grows with the stream.

        Args:
            stream_id: The stream.

        Returns:
            The blocks and the grants.
        """
        with self._read() as connection:
            policy = opening.recorded_policy(connection)
            return statement.of_stream(connection, stream_id, self.id, policy, self._prices)

    def totals(self) -> tuple[UnitTotal, ...]:
        """For each kind of unit: what one unit may have lost over all streams that may contain it.

        Returns:
            One total for each protected unit (record, person) of private streams.
        """
        with self._read() as connection:
            return totals.of_units(connection, opening.recorded_policy(connection), self._prices)

    def entries(self) -> list[LogEntry]:
        """Every entry of the chain, the oldest first.

        Returns:
            The entries.
        """
        with self._read() as connection:
            return list(entries(connection))

    def verify(self) -> Verification:
        """Apply the whole log to an empty database and compare every table, price and curve.

        Returns:
            What was checked.

        Raises:
            LedgerError: Something differs; the message names the first difference.
        """
        with self._read() as connection:
            witnessed = self._anchor.read() if self._anchor else None
            if witnessed is not None and not opening.contains(connection, witnessed):
                raise LedgerError(opening.rolled_back(str(self.path), witnessed))
            return verify(connection, self.keys if self.keys.present else None)

    def find_block(self, stream: str, task: str, part: str = "all") -> tuple[BlockRow, StreamTerms]:
        """A block by the names under which it was declared, and the terms of its stream.

        Args:
            stream: The name of the stream.
            task: The name of the task.
            part: The part of a split block.

        Returns:
            The block, and the terms of its stream.
        """
        with self._read() as connection:
            return lookup.find_block(connection, stream, task, part, self.keys)

    def require_live(self, block_id: int) -> None:
        """Raise LedgerError if the block was retired.

        Args:
            block_id: The block.
        """
        with self._read() as connection:
            grants.require_not_retired(lookup.raw_block(connection, block_id))

    def is_live(self, block_id: int) -> bool:
        """Whether the block was not retired.

        Args:
            block_id: The block.

        Returns:
            False if it was retired.
        """
        with self._read() as connection:
            return bool(lookup.raw_block(connection, block_id).state != "retired")

    def remaining(self, block_id: int, holder: str | None = None) -> RenyiFilter:
        """What an open block may still be charged, as a filter.

        Args:
            block_id: An open block; a committed one has no filter and is refused.
            holder: Unfinished grants of this holder, which it can resume, count as not charged.

        Returns:
            The filter, with what is left of its limits.
        """
        with self._read() as connection:
            return statement.remaining(connection, lookup.raw_block(connection, block_id), holder)

    def task_states(self, stream: str) -> dict[str, set[str]]:
        """The states of the grants that read each admitted task of a stream, except voided ones.

        Args:
            stream: The name of the stream.

        Returns:
            The states by the name of the task; empty if there is no such stream.
        """
        known = {terms.name: stream_id for stream_id, terms in self.streams()}
        if stream not in known:
            return {}
        found = self.statement(known[stream])
        tasks = {block.row.id: block.row.task for block in found.blocks}
        states: dict[str, set[str]] = {task: set() for task in tasks.values()}
        for grant in found.grants:
            for block, _ in grant.reads if grant.state != "VOID" else ():
                states[tasks[block]].add(grant.state)
        return states

    def grant_states(self, stream: str, task: str) -> set[str] | None:
        """The states of the grants that read a task, except voided ones.

        Args:
            stream: The name of the stream.
            task: The name of the task.

        Returns:
            The states; None if the task was never admitted.
        """
        with self._read() as connection:
            return grants.states(connection, self.keys.identity("stream", stream), task)

    def unfinished(self, stream_id: int, holder: str) -> list[tuple[str, str]]:
        """The grants of a holder on a stream that were charged and not released.

        Args:
            stream_id: The stream.
            holder: The store that may resume them.

        Returns:
            (kind, pin) of each, the oldest first.
        """
        with self._read() as connection:
            return grants.unfinished(connection, stream_id, holder)

    def unfinished_like(
        self, kind: str, reads: Sequence[tuple[int, DpEvent]], plan: Mapping[str, Any], holder: str
    ) -> list[tuple[str, bool]]:
        """Unfinished grants of the same kind, reads and holder whose plans have these values.

        Args:
            kind: The mechanism.
            reads: Pairs of block id and event.
            plan: Values that the plan must have; it may have others besides.
            holder: The store that may resume them.

        Returns:
            (pin, whether charged) of each, the oldest first.
        """
        with self._read() as connection:
            return grants.unfinished_like(connection, kind, reads, plan, holder)

    def check_ticket(self, ticket: Ticket) -> None:
        """Raise LedgerError if another process resumed the ticket's grant.

        Args:
            ticket: The ticket.
        """
        with self._read() as connection:
            grants.current(connection, ticket)

    def check_new_stream(self, terms: StreamTerms, lists: Sequence[Sequence[DpEvent]] = ()) -> None:
        """Raise BudgetExceeded if a stream that is not registered yet would exceed the policy's unit_cap.

        Args:
            terms: The terms that the stream would be registered with.
            lists: The event lists of its tasks; the costliest counts for every task that a unit may be in.
        """
        with self._read() as connection:
            policy = opening.recorded_policy(connection)
            if all(row.name != terms.name for row in lookup.all_streams(connection)):
                gate.check_new(connection, terms, policy)
                if not terms.public:
                    gate.check_whole(connection, terms.name, terms.tasks_per_unit, lists, self._prices, policy)

    def key_generations(self) -> set[int]:
        """Key generations that a rotation must keep: those of unfinished grants and of unfinished series.

        Returns:
            The generations.
        """
        with self._read() as connection:
            return grants.key_generations(connection)

    def __repr__(self) -> str:
        where: Any = "throw-away" if self.is_throwaway else str(self.path)
        return f"{type(self).__name__}({where!r})"
