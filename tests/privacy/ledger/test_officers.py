"""Officers: once there are some, no decision is written without their signatures, and verify checks each."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tacit import Budget, Ledger
from tacit.certificate.log_text import lines
from tacit.certificate.signing import new_key
from tacit.errors import LedgerError, PolicyError
from tacit.privacy.ledger import LedgerView, StreamTerms
from tacit.privacy.ledger.limits.policy import Policy
from tacit.privacy.ledger.log import chain

BUDGET = Budget(epsilon=1.0, delta=1e-5)
MORE = Budget(epsilon=2.0, delta=1e-5)


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, Path]:
    found = {name: tmp_path / f"{name}.key" for name in ("ann", "bob", "eve")}
    for file in found.values():
        new_key(file)
    return found


@pytest.fixture
def path(tmp_path: Path, keys: dict[str, Path]) -> Path:
    """A ledger with one stream and one officer, who may raise budgets."""
    path = tmp_path / "l"
    with Ledger(path) as ledger:
        ledger.stream(StreamTerms(name="s", budget=BUDGET))
        ledger.add_officer("ann", keys["ann"], why="appointed", keys=[keys["ann"]])
        ledger.adopt(Policy(may_raise=("ann",)), why="review", keys=[keys["ann"]])
    return path


def reanchor(path: Path, signing: Sequence[Path]) -> None:
    path.with_name("l.anchor").unlink()
    Ledger.reanchor(path, by="" if signing else "ann", why="lost", keys=signing)


Decide = Callable[[Path, Sequence[Path]], object]


def inside(deed: Callable[[Ledger, str, Sequence[Path]], object]) -> Decide:
    def decide(path: Path, signing: Sequence[Path]) -> None:
        with Ledger(path) as ledger:
            deed(ledger, "" if signing else "ann", signing)

    return decide


DECISIONS: dict[str, Decide] = {
    "policy": inside(lambda book, by, k: book.adopt(Policy(allow_unsafe=True), by=by, why="w", keys=k)),
    "raise": inside(lambda book, by, k: book.raise_budget(1, MORE, by=by, why="w", keys=k)),
    "officer": inside(lambda book, by, k: book.add_officer("bob", _bob(book), by=by, why="w", keys=k)),
    "reanchor": reanchor,
}


def _bob(book: Ledger) -> Path:
    return book.path.with_name("bob.key.pub")


@pytest.mark.parametrize("kind", DECISIONS)
def test_a_decision_needs_the_key_of_an_officer(path: Path, keys: dict[str, Path], kind: str) -> None:
    with LedgerView(path) as view:
        before = view.head
    anchor = path.with_name("l.anchor").read_bytes()
    for signing, sentence in (
        ([], "needs the signature of 1 of them"),
        ([keys["eve"]], "does not belong to an officer"),
    ):
        with pytest.raises(LedgerError, match=sentence):
            DECISIONS[kind](path, signing)
        path.with_name("l.anchor").write_bytes(anchor)
        with LedgerView(path) as view:
            assert view.head == before
    DECISIONS[kind](path, [keys["ann"]])
    with LedgerView(path) as view:
        assert view.verify().head.seq == before.seq + 1
        *_, newest = lines(view.entries())
        assert (newest.kind, newest.by, newest.signed_by, newest.who) == (kind, "ann", ("ann",), "ann (signed)")


def test_without_officers_a_name_is_enough_and_every_view_says_so(tmp_path: Path, keys: dict[str, Path]) -> None:
    with Ledger(tmp_path / "n") as ledger:
        ledger.adopt(Policy(may_raise=("ann",)), by="ann", why="review")
        *_, newest = lines(ledger.entries())
        assert newest.who == "ann (not authenticated)" and newest.authenticated is False
        with pytest.raises(LedgerError, match="has no officers, so no key counts"):
            ledger.adopt(Policy(allow_unsafe=True), why="w", keys=[keys["ann"]])
        assert ledger.officers() == () and ledger.verify()


def test_the_first_officer_signs_with_their_own_key(tmp_path: Path, keys: dict[str, Path]) -> None:
    with Ledger(tmp_path / "n") as ledger:
        with pytest.raises(LedgerError, match="the first officer signs for themselves"):
            ledger.add_officer("ann", f"{keys['ann']}.pub", by="ann", why="w")
        with pytest.raises(LedgerError, match="does not belong to an officer"):
            ledger.add_officer("ann", f"{keys['ann']}.pub", why="w", keys=[keys["eve"]])
        assert ledger.officers() == ()


def test_a_policy_may_ask_for_two_keys(path: Path, keys: dict[str, Path]) -> None:
    ann, bob = keys["ann"], keys["bob"]
    two = Policy(may_raise=("bob",), signatures=2)
    with Ledger(path) as ledger:
        with pytest.raises(LedgerError, match="requires 2 signatures and the ledger has 1 officer"):
            ledger.adopt(two, why="w", keys=[ann])
        ledger.add_officer("bob", f"{bob}.pub", why="deputy", keys=[ann])
        ledger.adopt(two, why="w", keys=[ann])
        for signing in ([ann], [bob], [ann, ann]):
            with pytest.raises(LedgerError, match="needs the signature of 2 of them"):
                ledger.raise_budget(1, MORE, why="w", keys=signing)
        with pytest.raises(LedgerError, match="add another before removing one"):
            ledger.remove_officer("bob", why="w", keys=[ann, bob])
        ledger.raise_budget(1, MORE, why="w", keys=[ann, bob])
        assert ledger.verify()
        (raised,) = ledger.statement(1).raises
        assert (raised.by, raised.signed) == ("ann, bob", True)


def test_a_removed_officer_signs_nothing_any_more(path: Path, keys: dict[str, Path]) -> None:
    with Ledger(path) as ledger:
        with pytest.raises(LedgerError, match="add another before removing one"):
            ledger.remove_officer("ann", why="left", keys=[keys["ann"]])
        ledger.add_officer("bob", f"{keys['bob']}.pub", why="next", keys=[keys["ann"]])
        ledger.remove_officer("ann", why="left", keys=[keys["bob"]])
        with pytest.raises(LedgerError, match="does not belong to an officer"):
            ledger.adopt(Policy(), why="w", keys=[keys["ann"]])
        assert ledger.verify()  # what she signed before stays valid


def test_an_officer_may_raise_only_what_the_policy_lets_them(path: Path, keys: dict[str, Path]) -> None:
    with Ledger(path) as ledger:
        ledger.add_officer("bob", f"{keys['bob']}.pub", why="deputy", keys=[keys["ann"]])
        with pytest.raises(PolicyError, match="'bob' may not raise"):
            ledger.raise_budget(1, MORE, why="w", keys=[keys["bob"]])
        with pytest.raises(LedgerError, match="the keys given are of bob, and not of 'ann'"):
            ledger.raise_budget(1, MORE, by="ann", why="w", keys=[keys["bob"]])


def append(path: Path, kind: str, body: dict[str, object]) -> None:
    """An entry that is sealed well, written past the code."""
    with closing(sqlite3.connect(path)) as connection:
        seq, previous = connection.execute("SELECT seq, hash FROM log ORDER BY seq DESC LIMIT 1").fetchone()
        text = chain.canonical(body)
        sealed = chain.seal(previous, seq + 1, kind, text)
        connection.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?, '0003')", (seq + 1, kind, text, previous, sealed))
        connection.commit()


def newest(path: Path, kind: str) -> dict[str, object]:
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT body FROM log WHERE kind = ? ORDER BY seq DESC LIMIT 1"
        body: dict[str, object] = json.loads(connection.execute(query, (kind,)).fetchone()[0])
        return body


def test_verify_finds_a_decision_that_was_written_past_the_code(path: Path, keys: dict[str, Path]) -> None:
    signed = newest(path, "policy")
    lax = {**signed, "policy": Policy(allow_unsafe=True).to_dict()}
    plain = {key: value for key, value in lax.items() if key not in ("after", "signatures")}
    for forged in (plain, lax, signed):  # without a signature, with that of another policy, and a true one again
        copy = path.with_name("copy")
        copy.write_bytes(path.read_bytes())
        append(copy, "policy", forged)
        with (
            LedgerView(copy) as view,
            pytest.raises(LedgerError, match=r"\(policy\) lacks the signature of an officer"),
        ):
            view.verify()


def test_a_key_that_is_none_is_one_sentence(path: Path, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("nonsense")
    with Ledger(path) as ledger:
        for file, sentence in ((tmp_path / "x", "not an Ed25519 private key"), (tmp_path / "none", "cannot read")):
            with pytest.raises(LedgerError, match=sentence):
                ledger.adopt(Policy(), why="w", keys=[file])
            with pytest.raises(LedgerError, match=sentence.replace("private", "public")):
                ledger.add_officer("x", file, why="w", keys=[])
