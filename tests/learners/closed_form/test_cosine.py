"""The cosine classifier: sums as in Algorithm 1, their noise, who is bounded, what is claimed, what is released."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from support import made_up
from support.pictures import TinyConv, digits, digits_facts
from support.small_world import (
    ROOMY,
    Stopped,
    fixed,
    learn,
    nothing,
    of_people,
    person_facts,
    records,
    same,
    split_facts,
    stop_at,
    uncommitted,
)
from tacit import Budget, CosineClassifier, StreamInfo, SumPlan, Vault
from tacit.errors import ConfigError, LearnerError
from tacit.privacy.accounting import epsilon
from tacit.privacy.accounting.budget import Adjacency, Unit
from tacit.privacy.randomness.noise import Normals

ONE = Budget(epsilon=1.0, delta=1e-5)
QUIET = Budget(epsilon=1e9, delta=1e-5)
WIDE = StreamInfo.uniform("wide", labels=range(10), shape=(400,), size=50, tasks=3, public=True)


def cosine(info: StreamInfo | None = None, **settings: Any) -> CosineClassifier:
    learner = CosineClassifier(**{"budget": QUIET} | settings)
    learner.start(info or split_facts())
    return learner


def own(number: int) -> Any:
    """The records of a task with labels of its own."""
    return records(number, first=2 * number)


def unit(x: Any) -> Any:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


# The method.


def test_sums_of_unit_features_grow_over_tasks() -> None:
    """The same labels in every task: s_o is the sum over all of them (Eq. 8)."""
    info = StreamInfo.uniform("same", labels=(0, 1), shape=(6,), size=120, tasks=3, public=True)
    learner, vault = cosine(info), fixed()
    wanted = np.zeros((2, 6))
    for number in range(3):
        learn(learner, vault, [number])
        x, y = records(number)
        for label in (0, 1):
            wanted[label] += unit(x)[y == label].sum(0)
        assert learner.sums_.numpy() == pytest.approx(wanted, abs=0.01)


def test_answers_are_the_smallest_angles() -> None:
    learner = cosine()
    learn(learner, fixed(), [0, 1, 2], own)
    x = np.concatenate([records(number, part=1)[0] for number in range(3)])
    y = np.concatenate([records(number, part=1, first=2 * number)[1] for number in range(3)])
    angles = unit(x) @ unit(learner.sums_.numpy()).T
    assert learner.scores(torch.from_numpy(x)).numpy() == pytest.approx(20 * angles, abs=1e-3)
    assert np.array_equal(learner.predict(x), angles.argmax(1))
    assert learner.score(x, y) > 0.95


def test_labels_that_were_not_seen_are_not_answered() -> None:
    learner, vault = cosine(), fixed()
    x = torch.from_numpy(records(2, part=1)[0])
    assert torch.equal(learner.scores(x), torch.zeros(120, 6))  # nothing learned: all alike
    for number in range(3):
        learn(learner, vault, [number], own)
        scores = learner.scores(x)
        assert torch.isfinite(scores[:, : 2 * number + 2]).all()
        assert (scores[:, 2 * number + 2 :] == -torch.inf).all()
    assert np.allclose(learner.predict_proba(x).sum(1), 1, atol=1e-5)


def test_a_known_task_leaves_its_own_labels() -> None:
    learner = cosine()
    learn(learner, fixed(), [0, 1], own)
    x = torch.from_numpy(records(0, part=1)[0])
    given = learner.scores(x, learner.stream_.tasks[1])
    assert torch.equal(torch.isfinite(given), torch.tensor([False, False, True, True, False, False]).expand(120, 6))
    later = learner.scores(x, learner.stream_.tasks[2])  # not learned: no preference among its labels
    assert (later[:, 4:] == 0).all() and (later[:, :4] == -torch.inf).all()


def test_the_scale_changes_probabilities_and_no_answer() -> None:
    sharp, soft = cosine(scale=50.0), cosine(scale=1.0)
    for learner in (sharp, soft):
        learn(learner, fixed(), [0, 1, 2], own)
    x = records(1, part=1)[0]
    assert np.array_equal(sharp.predict(x), soft.predict(x))
    assert sharp.predict_proba(x).max(1).mean() > soft.predict_proba(x).max(1).mean() + 0.2
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(LearnerError, match="scale must be a number > 0"):
            cosine(scale=wrong)


# The noise: a standard deviation, drawn for every label of the space by itself, also for absent ones, in every task.


def first_label_only(_: int) -> Any:
    """Rows of length zero, all of one label: the sums are noise alone."""
    return np.zeros((20, 400), dtype=np.float32), np.zeros(20, dtype=np.int64)


def releases() -> list[Tensor]:
    """What each of three tasks adds to the sums."""
    learner, vault = cosine(WIDE, budget=ONE), fixed()
    seen = [learner.sums_.clone()]
    for number in range(3):
        learn(learner, vault, [number], first_label_only)
        seen.append(learner.sums_.clone())
    return [after - before for before, after in pairwise(seen)]


def noise_is_right() -> bool:
    """σ = 3.7306 for ε = 1, δ = 1e-5 (Balle & Wang 2018); labels and tasks are independent."""
    found = [one.numpy() for one in releases()]
    if not all(made_up.scale_is(row, 3.7306) for one in found for row in (one, one[0], one[9])):
        return False
    apart = [np.abs(np.corrcoef(one)[np.triu_indices(10, 1)]).max() < 0.3 for one in found]
    tasks = np.abs(np.corrcoef([one.ravel() for one in found])[np.triu_indices(3, 1)]).max() < 0.1
    return all(apart) and bool(tasks)


def test_the_noise_is_right() -> None:
    assert noise_is_right()
    for one in releases():
        made_up.assert_scale(one.numpy(), 3.7306)
    made_up.assert_scale(sum(releases()).numpy(), 3.7306 * math.sqrt(3))  # type: ignore[union-attr]


def absent_labels_without(noise: Tensor) -> Tensor:
    noise[1:] = 0
    return noise


def changed(change: Callable[[Tensor], Tensor]) -> Callable[[pytest.MonkeyPatch], None]:
    honest = Normals.fill_

    def mutate(patch: pytest.MonkeyPatch) -> None:
        def broken(self: Normals, out: Tensor, scale: float) -> Tensor:
            return out.copy_(change(honest(self, out, scale).view(10, -1)).reshape(-1))

        patch.setattr(Normals, "fill_", broken)

    return mutate


def same_in_every_task(patch: pytest.MonkeyPatch) -> None:
    honest = Normals.fill_
    patch.setattr(
        Normals,
        "fill_",
        lambda self, out, scale: honest(Normals(b"k" * len(self.key), self.counter, self.count), out, scale),
    )


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "σ as a variance": lambda patch: patch.setattr(SumPlan, "std", property(lambda plan: math.sqrt(plan.noise))),
    "one z for all labels": changed(lambda z: z[:1].expand_as(z).clone()),
    "none for absent labels": changed(absent_labels_without),
    "none at all": changed(torch.zeros_like),
    "too little": changed(lambda z: 0.7 * z),
    "too much": changed(lambda z: 1.3 * z),
    "the same in every task": same_in_every_task,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_wrong_noise_would_be_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    assert not noise_is_right()


def test_only_labels_of_the_tasks_space_get_noise() -> None:
    learner = cosine(budget=ONE)
    learn(learner, fixed(), [0], lambda _: nothing())
    assert (learner.sums_[:2] != 0).all() and (learner.sums_[2:] == 0).all()


def test_the_noise_of_units_that_recur_is_that_of_all_their_tasks() -> None:
    learner = cosine(person_facts(), budget=replace(ONE, unit=Unit.PERSON))
    assert learner.plan(learner.stream_.tasks[0]).noise == pytest.approx(3.7306 * math.sqrt(2), rel=1e-4)


# What one unit can change, and what it is charged.


def test_a_person_moves_all_sums_together_by_at_most_one() -> None:
    """Ann has two records of two labels, Bob one; each is as long as 1 in all."""
    learner = cosine(person_facts(), budget=replace(QUIET, unit=Unit.PERSON))
    x = np.zeros((3, 6), dtype=np.float32)
    x[0, 0], x[1, 1], x[2, 2] = 5.0, 0.2, 3.0
    learn(learner, fixed(), [0], lambda _: (x, np.array([0, 1, 1]), np.array(["ann", "ann", "bob"])))
    wanted = np.zeros((2, 6))
    wanted[0, 0] = wanted[1, 1] = 1 / math.sqrt(2)
    wanted[1, 2] = 1
    assert learner.sums_.numpy() == pytest.approx(wanted, abs=0.01)


def test_people_who_recur_fit_their_budget() -> None:
    budget = Budget(epsilon=2.0, delta=1e-5, unit=Unit.PERSON)
    learner, vault = cosine(person_facts(), budget=budget), fixed()
    learn(learner, vault, [0, 1, 2], of_people)
    assert 0.999 * budget.epsilon <= vault.ledger.epsilon(1) <= budget.epsilon
    assert uncommitted(vault) == Counter()


def test_a_block_is_charged_one_gaussian_and_claims_the_largest() -> None:
    learner, vault = cosine(budget=ONE), fixed()
    released = learn(learner, vault, [0, 1, 2], own)
    assert Counter(grant.kind for grant in vault.ledger.statement(1).grants) == {"sums": 3}
    assert vault.ledger.epsilon(1) == pytest.approx(1.0, abs=1e-6)
    (claim,) = released[-1].certificate.claims.paper
    assert claim.epsilon == pytest.approx(1.0, abs=1e-6) and claim.source == "Thm 4.4" and claim.delta == 1e-5
    claimed = learner.claimed()
    assert claimed is not None and claimed.per_task == claimed.total == pytest.approx(1.0, abs=1e-6)


def test_units_that_recur_claim_the_sum() -> None:
    """Theorem 4.5: ε and δ of two tasks added up, which is more than what is certified."""
    learner, vault = cosine(person_facts(), budget=replace(ONE, unit=Unit.PERSON)), fixed()
    learn(learner, vault, [0], of_people)
    first = learner.claimed()
    learn(learner, vault, [1, 2], of_people)
    (claim,) = learner.claims()
    alone = epsilon.epsilon(learner.plan(learner.stream_.tasks[0]).event, 1e-5, Adjacency.ADD_OR_REMOVE)
    assert first is not None and first.total == pytest.approx(alone)
    assert claim.epsilon == pytest.approx(2 * alone) and claim.delta == pytest.approx(2e-5)
    assert claim.source == "Thm 4.5" and 0.5 < alone < 0.9 < vault.ledger.epsilon(1) <= 1 < claim.epsilon


def test_it_says_nothing_before_the_first_task() -> None:
    learner = cosine()
    assert learner.claims() == () and learner.claimed() is None


# Going on, and backbones.


@pytest.mark.parametrize("step", [0, 1])
def test_a_crash_around_the_release_of_sums_changes_nothing(step: int, tmp_path: Path) -> None:
    ends = []
    for crash in (False, True):
        vault = fixed(tmp_path / str(crash))
        if crash:
            stopped = cosine(budget=ONE)
            stopped.callback = stop_at(0, step)
            with pytest.raises(Stopped), vault.until_saved():
                learn(stopped, vault, [0], own)
        again, later = cosine(budget=ONE), Vault(vault.ledger, tmp_path / str(crash))
        with later.until_saved():
            (release,) = learn(again, later, [0], own)
        ends.append((release.tensors, later.ledger.epsilon(1), len(later.ledger.statement(1).grants)))
    assert same(ends[0][0], ends[1][0]) and ends[0][1:] == ends[1][1:]


def test_pictures_go_through_a_backbone_inside_the_vault() -> None:
    learner = cosine(digits_facts(5), backbone=TinyConv(), budget=Budget(epsilon=8.0, delta=1e-5))
    learn(learner, fixed(), range(5), digits)
    assert learner.sums_.shape == (10, 64)
    right = [learner.score(*digits(number, test=True)) for number in range(5)]
    assert np.mean(right) > 0.6  # chance is 0.1
    features = TinyConv().eval()(torch.from_numpy(digits(0, test=True)[0])).detach().numpy()
    plain = cosine(replace(digits_facts(5), shape=(64,)))
    plain.restore({"sums": learner.sums_}, learner.tasks_)
    assert np.array_equal(plain.predict(features), learner.predict(digits(0, test=True)[0]))


def test_a_release_holds_the_sums_and_the_name_of_the_backbone() -> None:
    learner = cosine(digits_facts(), backbone=TinyConv())
    (release,) = learn(learner, fixed(), [0], digits)
    assert set(release.tensors) == {"sums", "public backbone backbone"}
    assert sum(one.numel() for one in release.tensors.values()) < 4 * 64 + 200
    x = torch.from_numpy(digits(0, test=True)[0])
    reader = cosine(digits_facts(), backbone=TinyConv())
    reader.restore(release.tensors, release.tasks)
    assert torch.equal(reader.scores(x), learner.scores(x))
    with pytest.raises(LearnerError, match=r"was made with 'TinyConv .*' and this learner has 'TinyConv .*'; use the"):
        cosine(digits_facts(), backbone=TinyConv(seed=1)).restore(release.tensors, release.tasks)
    with pytest.raises(LearnerError, match="and this learner has no public backbone"):
        cosine(digits_facts()).restore(release.tensors, release.tasks)


def test_the_sums_of_another_stream_are_refused() -> None:
    (release,) = learn(cosine(budget=ROOMY), fixed(), [0], own)
    with pytest.raises(LearnerError, match="no sums of these labels and features"):
        cosine(WIDE).restore(release.tensors, release.tasks)


def test_an_unknown_backbone_is_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"'efficientnet' is not a backbone, .* did you mean efficientnet-lite0"):
        cosine(digits_facts(), backbone="efficientnet")
