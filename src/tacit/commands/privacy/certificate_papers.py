"""`tacit certificate document`, `registry` and `diff`: certificates as papers for people and registries."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.commands.console import err, out
from tacit.commands.options import Json
from tacit.commands.privacy.certificate_commands import certificate
from tacit.commands.release_folders import locate
from tacit.errors import CertificateError
from tacit.words import upper_bound

__all__ = ["certificate"]

if TYPE_CHECKING:
    from tacit.certificate.certificate import Certificate
    from tacit.privacy.ledger.limits.deployment import Deployment
    from tacit.report.certificates.certificate_changes import NumberChange

AnyCertificate = Annotated[
    Path, typer.Argument(metavar="CERTIFICATE", help="A certificate file, or the folder of a run or a release.")
]
Stated = Annotated[
    Path | None,
    typer.Option(
        "--policy", help="A policy whose table `deployment` replaces the certificate's; no signature covers it."
    ),
]
SUFFIXES = (".html", ".pdf")
ENTRY_SUFFIXES = (".yaml", ".yml")
SHOWN = 400
"""The characters of a changed text that are printed."""


@certificate.command("document")
def document(
    path: AnyCertificate,
    file: Annotated[Path, typer.Option("--out", help="The file: .html or .pdf.")] = Path("certificate.html"),
    policy: Stated = None,
) -> None:
    """Write a certificate as one page in plain words, to read and to file.

    The certificate's numbers are priced again first. For a run: the certificate of the last release of its first seed,
    with the run's accuracy.

    \b
    tacit certificate document runs/quickstart-20260101-120000 --out certificate.pdf
    """
    from tacit.report.certificates.document_text import document_text

    suffix = _suffix(file, SUFFIXES)
    one = _priced(path)
    text = document_text(one, utility=_utility(path), later=_stated(policy), later_source=policy.name if policy else "")
    if suffix == ".pdf":
        from tacit.report.certificates.pdf_document import pdf_document

        _write(file, pdf_document(text, issued=one.created))
    else:
        from tacit.report.certificates.html_document import html_document

        _write(file, html_document(text).encode())
    out.print(f"document  {file}")


@certificate.command("registry")
def registry(
    path: AnyCertificate,
    file: Annotated[
        Path | None, typer.Option("--out", help="The file: .yaml or .yml. Default: a name that the registry takes.")
    ] = None,
    policy: Stated = None,
) -> None:
    """Write an entry for the OpenDP Deployments Registry (YAML), validated against the registry's schema."""
    from tacit.report.certificates.registry_entry import NOT_STATED, file_name, registry_entry, registry_yaml

    if file is not None:
        _suffix(file, ENTRY_SUFFIXES)
    entry = registry_entry(_priced(path), utility=_utility(path), later=_stated(policy))
    text, target = registry_yaml(entry), file or Path(file_name(entry))
    _write(target, text.encode())
    out.print(f"entry  {target} (draft, tier {entry['tier']})")
    if NOT_STATED in text:
        err.print("some fields are not stated: declare them in [deployment] of the policy", style="yellow")


@certificate.command("diff")
def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="The earlier certificate, run or release.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="The later one.")],
    as_json: Json = False,
) -> None:
    """Say what changed between two certificates, such as those of two months."""
    from tacit.certificate.certificate import Certificate
    from tacit.report.certificates.certificate_changes import changes

    found = changes(Certificate.load(locate(before)[0]), Certificate.load(locate(after)[0]))
    if as_json:
        return out.print(json.dumps(asdict(found), indent=2, ensure_ascii=False, allow_nan=False))
    for warning in found.warnings:
        out.print(warning, style="bold red")
    out.print(found.summary)
    out.print()
    width = max(len(one.name) for one in found.numbers)
    for one in found.numbers:
        out.print(_number_line(one, width), style=None if one.changed else "dim")
    for fact in found.facts:
        out.print(f"\n{fact.name}\n  was  {_clipped(fact.before)}\n  is   {_clipped(fact.after)}")
    for listed in found.lists:
        out.print(f"\n{listed.name}")
        for sign, texts in (("+", listed.added), ("-", listed.removed)):
            for text in texts:
                out.print(f"  {sign} {_clipped(text)}")
    if not found.facts and not found.lists and not any(one.changed for one in found.numbers):
        out.print("\nnothing changed")


def _number_line(one: "NumberChange", width: int) -> str:
    def shown(value: float | None) -> str:
        return "none" if value is None else f"{value:,}" if isinstance(value, int) else upper_bound(value)

    if not one.changed:
        return f"{one.name:<{width}}  {shown(one.before)}"
    if one.before is None or one.after is None:
        return f"{one.name:<{width}}  {shown(one.before)} → {shown(one.after)}"
    step = one.after - one.before
    return f"{one.name:<{width}}  {shown(one.before)} → {shown(one.after)}  ({step:+.3g})"


def _clipped(text: str) -> str:
    line = " ".join("".join(letter for letter in text if letter.isprintable() or letter.isspace()).split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}… ({len(line):,} characters)"


def _priced(path: Path) -> "Certificate":
    """A certificate whose numbers follow from its events and, if it is signed, that was not changed."""
    from tacit.certificate import repricing, signing
    from tacit.certificate.certificate import Certificate

    one = Certificate.load(locate(path)[0])
    if one.signature is None:
        repricing.reprice(one)
    else:
        signing.verify_own(one)
    return one


def _stated(policy: Path | None) -> "Deployment | None":
    from tacit.privacy.ledger.limits.policy import Policy

    if policy is None:
        return None
    if (found := Policy.load(policy).deployment) is None:
        raise CertificateError(f"{policy} declares no [deployment]; add the table, or leave --policy out")
    return found


def _utility(path: Path) -> str:
    """The accuracy of a run with its spread; "" for anything else."""
    from tacit.report.reading.run_folders import read_folders

    if not path.is_dir() or not (path / "seeds").is_dir():
        return ""
    runs = read_folders([path]).runs
    score = runs[0].average_accuracy if len(runs) == 1 else None
    if score is None or not math.isfinite(score.mean):
        return ""
    tasks = f"average accuracy over {runs[0].points[-1] if runs[0].points else len(runs[0].tasks)} tasks"
    if score.seeds < 2 or math.isnan(score.std):
        return f"{tasks}: {score.mean:.1%} (one seed, so no interval)"
    half = _half_width(score.std, score.seeds)
    return f"{tasks}: {score.mean:.1%} ± {half:.1%} (95 % interval over {score.seeds} seeds)"


def _half_width(std: float, seeds: int) -> float:
    from scipy.stats import t

    return float(t.ppf(0.975, seeds - 1)) * std / math.sqrt(seeds)


def _suffix(file: Path, known: tuple[str, ...]) -> str:
    if (suffix := file.suffix.lower()) not in known:
        raise CertificateError(f"{str(file)!r} has no known suffix; use one of {', '.join(known)}")
    return suffix


def _write(file: Path, content: bytes) -> None:
    try:
        file.write_bytes(content)
    except OSError as error:
        raise CertificateError(f"cannot write {file}: {error.strerror}; give another file with --out") from None
