"""Detects whether a test file that is declared public is a copy of the private data.

This reads private bytes and answers with a refusal, so it must not reveal anything about a single record. It does not:
a copy is refused whatever records it holds, and a file that does not contain all private records, line by line, is
never refused. Only someone who already has the whole private file could learn from the answer that it is the private
file. A file that shares some records with the private one is therefore not detected: that answer would depend on a
record.
"""

import hashlib
import zipfile
from pathlib import Path

LINE_FILES = (".csv", ".tsv", ".txt")
"""Files whose records are lines; the order of lines does not matter."""
_BLOCK = 2**20
_MODULUS = 2**256


def is_copy(private: Path, public: Path) -> bool:
    """Whether two files have the same content (of CSV files: the same lines in any order), or two folders the same
    files under any names. Content is read only where sizes agree."""
    if private.is_dir() and public.is_dir():
        files = [[file for file in folder.rglob("*") if file.is_file()] for folder in (private, public)]
        sizes = [sorted(file.stat().st_size for file in some) for some in files]
        return (
            bool(files[0]) and sizes[0] == sizes[1] and sorted(map(_digest, files[0])) == sorted(map(_digest, files[1]))
        )
    if not (private.is_file() and public.is_file()):
        return False
    lines = private.suffix.lower() in LINE_FILES and public.suffix.lower() in LINE_FILES
    # The last line may or may not end with a newline of one or two bytes.
    if abs(private.stat().st_size - public.stat().st_size) > (2 if lines else 0):
        return False
    digest = _lines_digest if lines else _arrays_digest if private.suffix.lower() == ".npz" else _digest
    return digest(private) == digest(public)


def _digest(file: Path) -> bytes:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()


def _arrays_digest(file: Path) -> object:
    """The names and checksums of the arrays in a .npz file; the time at which it was written does not matter."""
    try:
        with zipfile.ZipFile(file) as archive:
            return sorted((array.filename, array.CRC, array.file_size) for array in archive.infolist())
    except (OSError, zipfile.BadZipFile):
        return _digest(file)


def _lines_digest(file: Path) -> object:
    """The sum of the digests of all lines, which does not depend on their order."""
    total = 0
    with file.open("rb") as content:
        while lines := content.readlines(_BLOCK):
            for line in lines:
                total += int.from_bytes(hashlib.sha256(line.rstrip(b"\r\n")).digest(), "big")
    return total % _MODULUS
