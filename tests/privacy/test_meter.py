"""Individual Rényi filters: each unit pays for its own gradients, at most ρ; its meter is durable and hidden."""

import json
import math
import os
import shutil
import signal
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up import BUDGET, Admit, assert_scale, scale_is
from torch import Tensor, nn

from tacit import Adjacency, Block, Budget, Declared, Ledger, SumPlan, Vault
from tacit.errors import LedgerError, PlanError, TacitError, VaultError
from tacit.privacy import accounting, events, store
from tacit.privacy import meter as meter_module
from tacit.privacy.accounting import ORDERS, rdp_curve
from tacit.privacy.ledger import eventlists, prices
from tacit.privacy.meter import FULL, Meter, MeterPlan, pay
from tacit.privacy.noise import Normals

TWICE = MeterPlan(rho=12_000.0)
"""With noise 0.01 a gradient as long as the clip costs 5,000: it is used twice."""
QUIET = {"noise": 0.01, "clip": 1.0}


def sum_loss(output: Tensor, y: Tensor) -> Tensor:
    """Its gradient with respect to a bias-free linear layer is the input itself."""
    return output.sum(1)


def linear(features: int, outputs: int = 1) -> nn.Module:
    return nn.Linear(features, outputs, bias=False)


def lengths(*values: float) -> np.ndarray:
    """Records whose gradients have these lengths, each along a coordinate of its own."""
    return np.diag(np.asarray(values, dtype=np.float32))


def read(meter: Meter, units: int, **said: float) -> list[float]:
    """How much each record of `lengths` added to a sum that is divided by the number of units."""
    return (meter.gradient(linear(units), sum_loss, **{**QUIET, **said})["weight"][0] * units).tolist()


# -- the price ---------------------------------------------------------------------------------------------------------


def test_the_price_is_alpha_rho_and_never_a_loss_distribution() -> None:
    event = MeterPlan(rho=0.07).event
    assert rdp_curve(event) == pytest.approx([0.07 * order for order in ORDERS])
    assert rdp_curve(event, Adjacency.ZERO_OUT) == rdp_curve(event)
    assert rdp_curve(event, Adjacency.REPLACE_ONE) == pytest.approx([4 * 0.07 * order for order in ORDERS])
    both = events.compose([event, events.gaussian(5.0)])
    assert rdp_curve(both) == pytest.approx([(0.07 + 1 / 50) * order for order in ORDERS])
    for one in (event, both):
        assert accounting.epsilon(one, 1e-5, method="pld") == math.inf and accounting.delta(one, 1.0, method="pld") == 1
        assert accounting.epsilon(one, 1e-5) == accounting.epsilon(one, 1e-5, method="rdp") < math.inf
        assert events.from_json(events.to_json(one)) == one
    same = events.gaussian(math.sqrt(1 / (2 * 0.07)))  # a Gaussian of the same curve
    assert accounting.epsilon(event, 1e-5) == pytest.approx(accounting.epsilon(same, 1e-5, method="rdp"))


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_for_budget_takes_all_of_it_and_no_more(adjacency: Adjacency) -> None:
    budget = Budget(epsilon=1.0, delta=1e-5, adjacency=adjacency)
    for tasks, beside in ((1, []), (3, []), (1, [SumPlan(noise=20.0)])):
        plan = MeterPlan.for_budget(budget, tasks, beside=beside)
        whole = events.repeat(events.compose([plan.event, *(one.event for one in beside)]), tasks)
        assert 0.9999 < accounting.epsilon(whole, 1e-5, adjacency) <= 1.0
    with pytest.raises(PlanError, match="nothing is left"):
        MeterPlan.for_budget(budget, beside=[SumPlan(noise=0.5)])
    with pytest.raises(PlanError, match="rho must be a finite number > 0"):
        MeterPlan(rho=0.0)


def test_the_ledger_charges_it_once_and_finds_the_price_again(ledger: Ledger, vault: Vault) -> None:
    budget = Budget(epsilon=2.0, delta=1e-5)
    look = SumPlan(noise=10.0)
    plan = MeterPlan.for_budget(budget, beside=[look])
    block = vault.admit((lengths(1, 1), np.zeros(2)), Declared(stream="s", task="t", budget=budget, size=2, labels=[0]))
    vault.commit({block: [plan, look]})
    meter = vault.meter(block, plan)
    before = ledger.statement(1)
    for noise in (3.0, 0.5, 7.0):
        meter.gradient(linear(2), sum_loss, noise=noise, clip=1.0)
    meter.left(look)
    after = ledger.statement(1)
    assert before.epsilon == after.epsilon == pytest.approx(2.0, abs=1e-3)
    assert [(g.kind, g.state) for g in after.grants] == [("meter", "CHARGED"), ("count", "RELEASED")]
    texts = tuple(sorted(events.to_json(one.event) for one in (plan, look)))
    assert prices.worked_out(texts, budget, 1) == math.ceil(after.epsilon * 1e9 - 1e-3)
    assert eventlists.composed(texts) is not None and ledger.verify().grants == 2
    with pytest.raises(TacitError):
        vault.count(block, look)  # the list holds one
    assert vault.certificate(block, method="m").claims.certified.epsilon == pytest.approx(2.0, abs=1e-3)


def test_what_does_not_fit_is_refused_before_anything_is_read(vault: Vault, admit: Admit) -> None:
    small = Budget(epsilon=1.0, delta=1e-5)
    with pytest.raises(TacitError, match="ε"):
        vault.meter(admit(lengths(1), [0], budget=small), MeterPlan(rho=1.0))
    assert vault.ledger.statement(1).grants == ()
    with pytest.raises(VaultError, match="takes \\(block, MeterPlan\\)"):
        vault.meter(admit(lengths(1), [0], budget=small), SumPlan(noise=1.0))  # type: ignore[arg-type]


# -- checks: True when the exit is right; each is run on the true code and on broken code ------------------------------


def noise_is_right(vault: Vault, admit: Admit) -> bool:
    """Records without a gradient: what comes out is the noise alone, noise · clip / size, anew in every step."""
    meter = vault.meter(admit(np.zeros((20, 100)), np.zeros(20), size=25), TWICE)
    model = linear(100, 200)
    first, second = (meter.gradient(model, sum_loss, noise=noise, clip=1.5)["weight"].numpy() for noise in (2.0, 3.0))
    if not (scale_is(first, 2.0 * 1.5 / 25) and scale_is(second, 3.0 * 1.5 / 25)):
        return False
    return bool(abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.05)


def clip_is_right(vault: Vault, admit: Admit) -> bool:
    """A long gradient adds as much as the clip, a short one its own length; both over the public size."""
    meter = vault.meter(admit(lengths(1000.0, 0.5), [0, 0], size=2), TWICE)
    long, short = read(meter, 2)
    return abs(long - 1.0) < 0.05 and abs(short - 0.5) < 0.05


def each_pays_its_own(vault: Vault, admit: Admit) -> bool:
    """Twice for a gradient of the clip's length, nine times for half of it; then never again, at any noise."""
    meter = vault.meter(admit(lengths(3.0, 0.5), [0, 0], size=2), TWICE)
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
    meter = vault.meter(block, TWICE)
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
    patch.setattr(meter_module, "pay", lambda spent, *rest: pay(spent.clone(), *rest))


def still_used(patch: pytest.MonkeyPatch) -> None:
    def all_of_them(spent: Tensor, *rest: Any) -> Tensor:
        return torch.ones_like(pay(spent, *rest))

    patch.setattr(meter_module, "pay", all_of_them)


def no_clip(patch: pytest.MonkeyPatch) -> None:
    honest = meter_module.Flat
    patch.setattr(meter_module, "Flat", lambda norm: honest(norm=1e9))


def cheap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(meter_module, "pay", lambda spent, norms, clip, cost: pay(spent, norms, clip, cost / 1.3))


def dear(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(meter_module, "pay", lambda spent, norms, clip, cost: pay(spent, norms, clip, 1.3 * cost))


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
    meter = fixed.meter(block, MeterPlan(rho=rho))
    order = fixed._of(block).rows.tolist()
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
    while bool((takes := pay(spent, torch.tensor([1.0, 0.1], dtype=torch.float64), 1.0, cost)).any()):
        used += takes.numpy()
    assert worst == 2 and used.tolist() == [2, 239]


def test_a_meter_fails_closed() -> None:
    """Not finite, not there, beyond all bounds: in full, or not at all; and no use is free."""
    spent = torch.zeros(5, dtype=torch.int64)
    norms = torch.tensor([math.nan, math.inf, 0.0, 1e-300, 1.0], dtype=torch.float64)
    assert pay(spent, norms, 1.0, 0.4).tolist() == [True] * 5
    assert spent.tolist()[2:4] == [1, 1] and all(s >= 0.4 * FULL for s in spent.tolist()[:2])
    assert pay(spent, norms, 1.0, math.inf).tolist() == [False] * 5
    assert pay(spent, torch.zeros(5, dtype=torch.float64), 1.0, 1e-9).tolist() == [False] * 5  # out for good


def test_one_record_more_changes_nobody_elses_place(admit_fixed: Admit, fixed: Vault) -> None:
    """The released sums of two neighbours differ, without noise, in the coordinate of the one record only."""
    alone = fixed.meter(admit_fixed(lengths(0.5, 0.9, 0)[:2], [0, 0], task="a"), TWICE)
    beside = fixed.meter(admit_fixed(lengths(0.5, 0.9, 3.0), [0, 0, 0], task="b", size=2), TWICE)
    for _ in range(10):
        one, two = (m.gradient(linear(3), sum_loss, **QUIET)["weight"][0][:2] for m in (alone, beside))
        assert torch.allclose(one, two, atol=0.05)


# -- crashes, copies, two processes ------------------------------------------------------------------------------------


def world(ledger: Ledger, folder: Path) -> tuple[Vault, Block, Meter]:
    vault = Vault(ledger, folder)
    facts = Declared(stream="s", task="t", budget=BUDGET, size=2, labels=[0])
    block = vault.admit((lengths(1.0, 0.5).astype(np.float32), np.zeros(2)), facts)
    return vault, block, vault.meter(block, TWICE)


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_the_charge() -> None:
    store.Tally.read = die  # type: ignore[method-assign]


def before_the_step() -> None:
    store.Journal.begin = die  # type: ignore[method-assign, assignment]


def before_noise() -> None:
    Normals.fill_ = die  # type: ignore[method-assign, assignment]


def while_reading() -> None:
    meter_module.pay = die  # type: ignore[assignment]


def before_the_tally() -> None:
    store.Tally.write = die  # type: ignore[method-assign]


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
    honest = store.Tally.read
    with pytest.raises(LedgerError, match="is held by"):
        no_refund(ledger, tmp_path / "two")  # another folder is another holder
    with Ledger(tmp_path / "other") as other:
        forgetful = lambda self: replace(honest(self), units=torch.zeros(2, dtype=torch.int64))  # type: ignore[type-var] # noqa: E731
        monkeypatch.setattr(store.Tally, "read", forgetful)
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
    again = vault.meter(block, TWICE)  # the same vault takes it over
    assert int(again._spent.max()) > 0
    with pytest.raises(VaultError, match="given up"):
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
    with pytest.raises(VaultError, match="not in this store any more"):
        world(ledger, tmp_path / "store")


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


def spent_of(folder: Path) -> store.Spent:
    (path,) = (folder / "blocks").glob("*.*.*.safetensors")
    found = store.Tally(path).read()
    assert found is not None
    return found


def test_each_time_it_is_taken_up_it_has_its_own_noise_and_dice(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one process or several, with or without a pause, and as it is made."""
    met: list[tuple[bytes, bytes]] = []
    honest = Meter.__init__

    def noted(self: Meter, **said: Any) -> None:
        met.append(said["keys"])
        honest(self, **said)

    monkeypatch.setattr(Meter, "__init__", noted)
    vault, block, meter = world(ledger, tmp_path / "store")
    tokens = [meter._bill.ticket.token]
    for again in range(4):
        if again % 2:
            meter.pause()
        meter = vault.meter(block, TWICE)
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
        with pytest.raises(VaultError, match="its journal has 0 of 1; put the journal back"):
            world(ledger, folder)
    journal.write_bytes(raw)
    taken_up(ledger, folder)  # a refusal takes nothing away
    journal.unlink()
    honest = store.Tally.read
    forgetful = lambda self: replace(honest(self), steps=0)  # type: ignore[type-var] # noqa: E731
    monkeypatch.setattr(store.Tally, "read", forgetful)  # as if the tally did not know either
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
        with pytest.raises(VaultError, match="was taken up after this tally was written: the store was put back"):
            world(ledger, folder)
    put_back(folder, tmp_path / "new")  # a refusal raises nothing, so the newest files still fit
    before = spent_of(folder).units
    taken_up(ledger, folder, scale=0.1)
    assert bool((spent_of(folder).units > before).any())  # who is not out goes on paying


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
        store.Tally(path).write(replace(found, token=ticket.token))  # type: ignore[union-attr]
        return honest(self, **said)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "resume", visited)
        taken_up(ledger, folder)
    taken_up(ledger, folder)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "resume", replaced)
        with pytest.raises(VaultError, match="the store was put back"):
            world(ledger, folder)


def before_it_is_foretold() -> None:
    store.Tally.write = die  # type: ignore[method-assign]


def as_it_is_foretold() -> None:
    Path.replace = die  # type: ignore[method-assign, assignment]


def before_the_raise() -> None:
    Ledger.resume = die  # type: ignore[method-assign, assignment]


def after_the_raise() -> None:
    Meter.__init__ = die  # type: ignore[method-assign, assignment]


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
        assert torch.equal(spent_of(tmp_path / "store").units, before.units)
        again = taken_up(ledger, tmp_path / "store")
        assert not torch.equal(again, first)
        taken_up(ledger, tmp_path / "store")
        put_back(tmp_path / "store", tmp_path / "old")  # kills make no room for an old store
        with pytest.raises(VaultError, match="the store was put back"):
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
        patch.setattr(store, "save_tensors", full)
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
        meter = fixed.meter(block, TWICE)
        end(block)
        with pytest.raises(TacitError, match=r"ask for its meter again|does not hold|was retired"):
            meter.gradient(linear(2), sum_loss, **QUIET)


def test_left_is_a_noisy_count_of_those_still_in(fixed: Vault, admit_fixed: Admit) -> None:
    n, looks = 40, 30
    plan = SumPlan(noise=2.0)
    block = admit_fixed(lengths(*[1.0] * 25, *[0.1] * 15), np.zeros(n))
    fixed.commit({block: [TWICE, *[plan] * looks]})
    meter = fixed.meter(block, TWICE)
    assert abs(meter.left(plan) - n) < 8
    for _ in range(3):
        meter.gradient(linear(n), sum_loss, **QUIET)
    seen = np.array([meter.left(plan) for _ in range(looks - 1)])
    assert abs(seen.mean() - 15) < 2
    assert_scale_of_few(seen - 15, 2.0)
    with pytest.raises(TacitError):
        meter.left(plan)  # not in the list any more


def assert_scale_of_few(values: np.ndarray, std: float) -> None:
    assert scale_is(values, std) and not scale_is(values, std * 3) and not scale_is(values, std / 3)


def test_the_scale_of_the_noise_two_sided(fixed: Vault, admit_fixed: Admit) -> None:
    meter = fixed.meter(admit_fixed(np.zeros((3, 100)), np.zeros(3), size=7), TWICE)
    assert_scale(meter.gradient(linear(100, 100), sum_loss, noise=1.7, clip=0.4)["weight"], 1.7 * 0.4 / 7)


def said(ledger: Ledger, x: np.ndarray) -> tuple[str, list[Any]]:
    """All that is written or said about a meter, but for names that are drawn."""
    vault = Vault(ledger)
    facts = Declared(stream="s", task="t", budget=BUDGET, size=3, labels=[0])
    block = vault.admit((x.astype(np.float32), np.zeros(len(x))), facts)
    meter = vault.meter(block, TWICE)
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
    issued = json.loads(vault.certificate(block, method="m").to_json())
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


def test_an_open_block_pays_for_it_at_every_order(vault: Vault, admit: Admit) -> None:
    budget = Budget(epsilon=1.0, delta=1e-5)
    plan = MeterPlan.for_budget(budget)
    block = admit(lengths(1.0, 1.0), [0, 0], budget=budget, open=True, like=plan)
    vault.meter(block, plan).gradient(linear(2), sum_loss, noise=3.0, clip=1.0)
    with pytest.raises(TacitError):
        vault.count(block, SumPlan(noise=100.0))  # nothing is left at any order
    vault.ledger.verify()
