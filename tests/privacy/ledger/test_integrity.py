"""Damage to the file: a flipped bit is noticed or changes nothing, and what follows from the log is made anew."""

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit import Budget, Ledger
from tacit.errors import LedgerError
from tacit.privacy.accounting.events import gaussian, poisson_gaussian
from tacit.privacy.ledger import LedgerView, StreamTerms, rebuild

BUDGET = Budget(epsilon=8.0, delta=1e-5)
WORK: dict[str, Any] = {"holder": "h", "kind": "sums", "plan": {}}
PAGE = 4096


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with every kind of row: lists, an open block, parts, grants, members, memos, a policy."""
    path = tmp_path_factory.mktemp("ledger") / "l"
    with Ledger(path) as ledger:
        number = ledger.stream(StreamTerms(name="visits", budget=BUDGET, tasks_per_unit=2))
        for task in ("january", "february"):
            block = ledger.block(number, task, size=100, labels=("a", "b"), fingerprint=f"f-{task}", overlap="enforced")
            ledger.enroll(number, task, np.arange(40, dtype=np.uint64), 2)
            parts = ledger.split(block.id, {"train": 90, "memory": 10})
            ledger.commit({parts[0].id: [poisson_gaussian(0.1, 3.0, 20)], parts[1].id: [gaussian(9.0)]})
            ticket = ledger.bill([(parts[0].id, poisson_gaussian(0.1, 3.0, 20))], pin=f"p-{task}", **WORK)
            ledger.release(ticket, "output")
        other = ledger.stream(StreamTerms(name="scans", budget=BUDGET))
        opened = ledger.block(other, "march", size=50, mode="open")
        ledger.void(ledger.reserve([(opened.id, gaussian(20.0))], pin="q", **WORK))
        ledger.bill([(opened.id, gaussian(20.0))], pin="r", **WORK)
        ledger.retire(opened.id)
        ledger.verify()
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    for file in made.parent.iterdir():
        shutil.copy(file, tmp_path / file.name)
    return tmp_path / "l"


def content(path: Path) -> dict[str, Any] | None:
    """Every row of every table, and every declaration (white space aside), read without indexes; None: unreadable."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            declared = connection.execute(
                "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master"
            ).fetchall()
            found: dict[str, Any] = {str(row[:3]): "".join(row[3].split()) for row in declared}
            for kind, name, _, _ in declared:
                if kind == "table":
                    found[name] = sorted(connection.execute(f"SELECT * FROM {name} NOT INDEXED").fetchall(), key=repr)
            return found
    except (sqlite3.Error, UnicodeDecodeError):
        return None


def accepted(path: Path) -> bool:
    try:
        with LedgerView(path) as ledger:
            ledger.verify()
    except LedgerError as error:
        assert "\n" not in str(error) and len(str(error)) < 600
        return False
    return True


def flipped(original: bytes, place: int, bit: int) -> bytes:
    changed = bytearray(original)
    changed[place] ^= 1 << bit
    return bytes(changed)


def test_a_flipped_bit_is_noticed_or_changes_no_row(path: Path) -> None:
    original, rows = path.read_bytes(), content(path)
    dice = random.Random(7)
    used = [place for place, byte in enumerate(original) if byte]  # most of a page is zeros that nobody reads
    places = [(dice.choice(used), dice.randrange(8)) for _ in range(70)]
    places += [(dice.randrange(len(original)), dice.randrange(8)) for _ in range(10)]
    places += [(page * PAGE + offset, 0) for page in range(1, 6) for offset in (0, 3, 8)]  # headers of pages
    noticed = 0
    for place, bit in places:
        path.write_bytes(flipped(original, place, bit))
        if accepted(path):
            assert content(path) == rows, f"byte {place}, bit {bit}"
        else:
            noticed += 1
    assert noticed > len(places) / 2


def test_the_sentence_says_what_to_do(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ix_log_kind'").fetchone()
    original = path.read_bytes()
    path.write_bytes(original[: page * PAGE - 60] + bytes(40) + original[page * PAGE - 20 :])
    with LedgerView(path) as ledger, pytest.raises(LedgerError, match=r"is damaged.*tacit ledger rebuild --into NEW"):
        ledger.verify()


def test_a_trigger_that_was_taken_away_is_noticed(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TRIGGER log_update")
        connection.commit()
    with LedgerView(path) as ledger, pytest.raises(LedgerError, match="trigger log_update is not declared"):
        ledger.verify()


def test_values_are_compared_as_they_are_stored(path: Path) -> None:
    """As a truth value 5 is what 1 is."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE roots SET enforced = 5 WHERE enforced = 1")
        connection.commit()
    with LedgerView(path) as ledger, pytest.raises(LedgerError, match="table roots differs from the log"):
        ledger.verify()


@pytest.mark.parametrize("table", ["blocks", "grants", "charges", "lists", "profiles", "roots", "curves", "prices"])
def test_tables_are_made_anew_from_the_log(path: Path, table: str, tmp_path: Path) -> None:
    """The first page of a table overwritten: the file cannot be used, and nothing is lost."""
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    rows, original = content(path), path.read_bytes()
    path.write_bytes(original[: (page - 1) * PAGE] + random.Random(1).randbytes(PAGE) + original[page * PAGE :])
    damaged = path.read_bytes()
    assert not accepted(path) and content(path) != rows
    path.write_bytes(damaged)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    found = rebuild(path, tmp_path / "new")
    assert found.entries == len((rows or {})["log"])
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.name != "new"} == before
    anew = content(tmp_path / "new")
    assert anew is not None and rows is not None
    memos = ("prices", "rates")  # worked out again when they are needed
    assert {key: anew[key] for key in anew if key not in memos} == {key: rows[key] for key in rows if key not in memos}
    path.unlink()
    (tmp_path / "new").rename(path)  # keys and anchor stay
    Ledger.reanchor(path, by="ann", why="rebuilt after damage")
    with Ledger(path) as ledger:
        ledger.verify()
        assert ledger.epsilon(1) > 0
        ledger.block(1, "april", size=10)


def test_what_the_log_lost_is_not_made_up(path: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TRIGGER log_delete")
        connection.execute("DELETE FROM log WHERE seq = (SELECT max(seq) FROM log)")
        connection.commit()
    with pytest.raises(LedgerError, match="cannot be rebuilt, restore it from a backup"):
        rebuild(path, tmp_path / "new")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM log WHERE seq = 5")
        connection.commit()
    with pytest.raises(LedgerError, match="the log has no entry 5"):
        rebuild(path, tmp_path / "new")
    assert not list(tmp_path.glob("new*"))


def test_members_are_taken_over_only_if_they_are_whole(path: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM members WHERE unit = 3")
        connection.commit()
    with pytest.raises(LedgerError, match="the members of task 'february' differ"):
        rebuild(path, tmp_path / "new")
    assert not list(tmp_path.glob("new*"))


def test_nothing_is_written_over(path: Path, tmp_path: Path) -> None:
    (tmp_path / "here").write_text("mine")
    with pytest.raises(LedgerError, match="exists; choose another name"):
        rebuild(path, tmp_path / "here")
    with pytest.raises(LedgerError, match="there is no ledger"):
        rebuild(tmp_path / "nowhere", tmp_path / "new")
    with pytest.raises(LedgerError, match="no folder does not exist"):
        rebuild(path, tmp_path / "no folder" / "new")
    assert (tmp_path / "here").read_text() == "mine"


def test_a_ledger_of_an_earlier_format_is_rebuilt(path: Path, tmp_path: Path) -> None:
    """Its entries do not name the format of the code that wrote them."""
    with closing(sqlite3.connect(path)) as connection:
        (guard,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'log_update'").fetchone()
        connection.execute("DROP TRIGGER log_update")
        connection.execute("UPDATE log SET format = NULL WHERE seq < 9")
        connection.execute(guard)
        connection.commit()
    rebuild(path, tmp_path / "new")
    assert (content(tmp_path / "new") or {})["log"] == (content(path) or {})["log"]
