"""Formats: an old ledger is brought up to date, and code of another format than the file writes nothing."""

import ast
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tacit import Budget, Ledger
from tacit.errors import LedgerError
from tacit.privacy.accounting.events import gaussian, poisson_gaussian
from tacit.privacy.ledger import StreamTerms
from tacit.privacy.ledger.limits.policy import Policy
from tacit.privacy.ledger.log import chain
from tacit.privacy.ledger.storage import migrations, triggers

BUDGET = Budget(epsilon=8.0, delta=1e-5)
TRAIN, READ = poisson_gaussian(0.2, 4.0, 3), poisson_gaussian(0.1, 4.0, 3)
NEWER = "this ledger was brought to a newer format by another process; upgrade tacit"
WORK = {"holder": "h", "kind": "sums", "plan": {}}


def downgrade(path: Path) -> None:
    """The file as the version before made it."""
    with closing(sqlite3.connect(path)) as connection:
        for table in ("roots", "profiles", "uses", "exposures"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("DROP INDEX ix_members_task")
        connection.execute("DROP INDEX ix_fingerprints_block_id")
        connection.execute("DROP TRIGGER log_format")
        connection.execute("ALTER TABLE log DROP COLUMN format")
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
        connection.commit()


def downgrade_to_0002(path: Path) -> None:
    """The file as the second format left it: the rule that only its own code may write."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TRIGGER log_format")
        (_, _, _, when, message), *_ = triggers.RULES_0002
        connection.execute(
            f"CREATE TRIGGER log_format BEFORE INSERT ON log FOR EACH ROW WHEN {when} "
            f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
        )
        connection.execute("UPDATE alembic_version SET version_num = '0002'")
        connection.commit()


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def write_as_0001(connection: sqlite3.Connection, task: str) -> None:
    """What code of the first format does for one more task: a memo of a price, an entry, and its effect."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        seq, previous = connection.execute("SELECT seq, hash FROM log ORDER BY seq DESC LIMIT 1").fetchone()
        connection.execute("INSERT INTO lists (hash, events) VALUES (?, '[]')", (task,))
        connection.execute(
            "INSERT INTO prices (list_hash, adjacency, delta, times, nano) VALUES (?, 'add-or-remove', 1e-5, 1, 0)",
            (task,),
        )
        row = (seq + 1, "block", "{}", previous, chain.seal(previous, seq + 1, "block", "{}"))
        connection.execute("INSERT INTO log (seq, kind, body, previous, hash) VALUES (?, ?, ?, ?, ?)", row)
        connection.execute(
            "INSERT INTO blocks SELECT 99, ?, stream_id, 99, NULL, ?, part, mode, size, labels, share, overlap, "
            "exposed, NULL, NULL, NULL, NULL, implicit, 'live' FROM blocks WHERE id = 1",
            (task, task),
        )
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def two_tasks(path: Path) -> tuple[int, list[int]]:
    with Ledger(path) as ledger:
        stream = ledger.stream(StreamTerms(name="s", budget=BUDGET))
        blocks = [ledger.block(stream, f"t{number}", size=10).id for number in range(2)]
        ledger.bill([(blocks[0], gaussian(20.0))], pin="0", **WORK)  # type: ignore[arg-type]
    return stream, blocks


def test_a_process_of_the_format_before_cannot_write_after_the_migration(tmp_path: Path) -> None:
    path = tmp_path / "l"
    stream, blocks = two_tasks(path)
    downgrade(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        old.execute("SELECT * FROM log").fetchall()  # it has the ledger open
        with Ledger(path) as ledger:
            before, said = dump(path), ledger.epsilon(stream)
            with pytest.raises(sqlite3.IntegrityError, match=NEWER):
                write_as_0001(old, "more")
            assert dump(path) == before
            assert ledger.epsilon(stream) == said and ledger.verify()
            ledger.bill([(blocks[1], gaussian(2.0))], pin="1", **WORK)  # type: ignore[arg-type]
            assert ledger.epsilon(stream) > said and ledger.verify()


def test_a_process_of_the_format_before_writes_to_its_own_format(tmp_path: Path) -> None:
    """Or the test above shows nothing."""
    path = tmp_path / "l"
    two_tasks(path)
    downgrade(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        write_as_0001(old, "more")
        assert old.execute("SELECT count(*) FROM blocks").fetchone() == (3,)


def test_every_entry_says_the_format_that_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "l"
    two_tasks(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT DISTINCT format FROM log").fetchall() == [("0003",)]


def test_a_ledger_of_the_second_format_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "l"
    _, blocks = two_tasks(path)
    downgrade_to_0002(path)
    with Ledger(path) as ledger:
        ledger.bill([(blocks[1], gaussian(20.0))], pin="1", **WORK)  # type: ignore[arg-type]
        assert ledger.verify()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("0003",)]
        with pytest.raises(sqlite3.IntegrityError, match=NEWER):
            connection.execute("INSERT INTO log VALUES (99, 'policy', '{}', '', '', '0002')")


def test_the_rule_against_other_formats_is_written_for_postgresql() -> None:
    (rule,) = triggers.RULES_0003
    function, trigger = triggers._postgresql(*rule)
    assert f"RAISE EXCEPTION '{NEWER}'" in function
    assert trigger == (
        "CREATE TRIGGER log_format BEFORE INSERT ON log FOR EACH ROW "
        "WHEN (NEW.format IS NULL OR NEW.format <> '0003') EXECUTE FUNCTION log_format()"
    )


WRITES: dict[str, Callable[[Ledger, int], object]] = {
    "stream": lambda ledger, _: ledger.stream(StreamTerms(name="other", budget=BUDGET)),
    "block": lambda ledger, _: ledger.block(1, "more", size=10),
    "commit": lambda ledger, block: ledger.commit({block: [TRAIN]}),
    "bill": lambda ledger, block: ledger.bill([(block, TRAIN)], pin="1", **WORK),  # type: ignore[arg-type]
    "enroll": lambda ledger, _: ledger.enroll(1, "t1", np.arange(5, dtype=np.uint64), 1),
    "adopt": lambda ledger, _: ledger.adopt(Policy(allow_unsafe=True), by="o", why="w"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_this_format_writes_nothing_to_a_ledger_that_became_newer(
    tmp_path: Path, write: Callable[[Ledger, int], object]
) -> None:
    path = tmp_path / "l"
    stream, blocks = two_tasks(path)
    with Ledger(path) as ledger:
        said = ledger.epsilon(stream)
        with closing(sqlite3.connect(path)) as other:
            other.execute("UPDATE alembic_version SET version_num = '0004'")
            other.commit()
        before = dump(path)
        with pytest.raises(LedgerError, match=f"^{NEWER}$"):
            write(ledger, blocks[1])
        assert dump(path) == before and ledger.epsilon(stream) == said


def test_an_older_ledger_can_be_anchored_again(tmp_path: Path) -> None:
    path = tmp_path / "l"
    two_tasks(path)
    downgrade(path)
    path.with_name("l.anchor").unlink()
    Ledger.reanchor(path, by="officer", why="the file was lost")
    with Ledger(path) as ledger:
        assert ledger.verify()
    with pytest.raises(LedgerError, match="there is no ledger at"):
        (tmp_path / "empty").touch()
        Ledger.reanchor(tmp_path / "empty", by="officer", why="the file was lost")


def uncounted(path: Path, root: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM roots WHERE id = ?", (root,))
        connection.commit()


def test_counts_that_lack_the_newest_task_answer_nothing(tmp_path: Path) -> None:
    path = tmp_path / "l"
    stream, (_, newest) = two_tasks(path)
    cap = Policy(unit_cap=Budget(epsilon=90.0, delta=1e-5))
    with Ledger(path) as ledger:
        ledger.adopt(cap, by="officer", why="test")
        other = ledger.stream(StreamTerms(name="other", budget=BUDGET))
        ledger.split(newest, {"train": 5, "memory": 5})  # the newest block is a part of it
        uncounted(path, newest)
        asked: list[Callable[[], object]] = [
            lambda: ledger.epsilon(stream),
            lambda: ledger.summary(stream),
            lambda: ledger.statement(stream),
            lambda: ledger.block(other, "more", size=10, mode="open"),  # the cap
            lambda: ledger.adopt(cap, by="officer", why="again"),
        ]
        for ask in asked:
            with pytest.raises(LedgerError, match=f"block {newest} is missing in the ledger's counts"):
                ask()
        with pytest.raises(LedgerError, match="table roots differs from the log"):
            ledger.verify()


def test_nothing_is_charged_to_a_task_that_is_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "l"
    stream, _ = two_tasks(path)
    with Ledger(path) as ledger:
        opened = ledger.block(stream, "o", size=10, mode="open").id
        ledger.block(stream, "newest", size=10)
        uncounted(path, opened)
        head = ledger.head
        with pytest.raises(LedgerError, match=f"block {opened} is missing in the ledger's counts"):
            ledger.bill([(opened, gaussian(9.0))], pin="1", **WORK)  # type: ignore[arg-type]
        assert ledger.head == head


def test_migrations_use_nothing_that_may_change() -> None:
    """Of this package only the frozen rules: what a live function says today, an old ledger must not hear tomorrow."""
    files = list((Path(migrations.__file__).parent / "versions").glob("v*.py"))
    assert len(files) >= 2
    for file in files:
        nodes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
        mine = [(node.module, name.name) for node in nodes for name in node.names if "tacit" in (node.module or "")]
        assert mine == [("tacit.privacy.ledger.storage", "triggers")], file


def test_an_older_ledger_is_brought_up_to_date(tmp_path: Path) -> None:
    """Every state that a block or a grant can be in."""
    path = tmp_path / "l"
    with Ledger(path, policy=Policy(allow_unsafe=True)) as ledger:
        work = {"holder": "h", "kind": "sums", "plan": {"horizon": 4, "participations": 2, "through": "m"}}
        stream = ledger.stream(StreamTerms(name="s", budget=BUDGET, tasks_per_unit=2))
        names = [ledger.block(stream, f"t{number}", size=10, labels=(number % 2,)).id for number in range(4)]
        ledger.enroll(stream, "t0", np.arange(5, dtype=np.uint64), 2)
        train, memory = (row.id for row in ledger.split(names[0], {"train": 5, "memory": 5}))
        ledger.commit({train: [TRAIN], memory: [READ, READ]})
        ledger.release(ledger.bill([(train, TRAIN)], pin="1", **work))  # type: ignore[arg-type]
        ledger.void(ledger.reserve([(names[1], TRAIN)], pin="2", **work))  # type: ignore[arg-type]
        ledger.reserve([(names[2], TRAIN)], pin="3", **work)  # type: ignore[arg-type]
        other = ledger.stream(StreamTerms(name="o", budget=BUDGET))
        opened = [ledger.block(other, f"o{number}", mode="open", like=TRAIN, size=10).id for number in range(3)]
        ledger.bill([(opened[0], TRAIN)], pin="4", **work)  # type: ignore[arg-type]
        ledger.retire(opened[1])
        ledger.expose(names[3], "baseline")
        before = [(ledger.epsilon(one), ledger.statement(one), ledger.summary(one)) for one in (stream, other)]
        assert ledger.verify()
    downgrade(path)
    with Ledger(path) as ledger:
        assert ledger.verify()  # the counts are those that the log makes
        assert [(ledger.epsilon(one), ledger.statement(one), ledger.summary(one)) for one in (stream, other)] == before
        ledger.bill([(opened[2], TRAIN)], pin="5", **work)  # type: ignore[arg-type]
        assert ledger.verify()
