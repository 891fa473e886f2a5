"""One odd record (a label, id or row of another kind) is left out in silence: it refuses nothing and changes no other.

Otherwise whether an admission fails, which nobody is charged for, would tell of one record.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tacit import Budget, Declared, Ledger, SumPlan, Vault
from tacit.privacy import Unit

BUDGET = Budget(epsilon=1e9, delta=1e-5)
ROWS = [[float(n), 1.0] for n in range(6)]
QUIET = SumPlan(noise=1e-4, clip=100.0)


def sums(folder: Path, source: Any, **said: Any) -> Tensor:
    facts = {"stream": "s", "task": "t", "budget": BUDGET, "size": 6, "labels": (0, 1), "shape": (2,)} | said
    with Ledger(folder) as book:
        vault = Vault(book)
        return vault.sums(vault.admit(source, Declared(**facts)), QUIET)


def sample(label: Any, row: Any = (9.0, 9.0)) -> Any:
    return (row, label)


@pytest.mark.parametrize("odd", ["sick", None, [1, 2], 0.5, float("nan"), b"x", {"a": 1}, 10**30])
@pytest.mark.parametrize("kind", ["arrays", "object array", "dataset"])
def test_a_label_of_another_kind_is_a_label_outside(tmp_path: Path, kind: str, odd: Any) -> None:
    labels: list[Any] = [0, 1, 0, 1, 0, odd]
    mixed = np.empty(6, dtype=object)
    mixed[:] = labels
    source = {
        "arrays": (np.asarray(ROWS), labels),
        "object array": (np.asarray(ROWS), mixed),
        "dataset": [(torch.tensor(row), label) for row, label in zip(ROWS, labels, strict=True)],
    }[kind]
    without = sums(tmp_path / "a", (np.asarray(ROWS[:5]), labels[:5]))
    assert torch.allclose(sums(tmp_path / "b", source), without, atol=0.1)


def test_one_text_in_an_array_makes_texts_of_all_and_they_are_read_as_numbers(tmp_path: Path) -> None:
    y = np.asarray([0, 1, 0, 1, 0, "sick"])
    assert y.dtype.kind == "U"
    without = sums(tmp_path / "a", (np.asarray(ROWS[:5]), [0, 1, 0, 1, 0]))
    assert torch.allclose(sums(tmp_path / "b", (np.asarray(ROWS), y)), without, atol=0.1)


def test_numbers_are_the_texts_that_name_them(tmp_path: Path) -> None:
    said = sums(tmp_path / "a", (np.asarray(ROWS), ["0", "1", "0", "1", "0", "x"]), labels=("0", "1"))
    read = sums(tmp_path / "b", (np.asarray(ROWS), [0, 1, 0.0, 1, 0, "x"]), labels=("0", "1"))
    assert torch.allclose(said, read, atol=0.1)


@pytest.mark.parametrize("odd", [None, float("nan"), 1.5, "", [3]])
def test_a_record_that_says_not_whose_it_is_is_left_out(tmp_path: Path, odd: Any) -> None:
    persons = {"budget": Budget(epsilon=1e9, delta=1e-5, unit=Unit.PERSON)}
    y = [0, 1, 0, 1, 0, 1]
    without = sums(tmp_path / "a", (np.asarray(ROWS[:5]), y[:5], [1, 2, 3, 4, 5]), **persons)
    mixed = np.empty(6, dtype=object)
    mixed[:] = [1, 2, 3, 4, 5, odd]
    assert torch.allclose(sums(tmp_path / "b", (np.asarray(ROWS), y, mixed), **persons), without, atol=0.1)
    samples = [(torch.tensor(row), label, whose) for row, label, whose in zip(ROWS, y, mixed, strict=True)]
    assert torch.allclose(sums(tmp_path / "c", samples, **persons), without, atol=0.1)


@pytest.mark.parametrize("odd", [[1.0], [1.0, 2.0, 3.0], ["a", "b"], [[1.0, 2.0], [3.0, 4.0]], None, "text", []])
def test_a_row_of_another_shape_or_kind_counts_as_nothing(tmp_path: Path, odd: Any) -> None:
    y = [0, 1, 0, 1, 0, 1]
    without = sums(tmp_path / "a", (np.asarray(ROWS[:5]), y[:5]))
    assert torch.allclose(sums(tmp_path / "b", ([*ROWS[:5], odd], y)), without, atol=0.1)
    for place in (0, 5):
        rows = [np.asarray(row, dtype=np.float32) for row in ROWS[:5]]
        labels = y[:5]
        rows.insert(place, odd)
        labels.insert(place, 1)
        assert torch.allclose(sums(tmp_path / f"c{place}", list(zip(rows, labels, strict=True))), without, atol=0.1)


def test_a_sample_that_is_no_sample_counts_as_nothing(tmp_path: Path) -> None:
    samples: list[Any] = [(torch.tensor(row), n % 2) for n, row in enumerate(ROWS[:5])]
    without = sums(tmp_path / "a", list(samples))
    assert torch.allclose(sums(tmp_path / "b", [*samples, 7]), without, atol=0.1)
