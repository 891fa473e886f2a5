"""`tacit certificate`: read, sign and check certificates. `tacit certificate RUN` shows the one of a run."""

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tacit.commands._shared import Json, out, sentences
from tacit.errors import CertificateError
from tacit.words import close, counted

CERTIFIED = "CERTIFIED"
"""Begins the line with the bound."""
GIVE = "give a certificate file, or the folder of a run or of a release"


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
def sign(file: Path, key: Annotated[Path, typer.Option(help="Private key of `tacit keys signing`.")]) -> None:
    """Sign a certificate in place."""
    from tacit.privacy import signing
    from tacit.privacy.certificate import Certificate

    with sentences():
        signing.sign(Certificate.load(file), key).save(file)
        out.print(f"signed {file}")


@certificate.command("verify")
def verify(file: Path, key: Annotated[Path, typer.Option(help="The issuer's public key.")]) -> None:
    """Check the signature, and price the certificate's events again. Needs nothing but the two files."""
    from tacit.privacy import signing
    from tacit.privacy.certificate import Certificate

    with sentences():
        found = Certificate.load(file)
        signing.verify(found, key)
        bound = "no finite epsilon is certified" if found.epsilon is None else f"ε = {found.epsilon:.4g} is certified"
        out.print(f"genuine; {bound}")


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
