"""What the tests share is what tacit's own code makes."""

from pathlib import Path

from sqlalchemy import Connection, text

from support.session_cache import NewTables, Shared
from tacit.privacy.accounting import rdp
from tacit.privacy.accounting.epsilon import ORDERS
from tacit.privacy.ledger.storage import engine, schema


def contents(connection: Connection) -> list[object]:
    rows = connection.execute(text("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"))
    return [*map(tuple, rows), *map(tuple, connection.execute(text("SELECT * FROM alembic_version")))]


def test_copied_tables_are_those_of_the_migrations() -> None:
    assert isinstance(schema.upgrade, NewTables)
    found = []
    for make in (schema.upgrade.migrate, schema.upgrade):
        with engine.in_memory() as connection:
            make(connection)
            found.append(contents(connection))
    assert len(found[0]) > 10 and found[0] == found[1]


def test_shared_prices_are_equal_to_the_last_bit(tmp_path: Path) -> None:
    compute = rdp._poisson_gaussian.function  # type: ignore[attr-defined]
    writer, reader = Shared(compute, tmp_path).share(), Shared(compute, tmp_path).share()
    computed = writer(0.012345, 1.1, ORDERS)
    reader.function = None  # type: ignore[assignment]
    assert computed == reader(0.012345, 1.1, ORDERS) == compute(0.012345, 1.1, ORDERS)


def test_a_cleared_cache_computes_again(tmp_path: Path) -> None:
    calls: list[float] = []

    def price(noise: float) -> float:
        calls.append(noise)
        return 1 / noise

    cached = Shared(price, tmp_path).share()
    assert [cached(2.0), cached(2.0)] == [0.5, 0.5] and len(calls) == 1
    cached.cache_clear()
    assert cached(2.0) == 0.5 and len(calls) == 2
