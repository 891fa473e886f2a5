"""What every learner is: public facts and a block go in, a release comes out.

Guarantee: a learner holds released values only. It sees a block's public facts and what the vault lets out, so all it
keeps (`tensors`) may be published, and a release is all that is needed to go on after a crash.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from dp_accounting.dp_event import DpEvent
from torch import Tensor, nn

from tacit import models
from tacit.data.places import positions
from tacit.data.stream import Label, StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners import masks, weights
from tacit.learners.consumption import Consumption
from tacit.learners.expected import CertificateOnce, check_budget, check_labels, for_tasks, with_settings
from tacit.learners.features import split
from tacit.learners.progress import Claimed as Claimed
from tacit.learners.progress import Step as Step
from tacit.learners.ranges import Range, check_ranges
from tacit.learners.release import Release
from tacit.learners.stored import Stored
from tacit.models.devices import check_device
from tacit.privacy.budget import Budget
from tacit.privacy.certificate import Certificate
from tacit.privacy.claims import Claim
from tacit.privacy.declared import Block, Loss
from tacit.privacy.plan import GradientPlan
from tacit.privacy.tuned import Tuned
from tacit.privacy.vault import Vault

Network = str | nn.Module | Callable[[StreamInfo], nn.Module]
_KEPT: ContextVar[bool] = ContextVar("gradients are kept", default=False)


@dataclass(kw_only=True, eq=False)
class Core(ABC):
    """One method. Fields are its settings; what it learns is in attributes that end in an underscore."""

    budget: Budget = field(default_factory=lambda: Budget(epsilon=1.0, delta=1e-5))
    """What one unit may lose over the whole stream."""
    network: Network = "mlp"
    """A name of `tacit.models`, a module, or a function of the stream's public facts."""
    seed: int = 0
    """Initial weights and public coins. It never reaches the vault's noise or sampler."""
    device: str = "cpu"
    """Where the model is: cpu, or cuda."""

    private: ClassVar[bool] = True
    has_network: ClassVar[bool] = True
    """Otherwise `network` plays no part."""
    sequential: ClassVar[bool] = True
    """It learns task after task; otherwise forgetting means nothing."""
    forever: ClassVar[bool] = False
    """It can learn a stream without end: nothing that it plans, keeps or releases grows with the number of tasks."""
    window: ClassVar[int] = 8
    """Of so many last tasks an endless learner keeps the public facts, in `tasks_`."""
    reference: ClassVar[str]
    """Where the method comes from."""
    claim: ClassVar[str] = "none"
    """The formula of the paper."""
    certifies: ClassVar[str]
    """What tacit stands behind, in words."""
    remembers: ClassVar[bool] = True
    """Records of a task may be read in later ones; otherwise in their own only."""
    ranges: ClassVar[Mapping[str, Range]] = {}
    """Of settings that may be otherwise than in `tacit.learners.ranges`."""
    certificate_ = CertificateOnce()
    """Of the last release."""
    tuned_ = Tuned()
    """How its settings were chosen, where a runner says so; the certificate repeats it."""

    def __post_init__(self) -> None:
        check_budget(self.budget)

    def __init_subclass__(cls) -> None:
        if "fit" in vars(cls):
            cls.fit = for_tasks(cls.fit)  # type: ignore[method-assign]
        if "start" in vars(cls):
            cls.start = with_settings(cls.start)  # type: ignore[method-assign]

    @with_settings
    def start(self, stream: StreamInfo) -> None:
        """Take up a stream: its public facts decide the outputs of the model. Settings are checked first."""
        check_budget(self.budget)
        check_ranges(self)
        check_labels(stream)
        if stream.endless and not self.forever:
            from tacit.learners import ends

            raise LearnerError(ends(type(self).__name__, stream.name))
        self.stream_ = stream
        self.labels_ = stream.labels
        self.tasks_: tuple[TaskInfo, ...] = ()
        self.model_ = self.build()
        self.loss_ = self.loss()

    def learn(self, task: TaskInfo, block: Block, vault: Vault) -> Release:
        """Learn one task from what the vault lets out of its block, and release the result with its certificate."""
        self.check_next(task)
        self.fit(task, block, vault)
        self.tasks_ = self._last((*self.tasks_, task))
        return self.release(task, block, vault)

    @property
    def learnt(self) -> int:
        """How many tasks were learnt so far. On an endless stream `tasks_` holds the last `window` of them only."""
        return self.tasks_[-1].number + 1 if self.stream_.endless and self.tasks_ else len(self.tasks_)

    def _last(self, tasks: Sequence[TaskInfo]) -> tuple[TaskInfo, ...]:
        return tuple(tasks[-self.window :] if self.stream_.endless else tasks)

    @abstractmethod
    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        """The method itself."""

    def scores(self, x: Tensor, task: TaskInfo | None = None) -> Tensor:
        """Logits over the labels of the stream; with a task, −∞ outside its labels."""
        with answering(self.model_):
            found = self.logits(x.to(self.device))
        return found if task is None else found.masked_fill(~self.mask(task).to(found.device), -torch.inf)

    def logits(self, x: Tensor) -> Tensor:
        return torch.cat([self.model_(rows) for rows in split(self.model_, x)])

    @contextmanager
    def public_dice(self, *numbers: int) -> Iterator[None]:
        """Within it, what draws at random outside the vault (noise layers) draws from the learner's public seed and
        these numbers; afterwards torch's generators are as they were."""
        device = torch.device(self.device)
        with torch.random.fork_rng(devices=[device.index or 0] if device.type == "cuda" else []):
            torch.manual_seed(int(np.random.SeedSequence([self.seed, *numbers]).generate_state(1, np.uint64)[0] >> 1))
            yield

    def charges(self) -> list[list[DpEvent]]:
        """What a unit may be charged in one task, after `start`: a list for each way in which it may be read. A unit
        that recurs may meet a mixture of them. Public facts only."""
        return []

    def like(self, task: TaskInfo) -> GradientPlan | None:
        """A plan that shapes the filter of the task's block, where plans are chosen as one goes. None: all is planned
        before, and the block is committed."""
        return None

    def consumption(self, task: TaskInfo) -> Consumption | None:
        """How many records a task reads, keeps and lets go, as expected from public facts; None: not known."""
        return None

    def claims(self) -> tuple[Claim, ...]:
        """What the paper claims for the tasks learnt so far, by its own formula; never what tacit certifies."""
        return ()

    def claimed(self) -> Claimed | None:
        return None

    def tensors(self) -> dict[str, Tensor]:
        """All that was learnt: released values, by name. Frozen weights of a public backbone are not among them (see
        `weights`), only its key."""
        return weights.released(self.model_)

    def restore(
        self,
        tensors: Mapping[str, Tensor],
        tasks: Sequence[TaskInfo],
        vault: Vault | None = None,
        *,
        part: str = "all",
    ) -> None:
        """Go on from a release: after a crash, in another process, or (without a vault) to predict only.

        `part`: which part of each task's records the learner was given."""
        self.tasks_ = self._last(tasks)
        self.load(tensors)
        if vault is not None:
            self.take_up(vault, part)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take what `tensors` gave."""
        weights.load(self.model_, tensors)

    def take_up(self, vault: Vault, part: str) -> None:
        """Hold again the records of earlier tasks that are still to be read."""
        return

    def release(self, task: TaskInfo, block: Block, vault: Vault) -> Release:
        """The state after a task, with the certificate of the stream as the ledger stands now."""
        self.certificate_ = self.certify(block, vault)
        return self.last_release()

    def last_release(self) -> Release:
        """The state after the last task, with its certificate."""
        return Release(
            task=self.tasks_[-1], method=type(self).__name__, tensors=self.tensors(), info=self.stream_,
            certificate=self.certificate_, tasks=self.tasks_, settings=Stored.of(self),
        )  # fmt: skip

    def certify(self, block: Block, vault: Vault, *, beside: Sequence[str] = ()) -> Certificate:
        """The certificate of the stream, as the ledger stands now; `beside`: what else went into the release."""
        name = type(self).__name__
        return vault.certificate(
            block, method=name, claims=self.claims(), coins=self.public_coins(), tuning=self.tuned_.on,
            tuned=self.tuned_.about, remembers=self.remembers, beside=beside,
        )  # fmt: skip

    def saved(self, block: Block, vault: Vault) -> None:
        """Called once a task's release is kept for good: records that are never read again may go."""
        return

    def public_coins(self) -> str | None:
        """What was drawn by coins that anyone may know, where the bound is conditional on them."""
        return None

    def watch(self, step: Step) -> None:
        """Called before each step, and after the last. A runner puts its progress bar here; it must change nothing."""
        return

    def check_next(self, task: TaskInfo) -> None:
        """Tasks come in the order in which they were planned. A label set that was learned may be smaller."""
        if not hasattr(self, "stream_"):
            raise LearnerError(f"{type(self).__name__} has no stream yet; call start(stream.info) first")
        planned = self.stream_.task(self.learnt)
        fits = planned is not None and set(task.labels) <= set(planned.labels)
        if planned is None or not fits or replace(task, labels=planned.labels) != planned:
            what = "no more" if planned is None else planned.name
            raise LearnerError(f"task {task.name!r} is not the next one that was planned ({what}); learn in order")

    def build(self) -> nn.Module:
        """A fresh model, the same for the same seed."""
        self.check_device()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            made = self.network_for(self.stream_)
        return made.to(self.device)

    def network_for(self, info: StreamInfo) -> nn.Module:
        """The network of the settings, for records as these facts have them."""
        if isinstance(self.network, str):
            return models.build(self.network, info.shape, len(info.labels))
        return deepcopy(self.network) if isinstance(self.network, nn.Module) else self.network(info)

    def check_device(self) -> None:
        check_device(self.device)

    def loss(self) -> Loss:
        """Cross-entropy; where the task is given at test and follows from the label, over the task's labels only."""
        return masks.loss(self.stream_, self.device)

    def mask(self, task: TaskInfo) -> Tensor:
        """Which outputs belong to the task."""
        return masks.of_task(task, self.labels_)

    def positions(self, labels: Sequence[Label] | np.ndarray) -> Tensor:
        """Places of labels among the outputs; −1 for one outside."""
        return torch.from_numpy(positions(np.asarray(labels), self.labels_))


@contextmanager
def answering(model: nn.Module) -> Iterator[None]:
    """In evaluation mode, without gradients unless `differentiable`; afterwards as it was: grants are pinned to the
    mode too."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.set_grad_enabled(_KEPT.get()):
            yield
    finally:
        for module, training in before:
            module.training = training


@contextmanager
def differentiable() -> Iterator[None]:
    """Within it, `scores` of any learner has gradients, to records that require them."""
    before = _KEPT.set(True)
    try:
        with torch.enable_grad():
            yield
    finally:
        _KEPT.reset(before)
