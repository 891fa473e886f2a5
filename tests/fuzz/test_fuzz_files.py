"""Declarations, tables, configurations: any content is read as declared, or refused in one sentence."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from support.visits import rows_of
from support.worlds import FACTS, HEADER, MONTHS, copied, original, profile, raises_only_sentences, rows, sound, tacit
from support.wrong import changed, damaged
from tacit.experiment.config.config import Sweep
from tacit.experiment.config.loading import load, preset_names
from tacit.experiment.sweeps.sweep import cells_of
from tacit.presets import PRESETS
from tacit.privacy.vault.sources.declared import open_declared

DECLARED = FACTS | {
    "files": {"train": "visits.csv", "delimiter": ",", "decimal": ".", "encoding": "utf-8"},
    "categories": {"visit": ["a", "b"]},
    "range": [0, 1],
    "fill": 0,
    "task_id": "hidden",
    "records_per_unit": 1,
}


def text_of(tree: Any) -> str:
    return yaml.safe_dump(tree, allow_unicode=True)


def declaration_holds(tree: Any) -> None:
    with copied("visits") as folder:
        (folder / "visits.yaml").write_text(text_of(tree), encoding="utf-8", errors="surrogateescape")
        line = ["data", "check", "visits.yaml"]
        sound(line, tacit(line))
        raises_only_sentences(lambda: [rows_of(task) for task in open_declared(folder / "visits.yaml")])


@profile(60)
@given(changed(DECLARED))
def test_any_declaration(tree: Any) -> None:
    declaration_holds(tree)


@pytest.mark.slow
@profile(3000)
@given(changed(DECLARED, times=5))
def test_any_declaration_at_length(tree: Any) -> None:
    declaration_holds(tree)


@profile(60)
@given(st.data())
def test_any_bytes_as_a_declaration(data: st.DataObject) -> None:
    content = data.draw(damaged(text_of(DECLARED).encode()))
    with copied("visits") as folder:
        (folder / "visits.yaml").write_bytes(content)
        for line in (["data", "check", "visits.yaml"], ["run", "visits.yaml", "--ledger", "new", "--until", "none"]):
            sound(line, tacit(line))


CELLS = st.one_of(
    st.sampled_from(
        ["", "1", "-1", "1e400", "nan", "well", "sick", *MONTHS, '"', '""', '"a', "é", "\ufeff", "\r", "x" * 70000]
    ),
    st.text(max_size=8).map(lambda text: text.replace("\n", "")),
)
LINES = st.lists(st.lists(CELLS, max_size=8).map(",".join), max_size=6)


def private_rows_never_decide(body: bytes) -> None:
    """Whatever stands below the header of a private table, reading it says nothing: no refusal depends on a record."""
    with copied("visits") as folder:
        (folder / "visits.csv").write_bytes(HEADER.encode() + body)
        stream = open_declared(folder / "visits.yaml")
        for task in stream:
            x, _, _ = rows_of(task)
            assert x.dtype == np.float32 and np.isfinite(x).all()


@profile(100)
@given(
    st.one_of(
        LINES.map(lambda found: "\n".join(found).encode("utf-8", "surrogateescape")), damaged(rows(MONTHS[0]).encode())
    )
)
def test_any_lines_below_the_header(body: bytes) -> None:
    private_rows_never_decide(body)


@pytest.mark.slow
@profile(3000)
@given(
    st.one_of(
        LINES.map(lambda found: "\n".join(found).encode("utf-8", "surrogateescape")), damaged(rows(MONTHS[0]).encode())
    )
)
def test_any_lines_below_the_header_at_length(body: bytes) -> None:
    private_rows_never_decide(body)


@profile(60)
@given(st.data())
def test_any_bytes_as_a_table(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["visits.csv", "visits.parquet", "visits.npz"]))
    content = data.draw(damaged(TABLES[kind]))
    with copied("visits") as folder:
        (folder / kind).write_bytes(content)
        (folder / "visits.yaml").write_text(text_of(FACTS | {"files": {"train": kind}}))
        for line in (["data", "check", "visits.yaml"], ["data", "declare", kind, "--yes", "--out", "new.yaml"]):
            sound(line, tacit(line))


def _tables() -> dict[str, bytes]:
    columns = {name: ["1", "2"] for name in ("patient", "visit", "age", "pulse")}
    table, packed = io.BytesIO(), io.BytesIO()
    parquet.write_table(pa.table(columns | {"month": list(MONTHS), "diagnosis": ["well", "sick"]}), table)
    np.savez(packed, x=np.ones((2, 2)), diagnosis=["well", "sick"], month=list(MONTHS), patient=[1, 2])
    return {
        "visits.csv": (HEADER + rows(MONTHS[0])).encode(),
        "visits.parquet": table.getvalue(),
        "visits.npz": packed.getvalue(),
    }


TABLES = _tables()


def configuration_holds(name: str, data: st.DataObject, times: int) -> None:
    """A changed preset is a configuration whose cells can be listed, or one sentence says what is wrong."""
    tree = yaml.safe_load((PRESETS / f"{name}.yaml").read_text(encoding="utf-8"))
    wrong = data.draw(changed(tree, times))

    def deed() -> None:
        found = load(wrong)
        if isinstance(found, Sweep):
            cells_of(found, Path("nowhere"))

    raises_only_sentences(deed)


@profile(200)
@given(st.sampled_from(preset_names()), st.data())
def test_any_configuration(name: str, data: st.DataObject) -> None:
    configuration_holds(name, data, 3)


@pytest.mark.slow
@profile(6000)
@given(st.sampled_from(preset_names()), st.data())
def test_any_configuration_at_length(name: str, data: st.DataObject) -> None:
    configuration_holds(name, data, 5)


@profile(60)
@given(st.data())
def test_any_configuration_file(data: st.DataObject) -> None:
    """As a file, in any encoding, with anything in it."""
    content = data.draw(damaged((original() / "r" / "config.yaml").read_bytes()))
    with copied("visits") as folder:
        (folder / "mine.yaml").write_bytes(content)
        line = ["run", "mine.yaml", "--ledger", "new", "--until", "none", "--quiet"]
        sound(line, tacit(line))
