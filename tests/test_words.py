"""A wrong name is answered with the nearest valid ones, in the same words everywhere."""

from pathlib import Path

import tacit
from tacit.words import close, install, nearest, probability_factor, upper_bound


def test_the_nearest_names_or_all_of_them() -> None:
    assert nearest("stpes", ["steps", "batch"]) == "did you mean steps?"
    assert nearest("zzz", ["steps", "batch"]) == "there are steps, batch"
    assert nearest("zzz", [f"key{n}" for n in range(10)]) == (
        "there are key0, key1, key2, key3, key4, key5, key6, key7 and 2 more"
    )
    assert nearest("label", ["labels"], ["columns.label"]) == "did you mean columns.label, labels?"
    assert nearest("zzz", ["labels"], ["columns.label"]) == "did you mean columns.label?"
    assert nearest("zzz", iter(())) == "there is none"
    assert close("shwo", iter(["show", "sign"])) == ["show"] and close("zzz", ["show"]) == []


def test_extras_are_installed_from_the_folder_and_only_one_file_says_how() -> None:
    assert install("vit") == "pip install '.[vit]' in tacit's folder"
    root = Path(tacit.__file__).parent
    assert not [path for path in root.rglob("*.py") if "tacit[" in path.read_text()]


def test_bounds_are_rounded_up_and_round_numbers_stay() -> None:
    assert [upper_bound(value) for value in (1.1, 0.3, 8.0001, 14.5641, 1e-5, 0)] == [
        "1.1", "0.3", "8.001", "14.57", "1e-05", "0"
    ]  # fmt: skip


def test_the_factor_of_epsilon_is_rounded_up_and_written_out() -> None:
    assert [probability_factor(value) for value in (0, 2, 3, 8, 100)] == [
        "1", "7.39", "20.1", "2,981", "more than a million"
    ]  # fmt: skip


def test_they_have_one_home() -> None:
    root = Path(tacit.__file__).parent
    assert [path.name for path in root.rglob("*.py") if "difflib" in path.read_text()] == ["words.py"]
