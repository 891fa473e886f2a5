"""Two copies of a ledger in use: noticed on one machine, asked about where a file was moved."""

import json
import shutil
from pathlib import Path

import pytest

from tacit import Budget, Declared, Ledger, SumPlan, Vault
from tacit.certificate.issuance import issue
from tacit.certificate.log_text import lines
from tacit.errors import LedgerError
from tacit.privacy.accounting.events import gaussian
from tacit.privacy.ledger import LedgerView, StreamTerms

BUDGET = Budget(epsilon=8.0, delta=1e-5)
WORK = {"holder": "h", "kind": "sums", "plan": {}}


@pytest.fixture(autouse=True)
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(tmp_path, monkeypatch, "here")


def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TACIT_STATE", str(tmp_path / f"state-{name}"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    with Ledger(tmp_path / "a" / "l") as ledger:
        stream = ledger.stream(StreamTerms(name="s", budget=BUDGET))
        for task in "xy":
            ledger.block(stream, task, size=10)
    return tmp_path / "a" / "l"


def bill(ledger: Ledger, block: int) -> None:
    ledger.bill([(block, gaussian(4.0))], pin=str(block), **WORK)  # type: ignore[arg-type]


def copied(path: Path) -> Path:
    """Ledger, keys and anchor, together."""
    shutil.copytree(path.parent, path.parent.with_name("b"))
    return path.parent.with_name("b") / path.name


def test_a_copy_used_in_parallel_is_refused_and_nothing_is_charged(path: Path) -> None:
    copy = copied(path)
    # As if the system kept no inode: what the user wrote is remembered all the same.
    anchor = copy.with_name("l.anchor")
    anchor.write_text(json.dumps({k: v for k, v in json.loads(anchor.read_text()).items() if k != "file"}))
    with Ledger(copy) as second, Ledger(path) as first:
        bill(first, 1)
        head = second.head
        with pytest.raises(LedgerError, match=r"lacks entry \d+, which was written to it or to a copy of it at .*/a/l"):
            bill(second, 1)
        assert second.head == head and second.epsilon(1) == 0
        bill(first, 2)
    with pytest.raises(LedgerError, match="two copies in use are two budgets"):
        Ledger(copy)
    with LedgerView(copy) as view:  # looking is allowed, and says it
        assert any("it lacks entry" in note for note in view.notes)


def test_ledger_keys_and_anchor_put_back_together_are_noticed(path: Path) -> None:
    """Yesterday's backup of all three files over today's."""
    backup = copied(path)
    with Ledger(path) as ledger:
        bill(ledger, 1)
    for file in backup.parent.iterdir():
        shutil.copyfile(file, path.with_name(file.name))
    with pytest.raises(LedgerError, match=r"lacks entry \d+"):
        Ledger(path)
    Ledger.reanchor(path, by="officer", why="disk failure, backup of Monday")
    with Ledger(path) as ledger:
        assert ledger.statement(1).reanchored == ("disk failure, backup of Monday",)
        bill(ledger, 1)


def test_a_moved_ledger_has_a_way_in_that_loses_nothing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To another disk or another machine: refused until somebody says so; certificates say that it was said."""
    budget = Budget(epsilon=1.0, delta=1e-5)
    copy = copied(path)
    machine(tmp_path, monkeypatch, "there")
    with pytest.raises(LedgerError, match="it was copied, restored or moved to another disk"):
        Ledger(copy)
    with LedgerView(copy) as view:
        assert view.verify()  # an officer looks at a copy as it is
    Ledger.reanchor(copy, by="engineer", why="new server")
    with Ledger(copy) as ledger:
        *_, newest = lines(ledger.entries())
        assert (newest.kind, newest.by, newest.why) == ("move", "engineer", "new server")
        vault = Vault(ledger)
        facts = Declared(stream="t", task="t", budget=budget, size=1, labels=[0], shape=(2,))
        block = vault.admit(([[1.0, 2.0]], [0]), facts)
        vault.sums(block, SumPlan.for_budget(budget))
        found = issue(vault.ledger, block, method="sums")
        assert found.epsilon == pytest.approx(1.0, abs=1e-3) and found.ledger.roll_backs_accepted == ()
        (said,) = (one for one in found.assumptions if one.name == "one copy")
        assert said.state == "declared" and said.says.endswith("no other copy of it is in use: new server")
        assert ledger.verify()
    Ledger(copy).close()


def test_a_ledger_that_was_renamed_is_the_same_file(path: Path) -> None:
    folder = path.parent.with_name("c")
    path.parent.rename(folder)
    for name in ("", ".keys", ".anchor"):
        (folder / f"l{name}").rename(folder / f"new{name}")
    with Ledger(folder / "new") as ledger:
        bill(ledger, 1)


def test_a_ledger_in_order_is_not_anchored_again_by_accident(path: Path) -> None:
    with pytest.raises(LedgerError, match="is in order and there is nothing to accept"):
        Ledger.reanchor(path, by="officer", why="just in case")
    with Ledger(path) as ledger:
        assert ledger.statement(1).reanchored == ()
    Ledger.reanchor(path, by="officer", why="entries were lost with the machine", anyway=True)
    with Ledger(path) as ledger:
        assert ledger.statement(1).reanchored == ("entries were lost with the machine",)


def test_ledgers_of_public_data_are_not_watched(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with Ledger(tmp_path / "a" / "l") as ledger:
        ledger.block(ledger.stream(StreamTerms(name="s", budget=BUDGET, public=True)), "x", size=10)
    copy = copied(tmp_path / "a" / "l")
    for place in (tmp_path / "a" / "l", copy):
        with Ledger(place) as ledger:
            bill(ledger, 1)
    assert not (tmp_path / "state-here").exists()


def test_without_a_place_to_remember_in_a_ledger_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TACIT_STATE", str(tmp_path / "file"))
    with Ledger(path) as ledger:
        bill(ledger, 1)
