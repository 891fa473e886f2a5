"""Learners that take turns: who learns what is public and known before, and every reader of a record is paid for."""

import re
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.small_world import (
    GENEROUS,
    ROOMY,
    SIZE,
    OnStep,
    Stopped,
    facts,
    fixed,
    learn,
    of_people,
    person_facts,
    records,
    same,
    split_facts,
    stop_at,
    tiny,
    uncommitted,
)
from tacit import Block, Budget, Ledger, StreamInfo, Vault
from tacit.certificate.certificate import Certificate
from tacit.certificate.claims import moments_accountant, moments_of
from tacit.certificate.issuance import issue
from tacit.certificate.spending import spending
from tacit.errors import BudgetExceeded, LearnerError, PlanError
from tacit.learners.base.release import Release
from tacit.learners.base.task_loop import admit
from tacit.learners.closed_form.routing import entropy
from tacit.learners.pool.learner_schedule import LearnerSchedule, schedule_by_budget, schedule_by_count
from tacit.learners.pool.pool import Pool
from tacit.privacy.accounting.budget import Unit

GIVEN: dict[str, Any] = {
    "budget": ROOMY, "network": tiny, "steps": 5, "batch": 30, "lr": 0.5, "noise": 1.0, "memory_batch": 8,
    "memory_noise": 1.0,
}  # fmt: skip


def pool(info: StreamInfo | None = None, **settings: Any) -> Pool:
    made = Pool(**GIVEN | settings)
    made.start(info or facts(5))
    return made


def own(made: LearnerSchedule) -> list[list[int]]:
    """Each learner's tasks, from 1."""
    assert made.learners is not None
    return [[task + 1 for task in made.own(learner)] for learner in range(made.learners)]


def test_the_rotas_of_the_paper() -> None:
    assert own(schedule_by_count(17, 9)) == [list(range(1, 10)), list(range(10, 18))]
    assert own(schedule_by_count(17, 6)) == [list(range(1, 7)), list(range(7, 13)), list(range(13, 18))]
    assert own(schedule_by_count(17, 17)) == [list(range(1, 18))]


def test_an_early_start_learns_the_last_task_of_the_older_one_who_answers_for_it() -> None:
    made = schedule_by_count(17, 6, early=True)
    assert own(made) == own(schedule_by_count(17, 6))
    assert [list(made.tasks(learner)) for learner in range(3)] == [
        list(range(6)), list(range(5, 12)), list(range(11, 17))
    ]  # fmt: skip
    assert (made.readers(4), made.readers(5), made.readers(6), made.readers(16)) == ((0,), (0, 1), (1,), (2,))
    assert made.pattern(17) == tuple(2 if task in (5, 11) else 1 for task in range(17))


def test_after_the_last_learner_nobody_learns() -> None:
    made = schedule_by_count(17, 6, early=True, learners=2)
    assert own(made) == [list(range(1, 7)), list(range(7, 13))]
    assert made.answers(12) is None and made.readers(11) == (1,) and made.pattern(17)[12:] == (0,) * 5


def test_an_endless_rota_goes_on_for_ever() -> None:
    made = schedule_by_count(3, 4, early=True, endless=True)
    assert [made.answers(task) for task in (0, 3, 4, 4000003)] == [0, 0, 1, 1000000]
    assert made.readers(4000003) == (1000000, 1000001) and made.tasks(1000001) == range(4000003, 4000008)
    assert made.pattern(3) == (1, 1, 1, 2) and made.learners is None
    few = schedule_by_count(3, 4, endless=True, learners=2)
    assert few.learners == 2 and (few.answers(7), few.answers(8)) == (1, None)


def steps(noise: float, _task: int, _readers: int) -> tuple[float, float, int]:
    """What fits the budgets that the paper prints: n q² = 2.8e-3 a task."""
    return 1e-3, noise, 2800


@pytest.mark.parametrize(("noise", "two", "three"), [(2.0, 0.415, 0.35), (4.0, 0.196, 0.162), (8.0, 0.117, 0.109)])
def test_the_papers_budgets_halt_after_9_tasks_and_after_6_and_12(noise: float, two: float, three: float) -> None:
    """0.41/0.19/0.12 and 0.35/0.16/0.115, as far as its moments accountant can be had back."""
    made = schedule_by_budget(17, partial(steps, noise), two, 1e-5)
    assert made == schedule_by_count(17, 9)
    assert schedule_by_budget(17, partial(steps, noise), three, 1e-5) == schedule_by_count(17, 6)


def test_a_learner_goes_on_if_and_only_if_more_is_left_than_the_next_task_costs() -> None:
    nine = moments_accountant(1e-3, 2.0, 9 * 2800, 1e-5, 128)
    assert schedule_by_budget(17, partial(steps, 2.0), nine, 1e-5).spans[0] == 8  # what is left does not exceed it
    assert schedule_by_budget(17, partial(steps, 2.0), nine * (1 + 1e-9), 1e-5).spans[0] == 9


@pytest.mark.parametrize("early", [False, True])
def test_no_learner_exceeds_its_budget_and_none_stops_too_soon(early: bool) -> None:
    rng = np.random.default_rng(3)
    plans = [
        (float(rng.uniform(1e-3, 4e-3)), float(rng.uniform(1.5, 3)), int(rng.integers(200, 2000))) for _ in range(30)
    ]

    def priced(task: int, readers: int) -> tuple[float, float, int]:
        rate, noise, count = plans[task]
        return rate, noise * readers**0.5, count

    def spent(tasks: list[tuple[int, int]]) -> float:
        total: Counter[tuple[float, float]] = Counter()
        for task, readers in tasks:
            rate, noise, count = priced(task, readers)
            total[rate, noise] += count
        return moments_of(total, 1e-5, 128)

    made = schedule_by_budget(30, priced, 0.6, 1e-5, early=early)
    assert sum(made.spans) == 30 and len(made.spans) > 2
    for learner in range(len(made.spans)):
        read = [(task, len(made.readers(task))) for task in made.tasks(learner)]
        assert spent(read) < 0.6
        if made.tasks(learner)[-1] < 29:
            alone = [(task, 2 if task < made.own(learner)[0] else 1) for task, _ in read]
            assert spent([*alone, (made.tasks(learner)[-1] + 1, 1)]) >= 0.6


def test_a_first_task_that_exceeds_the_learners_budget_is_a_sentence() -> None:
    with pytest.raises(PlanError, match=r"learner_budget = 0.1 is spent before a learner has learned one task: task 1"):
        schedule_by_budget(17, partial(steps, 2.0), 0.1, 1e-5)
    with pytest.raises(PlanError, match="larger one, more noise or fewer steps"):
        pool(learner_budget=0.01)


def test_a_budget_for_learners_decides_when_they_halt_and_nothing_else() -> None:
    alone = moments_accountant(30 / 108, 1.0, 3 * 5, 1e-5, 128)
    by_budget, by_count = pool(learner_budget=alone + 1e-6), pool(tasks_per_learner=3)
    assert by_budget.learner_schedule_ == by_count.learner_schedule_ == schedule_by_count(5, 3)
    assert by_budget.plan(facts(5).tasks[0]) == by_count.plan(facts(5).tasks[0])
    endless = replace(facts(2), endless=True)
    assert pool(endless, learner_budget=alone + 1e-6, stay=1, finished=1).learner_schedule_ == schedule_by_count(
        2, 3, endless=True
    )


def test_both_learners_of_an_early_start_are_charged() -> None:
    made, vault = pool(facts(4), tasks_per_learner=2, early_start=True), fixed()
    learn(made, vault, range(4))
    statement = vault.ledger.statement(1)
    blocks = {(one.row.task, one.row.part): one for one in statement.blocks}
    event = made.plan(made.stream_.tasks[1]).event
    assert [len(blocks[f"task-{n}", "train"].events) for n in range(1, 5)] == [1, 2, 1, 1]
    assert len(set(blocks["task-2", "train"].events)) == 1
    assert made.member_.events_in(made.stream_.tasks[1]) == [event, event]
    # The first memory is read in task 2 by two learners, in tasks 3 and 4 by one.
    assert len(blocks["task-1", "memory"].events) == 4 and len(blocks["task-2", "memory"].events) == 2
    readers = [grant.plan["reader"] for grant in statement.grants]
    assert readers == ["learner 1"] * 3 + ["learner 2"] * 6
    assert uncommitted(vault) == Counter()
    assert made.consumption(made.stream_.tasks[1]).trained == 2 * made.consumption(made.stream_.tasks[2]).trained


def test_noise_is_found_for_both_learners_and_given_noise_must_do_for_both() -> None:
    """Of a budget that one reader fills."""
    budget = Budget(epsilon=3.0, delta=1e-5)
    free: dict[str, Any] = {"budget": budget, "noise": None, "memory_noise": None}
    made = pool(facts(3), tasks_per_learner=2, early_start=True, **free)
    one, two = (made.plan(made.stream_.tasks[number]).noise for number in (0, 1))
    assert 1.2 * one < two < 1.5 * one
    vault = fixed()
    learn(made, vault, range(3))
    assert 0.95 * budget.epsilon <= vault.ledger.epsilon(1) <= budget.epsilon
    fits = pool(facts(3), tasks_per_learner=2, **free | {"noise": one})
    assert fits.plan(fits.stream_.tasks[1]).noise == one
    with pytest.raises(PlanError, match=rf"with noise {re.escape(f'{one:g}')} do not fit .* it takes noise ≥"):
        pool(facts(3), tasks_per_learner=2, early_start=True, **free | {"noise": one})


def test_people_who_recur_stay_within_their_budget_with_an_early_start() -> None:
    budget = Budget(epsilon=2.0, delta=1e-5, unit=Unit.PERSON)
    free: dict[str, Any] = {"budget": budget, "noise": None, "memory_noise": None}
    made, vault = pool(person_facts(), tasks_per_learner=2, early_start=True, **free), fixed()
    learn(made, vault, range(3), of_people)
    assert 0.8 * budget.epsilon <= vault.ledger.epsilon(1) <= budget.epsilon
    assert uncommitted(vault) == Counter()


def test_the_certificate_has_the_claim_beside_what_holds(tmp_path: Path) -> None:
    info = facts(3, public=False)
    budget = Budget(epsilon=3.0, delta=1e-5)
    settings: dict[str, Any] = {"budget": budget, "noise": None, "memory_noise": None}
    made = pool(info, tasks_per_learner=2, early_start=True, **settings)
    with Ledger(tmp_path / "ledger") as ledger:
        vault = Vault(ledger, tmp_path / "store")
        found = learn(made, vault, range(3))[-1].certificate
    assert found.epsilon is not None and 2.5 < found.epsilon <= 3
    (claim,) = made.claims()
    spent = [made.spent(learner) for learner in (0, 1)]
    steps = [made.plan(made.stream_.tasks[number]) for number in range(3)]
    assert spent[1] == moments_of({(one.rate, one.noise): one.steps for one in steps[1:]}, 1e-5, 128)
    assert claim.epsilon == max(spent) and "a fresh learner is not a fresh budget" in claim.source
    said = made.claimed()
    assert said is not None and said.total == claim.epsilon > said.per_task
    bounded = pool(facts(3), learner_budget=1e4)
    learn(bounded, fixed(), range(1))
    assert bounded.claims()[0].epsilon == 1e4


def test_a_known_task_is_answered_by_its_learner_and_else_they_vote() -> None:
    made = pool(tasks_per_learner=2)
    assert torch.equal(made.scores(torch.zeros(2, 6)), made.logits(torch.zeros(2, 6)))  # nothing is learned yet
    learn(made, fixed(), range(5))
    tasks, x = made.stream_.tasks, torch.from_numpy(records(1, part=1)[0])
    assert [made.answers_for(task) for task in tasks] == [0, 0, 1, 1, 2]
    each = [made.scores(x, tasks[number]) for number in (0, 2, 4)]
    assert torch.equal(each[2], made.logits(x)) and not torch.equal(each[0], each[1])
    chances = torch.stack([one.softmax(1) for one in each])
    assert torch.allclose(made.scores(x).exp(), chances.mean(0), atol=1e-6)
    made.vote = "confident"
    surest = torch.stack([entropy(one) for one in chances]).argmin(0)
    assert len(surest.unique()) > 1
    expected = torch.stack([chances[learner, row] for row, learner in enumerate(surest.tolist())])
    assert torch.allclose(made.scores(x).exp(), expected, atol=1e-6)


def test_only_so_many_finished_learners_are_kept_and_the_vote_answers_for_the_others() -> None:
    made = pool(tasks_per_learner=1, finished=1, early_start=True)
    for number, kept in enumerate([[0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4]]):
        learn(made, fixed_once(made), [number])
        assert sorted(made.pool_) == kept
    tasks, x = made.stream_.tasks, torch.from_numpy(records(0, part=1)[0])
    assert [made.answers_for(task) for task in tasks] == [None, None, None, 3, 4]
    assert torch.allclose(made.scores(x, tasks[0]).exp(), made.scores(x).exp())
    assert made.groups() == [range(n, n + 1) for n in range(5)]


def fixed_once(made: Pool) -> Vault:
    """The same vault for all tasks of a learner."""
    if not hasattr(made, "vault_"):
        made.vault_ = fixed()
    return made.vault_


SETTINGS: dict[str, Any] = {"tasks_per_learner": 2, "early_start": True, "finished": 1}


def test_a_crash_while_the_second_learner_starts_early_changes_nothing(tmp_path: Path) -> None:
    twin = learn(pool(**SETTINGS), fixed(tmp_path / "twin"), range(5))
    vault = fixed(tmp_path / "store")
    release: Release | None = None
    for number in range(5):
        for learner in (1, 2) if number in (1, 3) else (1,):
            with pytest.raises(Stopped), vault.until_saved():
                learn(begun(release, vault, stops=(number, learner)), vault, [number])
            vault = Vault(vault.ledger, tmp_path / "store")
        with vault.until_saved():
            (release,) = learn(begun(release, vault), vault, [number])
        assert same(release.tensors, twin[number].tensors)
    assert uncommitted(vault) == Counter()
    vault.ledger.verify()


def begun(release: Release | None, vault: Vault, stops: tuple[int, int] | None = None) -> Pool:
    """A pool after a release, which may crash in the middle of a task, while its first or second learner learns."""
    made = pool(**SETTINGS)
    if release is not None:
        made.restore(release.tensors, release.tasks, vault)
    if stops is not None:
        honest, left = stop_at(stops[0], 3), [stops[1]]

        def crash(step: Any) -> None:
            left[0] -= step.step == 3
            if left[0] == 0:
                honest.on_step(step)

        made.callback = OnStep(crash)
    return made


def test_a_pool_is_given_back_by_its_release(tmp_path: Path) -> None:
    made = pool(**SETTINGS)
    learn(made, fixed(), range(4))[-1].save(tmp_path)
    again = Pool.from_release(tmp_path, network=tiny)
    x = torch.from_numpy(records(0, part=1)[0])
    assert torch.equal(again.scores(x), made.scores(x)) and list(again.pool_) == list(made.pool_) == [0, 1, 2]
    with pytest.raises(LearnerError, match="not the release of a pool"):
        pool().restore({"weight": torch.zeros(2)}, facts(5).tasks[:1])


def test_after_the_last_learner_it_says_so_and_charges_nothing() -> None:
    with pytest.raises(LearnerError, match=r"5 tasks are planned and the 2 learner\(s\) of this pool end after 4"):
        pool(tasks_per_learner=2, learners=2)
    bounded: dict[str, Any] = {"stay": 2, "finished": 2}
    info = replace(facts(5), endless=True)
    made, vault = pool(info, tasks_per_learner=2, learners=2, early_start=True, **bounded), fixed()
    learn(made, vault, range(4))
    before, weights = vault.ledger.statement(1), made.tensors()
    with pytest.raises(BudgetExceeded, match=r"nothing more may be spent: .* 2 learner.* the last release"):
        learn(made, vault, [4])
    after = vault.ledger.statement(1)
    assert (after.epsilon, len(after.grants)) == (before.epsilon, len(before.grants))
    assert same(made.tensors(), weights)


def test_an_endless_pool_stays_as_large_as_it_is(tmp_path: Path) -> None:
    info = replace(facts(2), endless=True)
    made, vault = pool(info, tasks_per_learner=3, early_start=True, stay=1, finished=1), fixed(tmp_path)
    sizes = []
    for number in range(12):
        task = info.task(number)
        assert task is not None
        block = admit(vault, records(number % 2), info, task, made.budget)
        release = made.learn(task, block, vault)
        made.on_saved(block, vault)
        sizes.append((len(release.tensors), len(made.memory_.blocks), len(made.groups())))
    assert sizes[6:9] == sizes[9:12] and made.tasks_learned == 12 and sorted(made.pool_) == [2, 3, 4]
    assert uncommitted_of_retired(vault) == Counter()
    again = pool(info, tasks_per_learner=3, early_start=True, stay=1, finished=1)
    again.restore(release.tensors, release.tasks, vault)
    assert again.tasks_learned == 12 and made.claims() == again.claims()


def uncommitted_of_retired(vault: Vault) -> Counter[int]:
    """Reads of retired blocks that were promised and not taken."""
    statement = vault.ledger.statement(1)
    gone = [one for one in statement.blocks if one.row.state == "retired"]
    assert len(gone) >= 20
    taken = Counter(block for grant in statement.grants for block, _ in grant.reads)
    return (
        Counter({one.row.id: len(one.events) - taken[one.row.id] for one in gone if one.events} | {-1: 0}) + Counter()
    )


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tasks_per_learner": 2, "learner_budget": 1.0}, "tasks_per_learner or learner_budget, got 2 and 1"),
    ({"tasks_per_learner": 0}, "tasks_per_learner must be a whole number ≥ 1, or None, got 0"),
    ({"learners": 1.5}, "learners must be a whole number ≥ 1, or None, got 1.5"),
    ({"learner_budget": -1.0}, "learner_budget must be an ε > 0"),
    ({"tasks_per_learner": 2, "learner_budget": -1.0}, "learner_budget must be an ε > 0 or None, got -1"),
    ({"finished": -1}, "finished must be a whole number ≥ 0, or None, got -1"),
    ({"vote": "loud"}, "vote must be 'mean' or 'confident', got 'loud'"),
    ({"fine_tune": "free"}, "fine_tune must be 'public', 'charged' or None"),
    ({"fine_tune_epochs": 0}, "fine_tune_epochs must be a number > 0, got 0"),
]


@pytest.mark.parametrize(("settings", "sentence"), REFUSED)
def test_what_means_nothing_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(LearnerError, match=sentence):
        pool(**settings)


def test_what_grows_is_refused_on_an_endless_stream() -> None:
    info = replace(facts(2), endless=True)
    with pytest.raises(LearnerError, match=r"give stay .* and finished .*, got stay=None and finished=1"):
        pool(info, tasks_per_learner=2, finished=1)
    with pytest.raises(LearnerError, match="got stay=2 and finished=None"):
        pool(info, tasks_per_learner=2, stay=2)
    with pytest.raises(LearnerError, match="learners must take turns; give tasks_per_learner or learner_budget"):
        pool(info, stay=2, finished=1)
    bounded: dict[str, Any] = {"tasks_per_learner": 2, "stay": 2, "finished": 1, "fine_tune": "charged"}
    with pytest.raises(LearnerError, match=r"give learners, the largest number of them, or use fine_tune='public'"):
        pool(info, **bounded)
    assert pool(info, learners=3, **bounded).initial_.learners == 3


def held(
    vault: Vault, numbers: tuple[int, ...] = (7, 8), *, first: int = 0, public: bool = True, budget: Budget = ROOMY
) -> list[Block]:
    """Held tasks: a stream of their own."""
    made = []
    for number in numbers:
        info = facts(1, public=public)
        task = replace(info.tasks[0], name=f"held-{number}", labels=(first, first + 1))
        info = replace(info, name="blobs/held", tasks=(task,))
        made.append(admit(vault, records(number, first=first), info, task, budget))
    return made


def test_new_learners_begin_on_public_held_tasks() -> None:
    def after(**settings: Any) -> dict[str, torch.Tensor]:
        made, vault = pool(facts(3), tasks_per_learner=2, **settings), fixed()
        if made.held_out_access:
            made.receive_held_out(held(vault), vault)
        learn(made, vault, range(3))
        return made.tensors()

    tuned = after(fine_tune="public", fine_tune_epochs=2)
    assert same(tuned, after(fine_tune="public", fine_tune_epochs=2))
    assert not same(tuned, after())


def test_the_certificate_is_untouched_by_public_held_tasks() -> None:
    vaults = [Vault(Ledger.throwaway()) for _ in range(2)]
    for vault, how in zip(vaults, (None, "public"), strict=True):
        made = pool(facts(3), tasks_per_learner=2, fine_tune=how)
        if how:
            made.receive_held_out(held(vault), vault)
        learn(made, vault, range(3))
    one, other = (issue(vault.ledger, vault.find("blobs", "task-1"), method="x") for vault in vaults)
    assert one.epsilon is not None and one.claims.certified == other.claims.certified
    assert made.certificate_.beside == (
        "learners also begin on stream 'blobs/held', public held tasks: nothing is certified for them",
    )
    assert "beside" in made.certificate_.to_json() and "beside" not in one.to_json()
    assert [terms.name for _, terms in vaults[1].ledger.streams()] == ["blobs/held", "blobs"]
    lost = issue(vaults[1].ledger, vaults[1].find("blobs/held", "held-7"), method="x")
    assert lost.epsilon is None and "raw records were released" in lost.claims.certified.reason


def test_charged_passes_over_held_tasks_are_committed_for_all_learners(tmp_path: Path) -> None:
    budget = Budget(epsilon=3.0, delta=1e-5)
    free: dict[str, Any] = {"budget": budget, "noise": None, "memory_noise": None, "fine_tune": "charged"}
    made = pool(facts(5, public=False), tasks_per_learner=2, **free)
    with Ledger(tmp_path / "ledger") as ledger:
        vault = Vault(ledger, tmp_path / "store")
        blocks = held(vault, public=False, budget=budget)
        made.receive_held_out(blocks, vault)
        stream = blocks[0].stream_id
        assert [len(one.events) for one in ledger.statement(stream).blocks] == [3, 3]
        learn(made, vault, range(5))
        statement = ledger.statement(stream)
        assert [grant.plan["reader"] for grant in statement.grants] == ["learner 1", "learner 2", "learner 3"]
        assert made.initial_.plan().steps == 2 * SIZE / 30
        found = issue(vault.ledger, blocks[0], method="x")
        assert found.epsilon is not None and 2.5 < found.epsilon <= 3
        (said,) = made.certificate_.beside
        assert "stream 'blobs/held'" in said and f"lose ε = {found.epsilon:.4g}, δ = 1e-05 (its own cert" in said
        assert said in " ".join(str(made.certificate_).split())
        release = made.last_release()
        release.save(tmp_path / "release")
        bound = Certificate.load(tmp_path / "release" / "certificate.json")
        assert bound.release is not None
        assert bound.model_copy(update={"release": None}).canonical() == made.certificate_.canonical()


def test_held_tasks_of_other_labels_stand_in_for_those_of_the_stream() -> None:
    """Labels 10 and 11, of no task, are learned in the places of the first task's, 12 and 13 in the second's."""
    made = pool(split_facts(), tasks_per_learner=2, fine_tune="public", fine_tune_epochs=20, fine_tune_lr=0.5)
    vault = fixed()
    blocks = [*held(vault, (0,), first=10), *held(vault, (1,), first=12)]
    made.receive_held_out(blocks, vault)
    made.initial_.begin(0, made.stream_.tasks[0], vault)
    for number in (0, 1):
        x, y = records(number, part=1)
        right = made.logits(torch.from_numpy(x)).argmax(1).numpy() == y + 2 * number
        assert right.mean() > 0.9


def test_what_is_held_is_refused_where_it_cannot_be_read() -> None:
    vault = fixed()
    with pytest.raises(LearnerError, match="set fine_tune to 'public' or 'charged'"):
        pool().receive_held_out(held(vault), vault)
    with pytest.raises(LearnerError, match=r"new learners .* begin on held-out tasks, which are missing"):
        learn(pool(fine_tune="public"), fixed(), [0])
    with pytest.raises(LearnerError, match="there is no held task to begin on"):
        pool(fine_tune="public").receive_held_out([], vault)
    private = [replace(block, public=False) for block in held(vault)]
    with pytest.raises(LearnerError, match="is not declared public; use fine_tune='charged'"):
        pool(fine_tune="public").receive_held_out(private, vault)
    for tasks in (1, 2):  # in one task of the stream, and in a held one too
        people = replace(person_facts(), tasks_per_unit=tasks)
        with pytest.raises(LearnerError, match="would pay in both streams"):
            pool(people, fine_tune="charged", budget=replace(GENEROUS, unit=Unit.PERSON))


def test_the_meter_and_the_certificate_count_the_same_steps() -> None:
    """Training steps of a learner's tasks, early start included; reads of the memory are not among them."""
    made, vault = pool(facts(5), tasks_per_learner=2, early_start=True), fixed()
    learn(made, vault, range(5))
    found = spending(vault.ledger.statement(1))
    assert [one.reader for one in found.readers] == ["learner 1", "learner 2", "learner 3"]
    assert [len(one.tasks) for one in found.readers] == [2, 3, 2]
    for learner, one in enumerate(found.readers):
        assert one.claimed == pytest.approx(made.spent(learner))
    (claim,) = made.claims()
    assert f"{max(one.claimed for one in found.readers):.4g} spent" in claim.formula
    assert claim.formula.endswith("in the training steps of its tasks")
