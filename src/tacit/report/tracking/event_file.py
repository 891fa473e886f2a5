"""A file of TensorBoard events that is only appended to, and has each value of each step once.

The file is read before it is written: events that are in it are not written again, and a last event that a crash tore
is cut off. Its name is always the same, and the times of its events are given, so that it tells nothing of when or
where it was written.
"""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError

_HEAD = struct.Struct("<QI")
"""The length of an event, and a checksum of the length; the event and its own checksum follow."""
_TAIL = 4
_LARGEST = 2**28


class EventFile:
    """One event file.

    Args:
        folder: The folder of a run, as TensorBoard shows it; it is made if it does not exist.
        within: A folder that it is in, and that no link may lead out of.

    Raises:
        ConfigError: A link leads elsewhere, so that a file of somebody else would be written.
        OSError: It cannot be read or written.
    """

    def __init__(self, folder: Path, within: Path) -> None:
        self.path = folder / "events.out.tfevents.0000000001.tacit"
        if self.path.is_symlink() or not folder.resolve().is_relative_to(within.resolve()):
            raise ConfigError(f"{self.path} is a link or behind one, and is not written; remove the link")
        folder.mkdir(parents=True, exist_ok=True)
        self._written: set[tuple[str, int]] = set()
        self._empty = True
        self._recover()

    def add(self, values: Iterable[tuple[str, int, Any]], moment: int) -> int:
        """Append the values that are not in the file.

        Args:
            values: The tag, the step and a summary's value.
            moment: The time of the events, in milliseconds since 1970.

        Returns:
            How many were appended.
        """
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        new = [(tag, step, value) for tag, step, value in values if (tag, step) not in self._written]
        if not new:
            return 0
        with self.path.open("ab") as file:
            writer = RecordWriter(file)
            if self._empty:
                writer.write(Event(wall_time=moment / 1000, file_version="brain.Event:2").SerializeToString())
                self._empty = False
            for tag, step, value in new:
                value.tag = tag
                event = Event(wall_time=moment / 1000 + step, step=step, summary=Summary(value=[value]))
                writer.write(event.SerializeToString())
                self._written.add((tag, step))
            writer.flush()
        return len(new)

    def _recover(self) -> None:
        """Read what is there, up to the first event that is torn or damaged, and cut the rest off."""
        from tensorboard.compat.proto.event_pb2 import Event

        if not self.path.exists():
            return
        content, place = self.path.read_bytes(), 0
        while place + _HEAD.size <= len(content):
            length, _ = _HEAD.unpack_from(content, place)
            end = place + _HEAD.size + length + _TAIL
            if length > _LARGEST or end > len(content):
                break
            try:
                event = Event.FromString(content[place + _HEAD.size : end - _TAIL])
            except Exception:
                break
            self._written |= {(value.tag, event.step) for value in event.summary.value}
            place = end
        self._empty = place == 0
        if place < len(content):
            with self.path.open("r+b") as file:
                file.truncate(place)
