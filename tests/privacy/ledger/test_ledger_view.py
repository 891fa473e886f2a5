"""Looking at a ledger: without its keys, where nothing can be written, and without changing a byte."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from tacit import Budget, Ledger
from tacit.errors import LedgerError
from tacit.privacy.accounting.events import gaussian
from tacit.privacy.ledger import LedgerView, StreamTerms, ledger_view

BUDGET = Budget(epsilon=8.0, delta=1e-5)
WORK = {"holder": "h", "kind": "sums", "plan": {}}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where others can look, too."""
    with tempfile.TemporaryDirectory(prefix="tacit-test-") as made:
        Path(made).chmod(0o755)
        yield Path(made)
        Path(made).chmod(0o755)


@pytest.fixture
def path(folder: Path) -> Path:
    path = folder / "l"
    with Ledger(path) as ledger:
        stream = ledger.stream(StreamTerms(name="s", budget=BUDGET, tasks_per_unit=2))
        ledger.enroll(stream, "a", np.arange(5, dtype=np.uint64), 2)
        ledger.bill([(ledger.block(stream, "a", size=10).id, gaussian(4.0))], pin="0", **WORK)  # type: ignore[arg-type]
    return path


@contextmanager
def nothing_writable(folder: Path) -> Iterator[None]:
    """As somebody who may read the files and write nothing; root may write everywhere, so it becomes somebody else."""
    for file in folder.iterdir():
        file.chmod(0o400 if file.suffix == ".keys" else 0o444)
    folder.chmod(0o555)
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        if me == 0:
            os.seteuid(0)
        folder.chmod(0o755)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def everything(book: Ledger) -> tuple[object, ...]:
    return book.id, book.head, book.policy, book.streams(), book.epsilon(1), book.summary(1), book.statement(1)


def test_a_view_answers_what_the_ledger_answers(path: Path) -> None:
    with Ledger(path) as ledger, LedgerView(path) as view:
        assert everything(view) == everything(ledger)
        assert view.verify() == ledger.verify() and view.notes == ()


def test_a_view_needs_no_keys_and_says_what_it_did_not_check(path: Path) -> None:
    with Ledger(path) as ledger:
        said = everything(ledger)
    path.with_name("l.keys").unlink()
    with pytest.raises(LedgerError, match=r"the key file .* is missing"):
        Ledger(path)
    with LedgerView(path) as view:
        assert everything(view) == said and view.verify()
        assert ["keys are not here" in note for note in view.notes] == [True]
        with pytest.raises(LedgerError, match="opened without its keys"):
            view.find_block("s", "a")
    assert not path.with_name("l.keys").exists()


def test_a_view_works_where_nothing_can_be_written(path: Path, folder: Path) -> None:
    with Ledger(path) as ledger:
        said = everything(ledger)
    before = bytes_of(folder)
    with nothing_writable(folder):
        with pytest.raises(LedgerError):
            Ledger(path)
        with LedgerView(path) as view:
            assert everything(view) == said and view.verify()
            assert ["keys are not here" in note for note in view.notes] == [True]
    assert bytes_of(folder) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look as somebody else")
def test_somebody_else_leaves_nothing_beside_the_ledger(path: Path, folder: Path) -> None:
    """A file of theirs beside it could keep the owner from writing."""
    for file in folder.iterdir():
        file.chmod(0o644)
    folder.chmod(0o777)
    before = bytes_of(folder)
    os.seteuid(65534)
    try:
        with LedgerView(path) as view:
            assert view.verify()
    finally:
        os.seteuid(0)
    assert bytes_of(folder) == before


def test_a_view_reads_what_a_killed_process_left_in_the_write_ahead_log(path: Path, folder: Path) -> None:
    copy = folder / "copy"
    copy.mkdir()
    with Ledger(path) as ledger:
        ledger.bill([(ledger.block(1, "b", size=10).id, gaussian(4.0))], pin="1", **WORK)  # type: ignore[arg-type]
        assert path.with_name("l-wal").stat().st_size
        for name in ("l", "l-wal", "l.anchor"):
            shutil.copyfile(folder / name, copy / name)
        said = everything(ledger)
    with nothing_writable(copy), LedgerView(copy / "l") as view:
        assert everything(view) == said


def test_a_view_of_an_older_format_upgrades_a_copy(path: Path) -> None:
    with Ledger(path) as ledger:
        said = everything(ledger)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TRIGGER log_format")
        connection.execute(
            "CREATE TRIGGER log_format BEFORE INSERT ON log WHEN NEW.format <> '0002' "
            "BEGIN SELECT RAISE(ABORT, 'x'); END"
        )
        connection.execute("UPDATE alembic_version SET version_num = '0002'")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.read_bytes()
    with LedgerView(path) as view:
        assert everything(view) == said and view.verify()
    assert path.read_bytes() == before


def test_a_view_refuses_a_roll_back_and_writes_no_anchor(path: Path) -> None:
    with Ledger(path) as ledger:
        old = path.read_bytes()
        ledger.block(1, "b", size=10)
    anchor = path.with_name("l.anchor")
    path.write_bytes(old)
    path.with_name("l-wal").unlink(missing_ok=True)
    with pytest.raises(LedgerError, match="rolled back"):
        LedgerView(path)
    anchor.unlink()
    with LedgerView(path) as view:
        assert "no anchor" in view.notes[0] and "it lacks entry" in view.notes[1]
    assert not anchor.exists()


def test_a_view_writes_nothing(path: Path) -> None:
    with LedgerView(path) as view:
        for write in (
            lambda: view.stream(StreamTerms(name="more", budget=BUDGET)),
            lambda: view.block(1, "b", size=10),
            lambda: view.adopt(view.policy.model_copy(update={"allow_unsafe": True}), by="b", why="w"),
        ):
            with pytest.raises(LedgerError, match="was opened for reading"):
                write()


@pytest.mark.parametrize("content", [b"", b"nonsense, and no database at all", None])
def test_what_is_no_ledger_is_one_sentence(tmp_path: Path, content: bytes | None) -> None:
    place = tmp_path / "x"
    place.mkdir() if content is None else place.write_bytes(content)
    with pytest.raises(LedgerError) as caught:
        LedgerView(place)
    assert "\n" not in str(caught.value)
    assert place.is_dir() or place.read_bytes() == content


def test_nothing_is_left_beside_a_ledger_that_was_looked_at(path: Path, folder: Path) -> None:
    before = bytes_of(folder)
    for _ in range(2):
        with LedgerView(path) as view:
            assert view.head.seq > 1
    assert bytes_of(folder) == before


def test_a_ledger_is_looked_at_beside_its_writer(path: Path, folder: Path) -> None:
    """Also one that begins to write, or closes, while it is looked at."""
    with LedgerView(path) as early, Ledger(path) as book:
        seq = early.head.seq
        stream = book.stream(StreamTerms(name="t", budget=BUDGET))
        assert stream and early.head.seq == seq  # as it was when it was opened
        with LedgerView(path) as view:
            assert view.head == book.head
            book.stream(StreamTerms(name="u", budget=BUDGET))
            assert view.head == book.head
    with Ledger(path) as book:
        book.verify()
    assert not [name for name in bytes_of(folder) if name.endswith(("-wal", "-shm"))]


def test_a_writer_that_begins_while_the_ledger_is_copied_is_no_roll_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy lacks what was written in between; it is made again."""
    real, times = ledger_view._copied, []

    def copied(*given: Path) -> Path:
        found = real(*given)
        if not times:
            times.append(1)
            with Ledger(path) as book:
                book.stream(StreamTerms(name="t", budget=BUDGET))
        return found

    monkeypatch.setattr(ledger_view, "_copied", copied)
    with LedgerView(path) as view:
        assert {terms.name for _, terms in view.streams()} == {"s", "t"} and view.notes == ()
