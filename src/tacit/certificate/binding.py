"""Binding of a certificate to its release: it contains the hash of every tensor of the model and of every file.

Formal guarantees: `check` returns True only if the model in the folder has exactly the tensors that the certificate
names, and the folder exactly the files, each with its original content. The certificate itself is not among them; its
signature covers the hashes.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from tacit.certificate.certificate import Certificate
from tacit.certificate.sections import ReleaseSection
from tacit.errors import CertificateError

CERTIFICATE, MODEL = "certificate.json", "model.safetensors"
DRAFT = ".new"
"""The suffix of files that are about to be moved into place."""
_SHOWN = 3
"""The number of differences that an error lists."""
BEFORE = "made before certificates named their model, so nothing binds it to this model"


def tensor_hash(tensor: Tensor) -> str:
    """SHA-256 of type, shape and values, independent of device and memory layout."""
    plain = tensor.detach().to("cpu").contiguous()
    head = f"{str(plain.dtype).removeprefix('torch.')}|{'x'.join(map(str, plain.shape))}|".encode()
    return hashlib.sha256(head + plain.reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()


def bind(certificate: Certificate, tensors: Mapping[str, Tensor], files: Mapping[str, bytes]) -> Certificate:
    """The certificate bound to this model and these files; a signature of another binding is removed."""
    section = ReleaseSection(
        tensors={name: tensor_hash(tensors[name]) for name in sorted(tensors)},
        files={name: hashlib.sha256(files[name]).hexdigest() for name in sorted(files)},
    )
    if certificate.release == section:
        return certificate
    return certificate.model_copy(update={"release": section, "signature": None})


def bind_again(certificate: Certificate, folder: Path) -> Certificate:
    """A newer certificate, bound to the release in a folder like the certificate in it."""
    release = Certificate.load(folder / CERTIFICATE).release
    return certificate if release is None else certificate.model_copy(update={"release": release, "signature": None})


def bind_file(certificate: Certificate, name: str, content: bytes) -> Certificate:
    """The certificate of a release after one of its files was written again; the signature of another is removed."""
    assert certificate.release is not None
    files = dict(certificate.release.files) | {name: hashlib.sha256(content).hexdigest()}
    if files == dict(certificate.release.files):
        return certificate
    section = certificate.release.model_copy(update={"files": files})
    return certificate.model_copy(update={"release": section, "signature": None})


def check(folder: Path, certificate: Certificate) -> bool:
    """Check that the release in a folder is the one that was certified.

    Returns:
        True, or False if the certificate is older than bindings and cannot be checked.

    Raises:
        CertificateError: The release differs; the message names what does.
    """
    section = certificate.release
    if section is None:
        return False
    content = _content(folder)
    if MODEL in content:
        _check_tensors(content[MODEL], section.tensors, folder)
    found = {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}
    if wrong := _differences(section.files, found, "was changed", "does not belong to it"):
        raise CertificateError(
            f"the release in {folder} is not the one that its certificate names: {wrong}; ask its issuer for the "
            "original"
        )
    return True


def _check_tensors(data: bytes, certified: Mapping[str, str], folder: Path) -> None:
    try:
        found = {name: tensor_hash(tensor) for name, tensor in load(data).items()}
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError):
        raise CertificateError(
            f"{folder / MODEL} is damaged and cannot be read; ask its issuer for the original"
        ) from None
    if wrong := _differences(certified, found, "has other values", "is not among those certified"):
        raise CertificateError(
            f"the model in {folder} is not the one that its certificate names (of its tensors, {wrong}); the model or "
            "the certificate was exchanged, do not rely on it"
        )


def _content(folder: Path) -> dict[str, bytes]:
    """The content of every file of the release except the certificate."""
    try:
        files = sorted(path for path in folder.rglob("*") if not path.is_dir() and not path.name.endswith(DRAFT))
        names = {path.relative_to(folder).as_posix(): path for path in files}
        return {name: path.read_bytes() for name, path in names.items() if name != CERTIFICATE}
    except OSError as error:
        raise CertificateError(f"cannot read the release in {folder}: {error.strerror}") from None


def _differences(certified: Mapping[str, str], found: Mapping[str, str], changed: str, extra: str) -> str:
    """The first differences between two tables of hashes in words; "" if they are equal."""
    wrong = [
        *(f"{name} is missing" for name in certified if name not in found),
        *(f"{name} {changed}" for name in certified if name in found and found[name] != certified[name]),
        *(f"{name} {extra}" for name in found if name not in certified),
    ]
    return ", ".join(wrong[:_SHOWN]) + (f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else "")
