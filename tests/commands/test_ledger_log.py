"""`tacit ledger log` and `tacit ledger officers`."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.shell import tacit
from tacit import Budget, Ledger
from tacit.cli import app
from tacit.privacy.accounting.events import gaussian
from tacit.privacy.ledger import StreamTerms

WORK = {"holder": "h", "kind": "sums", "plan": {}}
BUDGET = Budget(epsilon=8.0, delta=1e-5)


def test_the_log_says_who_when_what_and_why(book: Path, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('may_raise = ["officer"]\n')
    tacit("policy", "adopt", tmp_path / "p.toml", "--ledger", book, "--by", "officer", "--why", "yearly review")
    Path(f"{book}.keys").unlink()
    shown = tacit("ledger", "log", "--ledger", book).output
    for words in (
        "the ledger was made",
        "stream 'scans' made: one record (add-or-remove) may lose ε = 1, δ = 1e-05, in at most 1 task(s)",
        "scans: task 2026-01 admitted: committed, nominal size 10",
        "scans: sums on 2026-01 reserved: noise 3.7",
        "scans: sums on 2026-01 charged",
        "policy: budgets may be raised by officer; no unit_cap",
        "by officer (not authenticated): yearly review",
    ):
        assert words in shown, shown
    found = json.loads(tacit("ledger", "log", "--ledger", book, "--json").output)
    assert [line["seq"] for line in found] == list(range(1, len(found) + 1))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", found[-1]["when"])
    charged = next(line for line in found if line["kind"] == "charge")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", charged["when"])  # how long work takes is not written down
    assert len(json.loads(tacit("ledger", "log", "--ledger", book, "--json", "--last", 2).output)) == 2


def test_every_kind_of_entry_has_words(tmp_path: Path) -> None:
    """And is found under its stream."""
    with Ledger(tmp_path / "l") as ledger:
        a, b = (ledger.stream(StreamTerms(name=name, budget=BUDGET)) for name in "ab")
        one = ledger.block(a, "t", size=10, fingerprint="f")
        ledger.block(a, "t", size=10, fingerprint="f")
        train, memory = ledger.split(one.id, {"train": 5, "memory": 5})
        ledger.commit({train.id: [gaussian(8.0)]})
        ticket = ledger.bill([(train.id, gaussian(8.0))], pin="1", **WORK)  # type: ignore[arg-type]
        ledger.resume(pin="1", holder="h")
        ledger.void(ledger.reserve([(memory.id, gaussian(8.0))], pin="2", **WORK))  # type: ignore[arg-type]
        ledger.retire(memory.id)
        ledger.block(b, "u", size=10)
        assert ticket
    found = json.loads(tacit("ledger", "log", "--ledger", tmp_path / "l", "--json", "--stream", "a").output)
    assert {"refresh", "split", "commit", "reserve", "charge", "resume", "void", "retire"} <= {x["kind"] for x in found}
    assert all(line["what"] != line["kind"] and "\n" not in line["what"] for line in found)
    assert all(line["streams"] in ([], ["a"]) for line in found)
    other = json.loads(tacit("ledger", "log", "--ledger", tmp_path / "l", "--json", "--stream", "b").output)
    assert [line["kind"] for line in other] == ["open", "policy", "stream", "block"]
    assert "has no stream 'c'" in tacit("ledger", "log", "--ledger", tmp_path / "l", "--stream", "c", code=1).output


def test_officers(book: Path, tmp_path: Path) -> None:
    at = ("--ledger", book, "--why", "w")
    policy = tmp_path / "p.toml"
    policy.write_text("signatures = 1\nmay_raise = ['ann']\n")
    assert "not authenticated" in tacit("ledger", "officers", "list", "--ledger", book).output
    for name in ("ann", "bob"):
        tacit("keys", "signing", tmp_path / name)
    assert "--public" in tacit("ledger", "officers", "add", "ann", *at, code=1).output
    tacit("ledger", "officers", "add", "ann", "--key", tmp_path / "ann", *at)
    assert "--key FILE" in tacit("policy", "adopt", policy, *at, "--by", "ann", code=1).output
    tacit("policy", "adopt", policy, *at, "--key", tmp_path / "ann")
    tacit("ledger", "officers", "add", "bob", "--public", tmp_path / "bob.pub", *at, "--key", tmp_path / "ann")
    words = ("ledger", "raise", "scans", "--epsilon", 2.0, *at)
    assert "may not raise" in tacit(*words, "--key", tmp_path / "bob", code=1).output
    tacit(*words, "--key", tmp_path / "ann")
    tacit("ledger", "officers", "remove", "bob", *at, "--key", tmp_path / "ann")
    found = json.loads(tacit("ledger", "officers", "list", "--ledger", book, "--json").output)
    assert [one["name"] for one in found["officers"]] == ["ann"]
    assert "by ann (signed): w" in tacit("ledger", "log", "--ledger", book).output
    assert "verified: " in tacit("ledger", "verify", "--ledger", book).output


@pytest.mark.parametrize("words", [("policy", "adopt", "p.toml"), ("ledger", "raise", "scans", "--epsilon", "2")])
def test_a_decision_without_anybody_is_one_sentence(book: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "p.toml").write_text("")
    told = [tmp_path / word if word == "p.toml" else word for word in words]
    output = tacit(*told, "--ledger", book, "--why", "w", code=1).output
    assert "state by whom and why" in output and output.count("\n") == 1


DAMAGES = {
    "body": "UPDATE log SET body = 'x' WHERE seq = 4",
    "first": "UPDATE log SET body = '[]' WHERE seq = 1",
    "policy": "UPDATE log SET body = '{}' WHERE kind = 'policy'",
    "stream": "UPDATE streams SET adjacency = 'x'",
    "profile": "UPDATE profiles SET faces = 'x'",
    "list": "UPDATE lists SET events = '[{}]'",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_ledger_is_one_sentence_in_every_view(book: Path, damage: str) -> None:
    with closing(sqlite3.connect(book)) as connection:
        for name in ("log_update", "log_format"):
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(DAMAGES[damage])
        connection.execute("DELETE FROM prices")
        connection.commit()
    codes = []
    for words in (("show",), ("log",), ("blocks", "scans"), ("verify",), ("officers", "list")):
        found = CliRunner().invoke(app, ["ledger", *words, "--ledger", str(book)])
        assert found.exit_code in (0, 1) and (found.exception is None or isinstance(found.exception, SystemExit))
        assert found.exit_code == 0 or (found.stderr.startswith("error: ") and found.stderr.count("\n") == 1)
        codes.append(found.exit_code)
    assert codes[3] == 1  # verify finds it, whatever else does
