"""The command `tacit`. Every error is one sentence; exit code 1 when something is wrong, 2 for a wrong call."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tacit.errors import TacitError

if TYPE_CHECKING:
    from tacit.privacy.ledger import Ledger

app = typer.Typer(
    no_args_is_help=True, help="Differentially private continual learning.", pretty_exceptions_enable=False
)
keys = typer.Typer(no_args_is_help=True, help="The secret keys of a ledger: back up, restore, rotate; signing keys.")
ledger = typer.Typer(no_args_is_help=True, help="What was charged: show, verify, raise, reanchor.")
certificate = typer.Typer(no_args_is_help=True, help="Certificates: show, sign, verify, schema.")
policy = typer.Typer(no_args_is_help=True, help="The policy that a ledger enforces: show, adopt.")
for name, group in (("keys", keys), ("ledger", ledger), ("certificate", certificate), ("policy", policy)):
    app.add_typer(group, name=name)

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

LedgerPath = Annotated[Path, typer.Option("--ledger", envvar="TACIT_LEDGER", help="The ledger file.")]
By = Annotated[str, typer.Option(help="Who decides; it stays in the ledger.")]
Why = Annotated[str, typer.Option(help="Why; it stays in the ledger.")]
Json = Annotated[bool, typer.Option("--json", help="For scripts.")]


def _passphrase(*, new: bool) -> Any:
    """An option that is asked for where it is absent; a new one twice, because a typo would make a backup worthless."""
    words = "At least 12 characters; asked for if absent."
    return typer.Option(
        "--passphrase", prompt=True, hide_input=True, confirmation_prompt=new, envvar="TACIT_PASSPHRASE", help=words
    )


def _version(asked: bool) -> None:
    if asked:
        from tacit import __version__

        out.print(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")] = False,
) -> None:
    """Differentially private continual learning."""


@contextmanager
def _sentences() -> Iterator[None]:
    """An error of tacit is shown as its sentence."""
    try:
        yield
    except TacitError as error:
        err.print(f"[red]error:[/red] {error}", markup=True)
        raise typer.Exit(1) from None


def _existing(path: Path) -> "Ledger":
    from tacit.errors import LedgerError
    from tacit.privacy.ledger import Ledger

    if not path.exists():
        raise LedgerError(f"there is no ledger at {path}; give its path with --ledger or TACIT_LEDGER")
    return Ledger(path)


@keys.command("backup")
def keys_backup(file: Path, ledger: LedgerPath, passphrase: Annotated[str, _passphrase(new=True)]) -> None:
    """Write the ledger's keys, encrypted, to FILE. Keep it apart from the ledger and from the passphrase."""
    with _sentences(), _existing(ledger) as book:
        _write_new(file, book.keys.backup(passphrase))
        out.print(f"wrote {file}")


@keys.command("restore")
def keys_restore(file: Path, ledger: LedgerPath, passphrase: Annotated[str, _passphrase(new=False)]) -> None:
    """Put backed-up keys beside the ledger; never over existing ones."""
    from tacit.privacy.keys import KeyRing

    with _sentences():
        place = Path(f"{ledger}.keys")
        if not ledger.exists():
            raise TacitError(f"there is no ledger at {ledger}; restore the ledger file first, then its keys")
        KeyRing.restore(_read(file), passphrase, place)
        try:
            _existing(ledger).close()
        except TacitError:  # other keys, a roll-back, a lock: its sentence says which, and nothing stays behind
            place.unlink()
            raise
        out.print(f"restored {place}")


@keys.command("rotate")
def keys_rotate(ledger: LedgerPath) -> None:
    """Make new sampler and noise keys; destroy old ones that no open grant or series needs. Back up afterwards."""
    with _sentences(), _existing(ledger) as book:
        used = book.generations()
        number = book.keys.rotate(used)
        kept = f", generations {sorted(used)} are kept for unfinished work" if used else ""
        out.print(f"generation {number} is in use, finished ones were destroyed{kept}; back the keys up again")


@keys.command("signing")
def keys_signing(file: Path) -> None:
    """Make an Ed25519 key for signing certificates: FILE (secret) and FILE.pub (give it to anyone)."""
    from tacit.privacy.signing import new_key

    with _sentences():
        out.print(f"wrote {file} (secret) and {new_key(file)} (public)")


@ledger.command("show")
def ledger_show(ledger: LedgerPath, as_json: Json = False) -> None:
    """Each stream with its budget and what one unit may have lost."""
    with _sentences(), _existing(ledger) as book:
        rows = [
            {
                "stream": terms.name,
                "unit": str(terms.budget.unit),
                "adjacency": str(terms.budget.adjacency),
                "budget": terms.budget.epsilon,
                "epsilon": book.epsilon(number),
                "delta": terms.budget.delta,
                "tasks_per_unit": terms.tasks_per_unit,
            }
            for number, terms in book.streams()
        ]
        head = book.head
    if as_json:
        out.print_json(json.dumps({"head": {"seq": head.seq, "hash": head.hash}, "streams": rows}, allow_nan=True))
        return
    table = Table("stream", "protects", "ε charged", "of", "δ", box=None)
    for row in rows:
        table.add_row(
            str(row["stream"]),
            f"{row['unit']}, {row['adjacency']}",
            f"{row['epsilon']:.4g}",
            f"{row['budget']:g}",
            f"{row['delta']:g}",
        )
    out.print(table)
    out.print(f"head {head.seq} {head.hash}")


@ledger.command("verify")
def ledger_verify(
    ledger: LedgerPath,
    certificate: Annotated[
        Path | None, typer.Option(help="Also check that this certificate's head is in the chain.")
    ] = None,
) -> None:
    """Recompute everything from the events: hashes, tables, prices."""
    from tacit.errors import LedgerError
    from tacit.privacy.certificate import Certificate
    from tacit.privacy.ledger import Head

    with _sentences(), _existing(ledger) as book:
        found = book.verify()
        if certificate is not None:
            said = Certificate.load(certificate).ledger
            if said.id != book.id or not book.contains(Head(seq=said.head_seq, hash=said.head_hash)):
                raise LedgerError(
                    f"the head in {certificate} is not in this ledger: it was rolled back, or is another ledger"
                )
        out.print(
            f"in order: {found.entries} entries, {found.streams} streams, {found.blocks} blocks, {found.grants} grants"
        )


@ledger.command("raise")
def ledger_raise(
    stream: str,
    ledger: LedgerPath,
    epsilon: Annotated[float, typer.Option(help="The new ε of one unit.")],
    by: By,
    why: Why,
) -> None:
    """Raise the budget of a STREAM, if the policy lets this person."""
    from dataclasses import replace

    with _sentences(), _existing(ledger) as book:
        found = {terms.name: (number, terms) for number, terms in book.streams()}
        if stream not in found:
            raise TacitError(f"the ledger has no stream {stream!r}; it has {', '.join(found) or 'none'}")
        number, terms = found[stream]
        book.raise_budget(number, replace(terms.budget, epsilon=epsilon), by=by, why=why)
        out.print(f"{stream}: ε {terms.budget.epsilon:g} → {epsilon:g}")


@ledger.command("reanchor")
def ledger_reanchor(ledger: LedgerPath, by: By, why: Why) -> None:
    """Accept a ledger that was rolled back or lost its anchor; every later certificate says so."""
    from tacit.privacy.ledger import Ledger

    with _sentences():
        head = Ledger.reanchor(ledger, by=by, why=why)
        out.print(f"accepted; the head is now {head.seq}")


@certificate.command("show")
def certificate_show(file: Path, as_json: Json = False) -> None:
    """Print a certificate for people."""
    from tacit.privacy.certificate import Certificate

    with _sentences():
        found = Certificate.load(file)
        out.print(found.to_json() if as_json else str(found), markup=False)


@certificate.command("sign")
def certificate_sign(
    file: Path, key: Annotated[Path, typer.Option(help="Private key of `tacit keys signing`.")]
) -> None:
    """Sign a certificate in place."""
    from tacit.privacy.certificate import Certificate
    from tacit.privacy.signing import sign

    with _sentences():
        sign(Certificate.load(file), key).save(file)
        out.print(f"signed {file}")


@certificate.command("verify")
def certificate_verify(file: Path, key: Annotated[Path, typer.Option(help="The issuer's public key.")]) -> None:
    """Check the signature, and price the certificate's events again. Needs nothing but the two files."""
    from tacit.privacy.certificate import Certificate
    from tacit.privacy.signing import verify

    with _sentences():
        found = Certificate.load(file)
        verify(found, key)
        bound = "no finite epsilon is certified" if found.epsilon is None else f"ε = {found.epsilon:.4g} is certified"
        out.print(f"genuine; {bound}")


@certificate.command("schema")
def certificate_schema() -> None:
    """The JSON schema of certificates."""
    from tacit.privacy.certificate import Certificate

    out.print_json(json.dumps(Certificate.model_json_schema()))


@policy.command("show")
def policy_show(ledger: LedgerPath) -> None:
    """The policy in force."""
    with _sentences(), _existing(ledger) as book:
        out.print_json(json.dumps(book.policy.to_dict()))


@policy.command("adopt")
def policy_adopt(
    file: Path, ledger: LedgerPath, by: Annotated[str, typer.Option()], why: Annotated[str, typer.Option()]
) -> None:
    """Put the policy in FILE (TOML) in force; the hash chain records who and why."""
    from tacit.privacy.policy import Policy

    with _sentences(), _existing(ledger) as book:
        book.adopt(Policy.load(file), by=by, why=why)
        out.print(f"adopted {file}")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise TacitError(f"cannot read {file}: {error.strerror}") from None


def _write_new(file: Path, content: bytes) -> None:
    try:
        with file.open("xb") as handle:
            file.chmod(0o600)
            handle.write(content)
    except FileExistsError:
        raise TacitError(f"{file} exists; choose another name") from None
    except OSError as error:
        raise TacitError(f"cannot write {file}: {error.strerror}") from None
