"""An individual filter after a kill: nothing is given back, and no noise is drawn twice."""

import math
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from support.individual_filters import QUIET, TWICE, die, linear, read, sum_loss, world
from tacit import Ledger
from tacit.errors import LedgerError, VaultError
from tacit.privacy.randomness.noise import Normals
from tacit.privacy.vault.exits import individual_filter as filter_module
from tacit.privacy.vault.exits.filter_state import FULL, FilterStateFile
from tacit.privacy.vault.intake import store


def at_the_charge() -> None:
    FilterStateFile.read = die  # type: ignore[method-assign]


def before_the_step() -> None:
    store.Journal.begin = die  # type: ignore[method-assign, assignment]


def before_noise() -> None:
    Normals.fill_ = die  # type: ignore[method-assign, assignment]


def while_reading() -> None:
    filter_module.admit_units = die  # type: ignore[assignment]


def before_the_tally() -> None:
    FilterStateFile.write = die  # type: ignore[method-assign]


def in_the_tally() -> None:
    Path.replace = die  # type: ignore[method-assign, assignment]


def after_the_tally() -> None:
    store.sync = lambda path, done=[]: done.append(path) if len(done) == 0 else die()  # type: ignore[assignment]


MOMENTS = [before_the_step, before_noise, while_reading, before_the_tally, in_the_tally, after_the_tally]


def killed(tmp_path: Path, moment: Callable[[], None], first: bool = False) -> Tensor | None:
    """What left a process that took one step and was killed in the next (or as the meter was made)."""
    child = os.fork()
    if child == 0:
        try:
            if first:
                moment()
            _, _, meter = world(Ledger(tmp_path / "ledger"), tmp_path / "store")
            out = meter.gradient(linear(2), sum_loss, **QUIET)["weight"]
            np.save(tmp_path / "left.npy", out.numpy())
            moment()
            meter.gradient(linear(2), sum_loss, **QUIET)
        finally:
            os._exit(7)  # not reached: the kill comes first
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    return None if first else torch.from_numpy(np.load(tmp_path / "left.npy"))


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_gives_nothing_back_and_no_noise_twice(tmp_path: Path, moment: Callable[[], None]) -> None:
    left = killed(tmp_path, moment)
    assert left is not None
    with Ledger(tmp_path / "ledger") as ledger:
        _, _, meter = world(ledger, tmp_path / "store")
        one = math.ceil(5000 / 12_000 * FULL)
        long = int(meter._spent.max())
        # What left is paid for. A step whose tally was written is paid for too, though nobody saw it.
        assert long >= one and (long >= 2 * one) == (moment is after_the_tally)
        again = meter.gradient(linear(2), sum_loss, **QUIET)["weight"]
        if moment is not after_the_tally:  # the same records, the same model: what differs is noise
            assert not torch.equal(again, left)
        assert meter.steps == (2 if moment is before_the_step else 3)
        assert len(ledger.statement(1).grants) == 1 and ledger.verify().grants == 1


def test_a_kill_at_the_charge_keeps_the_meter(tmp_path: Path) -> None:
    killed(tmp_path, at_the_charge, first=True)
    with Ledger(tmp_path / "ledger") as ledger:
        assert [grant.state for grant in ledger.statement(1).grants] == ["CHARGED"]
        _, _, meter = world(ledger, tmp_path / "store")
        assert meter.steps == 0 and np.allclose(sorted(read(meter, 2)), [0.5, 1.0], atol=0.05)


def no_refund(ledger: Ledger, folder: Path) -> bool:
    _, _, meter = world(ledger, folder)
    meter.gradient(linear(2), sum_loss, **QUIET)
    meter.pause()
    _, _, meter = world(ledger, folder)
    return max(read(meter, 2)) > 0.5 and int(meter._spent.max()) >= 2 * math.ceil(5000 / 12_000 * FULL)


def test_a_refund_is_caught(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert no_refund(ledger, tmp_path / "one")
    honest = FilterStateFile.read
    with pytest.raises(LedgerError, match="is held by"):
        no_refund(ledger, tmp_path / "two")  # another folder is another holder
    with Ledger(tmp_path / "other") as other:
        forgetful = lambda self: replace(honest(self), spent=torch.zeros(2, dtype=torch.int64))  # type: ignore[type-var] # noqa: E731
        monkeypatch.setattr(FilterStateFile, "read", forgetful)
        assert not no_refund(other, tmp_path / "three")


def test_a_copy_of_the_store_cannot_go_on(ledger: Ledger, tmp_path: Path) -> None:
    _, _, meter = world(ledger, tmp_path / "store")
    meter.pause()
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    with pytest.raises(LedgerError, match="is held by"):
        world(ledger, tmp_path / "copy")


def test_two_cannot_use_it_at_once(ledger: Ledger, tmp_path: Path) -> None:
    vault, block, meter = world(ledger, tmp_path / "store")
    with pytest.raises(VaultError, match="another process"):
        world(ledger, tmp_path / "store")
    meter.gradient(linear(2), sum_loss, **QUIET)
    again = vault.individual_filter(block, TWICE)  # the same vault takes it over
    assert int(again._spent.max()) > 0
    with pytest.raises(VaultError, match="was closed"):
        meter.gradient(linear(2), sum_loss, **QUIET)
    if os.fork() == 0:
        try:
            again.gradient(linear(2), sum_loss, **QUIET)
        except VaultError as refusal:
            os._exit(0 if "belongs to the process" in str(refusal) else 1)
        os._exit(1)
    assert os.wait()[1] == 0


def test_a_lost_tally_is_not_a_fresh_one(ledger: Ledger, tmp_path: Path) -> None:
    _, block, meter = world(ledger, tmp_path / "store")
    meter.pause()
    (found,) = (tmp_path / "store" / "blocks").glob(f"{block.name}.*")
    assert found.stat().st_mode & 0o777 == 0o600
    found.unlink()
    with pytest.raises(VaultError, match="the store has lost the losses"):
        world(ledger, tmp_path / "store")
