"""What nobody can do unnoticed: refund, rewrite, forge, roll back."""

import json
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from tacit.errors import LedgerError
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.accounting.events import gaussian
from tacit.privacy.ledger import Head, Ledger, StreamTerms
from tacit.privacy.ledger.limits.policy import Policy
from tacit.privacy.ledger.log.chain import GENESIS, canonical, seal
from tacit.privacy.ledger.storage.tables import metadata

BUDGET = Budget(epsilon=1.0, delta=1e-5)
WORK = {"holder": "me", "kind": "gradient", "plan": {"steps": 1}}


@pytest.fixture
def path(tmp_path):
    """A ledger with a row in every table."""
    with Ledger(tmp_path / "l") as ledger:
        stream = ledger.stream(StreamTerms(name="s", budget=BUDGET))
        one = ledger.block(stream, "one", size=10, fingerprint="f").id
        two = ledger.block(stream, "two", size=10, mode="open").id
        ledger.enroll(stream, "one", np.array([1, 2], dtype=np.uint64), 1)
        ledger.commit({one: [gaussian(9.0), gaussian(9.0)]})
        ledger.bill([(one, gaussian(9.0)), (two, gaussian(9.0))], pin="p", series="x", horizon=3, **WORK)
        ticket = ledger.reserve([(two, gaussian(9.0))], pin="q", **WORK)
        ledger.void(ticket)
        ledger.adopt(Policy(may_raise=("o",), unit_cap=Budget(epsilon=5, delta=1e-5)), by="o", why="w")
        three = ledger.block(stream, "three", size=10).id
        ledger.bill([(three, gaussian(8.0))], pin="r", **WORK)
        ledger.verify()
    return tmp_path / "l"


def execute(path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def triggers(path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]


def test_every_entry_seals_the_ones_before(path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT seq, kind, body, previous, hash FROM log ORDER BY seq").fetchall()
    head = GENESIS.hash
    for place, (seq, kind, body, previous, hash_) in enumerate(rows, 1):
        assert (seq, previous) == (place, head)
        assert body == canonical(json.loads(body))
        head = seal(previous, seq, kind, body)
        assert head == hash_
    with Ledger(path) as ledger:
        assert ledger.head == Head(seq=len(rows), hash=head)
        assert ledger.contains(Head(seq=3, hash=rows[2][4]))
        assert not ledger.contains(Head(seq=4, hash=rows[2][4]))
        assert not ledger.contains(Head(seq=999, hash=head))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE log SET body = '{}' WHERE seq = 3",
        "DELETE FROM log WHERE seq = (SELECT max(seq) FROM log)",
        "UPDATE grants SET state = 'RESERVED' WHERE state = 'CHARGED'",
        "UPDATE grants SET state = 'VOID' WHERE state = 'CHARGED'",
        "UPDATE grants SET state = 'CHARGED' WHERE state = 'VOID'",
        "UPDATE grants SET state = 'RELEASED' WHERE state = 'VOID'",
        "UPDATE grants SET token = 0",
        "UPDATE grants SET plan = '{}'",
        "DELETE FROM grants",
        "DELETE FROM charges",
        "UPDATE charges SET event = '{}'",
        "INSERT INTO grants SELECT 'x', pin, holder, token, kind, plan, generation, 'CHARGED', 0, NULL, 1 FROM grants",
        'UPDATE curves SET spent = "limit" + 1',
        "UPDATE curves SET spent = -1",
    ],
)
def test_the_database_itself_refuses(path, statement: str) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        execute(path, statement)
    with Ledger(path) as ledger:
        ledger.verify()


FORGERIES = {
    "log body": "UPDATE log SET body = replace(body, '1e-05', '1e-04') WHERE kind = 'stream'",
    "log order": "UPDATE log SET seq = -seq",
    "log gap": "DELETE FROM log WHERE kind = 'void'",
    "log kind": "UPDATE log SET kind = 'release' WHERE kind = 'void'",
    "streams": "UPDATE streams SET epsilon = 100",
    "stream k": "UPDATE streams SET tasks_per_unit = 2",
    "blocks list": "UPDATE blocks SET list_hash = NULL, effective_hash = inherited_hash",
    "blocks state": "UPDATE blocks SET state = 'retired'",
    "block added": "INSERT INTO blocks SELECT 99, 'i', stream_id, 99, parent_id, task, part, mode, size, labels, "
    "share, overlap, exposed, list_hash, inherited_hash, effective_hash, filter_hash, implicit, "
    "state FROM blocks LIMIT 1",
    "lists": "UPDATE lists SET events = replace(events, '9.0', '90.0')",
    "prices": "UPDATE prices SET nano = 1",
    "rates": "UPDATE rates SET curve = replace(curve, '0', '1')",
    "curves spent": "UPDATE curves SET spent = 0",
    "curves limit": 'UPDATE curves SET "limit" = "limit" * 2',
    "curves gone": "DELETE FROM curves WHERE place = (SELECT max(place) FROM curves)",
    "grants": "UPDATE grants SET state = 'VOID'",
    "grant holder": "UPDATE grants SET holder = 'you'",
    "charges": "DELETE FROM charges WHERE place = 1",
    "positions": "DELETE FROM positions",
    "fingerprints": "DELETE FROM fingerprints",
    "members": "DELETE FROM members WHERE unit = 2",
    "member added": "INSERT INTO members VALUES (1, 5, 'two')",
}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES.keys())
def test_verify_finds_what_was_changed_in_any_table(path, forgery: str) -> None:
    execute(path, *(f"DROP TRIGGER {name}" for name in triggers(path)), forgery)
    with pytest.raises(LedgerError) as caught, Ledger(path) as ledger:
        ledger.verify()
    assert "\n" not in str(caught.value)


def test_verify_looks_behind_a_chain_that_was_sealed_again(path, tmp_path, monkeypatch) -> None:
    """Costs in a forged but well-sealed reservation do not follow from its event."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT seq, kind, body FROM log ORDER BY seq").fetchall()
        for name in triggers(path):
            connection.execute(f"DROP TRIGGER {name}")
        head = GENESIS.hash
        for seq, kind, body in rows:
            entry = json.loads(body)
            if kind == "reserve" and entry["costs"]:
                entry["costs"] = [[block, [1] * len(costs)] for block, costs in entry["costs"]]
            if kind == "void":
                entry["costs"] = []
            text = canonical(entry)
            previous, head = head, seal(head, seq, kind, text)
            row = (text, previous, head, seq)
            connection.execute("UPDATE log SET body = ?, previous = ?, hash = ? WHERE seq = ?", row)
        connection.execute("UPDATE curves SET spent = 2")
        connection.commit()
    with pytest.raises(LedgerError, match="rolled back"):
        Ledger(path)
    path.with_name("l.anchor").write_text(json.dumps({"seq": rows[-1][0], "hash": head}))
    with pytest.raises(LedgerError, match="lacks entry"):  # whoever wrote it remembers
        Ledger(path)
    monkeypatch.setenv("TACIT_STATE", str(tmp_path / "another-machine"))
    with Ledger(path) as ledger, pytest.raises(LedgerError, match="states other costs than its events"):
        ledger.verify()


def test_a_rolled_back_ledger_is_refused(path, tmp_path) -> None:
    copy = tmp_path / "copy"
    shutil.copy(path, copy)
    with Ledger(path) as ledger:
        block = ledger.block(1, "four", size=10).id
        ledger.bill([(block, gaussian(8.0))], pin="p", **WORK)
        latest = ledger.head
    shutil.copy(copy, path)
    with pytest.raises(LedgerError, match="was rolled back: it does not contain entry"):
        Ledger(path)
    accepted = Ledger.reanchor(path, by="officer", why="disk failure, backup of Monday")
    with Ledger(path) as ledger:
        assert not ledger.contains(latest) and ledger.head == accepted
        assert ledger.statement(1).reanchored == ("disk failure, backup of Monday",)
        assert ledger.verify()


def test_an_open_ledger_notices_a_roll_back_when_it_verifies(path) -> None:
    with Ledger(path) as ledger:
        anchor = path.with_name("l.anchor")
        anchor.write_text(json.dumps({"seq": ledger.head.seq + 1, "hash": "0" * 64}))
        with pytest.raises(LedgerError, match="rolled back"):
            ledger.verify()


def test_a_deleted_ledger_does_not_begin_again(path) -> None:
    path.unlink()
    with pytest.raises(LedgerError, match="was rolled back"):
        Ledger(path)


@pytest.mark.parametrize("content", [None, "", "{}", "nonsense"])
def test_a_missing_or_damaged_anchor_is_refused(path, content) -> None:
    anchor = path.with_name("l.anchor")
    anchor.unlink()
    if content is not None:
        anchor.write_text(content)
    with pytest.raises(LedgerError, match=r"the anchor .* is (missing|damaged)"):
        Ledger(path)
    Ledger.reanchor(path, by="officer", why="the file was lost")
    Ledger(path).close()


def test_the_anchor_follows_every_write(path) -> None:
    with Ledger(path) as ledger:
        for number in range(3):
            ledger.block(1, f"new {number}", size=10)
            data = json.loads(path.with_name("l.anchor").read_text())
            assert Head(seq=data["seq"], hash=data["hash"]) == ledger.head


def test_the_migration_makes_the_tables_of_the_model(path) -> None:
    with Ledger(path) as ledger, ledger._read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_a_newer_ledger_is_refused(path) -> None:
    execute(path, "UPDATE alembic_version SET version_num = '0099'")
    with pytest.raises(LedgerError, match="has format 0099, this version of tacit knows up to 0003; update tacit"):
        Ledger(path)


def test_the_rules_can_be_written_for_postgresql() -> None:
    from tacit.privacy.ledger.storage.triggers import RULES, _postgresql

    statements = [statement for rule in RULES for statement in _postgresql(*rule)]
    assert len(statements) == 2 * len(RULES)
    assert all(("RAISE EXCEPTION" in one) or ("EXECUTE FUNCTION" in one) for one in statements)
