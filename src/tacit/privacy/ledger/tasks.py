"""Which tasks of a stream a ledger knows, and what became of the work on them."""

from tacit.privacy.ledger.ledger import Ledger


def task_states(book: Ledger, stream: str) -> dict[str, set[str]]:
    """For every task of the stream that was admitted, the states of the grants that read it; work that was called off
    counts for nothing."""
    known = {terms.name: number for number, terms in book.streams()}
    if stream not in known:
        return {}
    found = book.statement(known[stream])
    tasks = {block.row.id: block.row.task for block in found.blocks}
    states: dict[str, set[str]] = {task: set() for task in tasks.values()}
    for grant in found.grants:
        for block, _ in grant.reads if grant.state != "VOID" else ():
            states[tasks[block]].add(grant.state)
    return states
