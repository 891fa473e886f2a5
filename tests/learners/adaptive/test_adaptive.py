"""Noise that is chosen as one goes: by the rule, never beyond the filter, the same after a crash, rightly certified."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from support.small_world import SIZE, Stopped, facts, fixed, learn, nothing, records, same, started, stop_at, take
from tacit import Budget, Ledger, StreamInfo, TaskInfo, Vault
from tacit.errors import LearnerError, LedgerError, PlanError
from tacit.learners.adaptive.adaptive import AdaptiveDPSGD
from tacit.privacy import Adjacency
from tacit.privacy.accounting.epsilon import epsilon
from tacit.privacy.accounting.events import compose
from tacit.privacy.accounting.filters import RenyiFilter, cost_units
from tacit.privacy.ledger import BlockStatement
from tacit.privacy.vault import GradientPlan, Grant

BUDGET = Budget(epsilon=4.0, delta=1e-4)
SHORT: dict[str, Any] = {"budget": BUDGET, "steps": 12, "batch": 96, "check": 3, "by_step": 3, "watch_share": 0.2}
"""Where units are asked, all others are in every step, and where public records are shown all are: quick to price."""


def adaptive(info: StreamInfo | None = None, **settings: Any) -> AdaptiveDPSGD:
    made = started("adaptive", info, **SHORT | settings)
    assert isinstance(made, AdaptiveDPSGD)
    return made


def shown(**settings: Any) -> AdaptiveDPSGD:
    """It watches public records."""
    learner = adaptive(watch_on="public", **{"batch": SIZE} | settings)
    learner.receive_public_records(*records(0, part=1))
    return learner


def scripted(learner: AdaptiveDPSGD, answers: Sequence[float]) -> None:
    """Accuracies that are given, whatever the model is."""
    left = list(answers)
    setattr(learner, "_accuracy", lambda *_: left.pop(0))  # noqa: B010


def blocks(vault: Vault, part: str) -> list[BlockStatement]:
    return [one for one in vault.ledger.statement(1).blocks if one.row.part == part]


# The rule.


def test_noise_rises_where_the_target_is_met_and_falls_where_it_is_missed() -> None:
    learner = shown(by_step=4, factor=2.0, noise=20.0, least=0.25)
    scripted(learner, [0.1, 0.9, 0.1])
    learn(learner, fixed(), [0])
    assert [one.noise for one in learner.segments_] == [20, 20, 40, 20]  # a miss before by_step changes nothing
    assert [one.accuracy for one in learner.segments_] == [0.1, 0.9, 0.1, None]
    assert [one.steps for one in learner.segments_] == [3] * 4 and learner.stopped_ is None


def test_noise_stays_within_its_bounds() -> None:
    low = shown(noise=40.0, factor=3.0, least=0.5)
    scripted(low, [0.0] * 3)
    learn(low, fixed(), [0])
    assert [one.noise for one in low.segments_] == [40, 20, 20, 20]
    high = shown(noise=20.0, factor=3.0, most=2.0)
    scripted(high, [1.0] * 3)
    learn(high, fixed(), [0])
    assert [one.noise for one in high.segments_] == [20, 40, 40, 40]


def test_the_last_segment_may_be_shorter() -> None:
    learner = shown(steps=7)
    learn(learner, fixed(), [0])
    assert [one.steps for one in learner.segments_] == [3, 3, 1]


def test_the_real_accuracy_decides() -> None:
    """Public records: of separable data that is soon learned, against a target that nothing reaches."""
    easy, hard = shown(target=0.05, noise=8.0, budget=replace(BUDGET, epsilon=50.0)), shown(target=0.999, lr=1e-6)
    for learner in (easy, hard):
        learn(learner, fixed(), [0])
    noise = [one.noise for one in easy.segments_]
    assert noise == sorted(noise) and noise[-1] > noise[0]
    assert hard.segments_[1].noise < hard.segments_[0].noise


# The filter.


@pytest.mark.parametrize("answers", [[0.0] * 3, [1.0] * 3, [0.0, 1.0, 0.0]])
@pytest.mark.parametrize("k", [1, 2])
def test_nothing_is_ever_spent_beyond_the_filter(answers: list[float], k: int, tmp_path: Path) -> None:
    info = replace(facts(), tasks_per_unit=k)
    learner = adaptive(info, watch_on="public", factor=1.5, batch=30)
    learner.receive_public_records(*records(0, part=1))
    vault = fixed(tmp_path)
    for number in range(2):
        scripted(learner, answers)
        learn(learner, vault, [number])
    whole = RenyiFilter.for_budget(BUDGET, like=learner.representative_plan(info.tasks[0]).event).share(k)
    for block in blocks(vault, "all"):
        assert block.limits == whole.limit_units and block.orders == whole.orders
        spent = [
            cost_units(whole.cost(plan(one.noise, one.steps, 30 / SIZE).event, BUDGET.adjacency))
            for one in learner.segments_
        ]
        assert block.spent == tuple(map(sum, zip(*spent, strict=True)))  # the segments are all that was charged
        assert all(0 < one <= limit for one, limit in zip(block.spent, block.limits, strict=True))
    assert whole.epsilon(BUDGET.delta) * (1 if k == 1 else 0.99) <= BUDGET.epsilon


def plan(noise: float, steps: int, rate: float = 1.0) -> GradientPlan:
    return GradientPlan(rate=rate, steps=steps, noise=noise)


def test_the_halt_is_predicted() -> None:
    """It ends before the first segment that does not fit, in a sentence, and what is left does not allow another."""
    learner, vault = shown(factor=2.0, least=0.1, most=1.0), fixed()
    scripted(learner, [0.0] * 3)
    learn(learner, vault, [0])
    done = sum(one.steps for one in learner.segments_)
    assert done == 6 and learner.stopped_ is not None
    assert f"ended after {done} of 12 steps" in learner.stopped_ and str(SIZE) not in learner.stopped_
    left = vault.ledger.remaining(blocks(vault, "all")[0].row.id)
    assert left.less(plan(learner.segments_[0].noise, 3).event, BUDGET.adjacency) is None
    assert {grant.state for grant in vault.ledger.statement(1).grants} == {"RELEASED"}  # none was broken off


def test_noise_is_raised_to_what_fits() -> None:
    learner, vault = shown(factor=1.3, most=8.0), fixed()
    scripted(learner, [0.0] * 3)
    learn(learner, vault, [0])
    noise = [one.noise for one in learner.segments_]
    assert noise[1] == pytest.approx(noise[0] / 1.3) and noise[-1] > noise[-2] / 1.3  # which is what the rule asked for
    (block,) = blocks(vault, "all")
    tightest = max(one / limit for one, limit in zip(block.spent, block.limits, strict=True))
    assert 0.999 < tightest <= 1  # the least noise that fits uses all that is left


def test_adaptivity_without_a_filter_is_refused() -> None:
    learner, vault = shown(), fixed()
    block = take(vault, learner.stream_, 0, records(0), BUDGET)
    with pytest.raises(LedgerError, match=r"'task-1' is a committed block, .* admit its records as open"):
        learner.learn(learner.stream_.tasks[0], block, vault)
    assert not vault.ledger.statement(1).grants


def test_the_certificate_says_the_filter_and_that_noise_was_chosen(tmp_path: Path) -> None:
    learner = adaptive(
        watch_on="public", noise=60.0, batch=SIZE, stream=facts(public=False), ledger=tmp_path / "ledger"
    )
    learner.receive_public_records(*records(0, part=1))
    learner.partial_fit(*records(0))
    certified = learner.certificate_.claims.certified
    spent = RenyiFilter(orders=(8.0,), limits=(1.0,)).cost(plan(60.0, 12).event, BUDGET.adjacency)
    assert spent[0] < 0.02 and certified.epsilon == pytest.approx(BUDGET.epsilon, rel=1e-3)
    assert certified.tasks[0].mode == "open" and not learner.certificate_.task_schedule.plans_fixed_in_advance
    page = " ".join(str(learner.certificate_).split())
    assert page.count("not computed for open tasks") == 2 and "no finite epsilon" not in page
    assert "no memory" in page and "memory secret" not in page
    assert any(one.name == "adaptive plans" and "Rényi filter" in one.says for one in learner.certificate_.assumptions)


def test_people_who_recur_share_one_filter(tmp_path: Path) -> None:
    info = replace(facts(public=False), tasks_per_unit=2)
    learner = adaptive(info, watch_on="public", stream=info, ledger=tmp_path / "ledger")
    learner.receive_public_records(*records(0, part=1))
    for number in range(2):
        learner.partial_fit(*records(number))
    certified = learner.certificate_.claims.certified
    assert certified.epsilon == pytest.approx(BUDGET.epsilon, rel=1e-3)
    assert [rule.rule for rule in certified.over_tasks if rule.applies] == ["adaptive filter"]
    assert not any(one.name == "fixed schedule" for one in learner.certificate_.assumptions)


# Who is asked.


def test_a_charged_accuracy_is_charged_to_units_that_are_never_trained_on() -> None:
    learner, vault = adaptive(factor=1.05), fixed()
    learn(learner, vault, [0])
    statement = vault.ledger.statement(1)
    asked = [grant for grant in statement.grants if grant.kind == "accuracy"]
    trained = [grant for grant in statement.grants if grant.kind == "gradient"]
    (watch,), (train,) = blocks(vault, "watch"), blocks(vault, "train")
    assert len(asked) == 3 and {block for grant in asked for block, _ in grant.reads} == {watch.row.id}
    assert len(trained) == 4 and {block for grant in trained for block, _ in grant.reads} == {train.row.id}
    assert 0.99 < max(one / limit for one, limit in zip(watch.spent, watch.limits, strict=True)) <= 1
    assert statement.exposures == () and watch.row.size == round(0.2 * SIZE)


def test_a_public_accuracy_costs_nothing() -> None:
    learner, vault = shown(), fixed()
    learn(learner, vault, [0])
    assert {grant.kind for grant in vault.ledger.statement(1).grants} == {"gradient"}
    assert all(one.accuracy is not None for one in learner.segments_[:-1])


def test_a_task_without_records_still_releases_and_charges() -> None:
    learner, vault = adaptive(), fixed()
    (release,) = learn(learner, vault, [0], lambda _: nothing())
    assert all(torch.isfinite(value).all() for value in release.tensors.values())
    assert sum(one.steps for one in learner.segments_) >= 3 and min(blocks(vault, "watch")[0].spent) > 0


# What is drawn.


@pytest.mark.parametrize("answers", [[0.0] * 3, [1.0] * 3])
def test_every_segment_has_the_noise_that_was_chosen(answers: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an empty task nothing but noise comes out: 3 steps of 74 weights, each two-sided within 30 %."""
    found: list[tuple[float, torch.Tensor]] = []
    honest = Grant.gradient

    def gradient(grant: Grant) -> dict[str, torch.Tensor]:
        out = honest(grant)
        found.append((grant.plan.noise / grant.expected_batch, torch.cat([one.flatten() for one in out.values()])))
        return out

    monkeypatch.setattr(Grant, "gradient", gradient)
    learner = shown(noise=20.0, factor=2.0, clip=1.0)
    scripted(learner, answers)
    learn(learner, fixed(), [0], lambda _: nothing())
    assert len({one.noise for one in learner.segments_}) >= 3
    for place, segment in enumerate(learner.segments_):
        drawn = found[3 * place : 3 * place + 3]
        assert all(scale == pytest.approx(segment.noise / SIZE) for scale, _ in drawn)
        assert 0.7 < float(torch.cat([values for _, values in drawn]).std()) / (segment.noise / SIZE) < 1.3


# After a crash.


@pytest.mark.slow
@pytest.mark.parametrize("watch_on", ["public", "charged"])
@pytest.mark.parametrize("step", [0, 2, 3, 7, 12])
def test_a_crash_changes_nothing(watch_on: str, step: int, tmp_path: Path) -> None:
    def begun() -> AdaptiveDPSGD:
        learner = adaptive(watch_on=watch_on, factor=1.02, target=0.9, average=0.5)
        learner.receive_public_records(*records(0, part=1))
        return learner

    def saved(learner: AdaptiveDPSGD, vault: Vault) -> dict[str, torch.Tensor]:
        with vault.until_saved():
            return learn(learner, vault, [0])[0].tensors

    twin = fixed(tmp_path / "twin")
    whole = begun()
    expected = saved(whole, twin)
    vault = fixed(tmp_path / "store")
    broken = begun()
    broken.callback = stop_at(0, step)
    with pytest.raises(Stopped):
        saved(broken, vault)
    again = begun()
    assert same(saved(again, Vault(vault.ledger, tmp_path / "store")), expected)
    assert again.segments_ == whole.segments_ and again.stopped_ == whole.stopped_
    assert [one.spent for one in vault.ledger.statement(1).blocks] == [
        one.spent for one in twin.ledger.statement(1).blocks
    ]


def test_partial_fit_goes_on_after_a_crash_between_segments(tmp_path: Path) -> None:
    """The first segment is finished then, and still taken up again."""
    places: dict[str, Any] = {"stream": facts(public=False), "ledger": tmp_path / "ledger", "store": tmp_path / "store"}
    broken = adaptive(**places)
    broken.callback = stop_at(0, 3)
    with pytest.raises(Stopped):
        broken.partial_fit(*records(0))
    broken.vault_.ledger.close()
    again = adaptive(**places)
    again.partial_fit(*records(0))
    grants = again.vault_.ledger.statement(1).grants
    assert len([grant for grant in grants if grant.kind == "gradient"]) == len(again.segments_)
    assert {grant.state for grant in grants} == {"RELEASED"}


# Larger tasks.


def of_sizes(*sizes: int) -> StreamInfo:
    own = (TaskInfo(name=f"t{n}", number=n, labels=(0, 1), size=size) for n, size in enumerate(sizes))
    return StreamInfo(name="sizes", shape=(6,), tasks=tuple(own), public=True)


def test_larger_tasks_get_a_smaller_budget() -> None:
    learner = adaptive(of_sizes(120, 240), watch_on="public", by_size=True, usual_size=120, power=2.0, batch=60)
    assert [learner.epsilon_in(task) for task in learner.stream_.tasks] == [4.0, 1.0]
    learner.receive_public_records(*records(0, part=1))
    vault = fixed()
    for number, size in enumerate((120, 240)):
        scripted(learner, [0.0] * 3)
        learn(learner, vault, [number], lambda n, size=size: records(n, size))  # type: ignore[misc]
        done = compose([plan(one.noise, one.steps, 60 / size).event for one in learner.segments_])
        allowed = learner.epsilon_in(learner.stream_.tasks[number])
        assert 0.7 * allowed < epsilon(done, BUDGET.delta, method="rdp") <= allowed
    for task, block in zip(
        learner.stream_.tasks, blocks(vault, "all"), strict=False
    ):  # the ledger's filter is not smaller
        assert block.limits == RenyiFilter.for_budget(BUDGET, like=learner.representative_plan(task).event).limit_units
    assert (
        adaptive(of_sizes(120, 240), by_size=True).epsilon_in(TaskInfo(name="t", number=1, labels=(0,), size=480))
        == 1.0
    )


# Refusals.


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"target": 0.0}, "target must be between 0 and 1, got 0"),
        ({"target": 1.0}, "target must be between 0 and 1, got 1"),
        ({"watch_share": 1.0}, "watch_share must be between 0 and 1"),
        ({"factor": 1.0}, "factor must be > 1, got 1"),
        ({"factor": math.nan}, "factor must be > 1, got nan"),
        ({"least": 2.0}, "with 0 < least ≤ 1 ≤ most, got 2.0 and 4.0"),
        ({"most": 0.5}, "with 0 < least ≤ 1 ≤ most, got 0.25 and 0.5"),
        ({"check": 0}, "check must be a whole number of steps ≥ 1, got 0"),
        ({"by_step": 1.5}, "by_step must be a whole number ≥ 1, got 1.5"),
        ({"power": 0.0}, "power must be > 0"),
        ({"watch_on": "private"}, "watch_on must be 'public' or 'charged', got 'private'"),
        ({"budget": replace(BUDGET, adjacency=Adjacency.REPLACE_ONE)}, "no Rényi bound under replace-one"),
    ],
)
def test_settings_that_make_no_sense(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(LearnerError, match=said):
        adaptive(**wrong)


def test_a_budget_too_small_for_one_segment_is_refused_with_a_noise_that_fits() -> None:
    with pytest.raises(
        PlanError, match=r"the first 3 steps of task 'task-1' with noise 0\.3 do not fit .* noise ≥ "
    ) as said:
        adaptive(noise=0.3)
    offered = float(str(said.value).split("noise ≥ ")[1].split(",")[0])
    assert adaptive(noise=offered).plan(facts().tasks[0]).noise == offered


def test_public_records_have_to_be_shown_first() -> None:
    learner, vault = adaptive(watch_on="public"), fixed()
    with pytest.raises(LearnerError, match=r"call receive_public_records\(X, y\) first"):
        learn(learner, vault, [0])
    assert not vault.ledger.statement(1).grants


def test_what_is_left_of_an_open_block_is_what_the_gate_admits(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        vault = Vault(ledger)
        learner = shown()
        block = take(vault, learner.stream_, 0, records(0), BUDGET, like=learner.representative_plan(facts().tasks[0]))
        whole = vault.remaining_budget(block)
        assert whole.epsilon(BUDGET.delta) == pytest.approx(4.0, rel=1e-3)
        noise = whole.least_noise(lambda noise: plan(noise, 5).event, BUDGET.adjacency)
        assert noise is not None and whole.less(plan(noise, 5).event, BUDGET.adjacency) is not None
        assert whole.less(plan(noise / 1.001, 5).event, BUDGET.adjacency) is None
        vault.grant(block, plan(noise, 5), learner.model_, learner.loss_)  # the gate agrees
        assert vault.remaining_budget(block).less(plan(noise, 5).event, BUDGET.adjacency) is None
