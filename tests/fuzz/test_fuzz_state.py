"""Ledgers, releases and run folders that were damaged: no traceback, and no charge that nothing comes of."""

import json
import sqlite3
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from support.worlds import QUICK, RELEASE, charged, copied, original, profile, raises_only_sentences, sound, tacit
from support.wrong import changed, damaged
from tacit.learners import load_learner

CERTIFICATE = f"{RELEASE}/certificate.json"
ASKED = (
    ["ledger", "show", "--ledger", "v.ledger"],
    ["ledger", "show", "--ledger", "v.ledger", "--json"],
    ["ledger", "blocks", "visits", "--ledger", "v.ledger"],
    ["ledger", "verify", "--ledger", "v.ledger"],
    ["ledger", "verify", "--ledger", "v.ledger", "--certificate", CERTIFICATE],
    ["policy", "show", "--ledger", "v.ledger"],
    ["keys", "rotate", "--ledger", "v.ledger"],
    ["keys", "backup", "new", "--ledger", "v.ledger", "--passphrase", "long enough for a backup"],
    ["run", "r", "--resume", "--quiet"],
)


def ledger_holds(data: st.DataObject) -> None:
    with copied("v.ledger", "r", "visits") as folder:
        part = data.draw(st.sampled_from(["v.ledger", "v.ledger", "v.ledger", "v.ledger.keys", "v.ledger.anchor"]))
        place, how = folder / part, data.draw(st.integers(0, 9))
        if how == 0:
            place.unlink()
        elif how == 1:
            place.unlink()
            place.mkdir()
        elif how == 2:
            place.unlink()
            with sqlite3.connect(place) as other:
                other.execute("create table entries (a, b)")
        elif how == 3:
            place.chmod(0o400)
        else:
            place.write_bytes(data.draw(damaged(place.read_bytes())))
        line = data.draw(st.sampled_from(ASKED))
        sound(line, tacit(line))


@profile(60)
@given(st.data())
def test_any_damage_to_a_ledger(data: st.DataObject) -> None:
    ledger_holds(data)


@pytest.mark.slow
@profile(2000)
@given(st.data())
def test_any_damage_to_a_ledger_at_length(data: st.DataObject) -> None:
    ledger_holds(data)


def release_holds(data: st.DataObject) -> None:
    with copied("r", "key") as folder:
        release = folder / RELEASE
        files = sorted(path.name for path in release.iterdir() if path.is_file())
        part = release / data.draw(st.sampled_from(files))
        how = data.draw(st.integers(0, 5))
        if how == 0:
            part.unlink()
        elif how == 1:
            part.unlink()
            part.mkdir()
        elif part.suffix == ".json" and how < 5:
            part.write_text(json.dumps(data.draw(changed(json.loads(part.read_text()))), skipkeys=True))
        else:
            part.write_bytes(data.draw(damaged(part.read_bytes())))
        raises_only_sentences(lambda: load_learner(release).predict([[50.0, 80.0]]))
        for line in (
            ["certificate", "show", RELEASE],
            ["certificate", "verify", CERTIFICATE, "--key", "key.pub"],
            ["certificate", "sign", CERTIFICATE, "--key", "key"],
        ):
            sound(line, tacit(line))


@profile(60)
@given(st.data())
def test_any_damage_to_a_release(data: st.DataObject) -> None:
    release_holds(data)


@pytest.mark.slow
@profile(2000)
@given(st.data())
def test_any_damage_to_a_release_at_length(data: st.DataObject) -> None:
    release_holds(data)


TAKEN_UP = (
    ["run", "half", "--resume", *QUICK],
    ["certificate", "show", "half"],
    ["features", "clear", "half"],
    ["attack", "half"],
    ["sweep", "half", "--limit-minutes", "0"],
    ["tune", "half", "--space", "space.yaml", "--trials", "1"],
)


def run_folder_holds(data: st.DataObject) -> None:
    """A damaged run folder goes on or is refused; a refusal charges nothing."""
    with copied("half", "visits", "space") as folder:
        source = original() / "half"
        names = sorted(
            str(path.relative_to(source)) for path in source.rglob("*") if path.is_file() and path.name != "lock"
        )
        part = folder / "half" / data.draw(st.sampled_from(names))
        how = data.draw(st.integers(0, 7))
        if how == 0:
            part.unlink()
        elif part.name == "config.yaml" and how < 6:
            part.write_text(yaml.safe_dump(data.draw(changed(yaml.safe_load(part.read_text())))))
        elif part.suffix == ".json" and how < 6:
            part.write_text(json.dumps(data.draw(changed(json.loads(part.read_text()))), skipkeys=True))
        else:
            part.write_bytes(data.draw(damaged(part.read_bytes())))
        if (pointer := folder / "half" / "ledger.json").is_file():  # the copied run belongs to the copied ledger
            pointer.write_text(pointer.read_text(errors="replace").replace(str(original()), str(folder)))
        before = charged(folder / "half.ledger")
        line = data.draw(st.sampled_from(TAKEN_UP))
        result = tacit(line)
        sound(line, result)
        if result.exit_code:
            going_on = list(Path("half").glob("seeds/*/private"))
            released = list(Path("half").glob("seeds/*/releases/02*/certificate.json"))
            assert charged(folder / "half.ledger") == before or going_on or released


@profile(60)
@given(st.data())
def test_any_damage_to_a_run_folder(data: st.DataObject) -> None:
    run_folder_holds(data)


@pytest.mark.slow
@profile(2000)
@given(st.data())
def test_any_damage_to_a_run_folder_at_length(data: st.DataObject) -> None:
    run_folder_holds(data)
