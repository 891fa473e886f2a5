"""What is refused before a run reads a record: facts that changed since it was planned, records learnt from already."""

from dataclasses import replace
from pathlib import Path

from tacit.data.stream import StreamInfo
from tacit.errors import ConfigError
from tacit.learners.release import Release
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.tasks import task_states


def check_facts(last: Release, info: StreamInfo) -> None:
    """Refuse to go on from a release on a stream that is declared otherwise by now."""
    if replace(last.info, features=last.info.features or info.features) != info:  # older ones lack the features
        raise ConfigError(
            f"the declared facts of {last.info.name!r} (tasks, sizes, labels, bounds, columns, how its files are read) "
            f"are not those that {last.task.name!r} was learnt with; put them back, since what was planned and charged "
            "rests on them"
        )


def tasks_read(book: Ledger, stream: str) -> set[str]:
    """The tasks of a stream that something was charged and read of."""
    return {task for task, states in task_states(book, stream).items() if states}


def refuse_spent(info: StreamInfo, ledger: Path) -> None:
    """Records that were learnt from are not learnt from again: said before a folder is made."""
    if not ledger.exists():
        return
    with Ledger(ledger) as book:
        read = tasks_read(book, info.name)
    spent = next((task.name for task in info.tasks if task.name in read), None)
    if spent is not None:
        raise ConfigError(
            f"task {spent!r} of {info.name!r} was learnt from already, and {ledger} says what its people have lost; "
            "use what that run released, go on with it by --resume, or declare new records as new tasks"
        )
