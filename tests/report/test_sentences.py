"""The headline, the tests behind it, and the certificate in plain words."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit import metrics
from tacit.certificate import Audit
from tacit.metrics import summarise
from tacit.report.certificate_words import in_words, strength
from tacit.report.paired_tests import best, comparable, paired_tests
from tacit.report.reading.run_data import Collection, RunData
from tacit.report.reading.run_folders import read_folders
from tacit.report.results_table import COLUMNS, results
from tacit.report.sentences import clipped, headline, isolated


def made(
    key: str, values: tuple[float, ...], *, epsilon: float | None = 2.0, lost: float = 0.1, **more: Any
) -> RunData:
    certified = None if epsilon is None else {"per_record": epsilon, "all_tasks": 4.0, "delta": 1e-5, "unit": "person"}
    curves = tuple((0.9, value) for value in values)
    facts: dict[str, Any] = {
        "tasks": ("a", "b"), "seeds": tuple(range(len(values))), "points": (1, 2), "per_seed": values,
        "average_curves": curves, "average_accuracy": summarise(values), "forgetting": summarise([lost] * len(values)),
        "certified": certified, "certified_reason": "a unit that is in one task only" if certified else "it is raw",
    }  # fmt: skip
    return RunData(key=key, label=key, folder=Path("sweep") / key, **(facts | more))


def test_the_winner_is_the_best_private_run() -> None:
    runs = (
        made("good", (0.8, 0.82, 0.81)),
        made("bad", (0.5, 0.53, 0.51)),
        made("open", (0.9, 0.9, 0.9), epsilon=None),
    )
    found = headline(Collection(title="x", runs=runs))
    assert found.title == "good is the most accurate private method: 81.0\u202f% over 2 tasks"
    text = "\n".join(found.lines)
    assert "ε = 2 is certified for each person, δ = 1e-05 (a unit that is in one task only)" in text
    assert "for a person that is in all 2 tasks, ε = 4" in text
    assert "It forgot 10.0 points" in text and "open reaches 90.0\u202f%; nothing is certified for it" in text
    assert "Next best: bad, 29.7 points behind, more than chance would explain (paired t-test over 3 seeds" in text
    assert [one.value for one in found.numbers] == ["81.0\u202f%", "10.0", "2"]


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ((made("a", (0.5,)),), "a learned 2 tasks with 50.0\u202f% average accuracy"),
        ((made("a", (0.5,)), made("b", (0.4,))), "One seed cannot tell a difference from chance"),
        ((made("a", (0.5, 0.6)), made("b", (0.59, 0.5))), "which may be chance"),
        ((made("a", (0.5,), epsilon=None),), "No finite ε is certified for a: it is raw"),
        ((made("a", (0.5,), lost=-0.2),), "Accuracy on earlier tasks rose by 20.0 points"),
        ((made("a", (0.5,)), made("b", (0.4,), config={"data": 1})), "2 runs on different data"),
        ((made("a", (0.5,), average_accuracy=None, forgetting=None),), "Accuracy was not measured"),
        ((), "No run has begun"),
        ((made("a", (0.5,)), made("b", (0.4,), tasks=("1",), status="1 task learned")), "2 runs, 1 of them finished"),
    ],
)
def test_other_headlines(runs: tuple[RunData, ...], words: str) -> None:
    found = headline(Collection(title="x", runs=runs))
    assert words in "\n".join([found.title, *found.lines])


def test_runs_are_paired_with_the_baseline_or_the_best_private_run() -> None:
    a, b = made("a", (0.8, 0.82, 0.81)), made("b", (0.5, 0.53, 0.51))
    tests = paired_tests([a, b])
    assert set(tests) == {"b"} and tests["b"].against is a
    assert tests["b"].seeds == metrics.p_seeds(b.per_seed, a.per_seed)
    assert tests["b"].difference == pytest.approx(-0.2967, abs=1e-3)
    swept = [replace(a, baseline="b"), replace(b, baseline="")]
    assert paired_tests(swept)["a"].against.key == "b"
    assert not paired_tests([a, replace(b, tasks=("a",))]) and not comparable([a, replace(b, tasks=("a",))])
    assert math.isnan(paired_tests([a, replace(b, seeds=(7, 8, 9))])["b"].seeds)
    assert best([], private=True) is None


def test_the_table(trained: Path) -> None:
    rows = results(read_folders([trained]).runs)
    assert [row.name for row in rows] == ["AGEM", "DPCL", "RoutedExperts"]
    assert all(len(row.cells) == len(COLUMNS) for row in rows)
    assert rows[0].cells[2].text == "none" and rows[0].cells[2].sort is None
    assert rows[1].cells[2].text == "2 (a record)" and " / " in rows[1].cells[3].text
    assert "reference" in {row.cells[4].text for row in rows}


def test_a_certificate_in_words(trained: Path) -> None:
    runs = read_folders([trained]).runs
    open_one, private, _ = in_words(runs)
    facts = dict(private.facts)
    assert "Each record of the stream 'permuted-digits', in at most 1 task" in facts["Who is protected?"]
    assert "every noisy value and every model version" in facts["From whom?"]
    assert "at most a factor of 7.39" in facts["How well?"] and "not certified" in facts["What does the paper claim?"]
    assert ("checked", "batches are drawn by secret Poisson sampling at the charged rate") in private.assumptions
    assert "timing and memory side channels" in private.not_counted and private.audits == ()
    nothing = dict(open_one.facts)
    assert "Nothing is guaranteed: raw records were released" in nothing["How well?"]
    assert nothing["Who is protected?"].startswith("Nobody") and "From whom?" not in nothing
    assert [state for state, _ in open_one.assumptions].count("violated") == 1


def test_what_is_said_of_epsilon_is_an_upper_bound() -> None:
    assert strength(1.1, 1e-5, "a record", "record").startswith("ε = 1.1, ")
    said = strength(8.0001, 1e-5, "a record", "record")
    assert said.startswith("ε = 8.001, ") and "at most a factor of 2,982," in said


def test_audits_are_listed(trained: Path) -> None:
    run = read_folders([trained]).runs[1]
    assert run.certificate is not None
    audit = Audit(
        design="one run", runs=1000, delta=1e-3, confidence=0.95, epsilon_lower_bound=1.25, observer="white box",
        date="2026-01-01", verdict="consistent",
    )  # fmt: skip
    audited = replace(run, certificate=run.certificate.model_copy(update={"audit": (audit,)}))
    (words,) = in_words([audited])
    assert words.audits == (
        "one run (1,000 runs, white box): the true ε is at least 1.25 with confidence 95%, which agrees with the "
        "certificate",
    )


def test_a_name_cannot_turn_the_words_after_it() -> None:
    assert isolated("plain ± 1") == "plain ± 1" and clipped("x" * 100).endswith("x…")
    assert isolated("\u202eab") == "\u2068\u202eab\u2069"
    assert isolated("שלום\u2069\u202e") == "\u2068שלום\u202e\u2069"
