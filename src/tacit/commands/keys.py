"""`tacit keys`: the secret keys of a ledger."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tacit.commands._shared import LedgerPath, existing, out, read, sentences, write_new
from tacit.errors import TacitError

keys = typer.Typer(no_args_is_help=True, help="The secret keys of a ledger: back up, restore, rotate; signing keys.")


Passphrase = Annotated[
    str | None,
    typer.Option(
        envvar="TACIT_PASSPHRASE",
        help="At least 12 characters; asked for on a terminal if absent. Without a terminal, use the environment "
        "variable: an option can be seen by others on the machine.",
    ),
]


def _asked(passphrase: str | None, *, new: bool) -> str:
    """The passphrase as given, or as typed; a new one twice, because a typo would make a backup worthless."""
    if passphrase is not None:
        return passphrase
    if not sys.stdin.isatty():
        raise TacitError(
            "the passphrase is asked for on a terminal, and there is none here; give it by the environment variable "
            "TACIT_PASSPHRASE"
        )
    return str(typer.prompt("Passphrase", hide_input=True, confirmation_prompt=new))


@keys.command("backup")
def backup(file: Path, ledger: LedgerPath, passphrase: Passphrase = None) -> None:
    """Write the ledger's keys, encrypted, to FILE. Keep it apart from the ledger and from the passphrase."""
    with sentences(), existing(ledger) as book:
        write_new(file, book.keys.backup(_asked(passphrase, new=True)))
        out.print(f"wrote {file}")


@keys.command("restore")
def restore(file: Path, ledger: LedgerPath, passphrase: Passphrase = None) -> None:
    """Put backed-up keys beside the ledger; never over existing ones."""
    from tacit.privacy.keys import KeyRing

    with sentences():
        place = Path(f"{ledger}.keys")
        if not ledger.exists():
            raise TacitError(f"there is no ledger at {ledger}; restore the ledger file first, then its keys")
        KeyRing.restore(read(file), _asked(passphrase, new=False), place)
        try:
            existing(ledger).close()
        except TacitError:  # other keys, a roll-back, a lock: its sentence says which, and nothing stays behind
            place.unlink()
            raise
        out.print(f"restored {place}")


@keys.command("rotate")
def rotate(ledger: LedgerPath) -> None:
    """Make new sampler and noise keys; destroy old ones that no open grant or series needs. Back up afterwards."""
    with sentences(), existing(ledger) as book:
        used = book.generations()
        number = book.keys.rotate(used)
        kept = f", generations {sorted(used)} are kept for unfinished work" if used else ""
        out.print(f"generation {number} is in use, finished ones were destroyed{kept}; back the keys up again")


@keys.command("signing")
def signing(file: Path) -> None:
    """Make an Ed25519 key for signing certificates: FILE (secret) and FILE.pub (give it to anyone)."""
    from tacit.privacy.signing import new_key

    with sentences():
        out.print(f"wrote {file} (secret) and {new_key(file)} (public)")
