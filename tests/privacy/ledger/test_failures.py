"""Disks fill, files break, folders vanish: one sentence, nothing charged."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from tacit.errors import LedgerError
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.accounting.events import gaussian
from tacit.privacy.ledger import Ledger, StreamTerms

BUDGET = Budget(epsilon=1.0, delta=1e-5)
WORK = {"holder": "me", "kind": "gradient", "plan": {}}


@pytest.fixture
def path(tmp_path):
    with Ledger(tmp_path / "l") as ledger:
        ledger.stream(StreamTerms(name="s", budget=BUDGET))
        ledger.block(1, "t", size=10)
    return tmp_path / "l"


def refused(action, match: str) -> None:
    with pytest.raises(LedgerError, match=match) as caught:
        action()
    assert "\n" not in str(caught.value) and caught.value.__cause__ is None


def test_a_missing_folder(tmp_path) -> None:
    refused(lambda: Ledger(tmp_path / "no" / "l"), "the folder .* does not exist")
    refused(lambda: Ledger(tmp_path), "cannot open the ledger .*: Is a directory")


def test_a_foreign_database_is_left_untouched(tmp_path) -> None:
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE log (x)")
    before = file.read_bytes()
    refused(lambda: Ledger(file), "is a database but not a tacit ledger")
    assert file.read_bytes() == before and sorted(p.name for p in tmp_path.iterdir()) == ["other.db"]


def test_a_file_of_something_else_is_left_untouched(tmp_path) -> None:
    file = tmp_path / "photo.jpg"
    file.write_bytes(os.urandom(9000))
    before = file.read_bytes()
    refused(lambda: Ledger(file), "is not a SQLite file or is damaged")
    assert file.read_bytes() == before


def test_a_damaged_ledger(path) -> None:
    raw = bytearray(path.read_bytes())
    raw[1000 : len(raw)] = os.urandom(len(raw) - 1000)
    path.write_bytes(bytes(raw))

    def use() -> None:
        with Ledger(path) as ledger:
            ledger.verify()

    refused(use, "damaged|not a SQLite|not a tacit ledger")


def test_a_truncated_ledger(path) -> None:
    path.write_bytes(path.read_bytes()[:5000])

    def use() -> None:
        with Ledger(path) as ledger:
            ledger.verify()

    refused(use, "damaged|not a SQLite|rolled back|disk error")


def test_a_locked_ledger_waits_and_then_says_so(path, monkeypatch) -> None:
    monkeypatch.setattr(Ledger, "busy_s", 0.2)
    with Ledger(path) as ledger, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        head = ledger.head  # readers never wait
        refused(lambda: ledger.bill([(1, gaussian(8.0))], pin="p", **WORK), "locked by another process")
        other.execute("ROLLBACK")
        assert ledger.head == head
        ledger.bill([(1, gaussian(8.0))], pin="p", **WORK)
        assert ledger.verify().grants == 1


def test_a_full_database(path) -> None:
    with Ledger(path) as ledger:
        with ledger._engine.connect() as raw:  # the pool hands this very connection out again
            pages = raw.exec_driver_sql("PRAGMA page_count").scalar_one()
            raw.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        head, epsilon = ledger.head, ledger.epsilon(1)

        def fill() -> None:
            for number in range(1000):
                ledger.block(1, f"{number}" * 100, size=10)

        refused(fill, "the disk is full; free some space and try again; nothing was charged")
        stopped = ledger.head
        refused(lambda: ledger.bill([(1, gaussian(8.0))], pin="p" * 9000, **WORK), "the disk is full")
        assert ledger.head == stopped and stopped.seq >= head.seq and ledger.epsilon(1) == epsilon
        with ledger._engine.connect() as raw:
            raw.exec_driver_sql("PRAGMA max_page_count = 1000000")
        ledger.bill([(1, gaussian(8.0))], pin="p", **WORK)
        assert ledger.verify()


def test_a_disk_that_takes_no_more_bytes(path) -> None:
    """With RLIMIT_FSIZE the write-ahead log cannot grow: the write fails for real, in another process."""
    script = f"""
import resource, signal
from tacit.errors import LedgerError
from tacit.privacy.accounting.events import gaussian
from tacit.privacy.ledger import Ledger
ledger = Ledger({str(path)!r})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
try:
    ledger.bill([(1, gaussian(8.0))], pin="p", holder="me", kind="k", plan={{}})
except LedgerError as error:
    print("refused:", error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("refused: the ledger"), done
    assert "nothing was charged" in done.stdout and done.stderr == ""
    with Ledger(path) as ledger:
        assert ledger.epsilon(1) == 0.0 and ledger.verify().grants == 0
        ledger.bill([(1, gaussian(8.0))], pin="p", **WORK)


def test_an_anchor_that_cannot_be_written_stops_the_charge(path) -> None:
    draft = path.with_name("l.anchor.new")
    draft.mkdir()
    with Ledger(path) as ledger:
        head = ledger.head
        refused(lambda: ledger.bill([(1, gaussian(8.0))], pin="p", **WORK), "cannot write the anchor .*nothing was")
        assert ledger.head == head and ledger.epsilon(1) == 0.0
        draft.rmdir()
        ledger.bill([(1, gaussian(8.0))], pin="p", **WORK)


def test_a_read_only_connection(path) -> None:
    with Ledger(path) as ledger:
        with ledger._engine.connect() as raw:
            raw.exec_driver_sql("PRAGMA query_only = ON")
        refused(lambda: ledger.bill([(1, gaussian(8.0))], pin="p", **WORK), "is read-only")
        assert ledger.epsilon(1) == 0.0


def test_a_read_only_file(path) -> None:
    """In a child process: root may write everything, so it becomes nobody first."""
    for file in path.parent.iterdir():
        file.chmod(0o444)
    path.parent.chmod(0o555)
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                for folder in path.parents:  # pytest's own folders are closed to others
                    if folder.parent.name.startswith("pytest-") or folder.name.startswith("pytest-"):
                        folder.chmod(0o555 if folder == path.parent else 0o755)
                os.setuid(65534)
            refused(lambda: Ledger(path), "cannot open the ledger")
            os._exit(0)
        except BaseException:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    path.parent.chmod(0o755)
    assert status == 0


def test_a_child_process_does_not_inherit_the_connection(path) -> None:
    with Ledger(path) as ledger:
        ledger.block(1, "before", size=10)
        child = os.fork()
        if child == 0:
            try:
                ledger.block(1, "child", size=10)
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        ledger.block(1, "after", size=10)
        assert ledger.verify().blocks == 4
