"""Which tasks of a private stream may be learnt by now: those whose rows have arrived.

Rows are never counted for this: how many there are, or whether there are any, is not public. Where every task has a
file or folder of its own, that it exists decides. Where all tasks share one file that grows, only the owner can tell:
the first call of a run speaks for the tasks that it is asked to learn, and later ones are named by `--arrived TASK`.
A task that was learnt too early is charged for, and its rows can never be used.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from tacit.data.stream import Stream, StreamInfo
from tacit.errors import ConfigError
from tacit.experiment.folder import RunFolder, write_json
from tacit.words import nearest

FILE = "arrived.json"


def said_before(place: RunFolder) -> list[str] | None:
    """The tasks that have arrived, as the run's earlier calls said. None: there was no call, or it kept no record."""
    path = place.path / FILE
    found: list[str] | None = json.loads(path.read_text(encoding="utf-8"))["tasks"] if path.exists() else None
    return found


def write(place: RunFolder, tasks: Sequence[str]) -> None:
    """Keep what the owner said."""
    write_json(Path(place.path) / FILE, {"tasks": list(tasks)})


def arrivals(stream: Stream, place: RunFolder, *, until: int | None, arrived: Sequence[str]) -> tuple[str, ...]:
    """The tasks that may be learnt by now, from the first on; a task that is asked for and has not arrived is refused.

    `until`: how many tasks are asked for; None: as many as there are."""
    names = [task.name for task in stream.info.tasks]
    for name in arrived:
        if name not in names:
            raise ConfigError(
                f"--arrived {name}: the stream {stream.info.name!r} has no such task; {nearest(name, names)}"
            )
    before = said_before(place)
    said = {*(before or ()), *arrived}
    if before is None and not place.has_run and not arrived:  # the first call speaks for what it is asked to learn
        said |= {name for name in names[:until] if stream[names.index(name)].arrived is None}
    there = [name in said or _exists(stream, number) for number, name in enumerate(names)]
    count = there.index(False) if False in there else len(names)
    asked = until if until is not None else (len(names) if not place.has_run and not arrived else count)
    if asked > count:
        raise ConfigError(_missing(stream, names[count], first=not place.has_run))
    return tuple(names[:count])


def _exists(stream: Stream, number: int) -> bool:
    found = stream[number].arrived
    return found is not None and found()


def _missing(stream: Stream, name: str, *, first: bool) -> str:
    """Why a task is not learnt yet, and what to say."""
    if stream[[task.name for task in stream.info.tasks].index(name)].arrived is not None:
        return (
            f"task {name!r} of {stream.info.name!r} has no file or folder yet, so it is not learnt; put it there, "
            f"learn up to an earlier task by --until, or say --arrived {name} if it has no record"
        )
    also = "" if first else " (tasks up to the last call's are known to be there)"
    return (
        f"whether the rows of task {name!r} of {stream.info.name!r} have arrived cannot be told without counting them"
        f"{also}; once they have, say --arrived {name}: a task that is learnt is charged for, and rows that come later "
        "are never used"
    )


def nothing_new(info: StreamInfo, learnt: int) -> str:
    """What is said to a call that finds all that has arrived learnt."""
    name = info.tasks[learnt].name
    return (
        f"{learnt} of the {len(info.tasks)} tasks of {info.name!r} have arrived and are learnt, so nothing was read or "
        f"charged; tasks are learnt in their order, and the next is {name!r}: once its rows are there, say --arrived "
        f"{name}"
    )
