"""Base class of DPL2M and L2DP-ML: the functional mechanism as published (Phan 2019, Alg. 1; Lai 2022, Algs. 1 and 2).

NOT PRIVATE: it reads `vault.unsafe.perturbed`. Per batch B, with x̄ = x + χ₁/λ and the hidden layer h̄ under noise 2χ₂/λ
(`tacit.models.autoencoder_classifier` has both of its readings, and where it is normalised and clipped):

    R̄(θ₁) = Σ_r Σ_s (½ − x̄_rs) x̃_rs              Eq. 13, of the text; the code takes Σ |½x̃ − x̃x̄ + log 2|
    L̄(θ₂) = Σ_r Σ_k (½ − y_rk) z_rk + z_rk²/8    z = h_π W_k, h_π in [−1, 1]; to the gradient of W_k χ₃ is added once,
                                                 in the code K times, where K is the number of classes

L̄ is the second-order Taylor expansion of Σ_k [y log(1 + e^−z) + (1 − y) log(1 + e^z)] without its constant. Eq. 9's
leading minus and Eq. 12's −½|z| − ⅛z² are misprints: they would be maximised, not minimised. No gradient of L̄ goes to
θ₁. Sums over a batch, χ₃ among them, are divided by λ, so that learning rates are those of a mean.

In the authors' code Σ χ₃W/λ is a scalar that is subtracted from each of the λ·K terms of L̄; TensorFlow differentiates
the sum of all of them over λ. So W_k gets K·χ₃/λ there: ten times the noise of the paper, for ten classes.

Without normalisation nothing is learned: the noise is hundreds of times the size of what it hides. It subtracts what
all rows of a batch share, which is the noise; that is why the method learns, and why it protects nothing.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from tacit.certificate.claims import Claim, lifelong, lifelong_ratios
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.base import passes
from tacit.learners.base.gradient import Each, Gradient, at
from tacit.learners.base.learner import Learner
from tacit.learners.base.public_figures import Claimed
from tacit.learners.base.ranges import RATE, Range
from tacit.learners.base.weights import under
from tacit.models.autoencoder_classifier import Convolutional, Dense, Stacked
from tacit.models.devices import check_device
from tacit.privacy.vault import Block, FunctionalPlan, Vault

MEMORY, NOISE, ADAM = "memory.", "noise.", "adam."


@dataclass(kw_only=True, eq=False)
class Functional(Learner):
    """One draw of noise, fixed disjoint batches, one batch per task as memory, A-GEM's projection.

    `network` is the classifier on h̄: a name of `tacit.models` for records of the hidden layer's shape."""

    variant: Literal["text", "code"] = "text"
    """text: θ₁ is dense, χ₃ is shared by the classes, and plain gradient steps, as in the papers. code: as in the
    authors' code, θ₁ is a convolution, each class has its own χ₃, which counts once for each class, steps are Adam's;
    and its Δ_R and ε₁."""
    hidden: int | None = 256
    """text: number of hidden units |h₁|. If None, as many as inputs, in the shape of a record, for convolutions."""
    features: int = 32
    """code: number of channels of the auto-encoder."""
    kernel: int = 5
    """code: kernel size of the auto-encoder."""
    batch: int | None = 2500
    """Batch size λ. If None, a whole task is one batch and λ its nominal size (Lai 2022, Alg. 1)."""
    steps: Each[int] | None = None
    """Number of steps in a task; equal for all tasks in the balanced variant of Lai et al. 2022. Batches are cycled."""
    epochs: Each[float] | None = None
    """Number of passes over a task's batches, instead of `steps`. If both are None, one pass."""
    lr: Each[float] | None = None
    """Learning rate. If None, 0.03 in `text` and 0.003 in `code`."""
    encoder_lr: float | None = None
    """Learning rate of θ₁. If None, 0.0001 in `text`, where R̄ is a sum over inputs that aligns all hidden units at the
    rate of the classifier, and `lr` in `code`, where Adam scales it."""
    epsilon1: float | None = None
    """ε₁ of the auto-encoder. If None, equal to `epsilon2`."""
    epsilon2: float | None = None
    """ε₂ of the outputs. If None, both are equal and such that the paper's formula gives the budget's ε."""
    projection: Literal["conflict", "always"] = "conflict"
    """When gradients are projected. conflict: only conflicting gradients, as in A-GEM, whose recipe both papers follow.
    always: as the papers print it (Eq. 2), with which only the first task is learned."""
    memory_batches: int = 1
    """Number of tasks, chosen at random in each step, whose remembered batches make the reference gradient: the mean of
    theirs. 1: as both papers print it; on CIFAR the authors take 6. While there are fewer, all of them."""
    noisy_prediction: bool = True
    """Whether to predict with the same noise χ₁/λ and 2χ₂/λ, as the authors' code does. In `text` it cancels."""
    low: float = 0.0
    """Public lower bound of the features."""
    high: float = 1.0
    """Public upper bound of the features, which are mapped from [low, high] to [−1, 1]."""
    double: bool = False
    """Compute and release in float64."""

    private: ClassVar[bool] = False
    certifies: ClassVar[str] = "nothing: all records share one draw of noise, so their differences are exact"
    ranges: ClassVar[Mapping[str, Range]] = {"encoder_lr": RATE}
    counts_input: ClassVar[bool]
    """Whether the paper's formula has the term ε₁/γ_x."""

    @abstractmethod
    def projected(self, gradient: Gradient, reference: Gradient) -> Gradient:
        """The step that is taken, given the gradient of a memory batch."""

    def start(self, stream: StreamInfo) -> None:
        for name, allowed in (("variant", ("text", "code")), ("projection", ("conflict", "always"))):
            if getattr(self, name) not in allowed:
                raise LearnerError(f"{name} must be {' or '.join(map(repr, allowed))}, got {getattr(self, name)!r}")
        passes.check(self.steps, self.epochs)
        for task in stream.tasks:  # what is missing for a later task is said before the first
            passes.steps_in(task, 1, steps=self.steps, epochs=self.epochs), self.lr_of(task)
        super().start(stream)
        rule = torch.optim.Adam if self.variant == "code" else torch.optim.SGD
        parts = (self.stacked.encoder, self.stacked.body, self.stacked.head)
        self.optimizer_ = rule([{"params": list(part.parameters()), "lr": 1.0} for part in parts])
        self.kept_: list[tuple[Tensor, Tensor]] = []
        self.chi_: dict[str, Tensor] = {}  # χ₁, 2χ₂ and χ₃
        encoder = self.stacked.encoder
        self._ratios = lifelong_ratios(encoder.sensitivity, max(map(self.size_of, stream.tasks)), encoder.norm())
        self.plan(stream.tasks[0])

    def build(self) -> nn.Module:
        check_device(self.device)
        shape, dense = self.stream_.shape, self.variant == "text"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            encoder = Dense(shape, self.hidden) if dense else Convolutional(shape, self.features, self.kernel)
            made = Stacked(encoder, self.network_for(replace(self.stream_, shape=encoder.hidden_shape)))
        return made.to(self.device, torch.float64 if self.double else torch.float32)

    @property
    def stacked(self) -> Stacked:
        """The network."""
        assert isinstance(self.model_, Stacked)
        return self.model_

    def lr_of(self, task: TaskInfo) -> float:
        """The learning rate in a task."""
        if self.lr is None:
            return 0.03 if self.variant == "text" else 0.003
        return at(self.lr, task, "lr")

    def set_rates(self, task: TaskInfo) -> None:
        """Sets the learning rates of a task, of θ₁ and of θ₂."""
        lr = self.lr_of(task)
        own = 1e-4 if self.variant == "text" else lr
        for group, rate in zip(self.optimizer_.param_groups, (self.encoder_lr or own, lr, lr), strict=True):
            group["lr"] = rate

    def size_of(self, task: TaskInfo) -> int:
        """λ in a task."""
        return task.size if self.batch is None else self.batch

    def coins(self, task: TaskInfo) -> torch.Generator:
        """Public: which records are in which batch (the first draw), and which batches are remembered."""
        return torch.Generator().manual_seed(self.seed * 1009 + task.number)

    def shares(self) -> tuple[float, float, float]:
        """(ε₁ of the noise, ε₂, the claimed ε): by the paper's formula, with γ from the initial weights."""
        gamma, gamma_x = self._ratios
        times = 1 + 1 / gamma + (1 / gamma_x if self.counts_input else 0.0)
        # The authors' code divides its ε₁ by that factor, so that the three terms with it add up to ε₁.
        less = times if self.variant == "code" else 1.0
        equal = self.budget.epsilon / (times / less + 1)
        one = (equal if self.epsilon1 is None else self.epsilon1) / less
        two = equal if self.epsilon2 is None else self.epsilon2
        return one, two, one * times + two

    def plan(self, task: TaskInfo) -> FunctionalPlan:
        """The noise of a task: drawn once for all of them, divided by its λ."""
        one, two, _ = self.shares()
        width = self.stacked.head.in_features
        return FunctionalPlan(
            epsilon1=one,
            epsilon2=two,
            batch=self.size_of(task),
            delta_r=self.stacked.encoder.sensitivity,
            delta_l=2 * width,
            input=self.stream_.shape,
            hidden=self.stacked.encoder.noise_shape,
            output=(width,) if self.variant == "text" else (len(self.labels_), width),
            low=self.low,
            high=self.high,
        )

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        found = vault.unsafe.perturbed(block, self.plan(task), dtype=self.stacked.encoder.weight.dtype)
        x, y, size = found.x.to(self.device), found.y.to(self.device), self.size_of(task)
        noises = {"input": found.input, "hidden": found.hidden, "output": found.output}
        self.chi_ = {name: size * value.to(self.device) for name, value in noises.items()}
        coins = self.coins(task)
        batches = passes.fixed(len(x), size, coins)
        steps = passes.steps_in(task, len(batches), steps=self.steps, epochs=self.epochs)
        memory = [number for number, (_, known) in enumerate(self.kept_) if len(known)]
        self.set_rates(task)
        for rows in passes.training_steps(self.report, task, cycle(batches), steps):
            g: Gradient = self.gradient(x[rows], y[rows], size)
            if memory:
                picked = torch.randperm(len(memory), generator=coins)[: self.memory_batches]
                g = self.projected(g, self.reference_gradient([memory[place] for place in picked.tolist()]))
            for name, parameter in self.model_.named_parameters():
                parameter.grad = g[name]
            self.optimizer_.step()
        rows = batches[int(torch.randint(len(batches), (), generator=coins))]
        self.kept_.append((x[rows], y[rows]))
        vault.drop(block)

    def gradient(self, x: Tensor, y: Tensor, size: int) -> dict[str, Tensor]:
        """∇R̄ to θ₁ and ∇L̄ to θ₂, of perturbed records."""
        model, noise = self.stacked, self.chi_["hidden"] / size
        with torch.no_grad():
            hidden = model.encoder(x, noise)
        z = model.classify(hidden)
        wrong = 0.5 - nn.functional.one_hot(y, z.shape[1]).to(z.dtype)
        objective = model.encoder.reconstruction(x, noise) + (wrong * z + z.square() / 8).sum()
        named = dict(model.named_parameters())
        found = torch.autograd.grad(objective / size, list(named.values()))
        g = dict(zip(named, found, strict=True))
        times = z.shape[1] if self.variant == "code" else 1
        g["head.weight"] = g["head.weight"] + times * self.chi_["output"] / size
        return g

    def reference_gradient(self, picked: Sequence[int]) -> dict[str, Tensor]:
        """The mean gradient of the batches that are remembered of some tasks, each with its own λ."""
        each = [self.gradient(*self.kept_[place], self.size_of(self.tasks_[place])) for place in picked]
        return {name: torch.stack([g[name] for g in each]).mean(0) for name in each[0]}

    def logits(self, x: Tensor) -> Tensor:
        weight = self.stacked.encoder.weight
        scaled = self.plan(self.stream_.tasks[0]).scaled(x.to(weight.dtype))
        if not (self.noisy_prediction and self.chi_):
            return self.stacked(scaled).float()  # type: ignore[no-any-return]
        size = self.size_of(self.tasks_[-1] if self.tasks_ else self.stream_.tasks[0])
        found: Tensor = self.stacked(scaled + self.chi_["input"] / size, self.chi_["hidden"] / size)
        return found.float()

    def claims(self) -> tuple[Claim, ...]:
        one, two, _ = self.shares()
        gamma, gamma_x = self._ratios
        return (lifelong(one, two, gamma, gamma_x) if self.counts_input else lifelong(one, two, gamma),)

    def claimed(self) -> Claimed:
        """For ever, whatever the number of tasks."""
        epsilon = self.shares()[2]
        return Claimed(per_task=epsilon, total=epsilon, delta=0.0)

    def tensors(self) -> dict[str, Tensor]:
        """The weights; where the data is public also the memory, the noise and the state of Adam, which are needed to
        resume."""
        kept = super().tensors()
        if not self.stream_.public:
            return kept
        kept |= {NOISE + name: value.cpu() for name, value in self.chi_.items()}
        for i, (x, y) in enumerate(self.kept_):
            kept |= {f"{MEMORY}{i}.x": x.cpu(), f"{MEMORY}{i}.y": y.cpu()}
        for name, parameter in self.model_.named_parameters():
            state = self.optimizer_.state.get(parameter, {})
            kept |= {f"{ADAM}{name} {key}": value.detach().cpu().clone() for key, value in state.items()}
        return kept

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        weights = {name: value for name, value in tensors.items() if not name.startswith((MEMORY, NOISE, ADAM))}
        super().load(weights)
        if len(weights) == len(tensors):
            raise LearnerError(
                f"this release has no memory and no noise, since its data is not public: {type(self).__name__} cannot "
                "go on from it"
            )
        self.chi_ = {name: tensors[NOISE + name].to(self.device) for name in ("input", "hidden", "output")}
        self.kept_ = [
            (tensors[f"{MEMORY}{i}.x"].to(self.device), tensors[f"{MEMORY}{i}.y"].to(self.device))
            for i in range(len(self.tasks_))
        ]
        for name, parameter in self.model_.named_parameters():
            if state := under(tensors, f"{ADAM}{name} "):
                self.optimizer_.state[parameter] = {
                    key: value.clone() if key == "step" else value.to(self.device, copy=True)
                    for key, value in state.items()
                }
