"""`tacit features`: build, list, clear."""

import json
from pathlib import Path

import pytest
import torch
from shell import tacit

from tacit.experiment import features

MODULE = "from torch import nn\nclass Flat(nn.Flatten):\n    width = 64\n"


@pytest.fixture
def flat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TACIT_DATA", raising=False)
    features._built.cache_clear()
    (tmp_path / "flat.py").write_text(MODULE)
    return f"{tmp_path / 'flat.py'}:Flat"


def test_build_list_clear(flat: str, tmp_path: Path) -> None:
    assert "no features are kept" in tacit("features", "list").output
    said = tacit("features", "build", "digits", "--backbone", flat, "--limit", 20).output
    assert "making features of digits, 20 records" in said and str(tmp_path / "cache") in said
    (one,) = json.loads(tacit("features", "list", "--json").output)
    assert (one["name"], one["backbone"], one["records"], one["width"]) == ("digits", flat, 40, 64)
    tacit("features", "build", "digits", "--backbone", flat, "--limit", 25)
    (one,) = json.loads(tacit("features", "list", "--json").output)
    assert one["records"] == 50 and one["bytes"] > 50 * 64 * 2
    assert "digits" in tacit("features", "list").output
    assert "no features of digits are kept" in tacit("features", "clear", "digits").output
    assert json.loads(tacit("features", "list", "--json").output) == []


def test_clear_all_and_of_a_run(flat: str, tmp_path: Path) -> None:
    tacit("features", "build", "digits", "--backbone", flat, "--limit", 5)
    run = tmp_path / "run"
    kept = run / "seeds" / "seed-0" / "private" / "features"
    kept.mkdir(parents=True)
    (kept / "a.safetensors").write_bytes(b"private")
    (kept.parent / "store").mkdir()
    (run / "config.yaml").write_text("name: x\n")
    said = " ".join(tacit("features", "clear", run).output.split())
    assert "are deleted; memory and test records that are kept for later tasks stay in it until the run ends" in said
    assert not kept.exists() and (kept.parent / "store").exists()
    assert len(json.loads(tacit("features", "list", "--json").output)) == 1
    tacit("features", "clear")
    assert json.loads(tacit("features", "list", "--json").output) == []


def test_a_link_is_not_followed_in_silence(flat: str, tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    (run / "seeds" / "seed-0" / "private").mkdir(parents=True)
    (run / "config.yaml").write_text("name: x\n")
    elsewhere.mkdir()
    (elsewhere / "a.safetensors").write_bytes(b"private")
    (run / "seeds" / "seed-0" / "private" / "features").symlink_to(elsewhere)
    said = " ".join(tacit("features", "clear", run, code=1).output.split())
    assert "still holds private data, since it is a link" in said and (elsewhere / "a.safetensors").exists()


def test_what_is_wrong_is_said(flat: str, tmp_path: Path) -> None:
    assert "there is no data set 'digit'" in tacit("features", "build", "digit", code=1).output
    assert "'lite' is no backbone" in tacit("features", "build", "digits", "--backbone", "lite", code=1).output
    assert "is no data set and no run folder" in tacit("features", "clear", tmp_path, code=1).output
    if torch.cuda.is_available():
        return
    assert (
        "there is no GPU" in tacit("features", "build", "digits", "--backbone", flat, "--device", "cuda", code=1).output
    )
