"""`FINDINGS.md` names tests that exist, and has a line for each finding."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINES = [
    [cell.strip() for cell in line.strip("|\n ").split(" | ")]
    for line in (ROOT / "tests" / "FINDINGS.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| finding")
]
NAMED = {name: re.findall(r"`(tests/[^`]+)`", tests) for name, _, tests in LINES}
FINDINGS = ["C1", "C2", "C3", *(f"M{n}" for n in range(1, 6)), *(f"minor {n}" for n in range(1, 8))]
FINDINGS += [f"budget {n}" for n in range(1, 9)]


@cache
def functions(file: str) -> set[str]:
    """The tests of a file; those of a class as Class::test."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    inner = [(f"{one.name}::", one.body) for one in tree.body if isinstance(one, ast.ClassDef)]
    return {
        f"{where}{one.name}"
        for where, body in [("", tree.body), *inner]
        for one in body
        if isinstance(one, ast.FunctionDef)
    }


@pytest.mark.parametrize("test", sorted({test for tests in NAMED.values() for test in tests}))
def test_every_named_test_exists(test: str) -> None:
    file, _, name = test.partition("::")
    assert (ROOT / file).is_file(), f"there is no {file}"
    assert name.partition("[")[0] in functions(file), f"{file} has no test {name}"


def test_every_finding_has_one_line() -> None:
    names = [line[0] for line in LINES]
    assert len(set(names)) == len(names) and set(FINDINGS) <= set(names)
    assert all(len(line) == 3 for line in LINES)


def test_every_finding_has_a_test() -> None:
    assert [name for name, tests in NAMED.items() if not tests] == []
