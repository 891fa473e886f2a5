"""Robust DP-CL as printed (Hassanpour et al. 2022, Algorithms 1 and 2): NOT PRIVATE. `Pool` is corrected and certified.

For each batch (x, y) of m records, with σ the noise multiplier and C the clip (Algorithm 2):
    7       (x_ref, y_ref) ∼ M(y): remembered records with the labels of the batch
    8, 9    g_ref, g ← ∇ of the loss of each batch
    11, 12  g' ← (g / max(1, ‖g‖/C) + N(0, σ²C² I)) / m, and g'_ref likewise: a batch is clipped, not a record
    13–16   g̃ ← g' − (g'ᵀg'_ref / g'_refᵀg'_ref) g_ref where they conflict; this g_ref has no clip and no noise
    18      θ ← θ − ζ g̃
After each task (UpdateEpsMem) remembered records whose budget is spent are replaced by unspent ones, and records of the
task enter whose margin reaches the sigmoid of their batch's mean margin (Eq. 6). A network that spends the global
budget (GPB) is finished, and a new one begins with nothing spent (Algorithm 1).

None of it holds (docs/privacy.md): one record changes a clipped batch by 2C; whether a record enters depends on others
of its batch; a replaced record changes the memory for ever; line 16 is not noisy; and budgets belong to records.

Where the paper is ambiguous or contradicts itself, this is what was chosen:
* l is the mean loss of a batch, which line 11 divides by m again. Line 13, "if g'_ref ≥ 0", is read as g'ᵀg'_ref ≥ 0.
* g_{j,ref} of line 16 is the g_ref of line 8, since no line computes a gradient for each label j.
* Line 3 draws the noise γ of the first layer once, for all records and steps. That is another initial bias of that
  layer, so it is added there (`layer_noise`; no value is printed). A mean over it is exact, so Eq. 6 needs no bounds;
  with Hoeffding's bounds for n = 10 draws no record could enter.
* The text updates the memory after each batch, Algorithm 2 after each task, as here. No size |M| is printed: of each
  label of a task, `memory_per_class` records are tried, and those that pass Eq. 6 enter.
* What a read of a remembered record costs is not said. Here it is the moments accountant's price of its reads at
  `charged_rate`, against `record_budget`. The record of the same task and label that replaces it (line 26) is one of
  `memory_per_class` that are set aside. It must pass Eq. 6 at that time, in a batch of those that are left of its task.
* Line 26 asks the network in training, E_t, also about records of tasks that another network answers for.
* Networks end between tasks, as an early start needs; line 7 of Algorithm 1 would also end one inside a task.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from tacit.certificate.claims import LEARNER_ORDER, moments_accountant
from tacit.data.stream import StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.base import passes
from tacit.learners.base.gradient import Gradient, at
from tacit.learners.base.learner import Learner
from tacit.learners.base.weights import State, put, trained
from tacit.learners.baselines.agem import AGEM, Records
from tacit.learners.pool.held_out_tasks import HeldTasks
from tacit.learners.pool.learner_schedule import LearnerSchedule, Steps
from tacit.learners.pool.turns import TakingTurns
from tacit.learners.published.clipped_batch import clipped_as_one, with_noise
from tacit.privacy.vault import Block, Vault


@dataclass(kw_only=True, eq=False)
class PublishedRobustDPCL(AGEM, TakingTurns):
    """Networks in turn on clipped batches, and a memory that replaces spent records: NOT PRIVATE.

    Reference: Hassanpour et al. 2022, Algorithms 1 and 2 as printed.
    Claim: each network's and each record's own budget stays below a global one, so that the bound holds for ever.
    Certified: no finite epsilon; `tacit audit batch-clipping` and `tacit audit replacement-cascade` show why.
    Sharp edges: it reads records raw, so it runs only on data that is declared public, or where the policy allows
    it. One record more at the start changes which others are remembered for ever.
    """

    memory_batch: int = 10
    """Remembered records in a reference gradient."""
    clip: float = 1.0
    """C: the norm to which the gradient of a whole batch is clipped."""
    noise: float = 4.0
    """σ, the noise multiplier."""
    layer_noise: float = 0.0
    """Standard deviation of γ, which is drawn once and added to the first layer's output."""
    by_class: bool = True
    """Robust A-GEM (line 7): reference gradients are of the labels of the batch. False: of any remembered records."""
    efficient_memory: bool = True
    """Records enter the memory by Eq. 6. False: all that are tried."""
    record_budget: float | None = None
    """The GPB of a remembered record, which is replaced once its reads have spent more. None: records stay."""
    charged_rate: float | None = None
    """Sampling rate at which a read of a remembered record is charged. None: batch / size; 1: without amplification."""
    fine_tune: Literal["public"] | None = None
    """New networks begin by a pass over the held-out tasks D^CV, without noise. None: no such pass."""
    fine_tune_lr: float | None = None
    """Learning rate of that pass. None: as in tasks."""

    reference: ClassVar[str] = "Hassanpour et al. 2022, Algorithms 1 and 2 as printed"
    claim: ClassVar[str] = "each learner's budget ≤ GPB, by the moments accountant over its own steps"
    certifies: ClassVar[str] = "nothing: records are read raw, and a batch is clipped where a record would have to be"

    def start(self, stream: StreamInfo) -> None:
        super().start(stream)
        self.uses_ = torch.zeros(0, dtype=torch.int64)  # of every remembered record, in the order of `kept_`
        self.spare_: list[Records] = []
        self.held_: HeldTasks | None = None
        self._learner_schedule = self.turn_settings().learner_schedule(stream, self._priced, self.budget.delta)
        self.check_learner_schedule()

    @property
    def learner_schedule_(self) -> LearnerSchedule:
        return self._learner_schedule

    def steps_of_learner(self, task: TaskInfo) -> Steps:
        steps = passes.steps_in(task, -(-task.size // self.batch), steps=self.steps, epochs=self.epochs)
        return min(1.0, self.batch / task.size), self.noise, steps

    def network_for(self, info: StreamInfo) -> nn.Module:
        """Line 3: γ, as a part of the first layer's initial bias."""
        network = super().network_for(info)
        if self.layer_noise:
            first = next((layer for layer in network.modules() if isinstance(layer, nn.Linear | nn.Conv2d)), None)
            if first is None or first.bias is None:
                raise LearnerError("layer_noise needs a network whose first layer has a bias; use layer_noise=0")
            with torch.no_grad():
                first.bias.add_(self.layer_noise * torch.randn(first.bias.shape))
        return network

    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        x, y = (part.to(self.device) for part in vault.unsafe.records(block, f"{type(self).__name__} is not private"))
        coins = torch.Generator().manual_seed(self.seed * 1009 + task.number)
        for number in self.learner_schedule_.readers(task.number):
            self._begin(number, task, vault)
            self.train(task, x, y, coins)
            self.pool_[number] = trained(self.model_)
        self.take_up(min(self.learner_schedule_.readers(task.number)))  # the network that answers for the task
        self._replace_spent(task, coins)
        self._keep(task, x, y, coins)
        vault.drop(block)

    def gradient(self, x: Tensor, y: Tensor, coins: torch.Generator) -> Gradient:
        """Lines 11 and 12: (g / max(1, ‖g‖/C) + N(0, σ²C² I)) / m."""
        return self._noisy(super().gradient(x, y, coins), coins)

    def direction(self, x: Tensor, y: Tensor, memory: Records | None, coins: torch.Generator) -> Gradient:
        """Lines 7 to 17. Whether and how far to project follows from noisy gradients; what is subtracted is not."""
        g = self.gradient(x, y, coins)
        if memory is None or not len(memory[1]):
            return g
        raw = super().gradient(*self.remembered(memory, y, coins), coins)
        noisy = self._noisy(raw, coins)
        dot = sum(float((value * noisy[name]).sum()) for name, value in g.items())
        square = sum(float(value.square().sum()) for value in noisy.values())
        if (dot >= 0 and self.project == "conflict") or square == 0:
            return g
        return {name: value.sub(raw[name], alpha=dot / square) for name, value in g.items()}

    def _noisy(self, gradient: Gradient, coins: torch.Generator) -> Gradient:
        noisy = with_noise(clipped_as_one(gradient, self.clip), self.noise * self.clip, coins)
        return {name: value / self.batch for name, value in noisy.items()}

    def remembered(self, memory: Records, labels: Tensor, coins: torch.Generator) -> Records:
        """Line 7: remembered records with labels of the batch (or any, where none has one). Every read counts."""
        pick = torch.randperm(len(memory[1]), generator=coins)
        if self.by_class and (alike := torch.isin(memory[1][pick], labels)).any():
            pick = pick[alike.cpu()]
        pick = pick[: self.memory_batch]
        self.uses_[pick] += 1
        return memory[0][pick], memory[1][pick]

    def _begin(self, number: int, task: TaskInfo, vault: Vault) -> None:
        """Puts network `number` into memory: as it was left, or new, with weights and a pass over D^CV of its own."""
        if number in self.pool_:
            return self.take_up(number)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed + number)
            put(self.model_, trained(self.network_for(self.stream_)))
        if self.fine_tune is None:
            return None
        if self.held_ is None:
            raise LearnerError("fine_tune needs held-out tasks, which are missing; give them, or use fine_tune=None")
        lr = at(self.lr, task, "lr") if self.fine_tune_lr is None else self.fine_tune_lr
        optimizer, loss = torch.optim.SGD(self.model_.parameters(), lr=lr), self.held_.loss(self.loss_, self.device)
        records, coins = self.held_.raw(vault), torch.Generator().manual_seed(self.seed * 1009 + 500 + number)
        for rows in islice(passes.fresh(len(records), self.batch, coins), -(-len(records) // self.batch)):
            x, y = (part.to(self.device) for part in records[rows])
            gradients = torch.autograd.grad(loss(self.model_(x), y).mean(), list(self.model_.parameters()))
            for parameter, g in zip(self.model_.parameters(), gradients, strict=True):
                parameter.grad = g
            optimizer.step()
        return None

    @property
    def held_out_access(self) -> Literal["public"] | None:
        return self.fine_tune

    def receive_held_out(self, blocks: Sequence[Block], vault: Vault) -> None:
        self.held_ = HeldTasks.of(blocks, vault, self.stream_)

    def _replace_spent(self, task: TaskInfo, coins: torch.Generator) -> None:
        """UpdateEpsMem, lines 22 to 28. A spent record without a spare one of its label that meets the robustness
        condition is removed."""
        allowed, left = self.reads_allowed(task), []
        for number, uses in enumerate(torch.split(self.uses_, [len(y) for _, y in self.kept_])):
            (x, y), (spare_x, spare_y) = self.kept_[number], self.spare_[number]
            x, uses, spent = x.clone(), uses.clone(), (uses > allowed).nonzero().flatten().tolist()
            stays, unused = torch.ones(len(y), dtype=torch.bool), torch.ones(len(spare_y), dtype=torch.bool)
            met = self._meeting(spare_x, spare_y, self.tasks_[number], coins) if spent else unused
            for row in spent:
                alike = ((spare_y == y[row]).cpu() & met & unused).nonzero().flatten()
                if len(alike):
                    x[row], uses[row], unused[alike[0]] = spare_x[alike[0]], 0, False
                else:
                    stays[row] = False
            self.kept_[number], self.spare_[number] = (x[stays], y[stays]), (spare_x[unused], spare_y[unused])
            left.append(uses[stays])
        self.uses_ = torch.cat([self.uses_[:0], *left])

    def reads_allowed(self, task: TaskInfo) -> float:
        """How often a remembered record may be read, by the moments accountant within `record_budget`."""
        if self.record_budget is None:
            return math.inf
        rate = min(1.0, self.batch / task.size) if self.charged_rate is None else self.charged_rate

        def spent(reads: int) -> float:
            return moments_accountant(rate, self.noise, reads, self.budget.delta, LEARNER_ORDER)

        return bisect_right(range(1, 2**40), self.record_budget, key=spent)

    def _keep(self, task: TaskInfo, x: Tensor, y: Tensor, coins: torch.Generator) -> None:
        """UpdateEpsMem, lines 29 to 35, as judged by the network that answers for the task."""
        order = torch.randperm(len(y), generator=coins)
        each = [order[y[order].cpu() == label] for label in range(len(self.labels_))]
        tried = torch.cat([rows[: self.memory_per_class] for rows in each])
        spare = torch.cat([rows[self.memory_per_class : 2 * self.memory_per_class] for rows in each])
        tried = tried[self._meeting(x[tried], y[tried], task, coins)]
        self.kept_.append((x[tried], y[tried]))
        self.spare_.append((x[spare], y[spare]))
        read = len(self.learner_schedule_.readers(task.number))  # each network has read it once
        self.uses_ = torch.cat([self.uses_, torch.full((len(tried),), read)])

    def _meeting(self, x: Tensor, y: Tensor, task: TaskInfo, coins: torch.Generator) -> Tensor:
        """Which records of a task meet the robustness condition (Eq. 6), in batches by chance."""
        met = torch.ones(len(y), dtype=torch.bool)
        if self.efficient_memory and len(y):
            for rows in torch.split(torch.randperm(len(y), generator=coins), self.batch):
                met[rows] = enters(self._margins(x[rows], y[rows], task)).cpu()
        return met

    def _margins(self, x: Tensor, y: Tensor, task: TaskInfo) -> Tensor:
        """f_y(x) − max over other labels of f_i(x), of the probabilities f of the network in training."""
        chances = Learner.scores(self, x, task).softmax(1)
        own = chances.gather(1, y[:, None])
        return (own - chances.scatter(1, y[:, None], -1.0).amax(1, keepdim=True)).flatten()

    def _priced(self, number: int, readers: int) -> Steps:
        task = self.stream_.task(number)
        assert task is not None  # only planned tasks are asked about
        return self.steps_of_learner(task)

    def tensors(self) -> State:
        """The networks; where the data is public also the memory, its records' reads, and the spare records."""
        kept = super().tensors()
        if self.stream_.public:
            kept["memory.uses"] = self.uses_.clone()
            for i, (x, y) in enumerate(self.spare_):
                kept |= {f"memory.{i}.spare.x": x.cpu(), f"memory.{i}.spare.y": y.cpu()}
        return kept

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        super().load(tensors)
        self.uses_ = tensors["memory.uses"].clone()
        numbers = range(len(self.tasks_))
        spare = ((tensors[f"memory.{i}.spare.x"], tensors[f"memory.{i}.spare.y"]) for i in numbers)
        self.spare_ = [(x.to(self.device), y.to(self.device)) for x, y in spare]


def enters(margins: Tensor) -> Tensor:
    """Eq. 6: which records of a batch enter the memory. Their threshold is the sigmoid of the batch's mean margin."""
    return margins >= margins.mean().sigmoid()
