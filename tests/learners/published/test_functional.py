"""DPL2M and L2DP-ML as published: the objectives, one draw of noise, fixed batches, projections, claims."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import softplus

from support.small_world import OnStep, Stopped, facts, fixed, learn, nothing, records, same, stop_at, tiny
from tacit import Budget, Ledger, StreamInfo, Vault
from tacit.errors import ConfigError, LearnerError, PolicyError
from tacit.learners import find
from tacit.learners.base.release import Release
from tacit.learners.published.functional import Functional
from tacit.learners.replay.dpcl import project
from tacit.models.autoencoder_classifier import Convolutional

METHODS = ("DPL2M", "L2DPML")


def pictures(tasks: int) -> StreamInfo:
    return StreamInfo.uniform("pictures", labels=(0, 1), shape=(1, 6, 6), size=40, tasks=tasks, public=True)


def drawn(number: int) -> Any:
    x = np.random.default_rng(number).random((40, 1, 6, 6)).astype(np.float32)
    return x, (x.mean((1, 2, 3)) > 0.5).astype(int)


def dense(info: StreamInfo) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(info.shape), 8), nn.Tanh(), nn.Linear(8, len(info.labels)))


def make(method: str = "L2DPML", info: StreamInfo | None = None, **settings: Any) -> Functional:
    """Small, with little noise: nothing overflows."""
    mild: dict[str, Any] = {
        "network": dense, "hidden": 5, "batch": 40, "lr": 0.05, "low": -4.0, "high": 4.0,
        "epsilon1": 20.0, "epsilon2": 20.0,
    }  # fmt: skip
    learner = find(method)(**mild | settings)
    assert isinstance(learner, Functional)
    learner.start(info or facts())
    return learner


def perturbed(learner: Functional, n: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    """Records as the learner has them once it learned a task."""
    return learner.kept_[0][0][:n], learner.kept_[0][1][:n]


@pytest.fixture(scope="module")
def learned() -> Functional:
    learner = make(double=True)
    learn(learner, fixed(), [0])
    return learner


def test_the_classifiers_objective_is_the_true_taylor_expansion() -> None:
    """Of Σ y log(1 + e^−z) + (1 − y) log(1 + e^z) at 0, to the second order, by autograd; the misprints are not."""
    for y in (0.0, 1.0):

        def cost(z: torch.Tensor, y: float = y) -> torch.Tensor:
            return y * softplus(-z) + (1 - y) * softplus(z)

        zero = torch.zeros((), dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(cost(zero), zero, create_graph=True)
        (bend,) = torch.autograd.grad(slope, zero)
        assert float(slope.detach()) == pytest.approx(0.5 - y) and float(bend) == pytest.approx(2 / 8)
        for z in (-0.1, 0.1):
            ours = math.log(2) + (0.5 - y) * z + z**2 / 8
            printed = z - z * y - (0.5 * abs(z) + z**2 / 8)  # Eq. 12
            true = float(cost(torch.tensor(z, dtype=torch.float64)))
            assert ours == pytest.approx(true, abs=2e-6) and abs(math.log(2) + printed - true) > 1e-3


def test_the_classifiers_gradient_is_that_of_the_objective(learned: Functional) -> None:
    """By finite differences of L̄ in every parameter of θ₂; χ₃/λ once on every W_k."""
    x, y = perturbed(learned)
    model, size = learned.stacked, 40
    h = model.encoder(x, learned.chi_["hidden"] / size).detach()
    onehot = nn.functional.one_hot(y, 2).double()

    def objective() -> float:
        with torch.no_grad():
            z = model.classify(h)
            return float(((0.5 - onehot) * z + z**2 / 8).sum() / size)

    g = learned.gradient(x, y, size)
    g["head.weight"] = g["head.weight"] - learned.chi_["output"] / size
    for name, parameter in model.named_parameters():
        if name.startswith("encoder."):
            continue
        flat = parameter.data.view(-1)
        for place in range(0, len(flat), 3):
            before, found = float(flat[place]), []
            for step in (1e-5, -1e-5):
                flat[place] = before + step
                found.append(objective())
            flat[place] = before
            assert float(g[name].reshape(-1)[place]) == pytest.approx((found[0] - found[1]) / 2e-5, abs=1e-7)


@pytest.mark.parametrize("variant", ["text", "code"])
def test_the_encoders_gradient_knows_no_labels(variant: str) -> None:
    learner = make(info=pictures(1), variant=variant, features=3, kernel=3, double=True)
    learn(learner, fixed(), [0], drawn)
    x, y = perturbed(learner)
    one, other = (learner.gradient(x, labels, 40) for labels in (y, 1 - y))
    assert torch.equal(one["encoder.weight"], other["encoder.weight"])
    assert not torch.equal(one["head.weight"], other["head.weight"])


def test_the_texts_encoder_learns_from_the_printed_gradient(learned: Functional) -> None:
    """Σ_r h̄_r(½ − x̄_rs) over λ, which is the gradient of Eq. 13 with h̄ held constant."""
    x, y = perturbed(learned)
    h = learned.stacked.encoder(x, learned.chi_["hidden"] / 40).detach()
    g = learned.gradient(x, y, 40)["encoder.weight"]
    assert torch.allclose(g, (0.5 - x).T @ h / 40)
    theta = learned.stacked.encoder.weight.detach().clone().requires_grad_()
    printed = (0.5 * (h @ theta.T).sum(1) - (x * (h @ theta.T)).sum(1)).sum() / 40  # Σ_s ½θ_1s h̄ − x̄x̃
    assert torch.allclose(g, torch.autograd.grad(printed, theta)[0])


def test_the_codes_encoder_learns_from_the_whole_gradient() -> None:
    """|½x̃ − x̃x̄ + log 2|, x̃ of h̄ enlarged by repetition and convolved with the same filters; by finite differences."""
    learner = make(info=pictures(1), variant="code", features=3, kernel=3, double=True)
    learn(learner, fixed(), [0], drawn)
    (x, y), encoder, noise = perturbed(learner), learner.stacked.encoder, learner.chi_["hidden"] / 40

    def objective() -> torch.Tensor:
        found = nn.functional.conv2d(x, encoder.weight, encoder.bias, stride=2, padding=1).relu()
        spread = ((found - found.mean((0, 2, 3), keepdim=True)).square().mean((0, 2, 3), keepdim=True) + 1e-3).sqrt()
        h = ((found - found.mean((0, 2, 3), keepdim=True)) / spread).clamp(-1, 1) + noise
        large = h.repeat_interleave(2, 2).repeat_interleave(2, 3)
        decoded = nn.functional.conv2d(large, encoder.weight.transpose(0, 1), padding=1).relu()
        return (0.5 * decoded - decoded * x + math.log(2)).abs().sum()

    g = learner.gradient(x, y, 40)
    with torch.no_grad():
        assert torch.allclose(encoder.reconstruction(x, noise), objective())
        for name in ("encoder.weight", "encoder.bias"):
            flat = learner.model_.get_parameter(name).view(-1)
            for place in range(0, len(flat), 4):
                before, found = float(flat[place]), []
                for step in (1e-6, -1e-6):
                    flat[place] = before + step
                    found.append(float(objective()) / 40)
                flat[place] = before
                wanted = (found[0] - found[1]) / 2e-6
                assert float(g[name].reshape(-1)[place]) == pytest.approx(wanted, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("side", [6, 7])
@pytest.mark.parametrize("kernel", [2, 3, 4, 5])
def test_the_decoders_pictures_have_the_records_size(side: int, kernel: int) -> None:
    encoder = Convolutional((2, side, side + 2), 3, kernel)
    assert encoder.decode(torch.zeros(4, *encoder.noise_shape)).shape == (4, 2, side, side + 2)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1000.0])
@pytest.mark.parametrize("variant", ["text", "code"])
def test_the_last_hidden_layer_is_within_its_bounds(variant: str, scale: float) -> None:
    """Δ_L = 2|h_π| needs |h_π| ≤ 1 in every unit, whatever the noise."""
    model = make(info=pictures(1), variant=variant, features=3, kernel=3).stacked
    x = scale * torch.randn(20, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    top = model.top(model.encoder(x, scale * torch.ones(model.encoder.noise_shape)))
    assert top.abs().max() <= 1 and torch.isfinite(top).all()
    assert (top.abs().max() > 0.5) == (scale > 0)


def test_normalisation_subtracts_the_noise_that_all_records_share() -> None:
    """The text's hidden layer is the same with any noise; and so is what is learned of it."""
    model = make(double=True).stacked
    x = torch.from_numpy(records(0)[0]).double()
    shift, noise = torch.full((x.shape[1],), 300.0).double(), torch.full((5,), 600.0).double()
    plain = model.encoder(x)
    assert torch.allclose(plain, model.encoder(x + shift, noise)) and torch.isfinite(plain).all()
    own = noise * torch.randn(len(x), 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert not torch.allclose(plain, model.encoder(x, own), atol=0.1)  # noise of their own would stay


def test_the_noise_of_the_output_layer_is_shared_by_classes(learned: Functional) -> None:
    x, y = perturbed(learned)
    before = learned.gradient(x, y, 40)["head.weight"]
    chi, learned.chi_ = learned.chi_, learned.chi_ | {"output": torch.zeros(8, dtype=torch.float64)}
    without, learned.chi_ = learned.gradient(x, y, 40)["head.weight"], chi
    assert torch.allclose(before - without, (chi["output"] / 40).expand(2, 8))
    assert torch.allclose(before[0] - before[1], without[0] - without[1])


def test_in_the_code_each_class_has_its_own() -> None:
    assert make(info=pictures(1)).plan(pictures(1).tasks[0]).output == (8,)
    learner = make(info=pictures(1), variant="code", features=3, kernel=3, double=True)
    assert learner.plan(pictures(1).tasks[0]).output == (2, 8)
    learn(learner, fixed(), [0], drawn)
    difference = of_the_output_noise(learner)
    assert torch.allclose(difference, 2 * learner.chi_["output"] / 40)
    assert not torch.allclose(difference[0], difference[1])


def of_the_output_noise(learner: Functional) -> torch.Tensor:
    """What χ₃ adds to the gradient of W."""
    g = learner.gradient(*perturbed(learner), 40)["head.weight"]
    chi, learner.chi_ = learner.chi_, learner.chi_ | {"output": torch.zeros_like(learner.chi_["output"])}
    without, learner.chi_ = learner.gradient(*perturbed(learner), 40)["head.weight"], chi
    return g - without


@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize("variant", ["text", "code"])
def test_the_codes_output_noise_counts_once_for_each_class(variant: str, labels: int) -> None:
    """As TensorFlow differentiates the sum of a batch's λ × K terms, each less a scalar; the text adds χ₃ once."""
    info = StreamInfo.uniform("three", labels=range(labels), shape=(1, 6, 6), size=40, tasks=1, public=True)
    learner = make(info=info, variant=variant, features=3, kernel=3, double=True)
    learn(learner, fixed(), [0], drawn)
    x, y = perturbed(learner)
    weight, noise = learner.stacked.head.weight, learner.chi_["output"] / 40
    z = learner.stacked.classify(learner.stacked.encoder(x, learner.chi_["hidden"] / 40).detach())
    terms = (0.5 - nn.functional.one_hot(y, labels)) * z + z.square() / 8
    shared = (noise * weight).sum()
    total = (terms + shared).sum() if variant == "code" else terms.sum() + 40 * shared
    (wanted,) = torch.autograd.grad(total / 40, weight)
    g = learner.gradient(x, y, 40)["head.weight"]
    assert torch.allclose(g, wanted) and noise.abs().max() > 0.01
    times = labels if variant == "code" else 1
    size = float(of_the_output_noise(learner).abs().sum() / noise.expand_as(weight).abs().sum())
    assert size == pytest.approx(times)  # not one less, not one more


def test_the_texts_steps_are_plain_and_the_codes_are_adams() -> None:
    for variant, lr, largest in (("text", None, None), ("code", None, 3e-3), ("code", 0.05, 0.05)):
        learner = make(info=pictures(1), variant=variant, features=3, kernel=3, lr=lr, double=True)
        before = learner.tensors()
        learn(learner, fixed(), [0], lambda n: tuple(part[:40] for part in drawn(n)))
        moved = {name: before[name] - learner.tensors()[name] for name in before}
        if variant == "text":
            learner.load(learner.tensors() | before)
            g = learner.gradient(*perturbed(learner), 40)
            rates = {name: 1e-4 if name.startswith("encoder.") else 0.03 for name in before}
            assert all(torch.allclose(moved[name], rate * g[name]) for name, rate in rates.items())
        else:
            assert moved["head.weight"].abs().min() == pytest.approx(largest, rel=1e-3)


# Noise, batches, memory.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("variant", ["text", "code"])
def test_a_release_is_all_that_is_needed_to_go_on(method: str, variant: str, tmp_path: Path) -> None:
    info = pictures(3)
    settings: dict[str, Any] = {"variant": variant, "features": 3, "kernel": 3, "batch": 16, "epochs": 2}
    whole = make(method, info, **settings)
    twins = learn(whole, fixed(), [0, 1, 2], drawn)
    vault, learner = fixed(), make(method, info, **settings)
    release = learn(learner, vault, [0, 1], drawn)[-1]
    release.save(tmp_path)
    loaded, again = Release.load(tmp_path), make(method, info, **settings)
    again.restore(loaded.tensors, loaded.tasks)
    x = torch.from_numpy(drawn(9)[0])
    assert torch.equal(again.scores(x), learner.scores(x)) and torch.isfinite(again.scores(x)).all()
    chi = {name: value.clone() for name, value in again.chi_.items()}
    (last,) = learn(again, Vault(vault.ledger), [2], drawn)
    assert same(again.chi_, chi)  # one draw, after a resume too
    assert same(last.tensors, twins[-1].tensors) and torch.equal(again.scores(x), whole.scores(x))


def test_the_encoder_has_a_rate_of_its_own() -> None:
    for variant, settings, rates in (
        ("text", {"lr": None}, (1e-4, 0.03)), ("code", {"lr": [0.5, 0.2]}, (0.2, 0.2)),
        ("code", {"lr": 0.5, "encoder_lr": 0.25}, (0.25, 0.5)),
    ):  # fmt: skip
        learner = make(info=pictures(2), variant=variant, features=3, kernel=3, **settings)
        learner.set_rates(learner.stream_.tasks[1])
        assert [group["lr"] for group in learner.optimizer_.param_groups] == [rates[0], rates[1], rates[1]]
    with pytest.raises(LearnerError, match="encoder_lr"):
        make(encoder_lr=0.0)


def test_a_crash_inside_a_task_changes_nothing() -> None:
    twin, vault = make(), fixed()
    wanted = learn(twin, fixed(), [0, 1])[-1]
    learner = make()
    first = learn(learner, vault, [0])[-1]
    learner.callback = stop_at(1, 2)
    with pytest.raises(Stopped):
        learn(learner, vault, [1])
    again = make()
    again.restore(first.tensors, first.tasks)
    assert same(learn(again, Vault(vault.ledger), [1])[-1].tensors, wanted.tensors)


def read(learner: Functional, monkeypatch: pytest.MonkeyPatch, tasks: int = 2) -> list[tuple[torch.Tensor, int]]:
    """Every batch that a gradient was taken of, and its λ."""
    seen, honest = [], Functional.gradient

    def gradient(self: Functional, x: torch.Tensor, y: torch.Tensor, size: int) -> dict[str, torch.Tensor]:
        seen.append((x, size))
        return honest(self, x, y, size)

    monkeypatch.setattr(Functional, "gradient", gradient)
    learn(learner, fixed(), range(tasks))
    return seen


def test_batches_are_disjoint_and_the_same_in_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [x for x, _ in read(make(epochs=3), monkeypatch, tasks=1)]
    assert len(seen) == 9 and len(torch.cat(seen[:3]).unique(dim=0)) == 120
    for epoch in (1, 2):
        assert all(torch.equal(seen[i], seen[3 * epoch + i]) for i in range(3))


def test_the_memory_is_one_whole_batch_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make()
    seen = [x for x, _ in read(learner, monkeypatch, tasks=3)]
    own, memory = seen[:3], seen[4::2]
    assert len(seen) == 3 + 6 + 6 and len(learner.kept_) == 3
    assert any(torch.equal(learner.kept_[0][0], x) for x in own)
    kept = [x for x, _ in learner.kept_[:2]]
    assert all(any(torch.equal(x, one) for one in kept) for x in memory)
    assert all(torch.equal(x, kept[0]) for x in memory[:3])


def test_the_reference_gradient_is_of_as_many_tasks_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for asked, each in ((1, [0, 1, 1, 1]), (2, [0, 1, 2, 2]), (6, [0, 1, 2, 3])):
        learner = make(info=facts(4), memory_batches=asked)
        seen = [x for x, _ in read(learner, monkeypatch, tasks=4)]
        assert len(seen) == 3 * sum(1 + n for n in each)  # three batches a task
        kept, at = [x for x, _ in learner.kept_], 0
        for task, n in enumerate(each):
            for _ in range(3):
                memory = seen[at + 1 : at + 1 + n]
                places = [place for x in memory for place in range(task) if torch.equal(x, kept[place])]
                assert len(set(places)) == len(places) == n  # of different tasks
                at += 1 + n
        monkeypatch.undo()
    with pytest.raises(LearnerError, match="memory_batches"):
        make(memory_batches=0)


def test_the_reference_gradient_is_the_mean_of_theirs() -> None:
    learner = make(info=facts(3), memory_batches=2, double=True)
    learn(learner, fixed(), [0, 1, 2])
    one, two = (learner.gradient(*learner.kept_[place], 40) for place in (0, 2))
    assert same(learner.reference_gradient([0]), learner.gradient(*learner.kept_[0], 40))
    mean = learner.reference_gradient([0, 2])
    assert all(torch.allclose(mean[name], (one[name] + two[name]) / 2) for name in one)


def test_algorithm_1_takes_a_whole_task_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make(batch=None)
    seen = read(learner, monkeypatch)
    assert [(len(x), size) for x, size in seen] == [(120, 120)] * 3


def test_heterogeneity() -> None:
    for settings, counts in (({"epochs": [5, 1]}, [15, 3]), ({"steps": 4}, [4, 4]), ({"steps": [2, 7]}, [2, 7])):
        learner, said = make(info=facts(2), **settings), []
        learner.callback = OnStep(lambda now, said=said: said.append(now.of) if now.step == 0 else None)
        learn(learner, fixed(), [0, 1])
        assert said == counts
    with pytest.raises(LearnerError, match="give steps or epochs"):
        make(steps=3, epochs=1)
    with pytest.raises(LearnerError, match="epochs has 1 values and task 2 needs its own"):
        make(epochs=[1.0])


def test_tasks_of_their_own_size_get_their_own_part_of_one_draw() -> None:
    sizes = (120, 60)
    info = facts(2)
    tasks = tuple(type(task)(**vars(task) | {"size": size}) for task, size in zip(info.tasks, sizes, strict=True))
    info = StreamInfo(**vars(info) | {"tasks": tasks})
    learner = make(info=info, batch=None, double=True)
    learn(learner, fixed(), [0])
    before = learner.chi_
    learn(learner, fixed(), [1], lambda n: records(n, 60))
    assert all(torch.allclose(before[name], learner.chi_[name]) for name in before)
    assert [learner.plan(task).batch for task in info.tasks] == [120, 60]


def test_an_empty_task_is_no_step_and_no_memory() -> None:
    learner = make()
    before = learner.tensors()
    learn(learner, fixed(), [0, 1], lambda n: nothing() if n == 0 else records(n))
    assert len(learner.kept_[0][1]) == 0 and not torch.equal(
        before["encoder.weight"], learner.tensors()["encoder.weight"]
    )
    assert all(torch.isfinite(value).all() for value in learner.tensors().values())


# Projection.


def gradients() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The encoder's agree, the classifier's conflict, and together they agree."""
    g = {"encoder.weight": torch.tensor([3.0, 1.0]), "head.weight": torch.tensor([1.0, 2.0])}
    reference = {"encoder.weight": torch.tensor([2.0, 0.0]), "head.weight": torch.tensor([-1.0, 0.0])}
    return g, reference


def test_dpl2m_projects_its_two_parts_separately_and_l2dpml_the_stack() -> None:
    g, reference = gradients()
    parts = make("DPL2M", projection="conflict").projected(g, reference)
    assert torch.equal(parts["encoder.weight"], g["encoder.weight"])
    assert parts["head.weight"].tolist() == [0, 2]
    assert make("L2DPML", projection="conflict").projected(g, reference) is g
    always = make("DPL2M", projection="always").projected(g, reference)
    assert always["encoder.weight"].tolist() == [0, 1] and always["head.weight"].tolist() == [0, 2]
    assert same(
        dict(make("L2DPML", projection="always").projected(g, reference)), dict(project(g, reference, always=True))
    )
    assert make("L2DPML", projection="always").projected(g, reference)["encoder.weight"].tolist() == [1, 1]


@pytest.mark.parametrize("method", METHODS)
def test_projections_are_used(method: str) -> None:
    ends = [make(method, projection=mode) for mode in ("conflict", "always")]
    for learner in ends:
        learn(learner, fixed(), [0, 1])
    assert not same(ends[0].tensors(), ends[1].tensors())


# Claims, refusals, prediction.


def test_the_claim_is_the_papers_and_equals_the_budget() -> None:
    for method, extra in (("L2DPML", 1.0), ("DPL2M", 0.0)):
        info = StreamInfo.uniform("mnist", labels=range(10), shape=(1, 28, 28), size=55_000, tasks=2, public=True)
        learner = make(method, info, network="mlp", hidden=256, batch=2500, epsilon1=None, epsilon2=None,
                       budget=Budget(epsilon=0.5, delta=1e-5))  # fmt: skip
        weight = learner.stacked.encoder.weight
        assert weight.shape == (784, 256) and learner.stacked.encoder.sensitivity == 202_272
        one, two, total = learner.shares()
        gamma = 2 * 202_272 / (2500 * float(weight.detach().abs().sum(0).max()))
        assert one == two and total == pytest.approx(0.5)
        assert one * (1 + extra / 80.9088 + 1 / gamma) + two == pytest.approx(0.5)
        (claim,) = learner.claims()
        assert claim.epsilon == pytest.approx(0.5) and claim.delta == 0
        assert ("gamma_x" in claim.formula) == (method == "L2DPML") and claim.paper == learner.reference
        assert learner.claimed().total == learner.claimed().per_task == pytest.approx(0.5)
        plan = learner.plan(info.tasks[0])
        assert plan.delta_l == 512 and (plan.input, plan.hidden, plan.output) == ((1, 28, 28), (256,), (256,))


def test_the_code_has_its_own_sensitivity_and_shrinks_its_epsilon() -> None:
    info = StreamInfo.uniform("mnist", labels=range(10), shape=(1, 28, 28), size=55_000, tasks=2, public=True)
    learner = make(info=info, variant="code", network="linear", epsilon1=0.1, epsilon2=0.1, batch=2499)
    encoder = learner.stacked.encoder
    assert encoder.sensitivity == (14**2 + 2) * 25
    assert encoder.noise_shape == (32, 14, 14) and encoder.hidden_shape == (32, 7, 7)
    one, two, total = learner.shares()
    gamma = 2 * 4950 / (2499 * float(torch.linalg.svdvals(encoder.weight.detach().flatten(1))[0]))
    assert one == pytest.approx(0.1 / (1 + 1 / gamma + 2499 / 4950)) and two == 0.1
    assert total == pytest.approx(0.2) == learner.claims()[0].epsilon


@pytest.mark.parametrize("method", METHODS)
def test_it_is_refused_on_private_data_and_certifies_nothing_on_public(method: str, tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        with pytest.raises(PolicyError, match="allow_unsafe") as error:
            learn(make(method, facts(public=False)), Vault(ledger), [0])
        assert "\n" not in str(error.value) and ledger.epsilon(1) == 0
    learner = make(method)
    (release,) = learn(learner, Vault(Ledger.throwaway()), [0])
    certified = release.certificate.claims.certified
    assert certified.epsilon is None and "one draw of noise" in certified.reason
    assert release.certificate.claims.paper[0].epsilon == pytest.approx(learner.claimed().total)


def test_prediction_adds_the_same_noise_or_none() -> None:
    learner = make(info=pictures(1), variant="code", features=3, kernel=3, epsilon1=2.0)
    learn(learner, fixed(), [0], drawn)
    x = torch.from_numpy(drawn(0)[0])
    noisy = learner.scores(x)
    learner.noisy_prediction = False
    plain = learner.scores(x)
    assert not torch.allclose(noisy, plain)
    learner.chi_ = {name: torch.zeros_like(value) for name, value in learner.chi_.items()}
    learner.noisy_prediction = True
    assert torch.allclose(learner.scores(x), plain)


def test_hidden_units_in_the_records_shape_let_convolutions_follow() -> None:
    info = StreamInfo.uniform("windows", labels=(0, 1), shape=(16, 3), size=40, tasks=1, public=True)
    learner = make(info=info, hidden=None, network="har_cnn")
    assert learner.stacked.encoder.hidden_shape == (16, 3)
    assert learner.scores(torch.zeros(2, 16, 3)).shape == (2, 2)


def test_the_output_layer_has_no_bias_and_other_networks_are_refused() -> None:
    assert make().stacked.head.bias is None
    assert make(info=pictures(1), variant="code", features=3, kernel=3).stacked.head.bias is not None
    module = tiny(facts())
    before = {name: value.clone() for name, value in module.state_dict().items()}
    learner = make(network=module, hidden=6)
    learn(learner, fixed(), [0])
    assert same(module.state_dict(), before)  # the caller's module is not trained
    with pytest.raises(ConfigError, match=r"ends in nn\.Linear"):
        make(network=nn.Linear(5, 2))
    with pytest.raises(ConfigError, match="use variant='text'"):
        make(variant="code")
    for name in ("variant", "projection"):
        with pytest.raises(LearnerError, match=f"{name} must be"):
            make(**{name: "other"})


def test_a_release_of_private_data_holds_weights_alone() -> None:
    learner = make(info=facts(public=False))
    learner.chi_ = {"input": torch.ones(6)}
    assert not any(name.startswith(("memory", "noise")) for name in learner.tensors())
    with pytest.raises(LearnerError, match="has no memory and no noise"):
        learner.restore(learner.tensors(), learner.stream_.tasks[:1])
