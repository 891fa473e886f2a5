"""Declarations: what may be written, and one sentence for what may not."""

import datetime
from pathlib import Path
from typing import Any

import pytest

from tacit.data.declared.declaration import Declaration
from tacit.errors import DataError

GOOD: dict[str, Any] = {
    "name": "visits",
    "files": {"train": "visits.csv"},
    "columns": {"label": "label", "task": "month", "person": "patient"},
    "labels": ["sick", "well"],
    "tasks": [{"name": "2026-01", "size": 50}, {"name": "2026-02", "size": 60, "labels": ["sick"]}],
    "unit": "person",
    "tasks_per_unit": 2,
    "records_per_unit": 5,
}


def test_a_good_declaration_becomes_public_facts() -> None:
    info = Declaration.of(GOOD).info((3,))
    assert [(task.name, task.size, task.labels) for task in info.tasks] == [
        ("2026-01", 50, ("sick", "well")),
        ("2026-02", 60, ("sick",)),
    ]
    assert (info.unit, info.tasks_per_unit, info.records_per_unit, info.public, info.task_id) == (
        "person",
        2,
        5,
        False,
        "hidden",
    )
    assert info.shape == (3,)
    assert Declaration.of(GOOD | {"shape": [1, 3, 1]}).info((3,)).shape == (1, 3, 1)


def test_a_digest_names_the_facts_wherever_the_files_lie() -> None:
    facts = Declaration.of(GOOD)
    assert Declaration.of(GOOD | {"files": {"train": "a/b.csv", "test": "c.csv"}}).digest == facts.digest
    assert Declaration.of(dict(reversed(GOOD.items()))).info((3,)).declared == facts.digest
    for change in (
        {"files": {"train": "visits.csv", "delimiter": ";"}},
        {"files": {"train": "visits.csv", "encoding": "latin-1"}},
        {"columns": GOOD["columns"] | {"person": "visit"}},
        {"scaling": {"age": [0, 100]}},
        {"fill": 1.0},
    ):
        assert Declaration.of(GOOD | change).digest != facts.digest


@pytest.mark.parametrize(
    ("said", "means"),
    [("0..3", (0, 1, 2, 3)), ("-1..1", (-1, 0, 1)), ([4, 2], (4, 2)), (["a"], ("a",)), (range(2), (0, 1))],
)
def test_labels_are_lists_or_ranges(said: object, means: tuple[object, ...]) -> None:
    tasks = [{"name": "t", "size": 1}]
    assert Declaration.of({"name": "n", "labels": said, "tasks": tasks}).labels == means


def test_task_names_are_compared_as_texts() -> None:
    tasks = [{"name": 7, "size": 1}, {"name": datetime.date(2026, 1, 2), "size": 1}]
    found = Declaration.of({"name": "n", "labels": "0..1", "tasks": tasks})
    assert [task.name for task in found.tasks] == ["7", "2026-01-02"]


WRONG = [
    ({"lables": [1]}, r"lables is not a key of a declaration \(value \[1\]\); did you mean labels\?"),
    (
        {"files": {"trian": "a.csv", "train": "b"}},
        r"files\.trian is not a key .*\(value 'a\.csv'\); did you mean train",
    ),
    ({"columns": {"persn": "p"}}, r"columns\.persn is not a key.*person"),
    ({"tasks": [{"name": "a", "size": 1, "szie": 2}]}, r"tasks\.0\.szie is not a key .*\(value 2\); did you mean size"),
    ({"labels": None}, "'labels' is not filled in"),
    ({"tasks": None}, "'tasks' is not filled in"),
    ({"tasks": [{"name": "a", "size": None}]}, r"'tasks\.0\.size' is not filled in"),
    ({"tasks": [{"name": "a"}]}, r"'tasks\.0\.size' is missing"),
    ({"tasks": [{"name": "a", "size": 0}]}, r"tasks\.0\.size = 0: .*greater than or equal to 1"),
    ({"tasks": [{"name": "a", "size": 1}] * 2}, "two tasks have the same name"),
    ({"tasks": [{"name": "a", "size": 1, "labels": ["other"]}]}, r"a has labels that the stream has not, \['other'\]"),
    ({"labels": [True, False]}, "labels = .*: YAML reads .*in quotes"),
    ({"delimiter": ";"}, r"delimiter is not a key .*did you mean files\.delimiter\?"),
    ({"label": "y"}, r"label is not a key .*did you mean columns\.label, labels"),
    ({"files": {"train": "a.csv", "labels": [1]}}, r"files\.labels is not a key .*did you mean labels\?"),
    ({"files": {"train": "a.csv", "decimal": ";"}}, r"files\.decimal = ';': .*'\.' or ','"),
    (
        {"files": {"train": "a.csv", "encoding": "utf-16"}},
        r"files\.encoding = 'utf-16': .*'utf-8', 'latin-1' or 'cp1252'",
    ),
    ({"tasks_per_unit": 3}, "a person cannot be in 3 tasks where 2 are declared; say at most 2"),
    ({"tasks_per_unit": None}, "'tasks_per_unit' is not filled in"),
    ({"labels": ["a", 1]}, "all whole numbers or all texts"),
    ({"labels": ["a", "a"]}, "named twice"),
    ({"labels": "9..0"}, "range such as"),
    ({"labels": []}, "labels = "),
    ({"unit": "family"}, r"unit = 'family': .*'record' or 'person'"),
    ({"columns": {}}, "columns.person must name"),
    ({"scaling": {"age": [5, 5]}}, "scaling = .*least, largest"),
    ({"scaling": {"age": [0, 10**400]}}, "scaling = .*least, largest"),
    ({"scaling": "big"}, "scaling = 'big'"),
    ({"range": [0, 2]}, r"must be \[0, 1\] or \[-1, 1\], got \[0.0, 2.0\]"),
    ({"features": "x"}, "features = 'x': .*others"),
    ({"shape": 3}, "shape = 3"),
    ({"tasks_per_unit": "many"}, "tasks_per_unit = 'many'"),
]


@pytest.mark.parametrize(("change", "sentence"), WRONG)
def test_a_wrong_declaration_is_one_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as error:
        Declaration.of(GOOD | change, where="visits.yaml")
    assert str(error.value).startswith("visits.yaml: ") and "\n" not in str(error.value)


def test_a_misspelt_key_is_named_before_the_one_that_is_missing() -> None:
    facts = {key: value for key, value in GOOD.items() if key not in ("name", "labels")}
    with pytest.raises(DataError, match=r"lables is not a key of a declaration .*did you mean labels"):
        Declaration.of(facts | {"lables": ["sick", "well"]})
    with pytest.raises(DataError, match="'name' is missing"):
        Declaration.of(facts)


def test_files_that_are_no_declaration(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    with pytest.raises(DataError, match="cannot read the declaration"):
        Declaration.load(path)
    path.write_text("name: [")
    with pytest.raises(DataError, match="not valid YAML at line 1"):
        Declaration.load(path)
    path.write_text("- a")
    with pytest.raises(DataError, match="not a declaration"):
        Declaration.load(path)
    path.write_text("name: a\nlabels: 0..1\ntasks: [{name: t, size: 3}]\n")
    assert Declaration.load(path).tasks[0].size == 3
