"""Public rows are compared with their declaration; of private rows nothing is compared."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tacit.data.declared.declaration import Declaration
from tacit.data.stream import Stream
from tacit.errors import DataError
from tacit.privacy.vault.sources.declared import from_arrays, from_frame, open_declared
from tacit.privacy.vault.sources.public_rows import Unmatched, refuse_unmatched, unmatched
from tacit.privacy.vault.sources.table_reader import Table

FACTS: dict[str, Any] = {
    "name": "wards", "columns": {"task": "month"}, "features": ["age"], "labels": ["well", "sick", "dead"],
    "tasks": [{"name": name, "size": 3} for name in ("jan", "feb", "mar")], "public": True,
}  # fmt: skip
ROWS = {"age": [1.0, 2, 3, 4], "month": ["jan", "jan", "feb", "may"], "label": ["well", "sick", "ill", "dead"]}


def as_frame(facts: dict[str, Any]) -> Stream:
    return from_frame(Declaration.of(facts), pd.DataFrame(ROWS))


def as_arrays(facts: dict[str, Any]) -> Stream:
    x, month, y = (np.asarray(column) for column in ROWS.values())
    return from_arrays(Declaration.of(facts), x[:, None], y, task=month)


@pytest.mark.parametrize("make", [as_frame, as_arrays])
def test_what_no_public_row_has_is_named(make: Any) -> None:
    found = unmatched(make(FACTS))
    assert (found.tasks, found.labels) == (("feb", "mar"), ("dead",))  # the dead of May are of no declared task
    assert found.said == (
        "task mar has no rows, the rows have jan, feb, may; label dead has no rows, the rows have well, sick, ill, "
        "dead; no row of task feb has a declared label"
    )
    with pytest.raises(DataError, match="'wards' does not match its public rows: task mar has no rows"):
        refuse_unmatched(make(FACTS), None)
    assert "label dead has no rows" in refuse_unmatched(make(FACTS), 1)  # the other months may be to come
    fewer = FACTS | {"tasks": FACTS["tasks"][::-1]}
    with pytest.raises(DataError, match=r"tasks? mar"):
        refuse_unmatched(make(fewer), 3, learned=0)
    assert refuse_unmatched(make(fewer), 3, learned=2) == ""  # rows of learned months may be gone
    assert unmatched(make(FACTS | {"labels": ["well", "sick", "ill"], "tasks": FACTS["tasks"][:2]})) == Unmatched()


def test_labels_that_are_numbers_and_rows_of_one_task() -> None:
    facts = {"name": "n", "labels": "0..3", "tasks": [{"name": "all", "size": 3}], "public": True}
    frame = pd.DataFrame({"age": [1, 2, 3], "label": [0.0, 1.0, np.nan]})
    found = unmatched(from_frame(Declaration.of(facts), frame))
    assert (found.tasks, found.labels) == ((), (2, 3)) and found.said == "labels 2, 3 have no rows, the rows have 0, 1"


def test_of_private_rows_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def occurring(self: Table) -> None:
        raise AssertionError("private rows were read")

    monkeypatch.setattr(Table, "occurring", occurring)
    assert unmatched(as_frame(FACTS | {"public": False})) == Unmatched()
    assert refuse_unmatched(as_frame(FACTS | {"public": False}), None) == ""


def test_a_folder_of_images_is_compared_by_the_names_of_its_folders(tmp_path: Path) -> None:
    (tmp_path / "a" / "cat").mkdir(parents=True)
    (tmp_path / "a" / "cat" / "1.png").touch()
    (tmp_path / "a" / "cow").mkdir()
    (tmp_path / "d.yaml").write_text(
        "{name: pets, files: {train: .}, shape: [3, 8, 8], labels: [cat, dog], public: true, "
        "tasks: [{name: a, size: 1}, {name: b, size: 1}]}"
    )
    found = unmatched(open_declared(tmp_path / "d.yaml"))
    assert (found.tasks, found.labels) == (("b",), ("dog",))
    assert found.said == "task b has no rows, the rows have a; label dog has no rows, the rows have cat, cow"
