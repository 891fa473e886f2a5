"""TensorBoard: curves, figures, the configuration and the certificate of runs, as event files in a folder."""

import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tacit.certificate import Certificate
from tacit.errors import ConfigError
from tacit.report.tracking.event_file import EventFile
from tacit.report.tracking.run_figures import drawn
from tacit.report.tracking.run_tree import tracked
from tacit.report.tracking.tracked_run import TrackedRun
from tacit.words import install

FOLDER = "tensorboard"


class TensorBoard:
    """Writes event files, which `tensorboard --logdir FOLDER` shows.

    Args:
        where: The folder; by default `tensorboard` in the folder of the run or sweep.

    Raises:
        ConfigError: TensorBoard is not installed.
    """

    name = "tensorboard"

    def __init__(self, where: str | Path | None = None) -> None:
        if find_spec("tensorboard") is None:
            raise ConfigError(f"TensorBoard is not installed; {install('tensorboard')}")
        self.where = None if where is None else Path(where)
        self._shown = self.where
        self._drawn: dict[str, tuple[int, bool]] = {}

    def send(self, folder: Path, *, final: bool = True) -> None:
        """Write what is new in a folder. Writing it again changes nothing.

        Args:
            folder: The folder of a run, a sweep or an endless stream.
            final: Whether to write figures too.

        Raises:
            ConfigError: There is no run in the folder, or a link would lead out of it.
            OSError: A file cannot be written.
        """
        entries = tracked(Path(folder))
        if not entries:
            return
        root = entries[0].folder / FOLDER if self.where is None else self.where
        within = entries[0].folder if self.where is None else self.where
        self._shown = root
        for entry in entries:
            if not entry.folder.is_relative_to(Path(folder).resolve()):
                continue  # the sweep of the run that is sent
            now = (entry.tasks, entry.done)
            place = entry.place if self.where is not None else entry.place[1:]
            figures = final and self._drawn.get(entry.key) != now
            file = EventFile(root.joinpath(*map(_plain, place)), within)
            file.add(_values(entry, final=figures), entry.moment)
            if figures:
                self._drawn[entry.key] = now

    def describe(self) -> str:
        """Where it is shown.

        Returns:
            A command, for the folder that was written last.
        """
        return f"tensorboard --logdir {'FOLDER' if self._shown is None else shlex.quote(str(self._shown))}"


def _values(entry: TrackedRun, *, final: bool) -> Iterator[tuple[str, int, Any]]:
    """The tag, the step and the value of everything that is shown of an entry."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb

    for name, values in entry.series.items():
        for step, value in values.items():
            yield name, step, Summary.Value(simple_value=value)
    if entry.settings:
        stated = {f"certificate.{name}": value for name, value in entry.facts.items() if name in ("unit", "adjacency")}
        parameters = {**entry.settings, **stated}
        session = hparams_pb(parameters, trial_id=entry.key, start_time_secs=entry.moment / 1000)
        yield "_hparams_/session_start_info", 0, session.value[0]
        yield "configuration", 0, _text("\n".join(f"{name}: {value}" for name, value in entry.settings.items()))
    if entry.releases and final:
        last = entry.releases[-1]
        yield "certificate", last.task, _text(str(Certificate.load(last.certificate)))
    if entry.whole and final and entry.tasks:
        for kind, png, _ in drawn(entry.folder):
            width, height = (int.from_bytes(png[start : start + 4], "big") for start in (16, 20))
            picture = Summary.Image(width=width, height=height, colorspace=4, encoded_image_string=png)
            yield f"figures/{kind}", entry.tasks, Summary.Value(image=picture)


def _text(text: str) -> Any:
    """A text as TensorBoard shows it: Markdown, in which every line is code, so that nothing in it is markup."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING
    from tensorboard.plugins.text.metadata import create_summary_metadata

    block = "\n".join(f"    {line}" for line in text.splitlines()).encode("utf-8", "replace")
    tensor = TensorProto(dtype=DT_STRING, string_val=[block], tensor_shape=TensorShapeProto())
    return Summary.Value(tensor=tensor, metadata=create_summary_metadata("", ""))


def _plain(name: str) -> str:
    """A name of a folder that stays inside another."""
    kept = "".join(letter if letter.isalnum() or letter in "=._+-" else "-" for letter in name)[:100]
    return kept.lstrip(".") or "run"
