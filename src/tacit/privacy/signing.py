"""Ed25519 signatures on certificates, with a key the user holds.

Guarantee: `verify` needs the file and the public key alone; it fails if any character that matters was changed, and it
prices the events in the certificate again, so a signed number that its own events do not support fails too.
"""

import base64
import math
import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit.errors import CertificateError
from tacit.privacy.certificate import Certificate, Signature, TaskBound


def new_key(path: str | Path) -> Path:
    """Make a private signing key (owner-only) and write its public half beside it; returns the public key's path."""
    private, public = Path(path), Path(f"{path}.pub")
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    try:
        with os.fdopen(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pem)
    except FileExistsError:
        raise CertificateError(f"{private} exists; choose another name, keys are never overwritten") from None
    except OSError as error:
        raise CertificateError(f"cannot write the signing key {private}: {error.strerror}") from None
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return public


def sign(certificate: Certificate, key: str | Path) -> Certificate:
    """The certificate with a signature; `key` is the path of a private key made by `new_key`."""
    try:
        private = serialization.load_pem_private_key(Path(key).read_bytes(), password=None)
    except OSError as error:
        raise CertificateError(f"cannot read the signing key {key}: {error.strerror}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise CertificateError(f"{key} is not an Ed25519 private key; make one with `tacit keys signing`")
    reprice(certificate)  # nobody should sign a number that its own events do not support
    public = private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    signature = Signature(
        public_key=base64.b64encode(public).decode(),
        value=base64.b64encode(private.sign(certificate.canonical())).decode(),
    )
    return certificate.model_copy(update={"signature": signature})


def verify(certificate: Certificate, public_key: str | Path) -> None:
    """Raise CertificateError unless this key signed exactly this certificate and its numbers follow from its events."""
    if certificate.signature is None:
        raise CertificateError("this certificate is not signed; ask its issuer for a signed one")
    try:
        public = serialization.load_pem_public_key(Path(public_key).read_bytes())
    except OSError as error:
        raise CertificateError(f"cannot read the public key {public_key}: {error.strerror}") from None
    except (ValueError, UnsupportedAlgorithm):
        public = None
    if not isinstance(public, Ed25519PublicKey):
        raise CertificateError(f"{public_key} is not an Ed25519 public key; ask the issuer for theirs")
    try:
        public.verify(base64.b64decode(certificate.signature.value), certificate.canonical())
    except (InvalidSignature, ValueError):
        raise CertificateError(
            "the signature does not fit: this certificate was changed after it was signed, or another key signed it"
        ) from None
    reprice(certificate)


def reprice(certificate: Certificate) -> None:
    """Raise CertificateError where a bound is smaller than its own events, tasks or mechanisms allow.

    Tasks of different events that are counted together have no events to price: what they state is at most what is
    certified, and a unit's composition that would need them is refused."""
    from tacit.privacy import accounting
    from tacit.privacy.composition import together, whole

    certified = certificate.claims.certified
    for bound in certified.bounds:
        if bound.mode == "committed" and bound.epsilon is not None:
            cost = accounting.epsilon(whole(bound.events), bound.delta, certificate.adjacency)
            name = f"task {bound.task}" if isinstance(bound, TaskBound) else f"one of {bound.tasks} tasks"
            _at_least(bound.epsilon, cost, f"{name} states ε = {bound.epsilon:.4g}, but its events cost")
    if certified.epsilon is None:
        return
    applying = [rule for rule in certified.over_tasks if rule.applies]
    expected = "parallel" if certificate.unit.max_tasks_per_unit == 1 else None
    if len(applying) != 1 or (expected and applying[0].rule != expected):
        raise CertificateError("the certificate does not say which rule of composition applies; do not rely on it")
    what = f"the certified ε is {certified.epsilon:.4g}, but"
    for bound in certified.bounds:
        _at_least(certified.epsilon, math.inf if bound.epsilon is None else bound.epsilon, f"{what} one task costs")
    n = min(certificate.unit.max_tasks_per_unit, certified.all_tasks)
    if n > 1 and all(bound.mode == "committed" for bound in certified.bounds):
        cost = together(certified.bounds, n, certified.delta, certificate.adjacency, accounting.Method.BEST)
        _at_least(certified.epsilon, cost, f"{what} a unit in {n} tasks loses")
    for mechanism in certificate.mechanisms:
        for read in mechanism.reads:
            cost = accounting.epsilon(whole([read["event"]]), certified.delta, certificate.adjacency)
            _at_least(certified.epsilon, cost, f"{what} one of its mechanisms costs")


def _at_least(stated: float, cost: float, what: str) -> None:
    if not cost <= stated * (1 + 1e-6) + 1e-9:
        raise CertificateError(f"{what} {cost:.4g}; do not rely on it")
