"""`tacit certificate`: shows, signs and verifies certificates."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tacit.commands.console import out
from tacit.commands.ledger_access import view_ledger
from tacit.commands.options import Json
from tacit.commands.release_folders import locate
from tacit.words import close, counted

if TYPE_CHECKING:
    from tacit.certificate.certificate import Certificate

CERTIFIED = "CERTIFIED"
"""How the line with the certified bound begins."""
ReleasePath = Annotated[Path, typer.Argument(metavar="RELEASE", help="A release folder, or a certificate file.")]


class ShowByDefault(TyperGroup):
    """Reads `tacit certificate PATH` as `tacit certificate show PATH`, unless PATH looks like a misspelled command."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        is_path = Path(args[0]).exists() or not close(args[0], self.commands)
        if args[0] not in self.commands and is_path:
            args = ["show", *args]
        return super().resolve_command(ctx, args)


certificate = typer.Typer(
    cls=ShowByDefault, no_args_is_help=True, help="Certificates: show, document, diff, sign, verify, registry, schema."
)


@certificate.command("show")
def show(
    path: Annotated[Path, typer.Argument(help="A certificate file, or the folder of a run or a release.")],
    as_json: Json = False,
) -> None:
    """Print a certificate as text. For a run: the certificate of the last release of the first seed."""
    from tacit.certificate.certificate import Certificate

    certificate = Certificate.load(locate(path)[0])
    if as_json:
        return out.print(certificate.to_json())
    for line in str(certificate).splitlines():
        unbounded = line.startswith(CERTIFIED) and certificate.epsilon is None
        out.print(line, style="bold red" if unbounded else None)


@certificate.command("sign")
def sign(
    path: ReleasePath, key: Annotated[Path, typer.Option(help="The private key, made by `tacit keys signing`.")]
) -> None:
    """Sign a certificate in place. That of a release is signed only if its model and files match the certificate."""
    from tacit.certificate import binding, signing
    from tacit.certificate.certificate import Certificate

    file, release = locate(path)
    certificate = Certificate.load(file)
    if release is not None:
        binding.check(release, certificate)
    signing.sign(certificate, key).save(file)
    out.print(f"signed {file}")


@certificate.command("verify")
def verify(
    path: ReleasePath,
    key: Annotated[Path | None, typer.Option(help="The issuer's public key, to check who signed it.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger that was charged, to price every event again.")
    ] = None,
) -> None:
    """Verify a release: its model and files, the certificate's numbers and signature, and with --ledger all events."""
    from tacit.certificate import ledger_check, signing
    from tacit.certificate.certificate import Certificate

    file, release = locate(path)
    certificate = Certificate.load(file)
    model = check_binding(certificate, release)
    if key is not None:
        signing.verify(certificate, key)
    signature = "valid for the given key" if key is not None else _check_own_signature(certificate)
    charges = "not checked: without --ledger, missing events are not noticed"
    if ledger is not None:
        with view_ledger(ledger) as book:
            ledger_check.check(certificate, book)
        charges = f"match entry {certificate.ledger.head_seq} of the ledger, every event priced again"
    for name, result in (("model", model), ("signature", signature), ("charges", charges)):
        out.print(f"{name:<10} {result}")
    epsilon = certificate.epsilon
    bound = "no finite ε is certified" if epsilon is None else f"ε = {epsilon:.4g} is certified"
    out.print(f"{'in order' if key is None else 'genuine'}; {bound}")


def _check_own_signature(certificate: "Certificate") -> str:
    from tacit.certificate import repricing, signing

    if certificate.signature is None:
        repricing.reprice(certificate)
        return "none: anyone who can write to the folder may have made it"
    return f"valid for the key {signing.verify_own(certificate)}; give the issuer's --key to check whose key it is"


def check_binding(certificate: "Certificate", release: Path | None) -> str:
    """Checks that a release is the one that was certified; returns the result in words."""
    from tacit.certificate import binding

    if certificate.release is None:
        return binding.BEFORE
    if release is None:
        return "not checked: give the folder of the release"
    binding.check(release, certificate)
    tensors, files = len(certificate.release.tensors), len(certificate.release.files)
    return f"{counted(tensors, 'tensor')} and {counted(files, 'file')} match the certificate"


@certificate.command("schema")
def schema() -> None:
    """Print the JSON schema of certificates."""
    from tacit.certificate.certificate import Certificate

    out.print_json(data=Certificate.model_json_schema())
