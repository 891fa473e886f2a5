"""The model card of a release: what it says, that nothing in a name is markup, and that its certificate covers it."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from markdown_it import MarkdownIt

from support.shell import tacit
from tacit import Budget, Certificate, CosineClassifier, StreamInfo, TaskInfo
from tacit.certificate import binding
from tacit.errors import CertificateError
from tacit.learners.base.release import Release, restate
from tacit.learners.card.model_card import CARD, Described, Measured, model_card
from tacit.learners.card.plain_markdown import name, sentence, visible

HOSTILE = [
    "<script>alert(1)</script>", "</table><img src=x onerror=alert(1)>", "a | b | c", "`` ` ```", "---",
    "a\n---\nlicense: mit\n---\n# Certified ε = 0", "x: [&a, *b] {c}", "!!python/object:os.system", "%s{{ 7 * 7 }}",
    "[here](https://evil.example)", "![p](https://evil.example/x.png)", "https://evil.example www.evil.example",
    "a@b.example",
    "\u202eשלום", "zero\u200bwidth", "x" * 10_000, "a\x85b\u2028c", "", " ", "\\", "*bold* _it_ # head", "$$x$$",
]  # fmt: skip


def made(
    folder: Path, stream: str = "visits", labels: tuple[str, ...] = ("well", "ill"), task: str = "january"
) -> Path:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 3)).astype(np.float32), np.array(labels, object)[rng.integers(0, len(labels), 40)]
    info = StreamInfo(
        name=stream, shape=(3,), tasks=(TaskInfo(name=task, number=0, labels=labels, size=40),), public=True
    )
    learner = CosineClassifier(budget=Budget(epsilon=2.0, delta=1e-5), stream=info)
    learner.partial_fit(x, y)
    learner.save(folder)
    return folder


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("card") / "release")


@pytest.fixture
def release(published: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(published, tmp_path / "release"))


def front(text: str) -> dict[str, Any]:
    """The front matter, as the Hub splits it off."""
    found = re.match(r"^(\s*---[\r\n]+)([\S\s]*?)([\r\n]+---(\r\n|\n|$))", text)
    assert found is not None
    values = yaml.safe_load(found[2])
    assert isinstance(values, dict)
    return values


MEASURED = Measured(source="public test set", tasks=("january",), accuracy=(0.75,), average=0.75, rows=(100,))


def test_a_card_says_what_the_certificate_says(release: Path) -> None:
    text, certificate = (release / CARD).read_text(), Certificate.load(release / "certificate.json")
    facts = front(text)
    assert facts["library_name"] == "tacit" and "license" not in facts and "model-index" not in facts
    assert {"differential-privacy", "continual-learning"} <= set(facts["tags"])
    assert certificate.id in text and "ε = 2, δ = 1e-05" in text and "one record" in text
    for said in (*certificate.not_accounted, "tacit certificate verify", "No accuracy was measured", "january"):
        assert said in text.replace("\\", ""), said


def test_the_python_of_a_card_works(release: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (release / CARD).read_text(), re.DOTALL)
    assert "(rows, 3)" in code
    names: dict[str, Any] = {"X": np.zeros((4, 3), np.float32)}
    exec(code.replace("path/to/this/folder", str(release)), names)
    assert len(names["labels"]) == 4


def test_a_card_with_accuracies_is_what_the_hub_reads(release: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    restate(release, None, MEASURED)
    card = hub.ModelCard.load(release / CARD)
    (result,) = card.data.eval_results
    assert result.metric_type == "accuracy" and result.metric_value == 0.75
    assert result.dataset_name == "visits" and card.data.library_name == "tacit" and card.data.license is None
    assert hub.ModelCardData(**card.data.to_dict()).to_dict() == card.data.to_dict()
    again = hub.metadata_eval_result(
        model_pretty_name="m", task_pretty_name="t", task_id="tabular-classification", metrics_pretty_name="accuracy",
        metrics_id="accuracy", metrics_value=0.75, dataset_pretty_name="visits", dataset_id="visits",
    )  # fmt: skip
    keys = {key for entry in again["model-index"] for one in entry["results"] for key in one}
    assert keys <= set(front(card.content)["model-index"][0]["results"][0])


def test_the_certificate_covers_the_card(release: Path) -> None:
    certificate = Certificate.load(release / "certificate.json")
    assert certificate.release is not None and CARD in certificate.release.files
    assert binding.check(release, certificate)
    card = release / CARD
    card.write_text(card.read_text().replace("ε = 2", "ε = 0.1"))
    with pytest.raises(CertificateError, match=r"README\.md was changed"):
        binding.check(release, certificate)
    assert "README.md was changed" in tacit("certificate", "verify", release, code=1).output
    card.unlink()
    with pytest.raises(CertificateError, match=r"README\.md is missing"):
        binding.check(release, certificate)


def test_writing_accuracies_binds_the_certificate_again(release: Path) -> None:
    before = Certificate.load(release / "certificate.json")
    for _ in range(2):
        restate(release, None, MEASURED)
        after = Certificate.load(release / "certificate.json")
        assert after.id == before.id and after.release is not None and before.release is not None
        assert after.release.tensors == before.release.tensors and binding.check(release, after)
        assert "75.0% | 65.7% to 82.5%" in (release / CARD).read_text()  # Wilson's interval of 75 of 100
    newer = after.model_copy(update={"id": "f" * 32, "release": None})
    restate(release, newer, MEASURED)
    assert "f" * 32 in (release / CARD).read_text()
    assert binding.check(release, Certificate.load(release / "certificate.json"))
    assert sorted(path.name for path in release.iterdir()) == sorted(
        [CARD, "certificate.json", "model.safetensors", "release.json"]
    )


def test_a_release_that_is_saved_again_keeps_its_card(release: Path, tmp_path: Path) -> None:
    restate(release, None, MEASURED)
    CosineClassifier.from_release(release).save(tmp_path / "again")
    for file in (CARD, "certificate.json"):
        assert (tmp_path / "again" / file).read_bytes() == (release / file).read_bytes()


def test_a_release_without_a_card_stays_valid(release: Path) -> None:
    certificate = Certificate.load(release / "certificate.json")
    assert certificate.release is not None
    files = {name: value for name, value in certificate.release.files.items() if name != CARD}
    old = certificate.release.model_copy(update={"files": files})
    certificate.model_copy(update={"release": old}).save(release / "certificate.json")
    (release / CARD).unlink()
    assert "2 files match" in tacit("certificate", "verify", release).output
    CosineClassifier.from_release(release)
    restate(release, None, MEASURED)
    assert not (release / CARD).exists() and Release.load(release).card == ""
    certificate.model_copy(update={"release": None}).save(release / "certificate.json")
    restate(release, None, MEASURED)
    assert not (release / CARD).exists()


def test_a_readme_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / CARD).write_text("# My notes\n")
    made(tmp_path)
    assert (tmp_path / CARD).read_text() == "# My notes\n"
    assert "README.md does not belong to it" in tacit("certificate", "verify", tmp_path, code=1).output


def test_a_charged_query_states_its_noise(release: Path) -> None:
    charged = replace(MEASURED, source="charged query", rows=(), noise=0.1, accuracy=(0.95,), average=0.95)
    restate(release, None, charged)
    text = (release / CARD).read_text()
    assert "standard deviation of at most 10.0%" in text and "95.0% | 75.4% to 100.0%" in text
    assert front(text)["model-index"][0]["results"][0]["metrics"][0]["name"] == "average accuracy (charged query)"


def test_without_a_finite_bound_the_card_says_so(release: Path) -> None:
    certificate = Certificate.load(release / "certificate.json")
    bound = certificate.claims.certified.model_copy(update={"epsilon": None, "reason": "records were exposed"})
    claims = certificate.claims.model_copy(update={"certified": bound})
    loaded = Release.load(release)
    described = Described(method=loaded.method, reference="", info=loaded.info, learnt=loaded.tasks)
    text = model_card(described, certificate.model_copy(update={"claims": claims}))
    assert "No finite ε is certified" in text and "differential-privacy" not in front(text)["tags"]
    assert "records were exposed" in text


ALLOWED = {
    "heading_open", "heading_close", "paragraph_open", "paragraph_close", "inline", "fence", "table_open",
    "table_close", "thead_open", "thead_close", "tbody_open", "tbody_close", "tr_open", "tr_close", "th_open",
    "th_close", "td_open", "td_close", "bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close",
}  # fmt: skip
INLINE = {"text", "code_inline", "strong_open", "strong_close", "softbreak"}


def structure(text: str) -> list[str]:
    """The blocks of a card in order; fails if anything but plain text, code and bold is in them."""
    body = text.split("---\n", 2)[2]
    tokens = MarkdownIt("commonmark").enable("table").parse(body)
    for token in tokens:
        assert token.type in ALLOWED, token.type
        for child in token.children or []:
            assert child.type in INLINE, (child.type, child.content[:100])
            if child.type == "text":
                assert "://" not in child.content and "www." not in child.content, child.content
    return [token.type for token in tokens]


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda one: ascii(one)[:24])
def test_a_name_is_shown_as_text_everywhere(release: Path, hostile: str) -> None:
    loaded, certificate = Release.load(release), Certificate.load(release / "certificate.json")

    def card(text: str) -> str:
        task = TaskInfo(name=text, number=0, labels=(text, "b"), size=3)
        info = replace(loaded.info, name=text, tasks=(task,), features=text or "f")
        described = Described(method=text, reference=text or "r", info=info, learnt=(task,))
        ledger = certificate.ledger.model_copy(update={"stream": text})
        changed = certificate.model_copy(
            update={"ledger": ledger, "tuning": text or "none", "not_accounted": (text,), "beside": (text,)}
        )
        measured = Measured(source=text or "s", tasks=(text,), accuracy=(0.5,), average=0.5, rows=(9,))
        return model_card(described, changed, measured)

    shown = card(hostile)
    assert structure(shown) == structure(card("plain"))
    facts = front(shown)
    assert set(facts) == {"library_name", "tags", "pipeline_tag", "metrics", "model-index"} - (
        set() if "pipeline_tag" in facts else {"pipeline_tag"}
    )
    assert facts["model-index"][0]["results"][0]["dataset"]["name"] == visible(hostile)
    assert "license" not in facts and "{{ 7" not in visible("49")
    for letter in "\u202e\u200b\x85\u2028":
        assert letter not in shown


def test_names_are_code_and_sentences_are_escaped() -> None:
    rendered: Callable[[str], str] = MarkdownIt("commonmark").enable("table").renderInline
    assert rendered(name("a`b``c")) == "<code>a`b``c</code>"
    assert rendered(sentence("*a* <b> [c](d) _e_ `f`")) == "*a* &lt;b&gt; [c](d) _e_ `f`"
    assert rendered(sentence("see https://evil.example")) == "<code>see https://evil.example</code>"
    assert len(visible("x" * 500)) == 200 and visible("a\u202eb") == "aU+202Eb"


def test_a_hostile_release_is_saved_and_loaded(tmp_path: Path) -> None:
    made(tmp_path, stream="<b>| `x`", labels=("</td>", "*y*"), task="# t")
    structure((tmp_path / CARD).read_text())
    assert "match the certificate" in tacit("certificate", "verify", tmp_path).output
