"""`tacit certificate verify RELEASE`: a certificate speaks of one model, and of what its ledger charged."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from support.shell import tacit
from tacit import Budget, Certificate, CosineClassifier
from tacit.certificate import signing
from tacit.certificate.binding import BEFORE
from tacit.data.stream import StreamInfo, TaskInfo

Body = dict[str, Any]


def month(number: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(number)
    y = rng.integers(0, 2, 60)
    return (rng.normal(size=(60, 3)) + 2 * y[:, None]).astype(np.float32), y


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two releases of one stream, `january` and `february`, and their ledger."""
    folder = tmp_path_factory.mktemp("hospital")
    tasks = tuple(
        TaskInfo(name=name, number=n, labels=(0, 1), size=60) for n, name in enumerate(("january", "february"))
    )
    info = StreamInfo(name="visits", shape=(3,), tasks=tasks)
    learner = CosineClassifier(
        budget=Budget(epsilon=2.0, delta=1e-5), stream=info, ledger=folder / "ledger", store=folder / "store"
    )
    for task in tasks:
        learner.partial_fit(*month(task.number))
        learner.save(folder / task.name)
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A copy to do harm to."""
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def refused(*words: object) -> str:
    output = tacit("certificate", "verify", *words, code=1).output
    assert output.startswith("error: ") and output.count("\n") == 1
    return output


def test_a_release_is_in_order(place: Path) -> None:
    for name in ("january", "february"):
        release = place / name
        plain = tacit("certificate", "verify", release).output
        assert "and 3 files match the certificate" in plain
        assert "in order; ε = 2 is certified" in plain and "anyone who can write" in plain
        # the head of January lies behind the ledger's
        assert (
            "every event priced again" in tacit("certificate", "verify", release, "--ledger", place / "ledger").output
        )
        assert "verified: " in tacit("ledger", "verify", "--ledger", place / "ledger", "--certificate", release).output
    tacit("keys", "signing", place / "officer")
    tacit("certificate", "sign", place / "january", "--key", place / "officer")
    words = ("--key", place / "officer.pub", "--ledger", place / "ledger")
    assert "genuine; ε = 2" in tacit("certificate", "verify", place / "january", *words).output
    assert "give the issuer's --key" in tacit("certificate", "verify", place / "january").output
    assert "genuine" in tacit("certificate", "verify", place / "january" / "certificate.json", *words).output
    alone = place / "c.json"
    shutil.copy(place / "january" / "certificate.json", alone)
    assert "give the folder of the release" in tacit("certificate", "verify", alone, *words).output


def test_a_model_that_was_exchanged_is_noticed(place: Path) -> None:
    tacit("keys", "signing", place / "officer")
    tacit("certificate", "sign", place / "january", "--key", place / "officer")
    shutil.copy(place / "february" / "model.safetensors", place / "january" / "model.safetensors")
    for words in ((), ("--key", place / "officer.pub"), ("--ledger", place / "ledger")):
        output = refused(place / "january", *words)
        assert "the model in" in output and "has other values" in output
    sign = tacit("certificate", "sign", place / "january", "--key", place / "officer", code=1).output
    assert "is not the one that its certificate names" in sign
    words = ("ledger", "verify", "--ledger", place / "ledger", "--certificate", place / "january")
    assert "is not the one that its certificate names" in tacit(*words, code=1).output


def test_a_single_number_of_the_model_is_noticed(place: Path) -> None:
    file = place / "january" / "model.safetensors"
    tensors = load_file(file)
    name = sorted(tensors)[0]
    tensors[name].view(-1)[0] += 1e-3
    save_file(tensors, file)
    assert f"of its tensors, {name} has other values" in refused(place / "january")


def test_a_certificate_of_another_release_is_noticed(place: Path) -> None:
    shutil.copy(place / "february" / "certificate.json", place / "january" / "certificate.json")
    assert "is not the one that its certificate names" in refused(place / "january")


def test_files_that_are_changed_missing_or_added_are_named(place: Path) -> None:
    release = place / "january"
    facts = json.loads((release / "release.json").read_text())
    facts["stream"]["labels"] = [0, 1, 2]
    (release / "release.json").write_text(json.dumps(facts))
    (release / "card.md").write_text("ε = 0.1")
    assert "release.json was changed, card.md does not belong to it" in refused(release)
    (release / "card.md").unlink()
    (release / "release.json").unlink()
    assert "release.json is missing" in refused(release)
    (release / "model.safetensors").write_bytes(b"no tensors")
    assert "model.safetensors is damaged" in refused(release)


def forge(release: Path, change: Callable[[Body], None]) -> None:
    """Another body under the true head and the true hashes of model and files."""
    body = json.loads((release / "certificate.json").read_text())
    change(body)
    (release / "certificate.json").write_text(json.dumps(body))
    Certificate.load(release / "certificate.json")


def lower(body: Body, epsilon: float = 0.1) -> None:
    certified = body["claims"]["certified"]
    certified["epsilon"] = epsilon
    certified["curve"] = [[epsilon, certified["delta"]]]
    for one in (*certified["tasks"], *certified["over_tasks"]):
        one["epsilon"] = epsilon


def as_open(body: Body) -> None:
    lower(body)
    for task in body["claims"]["certified"]["tasks"]:
        task["mode"] = "open"


def without_events_of_tasks(body: Body) -> None:
    lower(body)
    for task in body["claims"]["certified"]["tasks"]:
        task["events"] = []


@pytest.mark.parametrize("change", [lower, as_open, without_events_of_tasks])
def test_a_smaller_number_than_its_own_events_fails_without_a_ledger(
    place: Path, change: Callable[[Body], None]
) -> None:
    forge(place / "february", change)
    assert "but" in refused(place / "february")
    tacit("keys", "signing", place / "officer")
    output = tacit("certificate", "sign", place / "february", "--key", place / "officer", code=1).output
    assert "do not rely on it" in output


def cheaper(body: Body) -> None:
    """Smaller events, everywhere: consistent in itself."""
    lower(body)
    body["mechanisms"] = []
    for task in body["claims"]["certified"]["tasks"]:
        task["events"] = [{"type": "gaussian", "noise": 1000.0}]


def open_and_empty(body: Body) -> None:
    cheaper(body)
    for task in body["claims"]["certified"]["tasks"]:
        task["mode"], task["events"] = "open", []


def of_one_task(body: Body) -> None:
    del body["claims"]["certified"]["tasks"][0]
    body["mechanisms"] = body["mechanisms"][1:]


def without_a_mechanism(body: Body) -> None:
    body["mechanisms"] = body["mechanisms"][1:]


def said(*path: str, value: Any) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        for step in path[:-1]:
            body = body[step]
        body[path[-1]] = value

    change.__name__ = path[-1]
    return change


FORGERIES = [
    cheaper, open_and_empty, of_one_task, without_a_mechanism,
    said("adjacency", value="replace-one"), said("adjacency", value="zero-out"),
    said("unit", "kind", value="person"),
    said("unit", "max_records_per_unit_per_task", value=5),
    said("unit", "overlap_policy", value="enforced"),
    said("ledger", "budget_epsilon", value=9.0), said("ledger", "raised", value=["from ε = 1 to 2 by me: so"]),
    said("ledger", "stream", value="other"), said("data_fingerprint", value="0" * 64),
    said("labels", "policy", value="learned privately"),
    said("ledger", "policy", value={"allow_unsafe": True}),
    said("ledger", "head_seq", value=3), said("ledger", "id", value="0" * 32),
]  # fmt: skip


@pytest.mark.parametrize("change", FORGERIES, ids=lambda change: change.__name__)
def test_a_forgery_under_a_true_head_fails_with_the_ledger(place: Path, change: Callable[[Body], None]) -> None:
    forge(place / "february", change)
    refused(place / "february", "--ledger", place / "ledger")
    words = ("ledger", "verify", "--ledger", place / "ledger", "--certificate", place / "february")
    assert tacit(*words, code=1).output.count("\n") == 1


def test_the_forgeries_are_not_noticed_without(place: Path) -> None:
    """The control: only the ledger knows."""
    forge(place / "february", cheaper)
    assert "ε = 0.1 is certified" in tacit("certificate", "verify", place / "february").output


def test_nothing_about_the_key_can_be_changed(place: Path) -> None:
    release = place / "january"
    for name in ("officer", "other"):
        tacit("keys", "signing", place / name)
    tacit("certificate", "sign", release, "--key", place / "officer")
    forge(release, said("signature", "public_key", value=json_key(place, release, "other")))
    assert "is not valid" in refused(release, "--key", place / "officer.pub")
    assert "is not valid" in refused(release)
    forge(release, said("signature", "covers", value="certificate"))
    assert "is not valid" in refused(release, "--key", place / "officer.pub")


def json_key(place: Path, release: Path, name: str) -> str:
    found = signing.sign(Certificate.load(release / "certificate.json"), place / name).signature
    assert found is not None
    return found.public_key


OLD = Path(__file__).parent / "old_certificate"


def test_a_certificate_made_before_such_hashes_is_read_and_says_so() -> None:
    """As an earlier version wrote and signed it."""
    output = tacit("certificate", "verify", OLD / "certificate.json", "--key", OLD / "officer.pub").output
    assert BEFORE in output and "genuine" in output
    assert BEFORE in tacit("certificate", "verify", OLD).output


def test_a_release_that_is_saved_again_keeps_or_loses_its_signature(place: Path) -> None:
    tacit("keys", "signing", place / "officer")
    tacit("certificate", "sign", place / "february", "--key", place / "officer")
    learner = CosineClassifier.from_release(place / "february")
    learner.save(place / "same")
    assert "genuine" in tacit("certificate", "verify", place / "same", "--key", place / "officer.pub").output
    learner.certificate_ = Certificate.load(place / "january" / "certificate.json")
    learner.save(place / "other")
    found = Certificate.load(place / "other" / "certificate.json")
    same = Certificate.load(place / "same" / "certificate.json").release
    assert found.signature is None and found.release is not None and same is not None
    assert found.release.tensors == same.tensors  # its card names the other certificate
