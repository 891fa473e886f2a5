"""The certificate of a release: whose data, against which observer, at what ε, under which assumptions.

Formal guarantees:

* `claims.certified` is computed from the events in the ledger, and is null with a reason where no finite ε holds.
* A paper's claim is stated beside it, under the paper's own neighbouring relation, and is never merged with it.
* The file lists its events, so anyone can price them again (`repricing`), and the head of the ledger's hash chain, so a
  rolled-back ledger is detected (`ledger_check`).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import SerializerFunctionWrapHandler, ValidationError, model_serializer

from tacit.certificate.certificate_text import text
from tacit.certificate.sections import Contents, without_empty
from tacit.errors import CertificateError

Tuning = Literal["none", "public data", "charged", "not accounted"]
"""How hyper-parameters were tuned."""


class Certificate(Contents):
    """A privacy certificate; `print(certificate)` shows it as one page of text.

    `sections.Contents` documents its fields.
    """

    @property
    def epsilon(self) -> float | None:
        """The certified ε, or None."""
        return self.claims.certified.epsilon

    def canonical(self) -> bytes:
        """The signed bytes: everything but the signature, with sorted keys.

        Returns:
            JSON in UTF-8, without spaces.
        """
        body = self.model_dump(mode="json", exclude={"signature"})
        return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    @model_serializer(mode="wrap")
    def _as_before(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_empty(plain(self), "other_mechanisms", "beside", "same_units", "arithmetic", "release")

    def to_json(self) -> str:
        """The certificate as JSON, as `save` writes it.

        Returns:
            Indented JSON.
        """
        return self.model_dump_json(indent=2)

    def save(self, path: str | Path) -> None:
        """Write the file atomically.

        Args:
            path: The file.
        """
        draft = Path(f"{path}.new")
        draft.write_text(self.to_json() + "\n", encoding="utf-8")
        draft.replace(path)

    @classmethod
    def load(cls, path: str | Path) -> "Certificate":
        """Read a certificate.

        Args:
            path: The file.

        Returns:
            The certificate.

        Raises:
            CertificateError: The file cannot be read, or is not a certificate.
        """
        try:
            return cls.model_validate_json(Path(path).read_bytes())
        except OSError as error:
            raise CertificateError(f"cannot read the certificate {path}: {error.strerror}") from None
        except ValidationError as error:
            first = error.errors()[0]
            if first["type"] == "json_invalid":
                raise CertificateError(
                    f"{path} is not a certificate (not JSON); give a certificate.json, or the folder of a release"
                ) from None
            where = ".".join(str(step) for step in first["loc"]) or "the file"
            raise CertificateError(
                f"{path} is not a certificate of tacit: {where}: {first['msg']}; ask its issuer for the original"
            ) from None

    def __repr__(self) -> str:
        certified = self.claims.certified
        epsilon = "none" if certified.epsilon is None else f"{certified.epsilon:.4g}"
        return (
            f"Certificate(method={self.method!r}, epsilon={epsilon}, delta={certified.delta:g}, unit={self.unit.kind})"
        )

    def __str__(self) -> str:
        return text(self)


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """How hyper-parameters were tuned, as declared.

    Attributes:
        on: Whether they were tuned, and whether on public, charged or uncharged data.
        about: What was tried on which data, in public words.
    """

    on: Tuning = "none"
    about: str = ""

    @classmethod
    def of(cls, certificate: Certificate) -> "Tuned":
        """What a certificate states about tuning."""
        on, _, about = certificate.tuning.partition(": ")
        return cls(on=cast(Tuning, on), about=about)
