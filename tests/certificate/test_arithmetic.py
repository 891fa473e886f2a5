"""What certificates say of the arithmetic: exact now, and broken for whatever was released before sums were exact."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from support.made_up import admit_to
from tacit import Budget, Ledger, SumPlan, Vault
from tacit.certificate import ledger_check
from tacit.certificate.certificate import Certificate
from tacit.certificate.certificate_text import REAL_ARITHMETIC, text
from tacit.certificate.issuance import issue
from tacit.errors import CertificateError
from tacit.privacy.ledger import LedgerView

OLD = Path(__file__).parent.parent / "commands" / "old_certificate" / "certificate.json"
ONE = Budget(epsilon=1.0, delta=1e-5)


def issued(path: Path) -> Certificate:
    with Ledger(path) as ledger:
        vault = Vault(ledger)
        block = admit_to(vault, np.eye(4), np.zeros(4), budget=ONE, task=f"t{len(ledger.streams())}")
        vault.sums(block, SumPlan.for_budget(ONE))
        return issue(vault.ledger, block, method="sums")


def made_before(path: Path) -> None:
    """Rewrite the log as versions before exact sums wrote it: entries did not say when."""
    with closing(sqlite3.connect(path)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for seq, body in connection.execute("SELECT seq, body FROM log").fetchall():
            plain = {key: value for key, value in json.loads(body).items() if key != "at"}
            connection.execute("UPDATE log SET body = ? WHERE seq = ?", (json.dumps(plain), seq))
        connection.commit()


def test_a_certificate_of_exact_sums_says_so(tmp_path: Path) -> None:
    found = issued(tmp_path / "l")
    assert found.arithmetic == "exact"
    assert not any("floating" in one for one in found.not_accounted)
    assert "exact sums and exact noise" in " ".join(text(found).split())


def test_what_was_released_in_floats_is_said_to_be_broken(tmp_path: Path) -> None:
    issued(tmp_path / "l")
    made_before(tmp_path / "l")
    with LedgerView(tmp_path / "l") as ledger:
        assert ledger.summary(1).in_floats


def test_a_certificate_made_before_prints_that_it_is_broken() -> None:
    words = " ".join(text(Certificate.load(OLD)).split())
    assert "holds in real arithmetic only, not in floating point" in words
    assert " ".join(REAL_ARITHMETIC.split()) in words


def test_exact_arithmetic_cannot_be_claimed_for_floats(tmp_path: Path) -> None:
    found = issued(tmp_path / "l")
    with Ledger(tmp_path / "l") as ledger:
        ledger_check.check(found, ledger)
        with pytest.raises(CertificateError, match="states arithmetic"):
            ledger_check.check(found.model_copy(update={"arithmetic": None}), ledger)
