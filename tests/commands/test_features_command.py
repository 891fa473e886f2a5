"""`tacit features`: build, list, clear."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.shell import tacit
from tacit.data.benchmarks.named import load
from tacit.experiment.features import features
from tacit.privacy.vault.intake import feature_cache

MODULE = "from torch import nn\nclass Flat(nn.Flatten):\n    width = 64\n"


@pytest.fixture
def flat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TACIT_DATA", raising=False)
    features._built.cache_clear()
    (tmp_path / "flat.py").write_text(MODULE)
    return f"{tmp_path / 'flat.py'}:Flat"


def test_build_list_clear(flat: str, tmp_path: Path) -> None:
    assert "no features are cached" in tacit("features", "list").output
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
    again = tacit("features", "clear", "digits").output
    assert "no features of digits were kept; there was nothing to delete" in again


def test_ctrl_c_says_what_is_kept(flat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal after the first chunk: the second is let go of, and the same command goes on."""
    monkeypatch.setattr(feature_cache, "CHUNK", 40)
    keep = feature_cache.FeatureCache._add

    def and_stop(self: Any, names: Any, made: Any) -> None:
        keep(self, names, made)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(feature_cache.FeatureCache, "_add", and_stop)
    said = tacit("features", "build", "digits", "--backbone", flat, "--limit", 100, code=130).output
    words = "stopped; the features of 40 records of digits are kept; repeat the command to continue"
    assert words in " ".join(said.split())
    monkeypatch.setattr(feature_cache.FeatureCache, "_add", keep)
    tacit("features", "build", "digits", "--backbone", flat, "--limit", 100)
    (one,) = json.loads(tacit("features", "list", "--json").output)
    assert one["records"] == 200


def test_decoded_files_are_shown_and_go(flat: str, tmp_path: Path) -> None:
    assert "nothing to delete" in tacit("features", "clear", "--decoded").output
    kept = tmp_path / "cache" / "tacit" / "decoded" / "a.npy"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"0" * 3_000_000)
    assert "3.0 MB; delete them with: tacit features clear --decoded" in tacit("features", "list").output
    assert "omit one of them" in tacit("features", "clear", "digits", "--decoded", code=1).output and kept.exists()
    tacit("features", "clear", "--decoded")
    assert not kept.exists()


def test_the_order_of_rows_can_be_written(flat: str, tmp_path: Path) -> None:
    """Features of what was written, saved as they come, are those that the backbone gives."""
    tacit("features", "order", "digits", tmp_path / "digits.npz")
    digits, found = load("digits"), np.load(tmp_path / "digits.npz")
    assert digits.test is not None and found["test"].sum() == 297 and not found["test"][:1500].any()
    np.save(tmp_path / "mine.npy", 2 * found["x"].reshape(1797, -1))
    made = features.of_set(digits, str(tmp_path / "mine.npy"), features.Place())
    assert made.test is not None and (made.train.y == found["y"][:1500]).all()
    assert np.allclose(made.train.x[:], 2 * digits.train.x.reshape(1500, -1))
    assert np.allclose(made.test.x[:], 2 * digits.test.x.reshape(297, -1))
    assert "exists" in tacit("features", "order", "digits", tmp_path / "digits.npz", code=1).output


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
    assert "'lite' is not a backbone" in tacit("features", "build", "digits", "--backbone", "lite", code=1).output
    assert "is neither a data set nor a run folder" in tacit("features", "clear", tmp_path, code=1).output
    said = tacit("features", "build", "digits", "--backbone", flat, "--device", "gpu", code=1).output
    assert "device must be 'cpu' or 'cuda'" in " ".join(said.split())
    if torch.cuda.is_available():
        return
    assert (
        "there is no GPU" in tacit("features", "build", "digits", "--backbone", flat, "--device", "cuda", code=1).output
    )
