"""Every learner learns, pays what it planned, and copes with what data can be like."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.small_world import (
    ALL,
    GENEROUS,
    SIZE,
    accuracies,
    facts,
    fixed,
    given,
    learn,
    nothing,
    records,
    started,
    uncommitted,
    whole_run,
)
from tacit import Ledger, Vault
from tacit.errors import PolicyError


@pytest.mark.parametrize("name", ALL)
def test_it_learns_three_tasks_and_keeps_to_its_budget(name: str) -> None:
    learner, vault = started(name), fixed()
    assert np.mean(accuracies(learner)) < 0.75  # chance is 0.5
    releases = learn(learner, vault, [0, 1, 2])
    assert min(accuracies(learner)) > 0.9
    assert [release.task for release in releases] == list(learner.stream_.tasks)
    assert releases[-1].tasks == learner.stream_.tasks and releases[-1].method == type(learner).__name__
    spent = vault.ledger.epsilon(1)
    if name != "AGEM":
        least = 0.0 if name == "NaiveGaussian" else 0.9  # it keeps to its paper's account, which is loose
        assert least * GENEROUS.epsilon < spent <= GENEROUS.epsilon
        assert uncommitted(vault) == Counter()


@pytest.mark.parametrize("name", ["DPCL union", "DPAGEM each", "DPER", "Joint", "NaiveDPSGD", "experts"])
def test_a_private_stream_gets_a_certificate_within_its_budget(name: str, tmp_path: Path) -> None:
    budget = GENEROUS
    with Ledger(tmp_path / "ledger") as ledger:
        learner = started(name, facts(public=False))
        releases = learn(learner, Vault(ledger, tmp_path / "store"), [0, 1, 2])
        ledger.verify()
    certificate = releases[-1].certificate
    assert certificate.mode == "certified" and certificate.epsilon is not None
    assert 0.9 * budget.epsilon <= certificate.epsilon <= budget.epsilon
    assert learner.certificate_ is certificate and certificate.method == type(learner).__name__
    before = releases[0].certificate.epsilon
    assert before is not None and before <= budget.epsilon
    assert (before == 0) == (name == "Joint")  # joint training has touched nobody before its last task


def test_agem_certifies_nothing_and_says_why() -> None:
    ledger = Ledger.throwaway()
    learner = started("AGEM")
    (release,) = learn(learner, Vault(ledger), [0])
    assert release.certificate.epsilon is None and release.certificate.mode == "uncertified"
    assert "raw" in release.certificate.claims.certified.reason and not learner.private
    assert learner.claimed() is None


def test_agem_is_refused_on_private_data(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        learner = started("AGEM", facts(public=False))
        with pytest.raises(PolicyError, match="allow_unsafe"):
            learn(learner, Vault(ledger), [0])
        assert ledger.epsilon(1) == 0


# What data can be like.


@pytest.mark.parametrize("name", [name for name in ALL if name != "adaptive"])  # its plans follow what came out
def test_a_task_without_records_still_releases_and_charges(name: str) -> None:
    empty = learn(started(name, **given(name)), fixed(), [0, 1, 2], lambda _: nothing())
    for one, other in zip(whole_run(name)[2], empty, strict=True):
        assert one.tensors.keys() == other.tensors.keys()
        assert all(torch.isfinite(value).all() for value in other.tensors.values())
        mechanisms = [[m.reads for m in release.certificate.mechanisms] for release in (one, other)]
        assert mechanisms[0] == mechanisms[1]


@pytest.mark.parametrize("name", ["DPCL union", "NaiveDPSGD", "experts"])
def test_a_label_outside_the_public_set_is_dropped_in_silence(name: str, capfd: Any) -> None:
    """The other records' units stay, so the coins of the rest are the same: as if the strangers were not there."""

    def strange(number: int) -> Any:
        x, y = records(number)
        odd = np.arange(SIZE) % 3 == 0
        x, y = x.copy(), y.copy()
        x[odd], y[odd] = 1e3, 7
        return x, y

    learner, vault = started(name, **given(name)), fixed()
    releases = learn(learner, vault, [0, 1, 2], strange)
    assert all(torch.isfinite(value).all() for value in releases[-1].tensors.values())
    assert learner.labels_ == (0, 1) and set(learner.predict(records(0)[0])) <= {0, 1}
    assert capfd.readouterr() == ("", "")
    assert uncommitted(vault) == Counter()
