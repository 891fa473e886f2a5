"""The gradient exit: noise, clip, divisor and sampler are what was billed, and each mutation is caught."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from support.made_up import BUDGET, Admit, admit_to, assert_scale, rate_is, scale_is
from tacit import Budget, Declared, GradientPlan, Ledger, Read, Vault
from tacit.errors import BudgetExceeded, PlanError, UnsupportedModel, VaultError
from tacit.gradients import clipper as clipper_module
from tacit.gradients.losses import cross_entropy
from tacit.privacy.accounting import epsilon, events
from tacit.privacy.randomness.noise import Normals
from tacit.privacy.vault import Grant
from tacit.privacy.vault.exits import grant as grant_module
from tacit.privacy.vault.intake.batches import padding


def sum_loss(output: Tensor, y: Tensor) -> Tensor:
    """Its gradient with respect to a bias-free linear layer is the input itself."""
    return output.sum(1)


def linear(features: int, outputs: int = 1) -> nn.Module:
    return nn.Linear(features, outputs, bias=False)


def plan(**changes: float) -> GradientPlan:
    return GradientPlan(**{"rate": 1.0, "steps": 1, "noise": 2.0, "clip": 1.5, **changes})  # type: ignore[arg-type]


QUIET = {"noise": 1e-3, "rate": 1.0}


# -- checks: True when the exit is right; each is run on the true code and on broken code ------------------------------


def noise_is_right(vault: Vault, admit: Admit) -> bool:
    """Records without any gradient: what comes out is the noise alone, noise · clip / expected batch."""
    grant = vault.grant(admit(np.zeros((20, 100)), np.zeros(20), size=25), plan(steps=2), linear(100, 200), sum_loss)
    first, second = (grant.gradient()["weight"].numpy().copy() for _ in range(2))
    std = 2.0 * 1.5 / 25
    if not (scale_is(first, std) and scale_is(second, std)):
        return False
    steps = abs(np.corrcoef(first.ravel(), second.ravel())[0, 1])
    rows = abs(np.corrcoef(first[0], first[1])[0, 1])
    return bool(steps < 0.05 and rows < 0.6)


def clip_is_right(vault: Vault, admit: Admit) -> bool:
    """One record with a huge gradient moves the sum by the clip norm; a small one by its own length."""
    x = np.zeros((2, 50))
    x[0, 0], x[1, 1] = 1000.0, 0.5
    g = vault.grant(admit(x, [0, 0], size=1), plan(**QUIET), linear(50), sum_loss).gradient()["weight"][0]
    return abs(float(g[0]) - 1.5) < 0.02 and abs(float(g[1]) - 0.5) < 0.02


def divisor_is_public(vault: Vault, admit: Admit) -> bool:
    """Ten records declared as a hundred: the sum is divided by a hundred."""
    x = np.ones((10, 1))
    g = vault.grant(admit(x, np.zeros(10), size=100), plan(**QUIET), linear(1), sum_loss).gradient()["weight"]
    return abs(float(g) - 10 / 100) < 0.01


def sampler_is_poisson(vault: Vault, admit: Admit) -> bool:
    """Each record is its own coordinate: rate, independence between records, and between steps."""
    n, steps, rate = 60, 150, 0.2
    block = admit(np.eye(n), np.zeros(n), size=n)
    grant = vault.grant(block, plan(noise=1e-3, rate=rate, steps=steps), linear(n), sum_loss)
    drawn = np.stack([(grant.gradient()["weight"][0].numpy() * rate * n) > 0.5 for _ in range(steps)])
    if not rate_is(int(drawn.sum()), drawn.size, rate):
        return False
    variance = drawn.sum(1).var() / (n * rate * (1 - rate))  # fixed-size batches would give 0
    repeats = (drawn[1:] & drawn[:-1]).mean() / rate**2  # a shuffled epoch would give 0
    return bool(0.6 < variance < 1.5 and 0.6 < repeats < 1.4)


CHECKS = [noise_is_right, clip_is_right, divisor_is_public, sampler_is_poisson]


@pytest.mark.parametrize("check", CHECKS)
def test_the_exit_is_right(check: Callable[[Vault, Admit], bool], fixed: Vault, admit_fixed: Admit) -> None:
    assert check(fixed, admit_fixed)


def no_noise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Normals, "fill_", lambda self, out, scale: out.zero_())


def noise_too_small(patch: pytest.MonkeyPatch) -> None:
    true = Normals.fill_
    patch.setattr(Normals, "fill_", lambda self, out, scale: true(self, out, 0.7 * scale))


def one_noise_for_all_steps(patch: pytest.MonkeyPatch) -> None:
    true = Normals.fill_
    patch.setattr(Normals, "fill_", lambda self, out, scale: true(Normals(self.key, 0, self.count), out, scale))


def one_noise_for_all_rows(patch: pytest.MonkeyPatch) -> None:
    true = Normals.fill_

    def shared(self: Normals, out: Tensor, scale: float) -> Tensor:
        some = true(Normals(self.key, self.counter, 100), torch.empty(100), scale)
        return out.copy_(some.repeat(out.numel() // 100))

    patch.setattr(Normals, "fill_", shared)


def no_clip(patch: pytest.MonkeyPatch) -> None:
    from tacit.gradients import clip

    patch.setattr(clip.Flat, "weights", lambda self, squared, slack: [torch.ones_like(s) for s in squared])


def realised_divisor(patch: pytest.MonkeyPatch) -> None:
    true = Grant._add_gradients

    def divided(self: Grant, total: Tensor, drawn: list[Tensor]) -> None:
        true(self, total, drawn)
        self._expected = float(sum(sampled.records.units for sampled in self._reads))

    patch.setattr(Grant, "_add_gradients", divided)


def fixed_size_batches(patch: pytest.MonkeyPatch) -> None:
    def fixed(key: bytes, step: int, units: int, rate: float) -> Tensor:
        generator = torch.Generator().manual_seed(step)
        return torch.randperm(units, generator=generator)[: int(rate * units)]

    patch.setattr(grant_module, "poisson", fixed)


def shuffled_epochs(patch: pytest.MonkeyPatch) -> None:
    def shuffled(key: bytes, step: int, units: int, rate: float) -> Tensor:
        size = int(rate * units)
        return (torch.arange(size) + step * size) % units

    patch.setattr(grant_module, "poisson", shuffled)


def double_rate(patch: pytest.MonkeyPatch) -> None:
    true = grant_module.poisson
    patch.setattr(grant_module, "poisson", lambda key, step, units, rate: true(key, step, units, 1.3 * rate))


def half_noise_off_by_clip(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GradientPlan, "std", property(lambda self: self.noise))


@pytest.mark.parametrize(
    ("mutation", "check"),
    [
        (no_noise, noise_is_right),
        (noise_too_small, noise_is_right),
        (one_noise_for_all_steps, noise_is_right),
        (one_noise_for_all_rows, noise_is_right),
        (half_noise_off_by_clip, noise_is_right),
        (no_clip, clip_is_right),
        (realised_divisor, divisor_is_public),
        (fixed_size_batches, sampler_is_poisson),
        (shuffled_epochs, sampler_is_poisson),
        (double_rate, sampler_is_poisson),
    ],
)
def test_broken_code_is_caught(
    mutation: Callable[[pytest.MonkeyPatch], None],
    check: Callable[[Vault, Admit], bool],
    fixed: Vault,
    admit_fixed: Admit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutation(monkeypatch)
    assert not check(fixed, admit_fixed)


# -- behaviour ---------------------------------------------------------------------------------------------------------


def test_noise_scale_two_sided(fixed: Vault, admit_fixed: Admit) -> None:
    grant = fixed.grant(admit_fixed(np.zeros((5, 100)), np.zeros(5), size=10), plan(), linear(100, 100), sum_loss)
    assert_scale(grant.gradient()["weight"].numpy(), 2.0 * 1.5 / 10)


@pytest.mark.parametrize("clipping", ["flat", "automatic", "per-layer"])
def test_every_clipping_rule_bounds_a_record(clipping: str, vault: Vault, admit: Admit) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    block = admit(np.full((1, 4), 1e2), [0], size=1, labels=range(2))
    quiet = GradientPlan(rate=1.0, steps=1, noise=1e-4, clip=2.0, clipping=clipping)
    g = vault.grant(block, quiet, model, nn.CrossEntropyLoss(reduction="none")).gradient()
    norm = float(torch.cat([value.flatten() for value in g.values()]).norm())
    assert 0.5 < norm <= 2.0 + 1e-3


def test_an_empty_draw_still_gives_noise_and_costs(fixed: Vault, admit_fixed: Admit) -> None:
    block = admit_fixed(np.ones((3, 40)), np.zeros(3), size=3)
    grant = fixed.grant(block, plan(rate=1e-3, noise=0.1), linear(40, 100), sum_loss)
    assert_scale(grant.gradient()["weight"].numpy(), 0.15 / 3e-3)
    assert fixed.ledger.epsilon(block.stream_id) > 0


def test_a_task_without_records_still_gives_noise(fixed: Vault) -> None:
    declared = Declared(stream="s", task="t", budget=BUDGET, size=10, labels=range(2), shape=(40,), public=True)
    block = fixed.admit(iter([]), declared)
    g = fixed.grant(block, plan(), linear(40, 100), sum_loss).gradient()
    assert_scale(g["weight"].numpy(), 2.0 * 1.5 / 10)


@pytest.mark.parametrize("persons", [False, True])
def test_virtual_batches_change_nothing(persons: bool, ledger: Ledger) -> None:
    """The same draw in one piece and in pieces of 3 records gives the same sum; a person never straddles two pieces."""
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    ids = np.arange(40) // 4 if persons else np.arange(40)
    budget = Budget(epsilon=1e9, delta=1e-5, unit="person" if persons else "record")
    sums = []
    for most in (1000, 3):
        vault = Vault(ledger, max_batch=most)
        declared = Declared(
            stream="s",
            task=str(most),
            budget=budget,
            size=1,
            labels=(0,),
            records_per_unit=4,
            public=True,
            tasks_per_unit=2,
        )
        block = vault.admit((x, np.zeros(40, dtype=int), ids), declared)
        sums.append(vault.grant(block, plan(**QUIET, clip=2.0), linear(6), sum_loss).gradient()["weight"][0])
    assert torch.allclose(*sums, atol=0.02)
    rows = torch.from_numpy(x).view(10, 4, 6).sum(1) if persons else torch.from_numpy(x)
    clipped = rows * (2.0 / rows.norm(dim=1, keepdim=True)).clamp(max=1)
    assert torch.allclose(sums[0], clipped.sum(0), atol=0.02)


@pytest.mark.parametrize("k", [1, 3])
def test_a_plan_calibrated_for_an_open_block_is_never_refused(
    k: int, vault: Vault, admit: Admit, ledger: Ledger
) -> None:
    budget = Budget(epsilon=1.0, delta=1e-5)
    fitted = GradientPlan.for_budget(budget, rate=0.05, steps=30, tasks_per_unit=k, open=True)
    facts = {"budget": budget, "tasks_per_unit": k, "open": True, "like": fitted}
    for task in range(k):
        block = admit(np.ones((3 + task, 2)), np.zeros(3 + task), task=str(task), **facts)
        vault.grant(block, fitted, linear(2), sum_loss).gradient()
    assert ledger.epsilon(block.stream_id) == pytest.approx(1.0, abs=0.01)


def test_step_n_plus_one_is_refused(vault: Vault, admit: Admit) -> None:
    grant = vault.grant(admit(np.ones((3, 2)), np.zeros(3)), plan(steps=2), linear(2), sum_loss)
    grant.gradient()
    grant.gradient()
    with pytest.raises(VaultError, match="billed for 2 steps"):
        grant.gradient()


def test_backward_fills_grad_for_any_optimizer(vault: Vault, admit: Admit) -> None:
    model = linear(2)
    before = model.weight.clone()
    optimizer = torch.optim.Adam(model.parameters())
    grant = vault.grant(admit(np.ones((3, 2)), np.zeros(3)), plan(steps=3), model, sum_loss)
    assert [step for step in grant if grant.backward() is None and optimizer.step() is None] == [0, 1, 2]
    assert not torch.equal(before, model.weight)


def test_a_loop_that_takes_no_gradient_is_told(vault: Vault, admit: Admit) -> None:
    grant = vault.grant(admit(np.ones((3, 2)), np.zeros(3)), plan(steps=2), linear(2), sum_loss)
    with pytest.raises(VaultError, match="took no gradient"):
        list(grant)


def test_an_unused_grant_costs_nothing_and_a_begun_one_costs_all(vault: Vault, admit: Admit, ledger: Ledger) -> None:
    block = admit(np.ones((3, 2)), np.zeros(3))
    vault.grant(block, plan(steps=5), linear(2), sum_loss).close()
    assert ledger.epsilon(block.stream_id) == 0
    grant = vault.grant(block, plan(steps=5), linear(2), sum_loss)
    grant.gradient()
    grant.close()
    whole = ledger.epsilon(block.stream_id)
    assert whole > 0
    with pytest.raises(BudgetExceeded):
        vault.grant(block, plan(steps=5), linear(2), sum_loss)
    assert ledger.epsilon(block.stream_id) == whole


def test_a_refused_grant_charges_nothing(vault: Vault, admit: Admit, ledger: Ledger) -> None:
    block = admit(np.ones((3, 2)), np.zeros(3), budget=Budget(epsilon=1.0, delta=1e-5))
    with pytest.raises(BudgetExceeded, match="more noise"):
        vault.grant(block, plan(steps=10, noise=0.5), linear(2), sum_loss)
    assert ledger.epsilon(block.stream_id) == 0


def test_several_reads_share_one_noise_draw_and_each_block_pays(vault: Vault, admit: Admit, ledger: Ledger) -> None:
    a = admit(np.full((4, 1), 1.0), np.zeros(4), task="a", size=4)
    b = admit(np.full((6, 1), -0.5), np.zeros(6), task="b", size=6)
    quiet = plan(noise=1e-3, steps=1)
    g = vault.grant([Read(a), Read(b, 0.5)], plan(), linear(1), sum_loss)
    assert g.expected_batch == 4 + 3
    g.close()
    total = vault.grant([Read(a), Read(b)], quiet, linear(1), sum_loss).gradient()["weight"]
    assert float(total) == pytest.approx((4 - 3) / 10, abs=0.01)
    tasks = {block.row.task: block.epsilon for block in ledger.statement(a.stream_id).blocks}
    assert tasks["a"] == tasks["b"] > 0


def test_recurring_persons_pay_for_the_noise_that_their_tasks_share(vault: Vault, admit: Admit, ledger: Ledger) -> None:
    """Two tasks of one person in one draw move the sum by 2·clip: as much as one Gaussian of half the noise."""
    person = Budget(epsilon=1e9, delta=1e-5, unit="person")
    facts = {"budget": person, "tasks_per_unit": 2, "size": 1, "labels": (0,)}
    blocks = [admit([[9.0 + t]], [0], ids=["ann"], task=str(t), **facts) for t in range(2)]
    wide, quiet = plan(noise=4.0), plan(**QUIET)
    grant = vault.grant([Read(block) for block in blocks], wide, linear(1), sum_loss)
    assert ledger.epsilon(blocks[0].stream_id) == pytest.approx(epsilon.epsilon(events.gaussian(2.0), 1e-5), rel=1e-6)
    grant.close()
    moved = vault.grant([Read(block) for block in blocks], quiet, linear(1), sum_loss).gradient()["weight"] * 2
    assert float(moved) == pytest.approx(2 * 1.5, abs=0.02)


def test_blocks_of_two_streams_do_not_share_a_draw(vault: Vault, admit: Admit) -> None:
    a, b = admit([[1.0]], [0], stream="a"), admit([[2.0]], [0], stream="b")
    with pytest.raises(VaultError, match="one stream"):
        vault.grant([Read(a), Read(b)], plan(), linear(1), sum_loss)


def test_the_same_block_twice_in_a_grant_is_refused(vault: Vault, admit: Admit) -> None:
    a = admit(np.ones((4, 1)), np.zeros(4))
    with pytest.raises(VaultError, match="each of them once"):
        vault.grant([Read(a), Read(a)], plan(), linear(1), sum_loss)


def test_select_is_a_rule_on_one_record(vault: Vault, admit: Admit) -> None:
    x = np.asarray([[1.0], [1.0], [5.0]])
    block = admit(x, [0, 1, 1], size=1)
    read = Read(block, select=lambda x, y: (y == 1) & (x[0] < 3))
    g = vault.grant([read], plan(**QUIET), linear(1), sum_loss).gradient()["weight"]
    assert float(g) == pytest.approx(1.0, abs=0.02)


def test_a_rule_that_looks_at_others_cannot_be_written(vault: Vault, admit: Admit) -> None:
    block = admit(np.ones((3, 1)), [0, 1, 1], size=1)
    read = Read(block, select=lambda x, y: y > y.sort().values[1])
    with pytest.raises(VaultError, match="rule on one record"):
        vault.grant([read], plan(), linear(1), sum_loss)


def test_through_runs_a_frozen_map_inside(vault: Vault, admit: Admit) -> None:
    doubling = nn.Linear(1, 1, bias=False).eval()
    doubling.weight.data.fill_(2.0)
    block = admit(np.full((3, 1), 0.25), np.zeros(3), size=1)
    g = vault.grant([Read(block, through=doubling)], plan(**QUIET), linear(1), sum_loss).gradient()["weight"]
    assert float(g) == pytest.approx(1.5, abs=0.02)
    assert doubling.weight.grad is None


def test_a_map_in_training_mode_is_refused(vault: Vault, admit: Admit) -> None:
    block = admit(np.ones((3, 1)), np.zeros(3))
    with pytest.raises(VaultError, match=r"\.eval\(\)"):
        vault.grant([Read(block, through=nn.BatchNorm1d(1))], plan(), linear(1), sum_loss)


def test_no_statistics_of_records_stay_behind_in_a_module(vault: Vault, admit: Admit) -> None:
    """A map or a model that is put back in training mode after the grant would keep raw means."""
    backbone = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    block = admit(np.random.default_rng(0).normal(size=(20, 3)), np.zeros(20))
    grant = vault.grant([Read(block, through=backbone)], plan(steps=2), linear(3), sum_loss)
    backbone.train()
    with pytest.raises(VaultError, match="training mode"):
        grant.gradient()
    assert (backbone[1].running_mean == 0).all()

    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = linear(3)
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.seen += x.detach().mean(0)
            return self.layer(x)

    keeps = Keeps().eval()
    grant = vault.grant(admit(np.ones((5, 3)), np.zeros(5), task="b"), plan(), keeps, sum_loss)
    keeps.train()
    with pytest.raises(VaultError, match="writes to its buffer 'seen'"):
        grant.gradient()
    assert (keeps.seen == 0).all()


def test_a_grant_that_cannot_begin_gives_its_reservation_back(vault: Vault, admit: Admit, ledger: Ledger) -> None:
    block = admit(np.ones((3, 2)), np.zeros(3))
    with pytest.raises(VaultError):
        vault.grant([Read(block, select=lambda x, y: x.nothing)], plan(), linear(2), sum_loss)
    assert ledger.epsilon(block.stream_id) == 0
    with pytest.raises(VaultError, match="took no gradient"):
        list(vault.grant([block], plan(), linear(2), sum_loss))
    assert ledger.epsilon(block.stream_id) == 0
    vault.grant([block], plan(), linear(2), sum_loss).gradient()


def test_mistakes_of_type_get_a_sentence(vault: Vault, admit: Admit, ledger: Ledger) -> None:
    block = admit(np.ones((3, 2)), np.zeros(3))
    with pytest.raises(VaultError, match="GradientPlan"):
        vault.grant(block, linear(2), plan(), sum_loss)  # type: ignore[arg-type]
    with pytest.raises(VaultError, match="SumPlan"):
        vault.sums(block, plan())  # type: ignore[arg-type]
    with pytest.raises(VaultError, match=r"Vault\(Ledger"):
        Vault("x.ledger")  # type: ignore[arg-type]
    with pytest.raises(VaultError, match="convert one of them"):
        vault.grant(block, plan(), linear(2).double(), sum_loss)
    with pytest.raises(PlanError, match="must be a number"):
        Budget(epsilon="1", delta=1e-5)  # type: ignore[arg-type]
    assert ledger.epsilon(block.stream_id) == 0


def test_models_that_mix_examples_are_refused(vault: Vault, admit: Admit, ledger: Ledger) -> None:
    block = admit(np.ones((3, 2)), np.zeros(3))
    with pytest.raises(UnsupportedModel, match="GroupNorm"):
        vault.grant(block, plan(), nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), sum_loss)
    with pytest.raises(UnsupportedModel):
        vault.grant(block, plan(), linear(2), lambda output, y: (output - output.mean(0)).sum(1))
    with pytest.raises(UnsupportedModel, match="reduction='none'"):
        vault.grant(block, plan(), linear(2, 10), nn.CrossEntropyLoss())
    assert ledger.epsilon(block.stream_id) == 0


def test_non_finite_records_count_as_nothing_and_nobody_hears_of_it(
    vault: Vault, admit: Admit, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.ones((4, 2))
    x[1, 0], x[2, 1] = np.nan, np.inf
    g = vault.grant(admit(x, np.zeros(4), size=1), plan(**QUIET, clip=10.0), linear(2), sum_loss).gradient()["weight"]
    assert torch.allclose(g, torch.full((1, 2), 2.0), atol=0.1)
    assert capsys.readouterr() == ("", "")


def test_errors_of_user_code_do_not_quote_records(vault: Vault, admit: Admit) -> None:
    def nosy(output: Tensor, y: Tensor) -> Tensor:
        if (output.detach().abs() > 100).any():
            raise ValueError(f"found {output}")
        return output.sum(1)

    model = linear(1)
    model.weight.data.fill_(1.0)
    grant = vault.grant(admit(np.full((2, 1), 12345.0), [0, 0]), plan(), model, nosy)
    with pytest.raises(VaultError) as caught:
        grant.gradient()
    assert "12345" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_two_runs_with_one_seed_share_initialisation_and_not_noise(vault: Vault, admit: Admit) -> None:
    gradients, weights = [], []
    for task in ("a", "b"):
        torch.manual_seed(7)
        np.random.seed(7)
        model = linear(50)
        weights.append(model.weight.clone())
        x = np.zeros((4, 50)) if task == "a" else np.zeros((5, 50))
        gradients.append(vault.grant(admit(x, np.zeros(len(x)), task=task, size=4), plan(), model, sum_loss).gradient())
    assert torch.equal(*weights)
    assert not torch.allclose(gradients[0]["weight"], gradients[1]["weight"])


def test_bad_plans_say_what_to_do() -> None:
    for changes, words in [
        ({"noise": 0.0}, "noise must be"),
        ({"rate": 0.0}, "rate must be"),
        ({"rate": 1.5}, "rate must be"),
        ({"steps": 0}, "steps must be"),
        ({"clip": -1.0}, "clip must be"),
        ({"noise": float("nan")}, "noise must be"),
    ]:
        with pytest.raises(PlanError, match=words):
            plan(**changes)  # type: ignore[arg-type]


def test_only_trainable_parameters_get_a_gradient(vault: Vault, admit: Admit) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    model[0].requires_grad_(False)
    g = vault.grant(admit(np.ones((3, 3)), np.zeros(3)), plan(), model, sum_loss).gradient()
    assert set(g) == {"1.weight", "1.bias"}


def test_clipper_is_the_one_that_is_used() -> None:
    """The mutation tests patch what the grant uses; this fails if the code moves and they would patch nothing."""
    assert grant_module.Clipper is clipper_module.Clipper


class Deep(nn.Sequential):
    """Says how many records it wants at a time, as a backbone does."""

    at_a_time = 32


@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_deep_network_gets_few_records_at_a_time(
    on_gpu: bool, fixed: Vault, admit_fixed: Admit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU also in batches of few sizes, which change nothing of the sum."""
    sizes: list[int] = []
    model = Deep(linear(5, 3))
    model.register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))
    x, y = np.random.default_rng(0).normal(size=(101, 5)), np.arange(101) % 3
    grant = fixed.grant(admit_fixed(x, y, labels=range(3)), plan(**QUIET), model, cross_entropy)
    monkeypatch.setattr(grant, "_fill", on_gpu)
    sizes.clear()
    found = grant.gradient()["0.weight"]
    assert sizes == ([32, 32, 32, 16] if on_gpu else [32, 32, 32, 5])
    rows = torch.from_numpy(x).float(), torch.from_numpy(y)
    expected = clipper_module.clipped_sum(model, cross_entropy, *rows, clip=1.5)["0.weight"] / 101
    assert torch.allclose(found, expected, atol=1e-3)


def test_a_vault_may_allow_fewer_records() -> None:
    with Ledger.throwaway() as book:
        vault = Vault(book, max_batch=7)
        block = admit_to(vault, np.ones((10, 5)), np.zeros(10), public=True)
        assert vault.grant(block, plan(), Deep(linear(5, 10)), cross_entropy)._max_batch == 7


def test_batches_are_filled_up_to_few_sizes() -> None:
    for most in (1, 7, 100, 256):
        sizes = {rows + padding(rows, most) for rows in range(1, most + 1)}
        assert max(sizes) == most and len(sizes) <= 6
        assert all(padding(rows, most) >= 0 for rows in range(1, most + 1))
