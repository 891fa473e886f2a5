"""LifelongDP: what it reads, what it pays, once and for ever, and that it learns."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support import made_up
from support.small_world import (
    facts,
    fixed,
    learn,
    nothing,
    of_people,
    person_facts,
    records,
    same,
    split_facts,
    take,
)
from tacit import Budget, LifelongDP, StreamInfo
from tacit.data.stream import TaskInfo
from tacit.errors import LearnerError, TacitError
from tacit.learners.base.release import Release
from tacit.learners.closed_form.maps import Encoder, Spectrum
from tacit.privacy.accounting import epsilon, events
from tacit.privacy.accounting.budget import Unit
from tacit.privacy.randomness import grid
from tacit.privacy.vault import SumPlan

ONE = Budget(epsilon=1.0, delta=1e-5)
AMPLE = Budget(epsilon=50.0, delta=1e-5)
FEATURES = ["relu", "fourier", "encoder"]


def run(info: StreamInfo, tasks: int = 3, sources: Any = records, **settings: Any) -> LifelongDP:
    learner = LifelongDP(**{"budget": AMPLE, "width": 40} | settings)
    learner.start(info)
    learn(learner, fixed(), range(tasks), sources)
    return learner


def right(learner: LifelongDP, number: int, first: int = 0, **asked: Any) -> float:
    x, y = records(number, part=1, first=first)
    return learner.score(x, y, **asked)


# Learning.


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("keep", ["heads", "half", "full"])
def test_it_learns_tasks_with_the_same_labels_and_forgets_none(features: str, keep: str) -> None:
    learner = run(facts(), features=features, keep=keep, encoder_width=6)
    assert min(right(learner, number) for number in range(3)) > 0.9


@pytest.mark.parametrize("features", FEATURES)
def test_it_learns_labels_that_come_two_at_a_time(features: str) -> None:
    learner = run(split_facts(), sources=lambda n: records(n, first=2 * n), features=features, encoder_width=6)
    assert learner.pooled_ and not learner.heads_
    assert min(right(learner, number, first=2 * number) for number in range(3)) > 0.9


def test_one_classifier_for_tasks_that_contradict_each_other_is_worse() -> None:
    """The same inputs with the labels the other way round: no single classifier can be right about both, and the
    router of `routed` has nothing to go by; the task's own classifier has, where the task is given."""

    def turned(number: int) -> tuple[Any, Any]:
        x, y = records(0, part=2 * number)
        return x, y if number == 0 else 1 - y

    info = replace(facts(2), task_id="given")
    x, y = records(0, part=1)
    found = {}
    for combine in ("pooled", "routed"):
        learner = run(info, 2, turned, combine=combine)
        found[combine] = min(learner.score(x, y, info.tasks[0]), learner.score(x, 1 - y, info.tasks[1]))
    assert found["routed"] > 0.95 and found["pooled"] < 0.7


@pytest.mark.parametrize(("few", "keep"), [(1, "heads"), (0, "full"), (0, "half")])
def test_a_task_with_few_records_learns_from_one_that_is_alike(few: int, keep: str) -> None:
    """From an earlier one always, from a later one where coefficients are kept; over noise."""
    info = StreamInfo.uniform("s", labels=(0, 1), shape=(6,), size=400, tasks=2, public=True)
    x, y = records(0, 500, part=1)

    def score(keys: int, alike: bool) -> float:
        learner = LifelongDP(budget=ONE, width=40, keep=keep, combine="routed")
        learner.start(info)
        other = (lambda: records(0, 800, part=3)) if alike else nothing
        learn(learner, fixed(keys=keys), [0, 1], lambda n: records(0, 20) if n == few else other())
        return learner.score(x, y, info.tasks[few])

    with_it, without = (np.mean([score(keys, alike) for keys in range(12)]) for alike in (True, False))
    assert with_it > without + 0.05


def test_a_small_task_takes_nothing_from_the_others() -> None:
    """What is released of a few records is nearly all noise: inputs of other tasks must not go there."""
    sizes = (1200, 1200, 20)
    tasks = tuple(TaskInfo(name=f"t{n}", number=n, labels=(0, 1), size=size) for n, size in enumerate(sizes))
    info = StreamInfo(name="uneven", shape=(6,), tasks=tasks, public=True)
    learner = run(info, 3, lambda n: records(n, sizes[n]), budget=Budget(epsilon=2.0, delta=1e-5))
    assert min(right(learner, number) for number in (0, 1)) > 0.9


def test_more_epochs_come_closer_to_the_minimum() -> None:
    x = torch.from_numpy(records(0, part=1)[0])
    task = facts().tasks[0]
    exact = run(facts(), 1, combine="pooled").scores(x, task)
    gaps = [
        float((run(facts(), 1, combine="pooled", epochs=n).scores(x, task) - exact).abs().max())
        for n in (1, 10, 100, 100_000)
    ]
    assert gaps[0] > gaps[1] > gaps[2] > gaps[3] and gaps[3] < 1e-3


# Privacy.


def test_what_leaves_has_the_noise_of_its_plans() -> None:
    """No record at all: every coefficient is noise of the planned scale."""
    info = StreamInfo.uniform("s", labels=range(10), shape=(6,), size=50, tasks=1, public=True)
    learner = run(info, 1, lambda _: nothing(), budget=ONE, width=60)
    assert learner.all_ is not None
    sums, moment, task = learner.all_.sums, learner.all_.moment.value, info.tasks[0]
    row, column = np.triu_indices(60, 1)
    made_up.assert_scale(sums, learner.sums_plan(task).std)
    made_up.assert_scale(moment.numpy()[row, column] * math.sqrt(2), learner.moment_plan(task).std)
    assert learner.all_.std.tolist() == pytest.approx([learner.sums_plan(task).std] * 10)
    assert learner.all_.moment.std == pytest.approx(learner.moment_plan(task).std)


@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_a_wrong_scale_would_be_caught(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    true = SumPlan.std.fget  # type: ignore[attr-defined]
    info = StreamInfo.uniform("s", labels=range(10), shape=(6,), size=50, tasks=1, public=True)
    with monkeypatch.context() as wrong:
        wrong.setattr(SumPlan, "std", property(lambda plan: factor * true(plan)))
        learner = run(info, 1, lambda _: nothing(), budget=ONE, width=60)
    assert learner.all_ is not None
    assert not made_up.scale_is(learner.all_.sums, learner.sums_plan(info.tasks[0]).std)


def test_every_task_has_its_own_draw() -> None:
    learner = run(facts(), 2, lambda _: nothing(), keep="full")
    one, two = (own["moment"].double().numpy() for own in learner.own_)
    assert abs(np.corrcoef(one, two)[0, 1]) < 5 / math.sqrt(len(one))


@pytest.mark.parametrize("features", ["relu", "encoder"])
@pytest.mark.parametrize("times", [1, 3])
def test_all_readings_of_a_unit_cost_the_budget(features: str, times: int) -> None:
    learner = LifelongDP(budget=ONE, features=features)
    learner.start(facts(tasks_per_unit=times))
    worst = max(epsilon.epsilon(events.compose([*one] * times), ONE.delta) for one in learner.charges())
    assert ONE.epsilon * 0.999 < worst <= ONE.epsilon


def test_the_encoder_is_paid_for_by_the_first_task_only() -> None:
    learner = LifelongDP(budget=ONE, features="encoder", encoder_share=0.3)
    learner.start(facts())
    counts = [len(one) for one in learner.charges()]
    first, second = facts().tasks[:2]
    assert counts == [4, 2, 2]
    assert learner.sums_plan(first).noise == pytest.approx(learner.sums_plan(second).noise / math.sqrt(0.7))


@pytest.fixture
def noiseless(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the vault adds up, without its noise and before it is rounded to the noise's grid."""

    def exact(total: Any, _: float, noise: torch.Tensor, terms: Any, first: int) -> torch.Tensor:
        return total.values()[first : first + len(noise)]  # type: ignore[no-any-return]

    monkeypatch.setattr(grid, "released", exact)


@pytest.mark.usefixtures("noiseless")
def test_one_record_moves_the_coefficients_by_at_most_their_bound() -> None:
    """Joint sensitivity √2: the label's sum by 1, the second moment by 1."""
    x, y = records(0)
    huge = np.concatenate([x, np.full((1, 6), 1e6, dtype=np.float32)]), np.concatenate([y, [1]])
    one, other = (run(facts(1), 1, lambda _, source=source: source).all_ for source in ((x, y), huge))
    assert one is not None and other is not None
    assert float((one.sums - other.sums).norm()) == pytest.approx(1, abs=1e-3)
    assert float((one.moment.value - other.moment.value).norm()) == pytest.approx(1, abs=1e-3)


@pytest.mark.usefixtures("noiseless")
def test_a_person_moves_them_no_more() -> None:
    budget = replace(AMPLE, unit=Unit.PERSON)
    info = replace(person_facts(), tasks_per_unit=1)
    x, y, ids = of_people(0)
    more = np.concatenate([x, x[:2]]), np.concatenate([y, y[:2]]), np.concatenate([ids, [5000, 5000]])
    found = [run(info, 1, lambda _, s=s: s, budget=budget).all_ for s in ((x, y, ids), more)]
    one, other = found
    assert one is not None and other is not None
    assert float((one.sums - other.sums).norm()) <= 1 + 1e-3
    assert float((one.moment.value - other.moment.value).norm()) <= 1 + 1e-3


def epsilon_after(tasks: int, **settings: Any) -> float:
    info = StreamInfo.uniform("s", labels=(0, 1), shape=(6,), size=8, tasks=tasks, public=True)
    learner = LifelongDP(budget=ONE, width=4, **settings)
    learner.start(info)
    vault = fixed()
    for number, task in enumerate(info.tasks):
        learner.fit(task, take(vault, info, number, records(number, 8), ONE), vault)
    found = vault.ledger.epsilon(1)
    assert found is not None and len(learner.heads_) == (tasks if tasks > 1 else 0)
    return found


def test_tasks_and_epochs_spend_what_one_does() -> None:
    assert epsilon_after(30, epochs=100) == epsilon_after(1, epochs=1) <= ONE.epsilon


@pytest.mark.slow
def test_a_thousand_tasks_and_a_hundred_epochs_spend_what_one_does() -> None:
    assert epsilon_after(1000, epochs=100) == epsilon_after(1) <= ONE.epsilon


def test_records_are_retired_once_the_release_is_kept(tmp_path: Path) -> None:
    info = facts(2)
    learner, vault = LifelongDP(budget=ONE, width=8), fixed()
    learner.start(info)
    learner.vault_ = vault
    learner.partial_fit(*records(0))
    block = vault.find(info.name, info.tasks[0].name)
    assert vault.ledger.statement(block.stream_id).blocks[0].row.state == "live"  # nothing is kept yet
    learner.save(tmp_path)
    assert vault.ledger.statement(block.stream_id).blocks[0].row.state == "retired"
    with pytest.raises(TacitError):
        vault.sums(block, SumPlan(noise=1.0))
    learner.partial_fit(*records(1))


@pytest.mark.parametrize("keep", ["heads", "half", "full"])
def test_a_release_can_be_saved_whatever_is_kept(keep: str, tmp_path: Path) -> None:
    learner = LifelongDP(budget=AMPLE, width=40, keep=keep)
    learner.start(facts())
    releases = learn(learner, fixed(), [0, 1])
    releases[-1].save(tmp_path)
    assert same(Release.load(tmp_path).tensors, learner.tensors())


def test_labels_that_were_learned_privately_are_answered_for_alone() -> None:
    """The first task's set turned out smaller than planned: one label of two."""
    info = facts(2)
    learner, vault = LifelongDP(budget=AMPLE, width=40), fixed()
    learner.start(info)
    block = vault.with_labels(take(vault, info, 0, records(0), AMPLE), [1])
    learner.learn(replace(info.tasks[0], labels=(1,)), block, vault)
    learn(learner, vault, [1])
    again = LifelongDP(budget=AMPLE, width=40)
    again.start(info)
    again.restore(learner.tensors(), learner.tasks_)
    for one in (learner, again):
        given = one.predict_proba(records(0, part=1)[0], info.tasks[0])
        assert given[:, 1] == pytest.approx(1) and right(one, 1) > 0.9


class Mixing(torch.nn.Module):
    """Every row gets something of the others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0)


def test_a_map_that_is_refused_costs_nothing() -> None:
    learner, vault = LifelongDP(budget=ONE, features=Mixing()), fixed()
    learner.start(facts())
    block = take(vault, facts(), 0, records(0), ONE)
    with pytest.raises(TacitError, match="row"):
        learner.fit(facts().tasks[0], block, vault)
    assert vault.ledger.epsilon(block.stream_id) == 0
    other = LifelongDP(budget=ONE, features="encoder")
    other.start(facts())
    other.fit(facts().tasks[0], block, vault)


def test_public_noise_of_the_splits_is_not_that_of_the_map() -> None:
    learner = LifelongDP(budget=ONE, width=40)
    learner.start(facts())
    coins = {learner.seed, *(learner._coins(number) for number in range(50))}
    assert len(coins) == 51


# Bad settings.


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"moment_share": 1.0}, "moment_share must be between 0 and 1"),
        ({"encoder_share": 0.0}, "encoder_share must be between 0 and 1"),
        ({"width": 0}, "width must be a whole number"),
        ({"epochs": 2.5}, "epochs must be a whole number"),
        ({"combine": "both"}, "combine must be 'auto', 'pooled' or 'routed'"),
        ({"keep": "nothing"}, "keep must be 'heads', 'half' or 'full'"),
        ({"scale": 0.0}, "scale must be a number"),
        ({"features": "spectrum"}, "windows of (time, axes)"),
        ({"features": "rleu"}, "rleu"),
    ],
)
def test_bad_settings_are_said_at_the_start(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(TacitError) as found:
        LifelongDP(**settings).start(facts())
    assert said in str(found.value) and "\n" not in str(found.value)


def test_a_release_of_another_map_is_refused() -> None:
    learner = run(facts())
    other = LifelongDP(budget=AMPLE, width=40, seed=1)
    other.start(facts())
    with pytest.raises(LearnerError, match="another feature map"):
        other.restore(learner.tensors(), learner.tasks_)


@pytest.mark.parametrize("settings", [{"features": "encoder"}, {"keep": "half"}, {"combine": "pooled"}])
def test_a_release_is_all_it_needs_to_answer_and_to_go_on(settings: dict[str, Any]) -> None:
    whole, half = (LifelongDP(budget=AMPLE, width=40, **settings) for _ in range(2))
    vaults = fixed(), fixed()
    for learner, vault in zip((whole, half), vaults, strict=True):
        learner.start(facts())
        learn(learner, vault, [0, 1])
    again = LifelongDP(budget=AMPLE, width=40, **settings)
    again.start(facts())
    again.restore(half.tensors(), half.tasks_, vaults[1])
    x = torch.from_numpy(records(0, part=1)[0])
    assert torch.equal(again.scores(x), whole.scores(x))
    learn(whole, vaults[0], [2])
    learn(again, vaults[1], [2])
    for (name, one), other in zip(whole.tensors().items(), again.tensors().values(), strict=True):
        assert torch.allclose(one.float(), other.float(), rtol=1e-3, atol=1e-3), name
    assert same({"seen": whole.seen_}, {"seen": again.seen_})


# Maps.


def test_the_encoder_is_the_minimum_of_the_polynomial_objective() -> None:
    """Against the objective itself, at random orthonormal θ, from moments without noise."""
    torch.manual_seed(0)
    x = torch.nn.functional.normalize(torch.rand(200, 6), dim=1)

    def objective(theta: torch.Tensor) -> float:
        return float(((0.5 - x) * (x @ theta @ theta.T)).sum())

    encoder = Encoder(6, 2)
    encoder.trained(x.sum(0), x.T @ x)
    assert torch.allclose(encoder.theta.T @ encoder.theta, torch.eye(2), atol=1e-5)
    others = [objective(torch.linalg.qr(torch.randn(6, 2)).Q) for _ in range(500)]
    assert objective(encoder.theta) <= min(others)


def test_a_spectrum_does_not_change_when_the_window_moves() -> None:
    x = torch.randn(4, 20, 3)
    spectrum = Spectrum(20, 3)
    assert torch.allclose(spectrum(x), spectrum(x.roll(7, 1)), atol=1e-5)
    assert not torch.allclose(spectrum(x), spectrum(x + 1), atol=1e-2)
    assert spectrum.edges == [0, 1, 2, 3, 4, 5, 6, 8, 10] and spectrum(x).shape == (4, spectrum.size) == (4, 3 + 4 * 8)


def test_windows_are_learned_through_their_spectrum() -> None:
    """Two frequencies at random phases: no linear function of the window tells them apart, its spectrum does."""
    rng = np.random.default_rng(0)

    def waves(number: int, n: int = 300) -> tuple[Any, Any]:
        y = rng.integers(0, 2, n)
        time = np.arange(32)[None] * np.where(y == 0, 3, 7)[:, None] * 2 * np.pi / 32
        x = np.sin(time + rng.uniform(0, 6.28, (n, 1)))[:, :, None] + 0.2 * rng.normal(size=(n, 32, 2))
        return x.astype(np.float32), y

    info = StreamInfo.uniform("s", labels=(0, 1), shape=(32, 2), size=300, tasks=1, public=True)
    learner = run(info, 1, waves, features="spectrum", budget=Budget(epsilon=4, delta=1e-5))
    assert learner.score(*waves(1)) > 0.95
