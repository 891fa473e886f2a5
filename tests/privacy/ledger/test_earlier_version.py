"""A run folder, its releases and its ledger that version 0.1.0 wrote are opened, verified and resumed.

The archive holds a private run of DP-CL over three months whose process was killed in the third, after the charge and
between two noisy gradients. Every name that is stored (tables, entry kinds, JSON keys, fingerprints of the work) must
still be understood: otherwise the run would be refused, or the third month would be charged twice.
"""

import tarfile
from pathlib import Path

import numpy as np
import pytest

from support.months import tacit
from tacit import DPCL, Certificate, Ledger
from tacit.errors import LedgerError
from tacit.privacy.ledger import LedgerView
from tacit.privacy.vault.intake.store import Store

ARCHIVE = Path(__file__).with_name("run_of_0.1.0.tar.xz")
MONTHS = ("01-2026-01", "02-2026-02", "03-2026-03")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of version 0.1.0, as if it had been moved here."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    for name in ("ledger.json", "environment.json"):
        path = tmp_path / "run" / name
        path.write_text(path.read_text().replace("FOLDER", str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def accept_move(folder: Path) -> None:
    Ledger.reanchor(folder / "visits.ledger", by="owner", why="copied from another machine")


def test_the_ledger_opens_and_verifies(folder: Path) -> None:
    with LedgerView(folder / "visits.ledger") as view:
        before = view.summary(1)
        assert view.verify().entries == before.head.seq
    with pytest.raises(LedgerError, match="is not the file that was written last"):
        Ledger(folder / "visits.ledger")
    accept_move(folder)
    with Ledger(folder / "visits.ledger") as ledger:
        after = ledger.summary(1)
        assert ledger.verify().entries == before.head.seq + 1
        assert (after.epsilon, after.blocks, after.grants) == (before.epsilon, before.blocks, before.grants)
        assert 0 < after.epsilon <= 2.0


@pytest.mark.parametrize("month", MONTHS[:2])
def test_the_releases_open_and_their_certificates_hold(folder: Path, month: str) -> None:
    release = folder / "run" / "seeds" / "seed-0" / "releases" / month
    certificate = Certificate.load(release / "certificate.json")
    assert certificate.to_json() + "\n" == (release / "certificate.json").read_text()
    checked = tacit("certificate", "verify", str(release), "--ledger", str(folder / "visits.ledger"))
    assert checked.exit_code == 0, checked.output
    learner = DPCL.from_release(release)
    assert set(learner.predict(np.random.default_rng(0).random((20, 2), dtype=np.float32))) <= {"well", "sick"}


def test_the_run_resumes_at_the_charged_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third month ends under the grants that were charged for it, and ε does not move.

    A copied store is another holder and may not resume, so the copy passes for the original here.
    """
    accept_move(folder)
    with Ledger(folder / "visits.ledger") as ledger:
        before = ledger.statement(1)
    monkeypatch.setattr(Store, "holder", property(lambda _: before.grants[-1].holder))
    unfinished = {grant.id for grant in before.grants if grant.state == "CHARGED"}
    assert unfinished
    resumed = tacit("run", str(folder / "run"), "--resume")
    assert resumed.exit_code == 0, resumed.output
    with Ledger(folder / "visits.ledger") as ledger:
        assert ledger.verify()
        after = ledger.statement(1)
    assert after.epsilon == before.epsilon
    assert {grant.id: grant.state for grant in after.grants if grant.id in unfinished} == dict.fromkeys(
        unfinished, "RELEASED"
    )
    release = folder / "run" / "seeds" / "seed-0" / "releases" / MONTHS[2]
    checked = tacit("certificate", "verify", str(release), "--ledger", str(folder / "visits.ledger"))
    assert checked.exit_code == 0, checked.output
