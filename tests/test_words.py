"""A wrong name is answered with the nearest valid ones, in the same words everywhere."""

from pathlib import Path

import tacit
from tacit.words import close, install, nearest


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


def test_they_have_one_home() -> None:
    root = Path(tacit.__file__).parent
    assert [path.name for path in root.rglob("*.py") if "difflib" in path.read_text()] == ["words.py"]
