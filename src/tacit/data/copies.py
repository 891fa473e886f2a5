"""Whether a test file that is declared public is a copy of the private data.

This looks at private bytes, and its answer is a refusal, so it must not become a query about a record. It is none: a
copy is refused whatever records it holds, and a file that is not a copy of all of them, line by line, is never refused.
Only somebody who can already write down the whole private file could learn from the answer that it is the private file.
A file that shares some records with the private one is therefore not looked for: that answer would hang on a record.
"""

import hashlib
import zipfile
from pathlib import Path

LINES = (".csv", ".tsv", ".txt")
"""Files whose records are lines: the order of lines does not make another file."""
_BLOCK = 2**20
_MODULUS = 2**256


def is_copy(private: Path, public: Path) -> bool:
    """Whether two files have the same bytes (of a CSV file: the same lines in any order), or two folders the same
    files under any names. Content is read only where sizes agree, so that this is free for files that differ."""
    if private.is_dir() and public.is_dir():
        mine, others = _files(private), _files(public)
        if sorted(file.stat().st_size for file in mine) != sorted(file.stat().st_size for file in others):
            return False
        return bool(mine) and sorted(map(_digest, mine)) == sorted(map(_digest, others))
    if not (private.is_file() and public.is_file()):
        return False
    lines = private.suffix.lower() in LINES and public.suffix.lower() in LINES
    # The last line may or may not end: one or two bytes.
    if abs(private.stat().st_size - public.stat().st_size) > (2 if lines else 0):
        return False
    how = _of_lines if lines else _of_arrays if private.suffix.lower() == ".npz" else _digest
    return how(private) == how(public)


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


def _digest(file: Path) -> bytes:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()


def _of_arrays(file: Path) -> object:
    """The arrays in a .npz file by their names and checksums, whenever it was written."""
    try:
        with zipfile.ZipFile(file) as held:
            return sorted((one.filename, one.CRC, one.file_size) for one in held.infolist())
    except (OSError, zipfile.BadZipFile):
        return _digest(file)


def _of_lines(file: Path) -> object:
    """The same for the same lines in any order: the sum of their digests."""
    total = 0
    with file.open("rb") as content:
        while lines := content.readlines(_BLOCK):
            for line in lines:
                total += int.from_bytes(hashlib.sha256(line.rstrip(b"\r\n")).digest(), "big")
    return total % _MODULUS
