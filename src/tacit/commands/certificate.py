"""`tacit certificate`: read, sign and check certificates. `tacit certificate RUN` shows the one of a run."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tacit.commands._shared import Json, looked_at, out, sentences
from tacit.errors import CertificateError
from tacit.words import close, counted

if TYPE_CHECKING:
    from tacit.privacy.certificate import Certificate

CERTIFIED = "CERTIFIED"
"""Begins the line with the bound."""
GIVE = "give a certificate file, or the folder of a run or of a release"
Checked = Annotated[Path, typer.Argument(metavar="RELEASE", help="The folder of a release, or a certificate file.")]


class ShowsPaths(TyperGroup):
    """`tacit certificate PATH` is `tacit certificate show PATH`, unless PATH looks like a command that was misspelt."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        meant = Path(args[0]).exists() or not close(args[0], self.commands)
        if args[0] not in self.commands and meant:
            args = ["show", *args]
        return super().resolve_command(ctx, args)


certificate = typer.Typer(
    cls=ShowsPaths, no_args_is_help=True, help="Certificates: show (a file or the last of a run), sign, verify, schema."
)


@certificate.command("show")
def show(
    path: Annotated[Path, typer.Argument(help="A certificate, or the folder of a run or a release.")],
    as_json: Json = False,
) -> None:
    """Print a certificate for people. Of a run: that of the last release, of the first seed."""
    from tacit.privacy.certificate import Certificate

    with sentences():
        if not path.exists():
            raise CertificateError(f"there is no file or folder {path}; {GIVE}")
        found = Certificate.load(_last(path) if path.is_dir() else path)
        if as_json:
            return out.print(found.to_json())
        for line in str(found).splitlines():
            out.print(line, style="bold red" if line.startswith(CERTIFIED) and found.epsilon is None else None)


@certificate.command("sign")
def sign(path: Checked, key: Annotated[Path, typer.Option(help="Private key of `tacit keys signing`.")]) -> None:
    """Sign a certificate in place; that of a release only if model and files are those that it names."""
    from tacit.privacy import binding, signing
    from tacit.privacy.certificate import Certificate

    with sentences():
        file, release = located(path)
        found = Certificate.load(file)
        if release is not None:
            binding.check(release, found)
        signing.sign(found, key).save(file)
        out.print(f"signed {file}")


@certificate.command("verify")
def verify(
    path: Checked,
    key: Annotated[Path | None, typer.Option(help="The issuer's public key: who signed it.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger it was charged to: every event is priced again from there.")
    ] = None,
) -> None:
    """Check a release: its model and files, its certificate's numbers and signature, and with a ledger all events."""
    from tacit.privacy import signing, witness
    from tacit.privacy.certificate import Certificate

    with sentences():
        file, release = located(path)
        found = Certificate.load(file)
        model = bound_to(found, release)
        if key is not None:
            signing.verify(found, key)
        signature = "signed with the key given" if key is not None else _own_signature(found)
        charged = "no ledger was given, so events that it leaves out would not be noticed"
        if ledger is not None:
            with looked_at(ledger) as book:
                witness.check(found, book)
            charged = f"as entry {found.ledger.head_seq} of the ledger has it, every event priced again"
        bound = "no finite epsilon is certified" if found.epsilon is None else f"ε = {found.epsilon:.4g} is certified"
        for name, said in (("model", model), ("signature", signature), ("charges", charged)):
            out.print(f"{name:<10} {said}")
        out.print(f"{'in order' if key is None else 'genuine'}; {bound}")


def _own_signature(found: "Certificate") -> str:
    from tacit.privacy import repricing, signing

    if found.signature is None:
        repricing.reprice(found)
        return "none: whoever can write to the folder may have made it"
    return f"by the key {signing.verify_own(found)}; give the issuer's with --key to see whose it is"


def bound_to(found: "Certificate", release: Path | None) -> str:
    """Check that the release is the one that is certified; what can be said of it."""
    from tacit.privacy import binding

    if found.release is None:
        return binding.BEFORE
    if release is None:
        return "not checked: give the folder of the release"
    binding.check(release, found)
    return f"{len(found.release.tensors)} tensors and {len(found.release.files)} files, all as they were certified"


def located(path: Path) -> tuple[Path, Path | None]:
    """A certificate file, and the folder of its release where it lies in one."""
    if not path.exists():
        raise CertificateError(f"there is no file or folder {path}; {GIVE}")
    file = _last(path) if path.is_dir() else path
    whole = file.name == "certificate.json" and (path.is_dir() or (file.parent / "release.json").exists())
    return file, file.parent if whole else None


@certificate.command("schema")
def schema() -> None:
    """The JSON schema of certificates."""
    from tacit.privacy.certificate import Certificate

    out.print_json(json.dumps(Certificate.model_json_schema()))


def _last(folder: Path) -> Path:
    """The certificate of the last release in the folder of a run (its first seed), of its seeds, of a seed, of the
    releases of one, or of a release."""
    if folder.name == "releases" and (folder.parent / "releases").is_dir():
        folder = folder.parent
    seeds = folder.glob("seed-*" if folder.name == "seeds" else "seeds/*")
    for seed in sorted(seeds, key=_numbers) or [folder]:
        releases = sorted(seed.glob("releases/*/certificate.json"), key=lambda file: _numbers(file.parent))
        if releases:
            return releases[-1]
    if (folder / "certificate.json").exists():
        return folder / "certificate.json"
    if runs := sorted(str(run.parent) for run in folder.glob("*/seeds")):
        raise CertificateError(f"{folder} holds {counted(len(runs), 'run')}; give one of them: {', '.join(runs)}")
    raise CertificateError(f"there is no certificate in {folder}; {GIVE}")


def _numbers(path: Path) -> tuple[int, str]:
    """By the first number in its name, so that seed-10 comes after seed-9."""
    found = re.search(r"\d+", path.name)
    return int(found.group()) if found else -1, path.name
