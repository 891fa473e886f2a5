"""An individual filter that is resumed, lost, restored from a copy, or ended."""

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from support.individual_filters import QUIET, TWICE, die, lengths, linear, read, sum_loss, world
from support.made_up import Admit
from tacit import Ledger, Vault
from tacit.errors import TacitError, VaultError
from tacit.privacy.randomness.noise import Normals
from tacit.privacy.vault import IndividualFilter
from tacit.privacy.vault.exits import filter_state
from tacit.privacy.vault.exits.filter_state import FilterState, FilterStateFile

# -- a store that was lost or put back ---------------------------------------------------------------------------------


def taken_up(ledger: Ledger, folder: Path, scale: float = 1.0) -> Tensor:
    """One step of a meter that is taken up for it; without noise, it would be (1, ½) times the scale."""
    _, _, meter = world(ledger, folder)
    try:
        return meter.gradient(linear(2), lambda out, y: scale * out.sum(1), **QUIET)["weight"][0] * 2
    finally:
        meter.pause()


def put_back(store: Path, kept: Path) -> None:
    """In place: the folder stays what it is, and so the same holder."""
    for sub in ("grants", "blocks"):
        for file in (store / sub).iterdir():
            file.unlink()
        for file in (kept / sub).iterdir():
            shutil.copy(file, store / sub / file.name)


def spent_of(folder: Path) -> FilterState:
    (path,) = (folder / "blocks").glob("*.*.*.safetensors")
    found = FilterStateFile(path).read()
    assert found is not None
    return found


def test_each_time_it_is_taken_up_it_has_its_own_noise_and_dice(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one process or several, with or without a pause, and as it is made."""
    met: list[tuple[bytes, bytes]] = []
    honest = IndividualFilter.__init__

    def noted(self: IndividualFilter, **said: Any) -> None:
        honest(self, **said)
        met.append((self._noise_key, self._dice_key))

    monkeypatch.setattr(IndividualFilter, "__init__", noted)
    vault, block, meter = world(ledger, tmp_path / "store")
    tokens = [meter._bill.ticket.token]
    for again in range(4):
        if again % 2:
            meter.pause()
        meter = vault.individual_filter(block, TWICE)
        tokens.append(meter._bill.ticket.token)
        assert spent_of(tmp_path / "store").token == tokens[-1]
    meter.pause()
    tokens.append(world(ledger, tmp_path / "store")[2]._bill.ticket.token)
    assert tokens == [1, 2, 3, 4, 5, 6] and len({key for pair in met for key in pair}) == 12


def test_a_lost_journal_is_refused_and_would_not_give_the_noise_again(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "store"
    first = taken_up(ledger, folder)
    (journal,) = (folder / "grants").iterdir()
    raw = journal.read_bytes()
    for lost in (lambda: journal.unlink(), lambda: journal.write_bytes(raw[:-1])):
        lost()
        with pytest.raises(VaultError, match="its journal has 0 of 1; restore the journal"):
            world(ledger, folder)
    journal.write_bytes(raw)
    taken_up(ledger, folder)  # a refusal takes nothing away
    journal.unlink()
    honest = FilterStateFile.read
    forgetful = lambda self: replace(honest(self), steps=0)  # type: ignore[type-var] # noqa: E731
    monkeypatch.setattr(FilterStateFile, "read", forgetful)  # as if the state did not know either
    noise = taken_up(ledger, folder, scale=0.5) - torch.tensor([0.5, 0.25])
    assert float(noise.abs().max()) < 0.05
    assert float((noise - (first - torch.tensor([1.0, 0.5]))).abs().max()) > 1e-4


@pytest.mark.parametrize("times", [1, 2])
def test_a_store_that_is_put_back_is_refused(ledger: Ledger, tmp_path: Path, times: int) -> None:
    folder = tmp_path / "store"
    taken_up(ledger, folder)
    shutil.copytree(folder, tmp_path / "old")
    for _ in range(times):
        taken_up(ledger, folder)
    shutil.copytree(folder, tmp_path / "new")
    put_back(folder, tmp_path / "old")
    for _ in range(3):
        with pytest.raises(VaultError, match="was opened after this state was written: the store was restored"):
            world(ledger, folder)
    put_back(folder, tmp_path / "new")  # a refusal raises nothing, so the newest files still fit
    before = spent_of(folder).spent
    taken_up(ledger, folder, scale=0.1)
    assert bool((spent_of(folder).spent > before).any())  # who is not out goes on paying


def test_a_tally_that_changes_on_the_way_is_refused(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at it and the ledger's raise: somebody else who came and went is fine, an old store is not."""
    folder, honest = tmp_path / "store", Ledger.resume
    taken_up(ledger, folder)
    shutil.copytree(folder, tmp_path / "old")
    taken_up(ledger, folder)

    def replaced(self: Ledger, **said: Any) -> Any:
        put_back(folder, tmp_path / "old")
        return honest(self, **said)

    def visited(self: Ledger, **said: Any) -> Any:
        found = spent_of(folder)
        ticket = honest(self, **said)
        (path,) = (folder / "blocks").glob("*.*.*.safetensors")
        FilterStateFile(path).write(replace(found, token=ticket.token))  # type: ignore[union-attr]
        return honest(self, **said)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "resume", visited)
        taken_up(ledger, folder)
    taken_up(ledger, folder)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "resume", replaced)
        with pytest.raises(VaultError, match="the store was restored"):
            world(ledger, folder)


def before_it_is_foretold() -> None:
    FilterStateFile.write = die  # type: ignore[method-assign]


def as_it_is_foretold() -> None:
    Path.replace = die  # type: ignore[method-assign, assignment]


def before_the_raise() -> None:
    Ledger.resume = die  # type: ignore[method-assign, assignment]


def after_the_raise() -> None:
    IndividualFilter.__init__ = die  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("moment", [before_it_is_foretold, as_it_is_foretold, before_the_raise, after_the_raise])
def test_kills_while_it_is_taken_up_keep_it(tmp_path: Path, moment: Callable[[], None], times: int) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        first = taken_up(ledger, tmp_path / "store")
        before = spent_of(tmp_path / "store")
    for _ in range(times):
        child = os.fork()
        if child == 0:
            try:
                with Ledger(tmp_path / "ledger") as ledger:
                    moment()
                    world(ledger, tmp_path / "store")
            finally:
                os._exit(7)  # not reached: the kill comes first
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
    with Ledger(tmp_path / "ledger") as ledger:
        shutil.copytree(tmp_path / "store", tmp_path / "old")
        assert torch.equal(spent_of(tmp_path / "store").spent, before.spent)
        again = taken_up(ledger, tmp_path / "store")
        assert not torch.equal(again, first)
        taken_up(ledger, tmp_path / "store")
        put_back(tmp_path / "store", tmp_path / "old")  # kills make no room for an old store
        with pytest.raises(VaultError, match="the store was restored"):
            world(ledger, tmp_path / "store")


def test_a_power_cut_finds_everything_in_order(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal's name and step last before noise is drawn, the tally before the ledger's raise and the result."""
    order: list[str] = []
    sync, noise, resume = os.fsync, Normals.fill_, Ledger.resume

    def synced(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").resolve()
        order.append(path.name if path.is_dir() else path.suffix)
        sync(handle)

    def said(what: str, honest: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **named: [order.append(what), honest(*args, **named)][1]

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Normals, "fill_", said("noise", noise))
    monkeypatch.setattr(Ledger, "resume", said("raise", resume))
    _, _, meter = world(ledger, tmp_path / "store")
    assert order.index("grants") < order.index("raise") < order.index("blocks")
    order.clear()
    read(meter, 2)
    assert order == [".steps", "noise", ".new", "blocks"]
    meter.pause()
    order.clear()
    world(ledger, tmp_path / "store")
    order = order[order.index("blocks") - 1 :]
    assert order[:3] == [".new", "blocks", "raise"]


def test_what_cannot_be_written_down_does_not_leave(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, meter = world(ledger, tmp_path / "store")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(filter_state, "save_tensors", full)
        with pytest.raises(VaultError, match="Nothing was released"):
            meter.gradient(linear(2), sum_loss, **QUIET)
    assert int(meter._spent.max()) == 0 and meter.steps == 1
    read(meter, 2)
    assert meter.steps == 2  # with other noise


# -- the end, and what is said -----------------------------------------------------------------------------------------


def test_retire_ends_it(ledger: Ledger, tmp_path: Path) -> None:
    vault, block, meter = world(ledger, tmp_path / "store")
    meter.gradient(linear(2), sum_loss, **QUIET)
    vault.settle(block)  # finished work is settled; a meter is never finished by itself
    meter.gradient(linear(2), sum_loss, **QUIET)
    vault.retire(block)
    with pytest.raises(VaultError, match="was closed"):
        meter.gradient(linear(2), sum_loss, **QUIET)
    assert [grant.state for grant in ledger.statement(1).grants] == ["RELEASED"]
    assert not list((tmp_path / "store" / "blocks").iterdir())
    with pytest.raises(TacitError):
        world(ledger, tmp_path / "store")


@pytest.mark.parametrize("paused", [True, False])
def test_retire_ends_the_meter_of_an_earlier_process(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paused: bool
) -> None:
    vault, block, meter = world(ledger, tmp_path / "store")
    meter.gradient(linear(2), sum_loss, **QUIET)
    meter.pause()
    later = vault if paused else Vault(ledger, tmp_path / "store")
    with monkeypatch.context() as patch:  # a kill before the grant is released: the next call does it
        patch.setattr(Ledger, "release", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            later.retire(block)
    assert [grant.state for grant in ledger.statement(1).grants] == ["CHARGED"]
    for _ in range(2):
        Vault(ledger, tmp_path / "store").retire(block)
    assert [grant.state for grant in ledger.statement(1).grants] == ["RELEASED"]
    assert not list((tmp_path / "store" / "blocks").iterdir()) + list((tmp_path / "store" / "grants").iterdir())
    ledger.verify()


def test_relabelled_dropped_or_retired_elsewhere_it_stops(fixed: Vault, admit_fixed: Admit) -> None:
    for task, end in (
        ("a", lambda block: fixed.with_labels(block, [0, 1])),
        ("b", lambda block: fixed.drop(block)),
        ("c", lambda block: fixed.ledger.retire(block.id)),
    ):
        block = admit_fixed(lengths(1.0, 1.0), [0, 0], task=task)
        meter = fixed.individual_filter(block, TWICE)
        end(block)
        with pytest.raises(TacitError, match=r"open its individual filter again|does not hold|was retired"):
            meter.gradient(linear(2), sum_loss, **QUIET)
