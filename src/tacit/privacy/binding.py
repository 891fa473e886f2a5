"""A certificate is bound to its release: it names the hash of every tensor of the model and of every file.

Guarantee: `check` returns only if the model in the folder has exactly the tensors that the certificate names, and the
folder exactly the files, each with the content that it had when the release was made. The certificate itself is not
among them; its signature covers the hashes.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from tacit.errors import CertificateError
from tacit.privacy.certificate import Certificate, ReleaseSection

CERTIFICATE, MODEL = "certificate.json", "model.safetensors"
DRAFT = ".new"
"""Files that end in this are about to be moved into place."""
BEFORE = "made before certificates named their model, so nothing ties it to the model beside it"


def tensor_hash(tensor: Tensor) -> str:
    """SHA-256 of type, shape and values: the same wherever the tensor is and however it is laid out in memory."""
    plain = tensor.detach().to("cpu").contiguous()
    head = f"{str(plain.dtype).removeprefix('torch.')}|{'x'.join(map(str, plain.shape))}|".encode()
    return hashlib.sha256(head + plain.reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()


def bind(certificate: Certificate, tensors: Mapping[str, Tensor], files: Mapping[str, bytes]) -> Certificate:
    """The certificate of exactly this model and these files; a signature of anything else is taken off."""
    section = ReleaseSection(
        tensors={name: tensor_hash(tensors[name]) for name in sorted(tensors)},
        files={name: hashlib.sha256(files[name]).hexdigest() for name in sorted(files)},
    )
    if certificate.release == section:
        return certificate
    return certificate.model_copy(update={"release": section, "signature": None})


def bind_again(certificate: Certificate, folder: Path) -> Certificate:
    """A newer certificate of the release in this folder, bound as the one that is there."""
    release = Certificate.load(folder / CERTIFICATE).release
    return certificate if release is None else certificate.model_copy(update={"release": release, "signature": None})


def check(folder: Path, certificate: Certificate) -> bool:
    """Raise CertificateError, naming what differs, unless the release in the folder is the one that is certified.

    Returns False where the certificate is older than such bindings, and nothing can be said."""
    section = certificate.release
    if section is None:
        return False
    content = _content(folder)
    if MODEL in content:
        _check_tensors(content[MODEL], section.tensors, folder)
    found = {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}
    wrong = [
        *(f"{name} is missing" for name in section.files if name not in found),
        *(f"{name} was changed" for name in section.files if name in found and found[name] != section.files[name]),
        *(f"{name} does not belong to it" for name in found if name not in section.files),
    ]
    if wrong:
        raise CertificateError(
            f"the release in {folder} is not the one that its certificate speaks of: {_listed(wrong)}; ask its issuer "
            "for the original"
        )
    return True


def _check_tensors(data: bytes, certified: Mapping[str, str], folder: Path) -> None:
    try:
        found = {name: tensor_hash(tensor) for name, tensor in load(data).items()}
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError):
        raise CertificateError(
            f"{folder / MODEL} is damaged and cannot be read; ask its issuer for the original"
        ) from None
    wrong = [
        *(f"{name} is missing" for name in certified if name not in found),
        *(f"{name} has other values" for name in certified if name in found and found[name] != certified[name]),
        *(f"{name} is not among those certified" for name in found if name not in certified),
    ]
    if wrong:
        raise CertificateError(
            f"the model in {folder} is not the one that its certificate speaks of (of its tensors, {_listed(wrong)}); "
            "the model or the certificate was exchanged, do not rely on it"
        )


def _content(folder: Path) -> dict[str, bytes]:
    """Every file of the release but the certificate."""
    try:
        files = sorted(path for path in folder.rglob("*") if not path.is_dir() and not path.name.endswith(DRAFT))
        names = {path.relative_to(folder).as_posix(): path for path in files}
        return {name: path.read_bytes() for name, path in names.items() if name != CERTIFICATE}
    except OSError as error:
        raise CertificateError(f"cannot read the release in {folder}: {error.strerror}") from None


def _listed(wrong: Iterable[str], most: int = 3) -> str:
    every = list(wrong)
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")
