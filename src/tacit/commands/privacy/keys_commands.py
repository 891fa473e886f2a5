"""`tacit keys`: the secret keys of a ledger, and signing keys."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tacit.commands.console import out
from tacit.commands.ledger_access import open_ledger
from tacit.commands.options import LedgerPath
from tacit.errors import TacitError

keys = typer.Typer(
    no_args_is_help=True, help="Secret keys of a ledger: back up, restore, rotate; and keys for signing."
)

Passphrase = Annotated[
    str | None,
    typer.Option(
        envvar="TACIT_PASSPHRASE",
        help="At least 12 characters. Default: asked on a terminal. Without a terminal, use the environment variable: "
        "other users of the machine can see an option.",
    ),
]


@keys.command("backup")
def backup(file: Path, ledger: LedgerPath, passphrase: Passphrase = None) -> None:
    """Write the ledger's keys, encrypted, to FILE. Store it apart from the ledger and from the passphrase."""
    with open_ledger(ledger) as book:
        _write_new(file, book.keys.backup(_ask_passphrase(passphrase, new=True)))
        out.print(f"wrote {file}")


@keys.command("restore")
def restore(file: Path, ledger: LedgerPath, passphrase: Passphrase = None) -> None:
    """Restore backed-up keys beside the ledger; existing keys are never overwritten."""
    from tacit.privacy.randomness.keys import KeyRing

    path = Path(f"{ledger}.keys")
    if not ledger.exists():
        raise TacitError(f"there is no ledger at {ledger}; restore the ledger file first, then its keys")
    try:
        backup = file.read_bytes()
    except OSError as error:
        raise TacitError(f"cannot read {file}: {error.strerror}") from None
    KeyRing.restore(backup, _ask_passphrase(passphrase, new=False), path)
    try:
        open_ledger(ledger).close()
    except TacitError:  # keys of another ledger, a rollback or a lock: leave no keys behind
        path.unlink()
        raise
    out.print(f"restored {path}")


@keys.command("rotate")
def rotate(ledger: LedgerPath) -> None:
    """Create new sampling and noise keys; destroy old ones that no unfinished work needs. Back up afterwards."""
    with open_ledger(ledger) as book:
        used = book.key_generations()
        number = book.keys.rotate(used)
        kept = f", generations {sorted(used)} are kept for unfinished work" if used else ""
        out.print(f"generation {number} is in use, finished ones were destroyed{kept}; back up the keys again")


@keys.command("signing")
def signing(file: Path) -> None:
    """Create an Ed25519 key for signing certificates: FILE (secret) and FILE.pub (public)."""
    from tacit.certificate.signing import new_key

    out.print(f"wrote {file} (secret) and {new_key(file)} (public)")


def _ask_passphrase(given: str | None, *, new: bool) -> str:
    """The passphrase as given or typed; a new one is typed twice, because a typo would make a backup worthless."""
    if given is not None:
        return given
    if not sys.stdin.isatty():
        raise TacitError(
            "the passphrase is read from a terminal, and there is none; set the environment variable TACIT_PASSPHRASE"
        )
    return str(typer.prompt("Passphrase", hide_input=True, confirmation_prompt=new))


def _write_new(file: Path, content: bytes) -> None:
    """Writes a new file that only its owner can read."""
    try:
        with file.open("xb") as handle:
            file.chmod(0o600)
            handle.write(content)
    except FileExistsError:
        raise TacitError(f"{file} exists; choose another name") from None
    except OSError as error:
        raise TacitError(f"cannot write {file}: {error.strerror}") from None
