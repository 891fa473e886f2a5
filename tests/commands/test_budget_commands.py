"""`tacit budget`: golden numbers, keys for scripts, and what is said when nothing fits."""

import json
import math
from typing import Any

import pytest

from support.shell import tacit

KEYS = ["epsilon", "rdp", "pld", "noise", "steps", "inputs"]


def budget(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(tacit("budget", *words, "--json").output)
    assert list(found) == KEYS
    return found


def test_epsilon_of_a_plan() -> None:
    words = ("epsilon", "--rate", 0.01, "--noise", 1, "--steps", 10_000, "--delta", 1e-5)
    found = budget(*words)
    assert found["pld"] == pytest.approx(6.188, abs=2e-3) and found["rdp"] == pytest.approx(6.713, abs=1e-3)
    assert found["epsilon"] == found["pld"] and (found["noise"], found["steps"]) == (1.0, 10_000)
    assert found["inputs"] == {
        "rate": 0.01, "noise": 1.0, "steps": 10_000, "delta": 1e-5, "adjacency": "add-or-remove",
    }  # fmt: skip
    assert tacit("budget", *words).output == "ε = 6.188 at δ = 1e-05, add-or-remove (PLD 6.188, RDP 6.713)\n"


def test_noise_for_a_budget() -> None:
    found = budget("noise", "--epsilon", 1, "--delta", 1e-5, "--rate", 0.01, "--steps", 10_000)
    assert found["noise"] == pytest.approx(3.814, abs=2e-3)
    assert 0.999 < found["epsilon"] <= 1 and found["steps"] == 10_000 and found["inputs"]["epsilon"] == 1
    words = ("budget", "noise", "--epsilon", 1, "--rate", 0.01, "--steps", 100)
    output = tacit(*words).output
    assert " is enough: ε = 0.9998 at δ = 1e-05" in output
    copied = budget("epsilon", "--rate", 0.01, "--noise", output.split()[1], "--steps", 100)
    assert copied["epsilon"] <= 1  # what is printed is rounded up


def test_steps_for_a_budget() -> None:
    words = ("steps", "--epsilon", 1, "--delta", 1e-5, "--rate", 0.02, "--noise", 2)
    found = budget(*words)
    assert found["epsilon"] <= 1 and found["noise"] == 2
    more = budget("epsilon", "--rate", 0.02, "--noise", 2, "--steps", found["steps"] + 1)
    assert more["epsilon"] > 1
    assert f"{found['steps']:,} steps fit" in tacit("budget", *words).output


def test_a_stream_of_single_releases() -> None:
    """Gaussians compose exactly: 12 of them with noise σ are one with σ/√12."""
    found = budget("stream", "--tasks", 36, "--per-person", 12, "--epsilon", 2)
    one = budget("stream", "--tasks", 1, "--per-person", 1, "--epsilon", 2)
    assert found["noise"] == pytest.approx(one["noise"] * math.sqrt(12), rel=1e-6)
    assert one["epsilon"] == pytest.approx(2, rel=1e-6) and found["steps"] is None
    assert 2 / 12 < found["epsilon"] < 2
    assert found["noise"] == budget("stream", "--tasks", 10_000, "--per-person", 12, "--epsilon", 2)["noise"]


def test_a_stream_of_gradient_steps() -> None:
    plan = ("--rate", 0.05, "--steps", 50)
    found = budget("stream", "--tasks", 36, "--per-person", 3, "--epsilon", 2, "--delta", 1e-6, *plan)
    whole = budget("epsilon", "--rate", 0.05, "--noise", found["noise"], "--steps", 150, "--delta", 1e-6)
    assert 1.999 < whole["epsilon"] <= 2 and found["steps"] == 50
    each = budget("epsilon", *plan, "--noise", found["noise"], "--delta", 1e-6)
    assert found["epsilon"] == each["epsilon"]


def test_a_stream_is_explained() -> None:
    output = tacit("budget", "stream", "--tasks", 36, "--per-person", 12, "--epsilon", 2).output
    assert "by the accountant" in output and "6.907" in output
    assert "by basic composition" in output and "0.1667" in output
    assert "at most 12 of the 36 tasks" in output and "the number of tasks is not limited" in output


def test_another_neighbouring_relation() -> None:
    found = budget("epsilon", "--rate", 0.1, "--noise", 1, "--steps", 10, "--adjacency", "replace-one")
    added = budget("epsilon", "--rate", 0.1, "--noise", 1, "--steps", 10)
    assert found["rdp"] is None and found["epsilon"] == found["pld"] > added["epsilon"]
    words = ("epsilon", "--rate", 0.1, "--noise", 1, "--steps", 10, "--delta", 0)
    assert budget(*words)["epsilon"] is None
    assert tacit("budget", *words).output == "no finite ε at δ = 0, add-or-remove\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("epsilon --rate 2 --noise 1 --steps 1", "rate must be in (0, 1], got 2.0"),
        ("epsilon --rate 0.1 --noise 0 --steps 1", "noise must be > 0, got 0; without noise no finite ε holds\n"),
        ("epsilon --rate 0.1 --noise 1 --steps 0", "steps must be a whole number ≥ 1, got 0"),
        ("epsilon --rate 0.1 --noise 1 --steps 1 --delta 2", "delta must be between 0 and 1, got 2.0"),
        ("noise --epsilon 0 --rate 0.1 --steps 1", "epsilon must be a finite number > 0, got 0.0"),
        ("noise --epsilon 1 --rate nan --steps 1", "rate must be in (0, 1], got nan"),
        ("noise --epsilon 1e-9 --delta 1e-12 --rate 1 --steps 1000000000", "use fewer steps, a smaller rate"),
        ("steps --epsilon 1 --rate 0.5 --noise 0.3", "not even one step at rate 0.5 with noise 0.3 meets ε = 1"),
        ("stream --tasks 0 --per-person 1 --epsilon 1", "tasks must be a whole number from 1 to 1,000,000,000, got 0"),
        ("stream --tasks 36 --per-person 40 --epsilon 1", "between 1 and the 36 tasks of the stream, got 40"),
        ("stream --tasks 36 --per-person 1 --epsilon 1 --rate 0.1", "give both --rate and --steps"),
    ],
)
def test_what_cannot_be_is_one_sentence(words: str, sentence: str) -> None:
    output = tacit("budget", *words.split(), code=1).output
    assert sentence in output and output.startswith("error: ") and output.count("\n") == 1


def test_the_noise_that_would_do_does() -> None:
    said = tacit("budget", "steps", "--epsilon", 1, "--rate", 0.5, "--noise", 0.3, code=1).output
    noise = said.split("noise ")[-1].split()[0]
    assert budget("steps", "--epsilon", 1, "--rate", 0.5, "--noise", noise)["steps"] >= 1


def test_a_wrong_call_is_another_exit_code() -> None:
    tacit("budget", "epsilon", "--rate", 0.1, code=2)
    tacit("budget", "epsilon", "--rate", "much", "--noise", 1, "--steps", 1, code=2)
    output = tacit("budget", "epsilon", "--rate", 0.1, "--noise", 1, "--steps", 1, "--adjacency", "x", code=2).output
    assert "add-or-remove" in output
