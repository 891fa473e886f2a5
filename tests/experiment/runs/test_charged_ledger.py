"""A run that makes a ledger settles first what one person may lose over all its streams."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.months import MONTHS, config_of, declare, grow
from tacit import Budget
from tacit.cli import app
from tacit.errors import BudgetExceeded, ConfigError
from tacit.experiment.config.config import Config
from tacit.experiment.runs.charged_ledger import parsed_cap
from tacit.experiment.runs.resolver import make_budget
from tacit.experiment.runs.runner import run
from tacit.privacy.ledger import Ledger, LedgerView
from tacit.privacy.ledger.limits.policy import Cap, Policy

BUDGET = Budget(epsilon=2.0, delta=1e-5)


def ready(folder: Path, **changes: Any) -> Path:
    declared = declare(folder, **changes)
    grow(declared, *MONTHS)
    return declared


def private(declared: Path) -> Config:
    return config_of(declared, "DPER", repeatable_noise=False, seeds=[0])


@pytest.mark.parametrize(
    ("answer", "cap"),
    [
        ("none", "none"),
        ("2", BUDGET),
        ("5", Budget(epsilon=5.0, delta=2e-5)),
        ("5, 1e-5", Budget(epsilon=5.0, delta=1e-5)),
    ],
)
def test_what_an_answer_means(answer: str, cap: Any) -> None:
    assert parsed_cap(answer, BUDGET) == cap


@pytest.mark.parametrize("answer", ["", "x", "0", "-1", "nan", "inf", "1", "3,0", "3,1e-6", "3,2"])
def test_an_answer_that_cannot_be_is_one_sentence(answer: str) -> None:
    with pytest.raises(ConfigError, match=r"the unit cap must be|has no room for this stream"):
        parsed_cap(answer, BUDGET)


def test_the_same_people_under_a_second_name_find_no_second_budget(tmp_path: Path) -> None:
    """The same table, another name and another scale: refused before anything is made or read, without being asked."""
    first = ready(tmp_path / "a")
    ledger = tmp_path / "l"
    run(private(first), tmp_path / "r", ledger=ledger, until=MONTHS[0])
    again = ready(tmp_path / "b", name="visits-again", scaling={"age": [0, 120], "pulse": [30, 200]})
    with LedgerView(ledger) as book:
        before, cap = book.head, book.policy.cap
        assert cap is not None and cap.epsilon == book.streams()[0][1].budget.epsilon
    with pytest.raises(BudgetExceeded, match="'visits', 'visits-again', which may hold the same persons, add up to"):
        run(private(again), tmp_path / "q", ledger=ledger, until=MONTHS[0])
    assert not (tmp_path / "q").exists()
    with LedgerView(ledger) as book:
        assert book.head == before
    run(private(first), tmp_path / "r", resume=True, arrived=MONTHS[1:])  # its own stream goes on to its end


def test_a_cap_on_charges_refuses_a_run_before_its_first_task(tmp_path: Path) -> None:
    """The first month alone would fit; all months that a person may be in do not."""
    ledger, declared = tmp_path / "l", ready(tmp_path / "a", tasks_per_unit=3)
    budget = make_budget(private(declared).budget, "person")  # type: ignore[arg-type]
    cap = Cap.of(replace(budget, epsilon=0.8 * budget.epsilon))
    Ledger(ledger, policy=Policy(unit_cap=cap)).close()
    sentence = r"would cost one person ε = \S+ over all streams \(the policy's unit_cap\), .* \(tacit policy adopt\)$"
    with pytest.raises(BudgetExceeded, match=sentence):
        run(private(declared), tmp_path / "r", ledger=ledger, until=MONTHS[0])
    with LedgerView(ledger) as book:
        assert book.head.seq == 2 and book.streams() == []
    assert not (tmp_path / "r").exists()


def test_the_command_takes_an_answer_or_asks_at_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = ready(tmp_path / "a")
    (tmp_path / "c.yaml").write_text(private(declared).to_yaml())

    def tacit(name: str, *words: str, typed: str = "") -> Any:
        line = ["run", str(tmp_path / "c.yaml"), "--out", str(tmp_path / name), "--ledger", str(tmp_path / f"{name}.l")]
        return CliRunner().invoke(app, [*line, "--until", MONTHS[0], *words], input=typed)

    found = tacit("said", "--unit-cap", "none")
    assert found.exit_code == 0 and "is made without a unit_cap" in found.output
    found = tacit("bad", "--unit-cap", "much")
    assert found.exit_code == 1 and "the unit cap must be" in found.output
    assert not (tmp_path / "bad.l").exists() and not (tmp_path / "bad").exists()
    found = tacit("said", "--resume", "--unit-cap", "7")
    assert found.exit_code == 0  # nothing is left to do, and nothing is made
    monkeypatch.setattr("tacit.commands.ledger_access.sys", _Terminal())
    found = tacit("asked", typed="9\n")
    assert found.exit_code == 0 and "over all streams that it will ever hold" in found.output
    with LedgerView(tmp_path / "asked.l") as book:
        cap = book.policy.cap
        assert cap is not None and cap.epsilon == 9.0
        assert "the ledger was made with unit_cap: ε = 9" in book.entries()[1].body["why"]


class _Terminal:
    """`sys`, with somebody at the keyboard."""

    def __getattr__(self, name: str) -> Any:
        return self if name == "stdin" else getattr(sys, name)

    def isatty(self) -> bool:
        return True
