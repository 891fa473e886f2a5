"""What papers claim, as the learners print it: by the papers' formulas, beside what is certified and never mixed."""

import pytest

from support.small_world import facts, fixed, given, learn, started, whole_run
from tacit import Budget
from tacit.certificate.claims import moments_accountant
from tacit.learners.base.learner import Learner

DESAI = Budget(epsilon=5.0, delta=1e-4)
SIZE = 61_111
"""A tenth of it is the memory, so 55,000 records are trained on."""
TRAIN, REFERENCE = 0.85, moments_accountant(50 / 6111, 1.0, 301, 1e-4)


def desai(name: str, tasks: int) -> Learner:
    """Section 4 of the paper: 301 steps of 100 of 55,000 records, σ = 1 on both sides, memory batches of 50."""
    learner = started(
        name, facts(tasks, size=SIZE), budget=DESAI, steps=301, batch=100, noise=1.0, memory_noise=1.0, memory_batch=50
    )
    learner.tasks_ = learner.stream_.tasks
    return learner


@pytest.mark.parametrize("name", ["DPCL union", "DPCL block", "DPAGEM average", "DPAGEM each"])
def test_the_papers_own_number_comes_out(name: str) -> None:
    pairs = desai(name, 17).claimed_pairs()  # type: ignore[attr-defined]
    assert len(pairs) == 17
    for train, reference in pairs:
        assert train == pytest.approx(TRAIN, abs=5e-4) and reference == pytest.approx(REFERENCE)


def test_lemma_2_claims_the_same_for_every_number_of_tasks() -> None:
    for tasks in (1, 17):
        claimed = desai("DPCL union", tasks).claimed()
        assert claimed is not None and claimed.delta == 1e-4
        assert claimed.per_task == pytest.approx(TRAIN + REFERENCE, abs=1e-3)
        assert claimed.total == pytest.approx(tasks * (TRAIN + REFERENCE), abs=2e-2)


def test_lemma_1_claims_more_with_every_task() -> None:
    claimed = desai("DPAGEM average", 17).claimed()
    assert claimed is not None
    assert claimed.per_task == pytest.approx(TRAIN + 16 * REFERENCE, abs=1e-3)
    assert claimed.total == pytest.approx(17 * TRAIN + 136 * REFERENCE, abs=2e-2)


def test_the_papers_totals_with_its_own_reference_budget() -> None:
    """ε' = 1.47 (a memory of 5,614 records): 2.32 a task and 39.4 in all by Lemma 2."""
    learner = desai("DPCL union", 17)
    schedule = learner.memory_.schedule  # type: ignore[attr-defined]
    object.__setattr__(schedule, "sizes", (5614,) * 17)
    claimed = learner.claimed()
    assert claimed is not None
    assert claimed.per_task == pytest.approx(2.32, abs=5e-3) and claimed.total == pytest.approx(39.4, abs=0.1)


@pytest.mark.parametrize("name", ["AGEM", "DPAGEM average", "DPCL union", "DPER", "experts"])
def test_a_claim_stands_beside_the_certified_bound(name: str) -> None:
    learner, _, releases = whole_run(name)
    claims = releases[-1].certificate.claims.paper
    if name.split()[0] in ("DPCL", "DPAGEM"):
        (claim,) = claims
        assert claim.paper.startswith("Desai et al. 2021") and claim.delta == learner.budget.delta
        claimed = learner.claimed()
        assert claimed is not None and claim.epsilon == pytest.approx(claimed.per_task)
    else:
        assert claims == () and learner.claimed() is None


def test_a_claim_is_about_the_tasks_learned_so_far() -> None:
    learner, vault = started("DPAGEM average", **given("DPAGEM average")), fixed()
    totals = []
    for number in range(3):
        learn(learner, vault, [number])
        claimed = learner.claimed()
        assert claimed is not None
        totals.append(claimed.per_task)
    assert totals[0] < totals[1] < totals[2]
    assert totals[2] - totals[1] == pytest.approx(totals[1] - totals[0])
