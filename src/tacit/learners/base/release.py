"""A release: a model version with its certificate, as safetensors and JSON."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from tacit.certificate.binding import CERTIFICATE, MODEL, bind, bind_again
from tacit.certificate.certificate import Certificate
from tacit.data.input_form import InputForm
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import DataError, LearnerError
from tacit.learners.base.settings import Stored
from tacit.plugins import own_files


@dataclass(frozen=True, kw_only=True)
class Release:
    """Released values and public facts only: it may be published.

    A learner resumes from it, given the public parts that it names (`info.features`, the backbone of the settings) and
    the settings that are code (`settings.code`)."""

    task: TaskInfo
    method: str
    tensors: dict[str, Tensor]
    info: StreamInfo
    tasks: tuple[TaskInfo, ...]
    certificate: Certificate
    settings: Stored | None = None
    """Settings of the learner; None in releases that were saved before settings were stored."""

    @property
    def names_code(self) -> bool:
        """Whether a setting names a Python file, which opening the release does not run."""
        return self.settings is not None and bool(own_files(dict(self.settings.plain)))

    def save(self, folder: Path) -> Certificate:
        """Write `model.safetensors`, `certificate.json` and, last, `release.json`, which completes it.

        Returns the certificate that was written, which names the hashes of model and files."""
        folder.mkdir(parents=True, exist_ok=True)
        model = folder / MODEL
        model.unlink(missing_ok=True)
        # Written as bytes: files created by safetensors are readable by their owner only.
        files = {MODEL: save({name: value.contiguous() for name, value in self.tensors.items()})}
        model.write_bytes(files[MODEL])
        facts = {"method": self.method, "task": asdict(self.task), "stream": asdict(self.info)}
        facts |= {} if self.settings is None else {"settings": dict(self.settings.plain), "code": self.settings.code}
        draft = folder / "release.json.new"
        files["release.json"] = json.dumps(facts | {"learnt": [asdict(task) for task in self.tasks]}, indent=2).encode()
        draft.write_bytes(files["release.json"])
        bound = bind(self.certificate, self.tensors, files)
        bound.save(folder / CERTIFICATE)
        draft.replace(folder / "release.json")
        return bound

    @classmethod
    def load(cls, folder: Path) -> "Release":
        try:
            facts = json.loads((folder / "release.json").read_text())
            tensors = load_file(folder / MODEL)
        except FileNotFoundError as error:
            raise LearnerError(
                f"{folder} holds no whole release: {Path(str(error.filename)).name} is missing"
            ) from None
        except (OSError, ValueError, SafetensorError):
            raise LearnerError(damage(folder)) from None
        try:
            stream = facts["stream"]
            tasks = tuple(map(_task, stream["tasks"]))
            form = stream.pop("inputs", None)
            release = cls(
                task=_task(facts["task"]),
                method=facts["method"],
                tensors=tensors,
                info=StreamInfo(**stream | {"shape": tuple(stream["shape"]), "tasks": tasks}),
                tasks=tuple(map(_task, facts["learnt"])),
                certificate=Certificate.load(folder / CERTIFICATE),
                settings=Stored(plain=facts["settings"], code=tuple(facts["code"])) if "settings" in facts else None,
            )
        except (KeyError, TypeError, AttributeError, DataError):
            raise LearnerError(damage(folder)) from None
        return release if form is None else replace(release, info=replace(release.info, inputs=InputForm.of(form)))


def damage(folder: Path | str) -> str:
    """The error message for a release whose files were modified."""
    return f"the release in {folder} was changed or is damaged; restore its files from where they were published"


def recertify(folder: Path, certificate: Certificate) -> None:
    """Replace the certificate of the release in this folder by a newer one, which includes later charges."""
    bind_again(certificate, folder).save(folder / CERTIFICATE)


def _task(facts: dict[str, Any]) -> TaskInfo:
    task = TaskInfo(**facts | {"labels": tuple(facts["labels"])})
    if not (isinstance(task.name, str) and all(isinstance(label, int | str) for label in task.labels)):
        raise TypeError("a task has a name, and its labels are numbers or texts")
    return task
