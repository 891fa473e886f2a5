"""Opening a release runs no code that it names: only what the caller passes, or a policy allows by its hash."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from support.small_world import GENEROUS
from tacit.data.stream import StreamInfo
from tacit.errors import LearnerError, TacitError
from tacit.learners import load_learner
from tacit.learners.baselines.naive import NaiveDPSGD
from tacit.learners.closed_form.cosine import CosineClassifier
from tacit.learners.closed_form.lifelong import LifelongDP
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.limits.policy import Policy

EVIL = """
from pathlib import Path
from torch import nn

Path(__file__).with_suffix(".ran").write_text("ran")


class Net(nn.Module):
    width = 4

    def forward(self, x):
        return x
"""


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    file = tmp_path / "evil.py"
    file.write_text(EVIL)
    return file


def ran(evil: Path) -> bool:
    return evil.with_suffix(".ran").exists()


def facts(**said: Any) -> StreamInfo:
    return StreamInfo.uniform("numbers", labels=[0, 1], shape=(4,), size=20, tasks=1, public=True, **said)


def rows() -> tuple[list[list[float]], list[int]]:
    return [[float(n), 1.0, 0.0, -1.0] for n in range(20)], [n % 2 for n in range(20)]


def released(folder: Path, kind: type = CosineClassifier, **settings: Any) -> dict[str, Any]:
    """A release without code; what `release.json` says of its settings."""
    learner = kind(stream=facts(), budget=GENEROUS, **settings)
    learner.partial_fit(*rows()).save(folder)
    said: dict[str, Any] = json.loads((folder / "release.json").read_text())
    return said


def changed(folder: Path, said: dict[str, Any], **settings: Any) -> None:
    said["settings"] |= settings
    (folder / "release.json").write_text(json.dumps(said))


@pytest.mark.parametrize(
    ("kind", "made", "forged"),
    [
        (CosineClassifier, {}, lambda file: {"backbone": f"{file}:Net"}),
        (LifelongDP, {"width": 8}, lambda file: {"features": f"{file}:Net"}),
        (
            NaiveDPSGD,
            {"network": "linear", "steps": 1, "batch": 5},
            lambda file: {"network": {"network": "pretrained", "options": {"backbone": f"{file}:Net"}}},
        ),
    ],
)
def test_code_that_a_release_names_is_not_run(
    tmp_path: Path, evil: Path, kind: type, made: dict[str, Any], forged: Any
) -> None:
    changed(tmp_path / "r", released(tmp_path / "r", kind, **made), **forged(evil))
    for open_it in (kind.from_release, load_learner):  # type: ignore[attr-defined]
        with pytest.raises(TacitError, match=r"runs no code; if you trust the file, pass it yourself") as refused:
            open_it(tmp_path / "r")
        assert hashlib.sha256(evil.read_bytes()).hexdigest() in str(refused.value)
    assert not ran(evil)


def test_a_method_that_a_release_names_is_not_run(tmp_path: Path, evil: Path) -> None:
    said = released(tmp_path / "r") | {"method": f"{evil}:Net"}
    changed(tmp_path / "r", said)
    with pytest.raises(LearnerError, match="is not a method of tacit, and opening a release runs no other code"):
        load_learner(tmp_path / "r")
    assert not ran(evil)


def test_a_compiled_file_beside_allowed_code_is_not_run(tmp_path: Path, evil: Path) -> None:
    """The bytes whose hash is allowed are the bytes that are run."""
    import py_compile

    good = EVIL.replace('Path(__file__).with_suffix(".ran").write_text("ran")', "")
    py_compile.compile(str(evil), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    evil.write_text(good)
    changed(tmp_path / "r", released(tmp_path / "r"), backbone=f"{evil}:Net")
    with pytest.raises(LearnerError, match="backbone"):
        load_learner(tmp_path / "r", allow_code=[hashlib.sha256(evil.read_bytes()).hexdigest()])
    assert not ran(evil)


def test_the_caller_passes_code_or_allows_its_hash(tmp_path: Path, evil: Path) -> None:
    learner = CosineClassifier(stream=facts(), budget=GENEROUS, backbone=f"{evil}:Net")
    learner.partial_fit(*rows()).save(tmp_path / "r")
    evil.with_suffix(".ran").unlink()
    for given in ({"backbone": f"{evil}:Net"}, {"allow_code": [hashlib.sha256(evil.read_bytes()).hexdigest().upper()]}):
        again = CosineClassifier.from_release(tmp_path / "r", **given)
        assert ran(evil) and (again.predict(rows()[0]) == learner.predict(rows()[0])).all()
        evil.with_suffix(".ran").unlink()
    assert isinstance(again.features_.backbone, nn.Module)


def test_a_policy_allows_a_file_by_its_hash(tmp_path: Path, evil: Path) -> None:
    with Ledger(tmp_path / "data.ledger") as book:
        learner = CosineClassifier(stream=facts(), budget=GENEROUS, backbone=f"{evil}:Net", ledger=book)
        learner.partial_fit(*rows()).save(tmp_path / "r")
        evil.with_suffix(".ran").unlink()
        with pytest.raises(TacitError, match="runs no code"):
            CosineClassifier.from_release(tmp_path / "r", ledger=book)
        assert not ran(evil)
        allowed = Policy(allow_code=(hashlib.sha256(evil.read_bytes()).hexdigest(),))
        book.adopt(allowed, by="officer", why="reviewed")
        CosineClassifier.from_release(tmp_path / "r", ledger=book)
        assert ran(evil)


def test_an_allowed_hash_is_a_hash() -> None:
    with pytest.raises(TacitError, match="must be a SHA-256"):
        Policy.parse({"allow_code": ["mine.py"]})
    assert "allow_code" not in Policy().to_dict()
