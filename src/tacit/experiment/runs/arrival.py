"""Determines which tasks of a private stream may be learned: those whose rows have arrived.

Rows are never counted for this: how many there are, or whether there are any, is not public. Where every task has a
file or folder of its own, its existence decides. Where all tasks share one file that grows, only the owner knows: the
first call of a run vouches for the tasks that it is to learn, and later ones are named by `--arrived TASK`. A task that
is learned too early is charged, and rows that arrive later can never be used.
"""

from collections.abc import Sequence

from tacit.data.stream import Stream, StreamInfo
from tacit.errors import ConfigError
from tacit.experiment.files import read_json, write_json
from tacit.experiment.runs.folder import RunFolder
from tacit.words import nearest

FILE = "arrived.json"


def write(folder: RunFolder, tasks: Sequence[str]) -> None:
    """Record the tasks that the owner named as arrived."""
    write_json(folder.path / FILE, {"tasks": list(tasks)})


def arrivals(stream: Stream, folder: RunFolder, *, until: int | None, arrived: Sequence[str]) -> tuple[str, ...]:
    """The tasks that may be learned, from the first on.

    Args:
        stream: The private stream.
        folder: The run folder.
        until: How many tasks are to be learned; None: as many as have arrived.
        arrived: Tasks that this call names as arrived.

    Raises:
        ConfigError: A task that is to be learned has not arrived.
    """
    names = [task.name for task in stream.info.tasks]
    for name in arrived:
        if name not in names:
            raise ConfigError(
                f"--arrived {name}: the stream {stream.info.name!r} has no such task; {nearest(name, names)}"
            )
    log = folder.path / FILE
    confirmed = {*(read_json(log)["tasks"] if log.exists() else ()), *arrived}
    first_call = not folder.has_run and not arrived
    if first_call and not log.exists():  # the first call vouches for the tasks that it is to learn
        confirmed |= {task.info.name for task in stream[:until] if task.arrived is None}
    there = [task.info.name in confirmed or (task.arrived is not None and task.arrived()) for task in stream]
    count = there.index(False) if False in there else len(names)
    wanted = until if until is not None else len(names) if first_call else count
    if wanted > count:
        raise ConfigError(_missing(stream, count, first=not folder.has_run))
    return tuple(names[:count])


def _missing(stream: Stream, number: int, *, first: bool) -> str:
    """Why a task cannot be learned yet, and what to do."""
    name = stream.info.tasks[number].name
    if stream[number].arrived is not None:
        return (
            f"task {name!r} of {stream.info.name!r} has no file or folder yet, so it is not learned; put it there, "
            f"learn up to an earlier task with --until, or pass --arrived {name} if it has no records"
        )
    also = "" if first else " (tasks up to the last call's are known to be there)"
    return (
        f"whether the rows of task {name!r} of {stream.info.name!r} have arrived cannot be known without counting them"
        f"{also}; once they have, pass --arrived {name}: a task that is learned is charged for, and rows that come "
        "later are never used"
    )


def nothing_new(info: StreamInfo, learned: int) -> str:
    """The error of a call that has no new task to learn."""
    name = info.tasks[learned].name
    return (
        f"{learned} of the {len(info.tasks)} tasks of {info.name!r} have arrived and are learned, so nothing was read "
        f"or charged; tasks are learned in their order, and the next is {name!r}: once its rows are there, pass "
        f"--arrived {name}"
    )
