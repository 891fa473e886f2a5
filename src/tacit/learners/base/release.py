"""A release: a model version with its certificate, as safetensors and JSON, and a model card for people."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from tacit.certificate.binding import CERTIFICATE, DRAFT, MODEL, bind, bind_again, bind_file
from tacit.certificate.certificate import Certificate
from tacit.data.input_form import InputForm
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import DataError, LearnerError
from tacit.learners.base.settings import Stored
from tacit.learners.card.model_card import CARD, MARK, Described, Measured, model_card
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
    reference: str = ""
    """Where the method comes from."""
    card: str = ""
    """The card of this version as it was published; empty if it is to be written."""

    @property
    def names_code(self) -> bool:
        """Whether a setting names a Python file, which opening the release does not run."""
        return self.settings is not None and bool(own_files(dict(self.settings.plain)))

    @property
    def _needs_more(self) -> bool:
        return self.names_code or (self.settings is not None and bool(self.settings.code))

    def save(self, folder: Path) -> Certificate:
        """Write `model.safetensors`, `README.md`, `certificate.json` and, last, `release.json`, which completes it.

        Returns the certificate that was written, which names the hashes of model and files."""
        folder.mkdir(parents=True, exist_ok=True)
        model = folder / MODEL
        model.unlink(missing_ok=True)
        # Written as bytes: files created by safetensors are readable by their owner only.
        files = {MODEL: save({name: value.contiguous() for name, value in self.tensors.items()})}
        model.write_bytes(files[MODEL])
        facts = {"method": self.method, "task": asdict(self.task), "stream": asdict(self.info)}
        facts |= {} if self.settings is None else {"settings": dict(self.settings.plain), "code": self.settings.code}
        facts |= {"reference": self.reference} if self.reference else {}
        draft = folder / "release.json.new"
        files["release.json"] = json.dumps(facts | {"learnt": [asdict(task) for task in self.tasks]}, indent=2).encode()
        draft.write_bytes(files["release.json"])
        if _may_write_card(folder):
            described = Described(
                method=self.method, reference=self.reference, info=self.info, learnt=self.tasks, code=self._needs_more
            )
            files[CARD] = (self.card or model_card(described, self.certificate)).encode()
            card = folder / f"{CARD}{DRAFT}"
            card.write_bytes(files[CARD])
            card.replace(folder / CARD)
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
            release = cls(
                task=_task(facts["task"]),
                method=facts["method"],
                tensors=tensors,
                info=_stream(facts["stream"]),
                tasks=tuple(map(_task, facts["learnt"])),
                certificate=Certificate.load(folder / CERTIFICATE),
                settings=_settings(facts),
                reference=str(facts.get("reference", "")),
                card=_card(folder),
            )
        except (KeyError, TypeError, AttributeError, DataError):
            raise LearnerError(damage(folder)) from None
        return replace(release, info=_with_inputs(release.info, facts["stream"]))


def damage(folder: Path | str) -> str:
    """The error message for a release whose files were modified."""
    return f"the release in {folder} was changed or is damaged; restore its files from where they were published"


def recertify(folder: Path, certificate: Certificate) -> None:
    """Replace the certificate of the release in this folder by a newer one, which includes later charges."""
    bind_again(certificate, folder).save(folder / CERTIFICATE)


def restate(folder: Path, certificate: Certificate | None, measured: Measured | None) -> None:
    """Write the card of the release in this folder again, with accuracies, and bind the certificate to it.

    Repeating it changes nothing. A release without a card gets none.

    Args:
        folder: The release.
        certificate: A newer certificate, which includes later charges; None to keep the one that is there.
        measured: The accuracies; None if none were measured.
    """
    newer = Certificate.load(folder / CERTIFICATE) if certificate is None else bind_again(certificate, folder)
    if newer.release is None or CARD not in newer.release.files:
        return newer.save(folder / CERTIFICATE)
    text = model_card(_described(folder), newer, measured).encode()
    draft = folder / f"{CARD}{DRAFT}"
    draft.write_bytes(text)
    bind_file(newer, CARD, text).save(folder / CERTIFICATE)
    draft.replace(folder / CARD)
    return None


def _may_write_card(folder: Path) -> bool:
    """Whether there is no file of this name that somebody else has written."""
    card = folder / CARD
    try:
        return MARK in card.read_text(encoding="utf-8", errors="replace").splitlines()[:9]
    except OSError:
        return not card.exists()


def _card(folder: Path) -> str:
    """The card in a folder, if it is the one that the certificate names."""
    section = Certificate.load(folder / CERTIFICATE).release
    try:
        content = (folder / CARD).read_bytes()
        named = None if section is None else section.files.get(CARD)
        return content.decode() if hashlib.sha256(content).hexdigest() == named else ""
    except (OSError, ValueError):
        return ""


def _described(folder: Path) -> Described:
    """What the card of the release in a folder says, without its tensors."""
    try:
        facts = json.loads((folder / "release.json").read_text())
        settings = _settings(facts)
        return Described(
            method=facts["method"], reference=str(facts.get("reference", "")),
            info=_with_inputs(_stream(facts["stream"]), facts["stream"]),
            learnt=tuple(map(_task, facts["learnt"])),
            code=settings is not None and bool(settings.code or own_files(dict(settings.plain))),
        )  # fmt: skip
    except (OSError, KeyError, TypeError, ValueError, AttributeError, DataError):
        raise LearnerError(damage(folder)) from None


def _settings(facts: Mapping[str, Any]) -> Stored | None:
    return Stored(plain=facts["settings"], code=tuple(facts["code"])) if "settings" in facts else None


def _stream(facts: dict[str, Any]) -> StreamInfo:
    tasks = tuple(map(_task, facts["tasks"]))
    return StreamInfo(**facts | {"shape": tuple(facts["shape"]), "tasks": tasks, "inputs": None})


def _with_inputs(info: StreamInfo, facts: Mapping[str, Any]) -> StreamInfo:
    """The public facts with how records are read, which a newer version may say in a way that is unknown here."""
    form = facts.get("inputs")
    return info if form is None else replace(info, inputs=InputForm.of(form))


def _task(facts: dict[str, Any]) -> TaskInfo:
    task = TaskInfo(**facts | {"labels": tuple(facts["labels"])})
    if not (isinstance(task.name, str) and all(isinstance(label, int | str) for label in task.labels)):
        raise TypeError("a task has a name, and its labels are numbers or texts")
    return task
