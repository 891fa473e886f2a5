"""Private data is never taken as a public test set: not by another path, not through a link, not as a copy."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support.visits import CSV, declare
from tacit.errors import DataError
from tacit.experiment.owner.declaration_check import check
from tacit.privacy.vault.sources.copies import is_copy
from tacit.privacy.vault.sources.declared import open_declared

LINES = CSV.splitlines(keepends=True)


def hard_link(path: Path) -> None:
    path.with_name("test.csv").hardlink_to(path)


def symbolic_link(path: Path) -> None:
    path.with_name("test.csv").symlink_to(path)


def byte_copy(path: Path) -> None:
    shutil.copy(path, path.with_name("test.csv"))


def reordered(path: Path) -> None:
    path.with_name("test.csv").write_text("".join([LINES[0], *reversed(LINES[1:])]))


def without_the_last_newline(path: Path) -> None:
    path.with_name("test.csv").write_text(CSV.rstrip("\n"))


def other_line_ends(path: Path) -> None:
    path.with_name("test.csv").write_bytes(CSV.rstrip("\n").encode() + b"\r\n")


@pytest.mark.parametrize(
    "made", [hard_link, symbolic_link, byte_copy, reordered, without_the_last_newline, other_line_ends]
)
def test_private_rows_as_a_public_test_file_are_refused(made: Callable[[Path], None], tmp_path: Path) -> None:
    private = tmp_path / "visits.csv"
    private.write_text(CSV)
    made(private)
    declared = declare(tmp_path, files={"train": "visits.csv", "test": "test.csv"})
    with pytest.raises(DataError, match=r"files.test = 'test.csv' is the private data of files.train, or a copy"):
        open_declared(declared)
    assert not next(one for one in check(declared) if one.what == "test").ok


@pytest.mark.parametrize("test", ["./visits.csv", "sub/../visits.csv"])
def test_the_same_file_by_another_path_is_refused(test: str, tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text(CSV)
    (tmp_path / "sub").mkdir()
    declared = declare(tmp_path, files={"train": "visits.csv", "test": test})
    with pytest.raises(DataError, match="is the private data"):
        open_declared(declared)


def test_other_rows_are_a_test_file(tmp_path: Path) -> None:
    """Also of the same size, also where some rows are shared: whether one is shared would be a query about it."""
    (tmp_path / "visits.csv").write_text(CSV)
    (tmp_path / "test.csv").write_text(CSV.replace("50,north", "51,north"))
    declared = declare(tmp_path, files={"train": "visits.csv", "test": "test.csv"})
    assert open_declared(declared)[0].test is not None


def test_public_data_may_be_tested_on_itself(tmp_path: Path) -> None:
    rows = "".join(line for line in LINES if "secret" not in line and line.count(",") == 4)
    for name in ("visits.csv", "test.csv"):
        (tmp_path / name).write_text(rows)
    declared = declare(tmp_path, files={"train": "visits.csv", "test": "test.csv"}, public=True)
    assert open_declared(declared)[0].test is not None


def test_arrays_and_folders_are_compared_by_what_they_hold(tmp_path: Path) -> None:
    one, other, third = (tmp_path / name for name in ("a.npz", "b.npz", "c.npz"))
    for place, values in ((one, np.arange(6)), (other, np.arange(6)), (third, np.arange(6) + 1)):
        np.savez(place, x=values)
    assert is_copy(one, other) and not is_copy(one, third)
    for folder, names in (("private", ("1.png", "2.png")), ("public", ("x.png", "y.png"))):
        (tmp_path / folder).mkdir()
        for content, name in enumerate(names):
            (tmp_path / folder / name).write_bytes(b"picture" + bytes([content]))
    assert is_copy(tmp_path / "private", tmp_path / "public")
    (tmp_path / "public" / "x.png").write_bytes(b"picture\xff")
    assert not is_copy(tmp_path / "private", tmp_path / "public")
    assert not is_copy(tmp_path / "private", one)
