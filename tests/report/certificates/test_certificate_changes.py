"""What changed between two months, and the sentences that come before a comparison that is none."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.made_up import Admit
from tacit import Budget, Certificate, Ledger, Policy, SumPlan, Vault
from tacit.certificate.issuance import issue
from tacit.privacy.ledger.limits.deployment import Deployment
from tacit.report.certificates.certificate_changes import CertificateChanges, changes

BUDGET = Budget(epsilon=2.0, delta=1e-5)


@pytest.fixture
def months(vault: Vault, admit: Admit) -> tuple[Certificate, Certificate]:
    """A month, and the next, which is charged more and tuned otherwise under another policy."""
    found = []
    for month, noise in (("january", 8.0), ("february", 4.0)):
        n = len(month) + 2
        block = admit(np.ones((n, 2)), np.zeros(n), budget=BUDGET, stream="visits", task=month)
        vault.sums(block, SumPlan(noise=noise))
        if month == "january":
            found.append(issue(vault.ledger, block, method="sums"))
            vault.ledger.adopt(Policy(deployment=Deployment(intended_use="triage")), by="owner", why="asked for")
        else:
            found.append(
                issue(vault.ledger, block, method="sums", tuning="public data", tuned="noise, on made-up rows")
            )
    return found[0], found[1]


def number(found: CertificateChanges, name: str) -> tuple[Any, Any]:
    (one,) = (one for one in found.numbers if one.name == name)
    return one.before, one.after


def test_numbers_are_side_by_side(months: tuple[Certificate, Certificate]) -> None:
    before, after = months
    found = changes(before, after)
    assert found.warnings == () and found.summary.startswith("ε rose from") and "1 more task" in found.summary
    assert number(found, "ε") == (before.epsilon, after.epsilon) and number(found, "tasks") == (1, 2)
    low, high = number(found, "attacker's advantage, at most")
    assert low < high and number(found, "µ of GDP") == pytest.approx((1 / 8, 1 / 4))
    assert {one.name for one in found.numbers if not one.changed} >= {"δ", "tasks per unit", "budget ε"}


def test_facts_that_changed_are_in_words(months: tuple[Certificate, Certificate]) -> None:
    facts = {one.name: (one.before, one.after) for one in changes(*months).facts}
    assert facts["tuning"] == ("none", "public data: noise, on made-up rows")
    assert facts["declared: intended use"] == ("none", "triage") and "policy" in facts
    assert "method" not in facts and "label sets" in facts  # two tasks with one label set


def test_lists_say_what_came_and_went(months: tuple[Certificate, Certificate]) -> None:
    before, after = months
    more = after.model_copy(update={"not_accounted": (*before.not_accounted[1:], "rumours")})
    lists = {one.name: one for one in changes(before, more).lists}
    assert lists["not counted"].added == ("rumours",) and lists["not counted"].removed == before.not_accounted[:1]
    assert "audits" not in lists


def test_nothing_changed_against_itself(months: tuple[Certificate, Certificate]) -> None:
    found = changes(months[0], months[0])
    assert found.warnings == ("These are the same certificate.",)
    assert found.facts == found.lists == () and not any(one.changed for one in found.numbers)


def test_an_older_second_certificate_is_said_first(months: tuple[Certificate, Certificate]) -> None:
    (warning,) = changes(months[1], months[0]).warnings
    assert "is the older one" in warning


def test_other_streams_and_ledgers_are_said_first(
    months: tuple[Certificate, Certificate], vault: Vault, admit: Admit, tmp_path: Path
) -> None:
    block = admit(np.ones((7, 2)), np.zeros(7), budget=BUDGET, stream="scans", task="january")
    vault.sums(block, SumPlan(noise=8.0))
    other = issue(vault.ledger, block, method="sums")
    assert changes(months[0], other).warnings[0].startswith("These certificates are of different streams of one ledger")
    with Ledger(tmp_path / "other") as ledger:
        elsewhere = issue(ledger, _charged(ledger), method="sums")
    warnings = changes(months[0], elsewhere).warnings
    assert warnings[0].startswith("These certificates are of different ledgers")
    assert any("protect different units or neighbours" in one for one in warnings)


def _charged(ledger: Ledger) -> int:
    from tacit.privacy.accounting.events import gaussian
    from tacit.privacy.ledger import StreamTerms

    budget = Budget(epsilon=9.0, delta=1e-5, adjacency="replace-one")  # type: ignore[arg-type]
    stream = ledger.stream(StreamTerms(name="visits", budget=budget))
    block = ledger.block(stream, "january", size=9)
    ledger.bill([(block.id, gaussian(9.0))], pin="p", plan={}, holder="h", kind="sums")
    return stream


def test_a_bound_that_was_lost_is_the_summary(months: tuple[Certificate, Certificate]) -> None:
    body = months[1].model_dump(mode="json") | {"mode": "uncertified"}
    body["claims"]["certified"] |= {"epsilon": None, "reason": "raw records were released"}
    found = changes(months[0], Certificate.model_validate(body))
    assert found.summary.endswith("now nothing is guaranteed: raw records were released.")
    assert number(found, "attacker's advantage, at most")[1] is None
