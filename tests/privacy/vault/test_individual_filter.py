"""Individual Rényi filters: each unit pays for its own gradients, at most ρ; its meter is durable and hidden."""

import json
import math
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from support.individual_filters import QUIET, TWICE, lengths, linear, read, sum_loss
from support.made_up import BUDGET, REJECTED, Admit, assert_scale, scale_is
from tacit import Budget, Declared, Ledger, SumPlan, Vault
from tacit.certificate.issuance import issue
from tacit.errors import PlanError, TacitError, VaultError
from tacit.privacy.randomness.noise import Normals
from tacit.privacy.vault import FilterPlan
from tacit.privacy.vault.exits import individual_filter as filter_module
from tacit.privacy.vault.exits.filter_state import FULL, admit_units

# -- checks: True when the exit is right; each is run on the true code and on broken code ------------------------------


def noise_is_right(vault: Vault, admit: Admit) -> bool:
    """Records without a gradient: what comes out is the noise alone, noise · clip / size, anew in every step."""
    meter = vault.individual_filter(admit(np.zeros((20, 100)), np.zeros(20), size=25), TWICE)
    model = linear(100, 200)
    first, second = (meter.gradient(model, sum_loss, noise=noise, clip=1.5)["weight"].numpy() for noise in (2.0, 3.0))
    if not (scale_is(first, 2.0 * 1.5 / 25) and scale_is(second, 3.0 * 1.5 / 25)):
        return False
    return bool(abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.05)


def clip_is_right(vault: Vault, admit: Admit) -> bool:
    """A long gradient adds as much as the clip, a short one its own length; both over the public size."""
    meter = vault.individual_filter(admit(lengths(1000.0, 0.5), [0, 0], size=2), TWICE)
    long, short = read(meter, 2)
    return abs(long - 1.0) < 0.05 and abs(short - 0.5) < 0.05


def each_pays_its_own(vault: Vault, admit: Admit) -> bool:
    """Twice for a gradient of the clip's length, nine times for half of it; then never again, at any noise."""
    meter = vault.individual_filter(admit(lengths(3.0, 0.5), [0, 0], size=2), TWICE)
    seen = np.array([read(meter, 2) for _ in range(11)])
    used = (np.abs(seen) > 0.25).sum(0).tolist()
    later = read(meter, 2, noise=0.02)  # one that would have fitted
    return used == [2, 9] and bool(np.abs(later).max() < 0.2)


def persons_pay_as_wholes(vault: Vault, admit: Admit) -> bool:
    """Two records of one person: their sum, of length √2 · 0.6, is clipped to nothing less and metered as one."""
    ids = ["a", "a", "b"]
    block = admit(
        lengths(0.6, 0.6, 0.6),
        [0, 0, 0],
        ids,
        size=3,
        records_per_unit=2,
        budget=Budget(
            epsilon=1e9,
            delta=1e-5,
            unit="person",  # type: ignore[arg-type]
        ),
    )
    meter = vault.individual_filter(block, TWICE)
    seen = np.abs(np.array([read(meter, 3) for _ in range(7)])) > 0.3
    return seen.sum(0).tolist() == [3, 3, 6]


CHECKS = [noise_is_right, clip_is_right, each_pays_its_own, persons_pay_as_wholes]


@pytest.mark.parametrize("check", CHECKS)
def test_the_exit_is_right(check: Callable[[Vault, Admit], bool], fixed: Vault, admit_fixed: Admit) -> None:
    assert check(fixed, admit_fixed)


def no_noise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Normals, "fill_", lambda self, out, scale: out.zero_())


def same_noise(patch: pytest.MonkeyPatch) -> None:
    honest = Normals.fill_
    patch.setattr(Normals, "fill_", lambda self, out, scale: honest(Normals(self.key, 0, self.count), out, scale))


def more_noise(patch: pytest.MonkeyPatch) -> None:
    honest = Normals.fill_
    patch.setattr(Normals, "fill_", lambda self, out, scale: honest(self, out, 1.3 * scale))


def not_updated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(filter_module, "admit_units", lambda spent, *rest: admit_units(spent.clone(), *rest))


def still_used(patch: pytest.MonkeyPatch) -> None:
    def all_of_them(spent: Tensor, *rest: Any) -> Tensor:
        return torch.ones_like(admit_units(spent, *rest))

    patch.setattr(filter_module, "admit_units", all_of_them)


def no_clip(patch: pytest.MonkeyPatch) -> None:
    honest = filter_module.Flat
    patch.setattr(filter_module, "Flat", lambda norm: honest(norm=1e9))


def cheap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        filter_module, "admit_units", lambda spent, norms, clip, cost: admit_units(spent, norms, clip, cost / 1.3)
    )


def dear(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        filter_module, "admit_units", lambda spent, norms, clip, cost: admit_units(spent, norms, clip, 1.3 * cost)
    )


BROKEN = [
    (no_noise, noise_is_right),
    (same_noise, noise_is_right),
    (more_noise, noise_is_right),
    (no_clip, clip_is_right),
    (not_updated, each_pays_its_own),
    (still_used, each_pays_its_own),
    (cheap, each_pays_its_own),
    (dear, each_pays_its_own),
    (cheap, persons_pay_as_wholes),
]


@pytest.mark.parametrize(("mutate", "check"), BROKEN)
def test_broken_code_is_caught(
    mutate: Callable[[pytest.MonkeyPatch], None],
    check: Callable[[Vault, Admit], bool],
    fixed: Vault,
    admit_fixed: Admit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutate(monkeypatch)
    assert not check(fixed, admit_fixed)


# -- the filter --------------------------------------------------------------------------------------------------------


def one_by_one(model: nn.Module, x: np.ndarray, y: np.ndarray) -> list[float]:
    parameters = list(model.parameters())
    losses = nn.functional.cross_entropy(model(torch.tensor(x)), torch.tensor(y), reduction="none")
    grads = [torch.autograd.grad(loss, parameters, retain_graph=True) for loss in losses]
    return [math.sqrt(sum(float(g.double().square().sum()) for g in some)) for some in grads]


def test_nobody_spends_more_than_rho_whatever_the_noise_follows(fixed: Vault, admit_fixed: Admit) -> None:
    """Noise, clip and model follow from what came out; the losses are added up again by hand."""
    rng = np.random.default_rng(0)
    n, rho = 30, 0.8
    x, y = rng.normal(size=(n, 4)).astype(np.float32) * rng.gamma(1.0, size=(n, 1)).astype(np.float32), np.arange(n) % 3
    block = admit_fixed(x, y, labels=range(3))
    meter = fixed.individual_filter(block, FilterPlan(rho=rho))
    order = fixed._admission.records(block).rows.tolist()
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    spent, out, noise, clip, some_out = np.zeros(n), np.zeros(n, bool), 4.0, 1.0, False
    for _ in range(40):
        norms = np.array(one_by_one(model, x[order], y[order]))
        cost = np.minimum(norms, clip) ** 2 / (2 * noise**2 * clip**2)
        before = meter._spent.clone()
        got = meter.gradient(model, nn.CrossEntropyLoss(reduction="none"), noise=noise, clip=clip)
        took = ((meter._spent > before) & (meter._spent <= FULL)).numpy()
        fits = spent + cost <= rho
        sure = np.abs(spent + cost - rho) > 1e-5 * rho  # where rounding does not decide
        assert np.array_equal(took[sure], (fits & ~out)[sure])
        spent, out = spent + np.where(took, cost, 0.0), out | ~took
        assert np.all(spent <= rho)
        assert np.allclose(meter._spent.numpy()[took] / FULL * rho, spent[took], rtol=1e-4)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter -= 0.05 * got[name]
        length = math.sqrt(sum(float(g.square().sum()) for g in got.values()))
        noise, clip = 2.0 + length % 5, 0.5 + length % 1  # any function of what came out
        some_out |= bool(out.any() and not out.all())
    assert some_out


def test_small_gradients_last_longer_than_the_worst_case(fixed: Vault, admit_fixed: Admit) -> None:
    """A public schedule has to charge the clip: 2 steps. A record of a tenth of it takes part 200 times as often."""
    worst = math.floor(TWICE.rho / (1 / (2 * 0.01**2)))
    spent = torch.zeros(2, dtype=torch.int64)
    cost, used = 0.5 / TWICE.rho / 0.01**2, np.zeros(2, int)
    while bool((takes := admit_units(spent, torch.tensor([1.0, 0.1], dtype=torch.float64), 1.0, cost)).any()):
        used += takes.numpy()
    assert worst == 2 and used.tolist() == [2, 239]


def test_a_meter_fails_closed() -> None:
    """Not finite, not there, beyond all bounds: in full, or not at all; and no use is free."""
    spent = torch.zeros(5, dtype=torch.int64)
    norms = torch.tensor([math.nan, math.inf, 0.0, 1e-300, 1.0], dtype=torch.float64)
    assert admit_units(spent, norms, 1.0, 0.4).tolist() == [True] * 5
    assert spent.tolist()[2:4] == [1, 1] and all(s >= 0.4 * FULL for s in spent.tolist()[:2])
    assert admit_units(spent, norms, 1.0, math.inf).tolist() == [False] * 5
    assert admit_units(spent, torch.zeros(5, dtype=torch.float64), 1.0, 1e-9).tolist() == [False] * 5  # out for good


def test_one_record_more_changes_nobody_elses_place(admit_fixed: Admit, fixed: Vault) -> None:
    """The released sums of two neighbours differ, without noise, in the coordinate of the one record only."""
    alone = fixed.individual_filter(admit_fixed(lengths(0.5, 0.9, 0)[:2], [0, 0], task="a"), TWICE)
    beside = fixed.individual_filter(admit_fixed(lengths(0.5, 0.9, 3.0), [0, 0, 0], task="b", size=2), TWICE)
    for _ in range(10):
        one, two = (m.gradient(linear(3), sum_loss, **QUIET)["weight"][0][:2] for m in (alone, beside))
        assert torch.allclose(one, two, atol=0.05)


def test_left_is_a_noisy_count_of_those_still_in(fixed: Vault, admit_fixed: Admit) -> None:
    n, looks = 40, 30
    plan = SumPlan(noise=2.0)
    block = admit_fixed(lengths(*[1.0] * 25, *[0.1] * 15), np.zeros(n))
    fixed.commit({block: [TWICE, *[plan] * looks]})
    meter = fixed.individual_filter(block, TWICE)
    assert abs(meter.noisy_units_left(plan) - n) < 8
    for _ in range(3):
        meter.gradient(linear(n), sum_loss, **QUIET)
    seen = np.array([meter.noisy_units_left(plan) for _ in range(looks - 1)])
    assert abs(seen.mean() - 15) < 2
    assert_scale_of_few(seen - 15, 2.0)
    with pytest.raises(TacitError):
        meter.noisy_units_left(plan)  # not in the list any more


def assert_scale_of_few(values: np.ndarray, std: float) -> None:
    assert scale_is(values, std)
    assert not scale_is(values, std * 3, REJECTED) and not scale_is(values, std / 3, REJECTED)


def test_the_scale_of_the_noise_two_sided(fixed: Vault, admit_fixed: Admit) -> None:
    meter = fixed.individual_filter(admit_fixed(np.zeros((3, 100)), np.zeros(3), size=7), TWICE)
    assert_scale(meter.gradient(linear(100, 100), sum_loss, noise=1.7, clip=0.4)["weight"], 1.7 * 0.4 / 7)


def said(ledger: Ledger, x: np.ndarray) -> tuple[str, list[Any]]:
    """All that is written or said about a meter, but for names that are drawn."""
    vault = Vault(ledger)
    facts = Declared(stream="s", task="t", budget=BUDGET, size=3, labels=[0])
    block = vault.admit((x.astype(np.float32), np.zeros(len(x))), facts)
    meter = vault.individual_filter(block, TWICE)
    for _ in range(4):
        meter.gradient(linear(3), sum_loss, **QUIET)
    errors = []
    for broken in ({"noise": -1.0, "clip": 1.0}, {"noise": 1.0, "clip": math.nan}):
        with pytest.raises(PlanError) as caught:
            meter.gradient(linear(3), sum_loss, **broken)
        errors.append(str(caught.value))
    with pytest.raises(VaultError) as refused:
        meter.gradient(linear(3), quoting, **QUIET)
    text = "".join(traceback.format_exception(refused.value))
    assert "withheld" in text and "quoted" not in text
    statement = ledger.statement(1)
    rows = [(g.kind, dict(g.plan), g.state, g.reads, g.output_hash) for g in statement.grants]
    issued = json.loads(issue(vault.ledger, block, method="m").to_json())
    mechanisms = [{k: v for k, v in one.items() if k != "grant"} for one in issued["mechanisms"]]
    public = {k: v for k, v in vars(meter).items() if not k.startswith("_")}
    kept = (str(public), meter.steps, str(statement.epsilon), repr(meter).split(" at ")[0], str(block))
    return json.dumps([rows, mechanisms, issued["claims"], kept], sort_keys=True, default=str), errors


def quoting(output: Tensor, y: Tensor) -> Tensor:
    if float(output.detach().abs().max()) > 5:  # not on the made-up rows, which are below 1
        raise RuntimeError("quoted")
    return output.sum(1)


def test_nothing_that_is_written_or_said_depends_on_who_is_out(tmp_path: Path) -> None:
    with Ledger(tmp_path / "one") as one, Ledger(tmp_path / "two") as two:
        torch.manual_seed(0)
        everybody_in = said(one, lengths(0.1, 0.1, 100.0)[[0, 1, 2]] * [1, 1, 1e3])
        torch.manual_seed(0)
        everybody_out = said(two, lengths(1e3, 1e4, 1e5))
    assert everybody_in == everybody_out
