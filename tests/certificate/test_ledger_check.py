"""Certificates against their ledger: every true one passes, also long after; none with a smaller ε does."""

import random
from pathlib import Path
from typing import Any

import pytest

from tacit import Budget, Certificate, Ledger
from tacit.certificate import ledger_check, signing
from tacit.certificate.issuance import issue
from tacit.errors import BudgetExceeded, CertificateError
from tacit.privacy.accounting.budget import Adjacency
from tacit.privacy.accounting.events import gaussian, laplace, poisson_gaussian
from tacit.privacy.ledger import StreamTerms
from tacit.privacy.ledger.limits.policy import Policy
from tacit.privacy.randomness.keys import KeyRing

WORK: dict[str, Any] = {"holder": "h", "kind": "sums"}


def spend(ledger: Ledger, dice: random.Random, tasks: int, **terms: Any) -> int:
    """A stream of tasks that are read in many ways, as far as its budget goes."""
    adjacency = dice.choice(list(Adjacency))
    budget = Budget(epsilon=dice.choice([3.0, 9.0]), delta=1e-5, adjacency=adjacency)
    stream = ledger.stream(StreamTerms(name=f"s{dice.random()}", budget=budget, **terms))
    plans = [gaussian(9.0), gaussian(14.0), laplace(20.0)]
    if adjacency is not Adjacency.REPLACE_ONE and terms.get("fixed_schedule", True):
        plans += [poisson_gaussian(0.05, 2.0, 5), poisson_gaussian(0.1, 3.0, 9)]
    for number in range(tasks):
        opened = dice.random() < 0.3
        try:
            block = ledger.block(stream, f"t{number}", size=10, mode="open" if opened else "committed")
        except BudgetExceeded:
            continue
        parts = ledger.split(block.id, {"train": 8, "memory": 2}) if dice.random() < 0.4 else [block]
        for part in parts:
            for _ in range(dice.choice([1, 2]) if opened else 1):
                event = dice.choice(plans[:3] if opened else plans)
                try:
                    ledger.bill([(part.id, event)], pin=f"{stream}{part.id}", plan={"noise": dice.random()}, **WORK)
                except BudgetExceeded:
                    break
    return stream


def smaller(certificate: Certificate, factor: float) -> Certificate:
    """The same with smaller numbers everywhere, and no event to show that they are too small."""
    body = certificate.model_dump(mode="json")
    certified = body["claims"]["certified"]
    for one in (certified, *certified["tasks"], *certified["over_tasks"], *certified.get("alike", [])):
        one["epsilon"] = None if one["epsilon"] is None else factor * one["epsilon"]
    certified["curve"] = [(factor * epsilon, delta) for epsilon, delta in certified["curve"]]
    return Certificate.model_validate(body)


@pytest.mark.parametrize("seed", range(12))
def test_true_certificates_pass_and_smaller_numbers_do_not(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    terms = {"tasks_per_unit": dice.choice([1, 1, 2, 3]), "fixed_schedule": dice.random() < 0.7}
    with Ledger(tmp_path / "l", keys=KeyRing.create(None)) as ledger:
        stream = spend(ledger, dice, tasks=dice.choice([2, 4, 40]), **terms)
        first = issue(ledger, stream, method="m")
        assert first.epsilon is not None and first.epsilon > 0
        other = spend(ledger, dice, tasks=2)
        ledger.adopt(Policy(may_raise=("officer",)), by="officer", why="review")
        second = issue(ledger, other, method="m")
        for true in (first, second):  # the ledger has gone on since the first
            signing.reprice(true)
            ledger_check.check(true, ledger)
            with pytest.raises(CertificateError):
                ledger_check.check(smaller(true, 0.95), ledger)


def test_an_exposed_stream_is_not_certified_by_a_forged_number(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l") as ledger:
        ledger.adopt(Policy(allow_unsafe=True), by="officer", why="baseline")
        stream = ledger.stream(StreamTerms(name="s", budget=Budget(epsilon=2.0, delta=1e-5)))
        block = ledger.block(stream, "t", size=10)
        ledger.bill([(block.id, gaussian(5.0))], pin="p", plan={}, **WORK)
        before = issue(ledger, stream, method="m")
        ledger.expose(block.id, "raw")
        after = issue(ledger, stream, method="m")
        ledger_check.check(before, ledger)
        ledger_check.check(after, ledger)
        forged = before.model_copy(update={"ledger": after.ledger})
        with pytest.raises(CertificateError, match="its ledger certifies none: raw records were released"):
            ledger_check.check(forged, ledger)


def test_test_keys_certify_nothing(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l", keys=KeyRing.for_tests(0)) as ledger:
        terms = StreamTerms(name="s", budget=Budget(epsilon=2.0, delta=1e-5), public=True)
        block = ledger.block(ledger.stream(terms), "t", size=10)
        ledger.bill([(block.id, gaussian(5.0))], pin="p", plan={}, **WORK)
        true = issue(ledger, 1, method="m")
        ledger_check.check(true, ledger)
        body = true.model_dump(mode="json")
        body["mode"] = "certified"
        body["claims"]["certified"]["epsilon"] = 2.0
        with pytest.raises(CertificateError, match="certifies none: the keys"):
            ledger_check.check(Certificate.model_validate(body), ledger)
