"""A continual learner: public facts and a block of records go in, a release comes out.

A learner holds released values only. It sees a block's public facts and what the vault releases, so that everything it
keeps (`tensors`) may be published, and a release is all that is needed to resume after a crash.

It is used in two ways. A runner calls `start` and `learn`. On its own it has scikit-learn's shape: `partial_fit` is one
task, then `predict`, `predict_proba`, `save` and `from_release`. Labels, nominal sizes and the number of tasks are
declared (`stream=StreamInfo…`): nothing is inferred from the data. Private data needs a ledger that is kept.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from dp_accounting.dp_event import DpEvent
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit import models
from tacit.certificate.certificate import Certificate, Tuned
from tacit.certificate.claims import Claim
from tacit.certificate.issuance import issue
from tacit.data.label_positions import positions
from tacit.data.stream import Label, StreamInfo, TaskInfo
from tacit.errors import LearnerError
from tacit.learners.base import estimator, masks, standalone, weights
from tacit.learners.base.callbacks import Callback, Step, calling_back, forked_random_state
from tacit.learners.base.estimator import CertificateOnce
from tacit.learners.base.frozen_features import split
from tacit.learners.base.inference import answering
from tacit.learners.base.preconditions import check_budget, check_labels, one_task, with_checked_types
from tacit.learners.base.public_figures import Claimed, Consumption
from tacit.learners.base.ranges import Range, check_ranges
from tacit.learners.base.release import Release
from tacit.learners.base.settings import Stored
from tacit.memory import Memory
from tacit.models.devices import check_device
from tacit.models.interval import Interval, robust_loss
from tacit.models.smoothed import Smoothed, smoothed_loss
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.ledger import Ledger
from tacit.privacy.vault import Block, GradientPlan, Loss, Vault

Network = str | nn.Module | Callable[[StreamInfo], nn.Module]
ENDLESS = ("AdaptiveDPSGD", "DPAGEM", "DPCL", "MeteredGD", "NaiveDPSGD", "Pool")
"""The learners with `supports_endless`, which can learn an endless stream."""


@dataclass(kw_only=True, eq=False)
class Learner(ABC):
    """One method. Fields are its settings; what it learns is in attributes that end in an underscore.

    A subclass writes `fit` (the method itself) and, where they differ, `scores`, `tensors`, `load`, `charges`.
    """

    budget: Budget = field(default_factory=lambda: Budget(epsilon=1.0, delta=1e-5))
    """What one unit may lose over the whole stream."""
    network: Network = "mlp"
    """A name of `tacit.models`, a module, or a function of the stream's public facts."""
    seed: int = 0
    """Seed of initial weights and public randomness. It never reaches the vault's noise or sampler."""
    device: str = "cpu"
    """Device of the model: cpu or cuda."""
    stream: StreamInfo | None = None
    """The public facts, where the learner is used by itself; a runner calls `start` instead."""
    ledger: str | Path | Ledger | None = None
    """The ledger that is charged. It belongs to the data: keep it. None: public data only, a throw-away one."""
    store: str | Path | None = None
    """A private folder for episodic memory; needed to go on in a later process."""

    private: ClassVar[bool] = True
    """Whether it reads records through private mechanisms only."""
    has_network: ClassVar[bool] = True
    """Whether it uses `network`."""
    sequential: ClassVar[bool] = True
    """Whether it learns task after task; otherwise forgetting is not defined."""
    supports_endless: ClassVar[bool] = False
    """Whether it can learn an endless stream: nothing that it plans, keeps or releases grows with the tasks."""
    window: ClassVar[int] = 8
    """Number of last tasks whose public facts an endless learner keeps in `tasks_`."""
    reference: ClassVar[str]
    """Where the method comes from."""
    claim: ClassVar[str] = "none"
    """The paper's formula."""
    certifies: ClassVar[str]
    """The certified bound, in words."""
    supports_bounds: ClassVar[bool] = True
    """Whether it follows `loss`, so that its network may be trained by interval bounds or on noisy copies."""
    remembers: ClassVar[bool] = True
    """Whether later tasks may read a task's records."""
    ranges: ClassVar[Mapping[str, Range]] = {}
    """Ranges of settings that differ from `tacit.learners.base.ranges`."""
    _estimator_type: ClassVar[str] = "classifier"
    """For scikit-learn before 1.6; later versions use tags."""
    certificate_ = CertificateOnce()
    """The certificate of the last release."""
    card_: ClassVar[tuple[str, str]] = ("", "")
    """The id of a certificate, and the model card that was published with it."""
    tuned_ = Tuned()
    """How the settings were chosen, where a runner knows; the certificate repeats it."""
    callback = Callback()
    """Called as tasks and steps begin and end. It is not a setting: releases and fingerprints do not depend on it."""

    def __post_init__(self) -> None:
        check_budget(self.budget)

    def __init_subclass__(cls) -> None:
        if "fit" in vars(cls):
            cls.fit = one_task(cls.fit)  # type: ignore[method-assign]
        if "start" in vars(cls):
            cls.start = with_checked_types(cls.start)  # type: ignore[method-assign]
        if "__repr__" not in vars(cls):  # a dataclass writes its own otherwise
            cls.__repr__ = Learner.__repr__  # type: ignore[method-assign]

    # The method.

    @with_checked_types
    def start(self, stream: StreamInfo) -> None:
        """Begins a stream, whose public facts decide the outputs of the model. Settings are checked first.

        Args:
            stream: The public facts of the stream.

        Raises:
            LearnerError: A setting does not fit, or the stream has no end and the method needs one.
        """
        check_budget(self.budget)
        check_ranges(self)
        check_labels(stream)
        if stream.endless and not self.supports_endless:
            raise LearnerError(
                f"{type(self).__name__} plans or keeps something for every task of a stream, and {stream.name!r} has "
                f"no last one; use {' or '.join(ENDLESS)}"
            )
        self.stream_ = stream
        self.labels_ = stream.labels
        self.tasks_: tuple[TaskInfo, ...] = ()
        self.model_ = self.build()
        if isinstance(self.model_, Interval | Smoothed) and not self.supports_bounds:
            raise LearnerError(
                f"{type(self).__name__} has a loss of its own, which {type(self.model_).__name__} cannot be part of; "
                "use NaiveDPSGD, RoutedExperts or Pool"
            )
        self.loss_ = self.loss()

    def learn(self, task: TaskInfo, block: Block, vault: Vault) -> Release:
        """Learns one task from what the vault releases of its block; returns the release with its certificate.

        Args:
            task: The public facts of the task; it must be the next one that was planned.
            block: The handle of its records.
            vault: The vault that holds them.

        Returns:
            The release after this task, with the certificate of the stream.

        Raises:
            BudgetExceeded: What the method reads does not fit in the budget.
        """
        self.check_next(task)
        self.fit(task, block, vault)
        self.tasks_ = self._last((*self.tasks_, task))
        return self.release(task, block, vault)

    @abstractmethod
    def fit(self, task: TaskInfo, block: Block, vault: Vault) -> None:
        """The method itself: learns one task.

        Args:
            task: The public facts of the task.
            block: The handle of its records.
            vault: The exits: all that the method learns about records is what these release.
        """

    def scores(self, x: Tensor, task: TaskInfo | None = None) -> Tensor:
        """Logits over the labels of the stream; with a task, −∞ outside its labels.

        Args:
            x: Inputs, one row each.
            task: The task of the rows, if it is given at test time.

        Returns:
            A tensor of shape (rows, labels).
        """
        with answering(self.model_):
            logits = self.logits(x.to(self.device))
        return logits if task is None else logits.masked_fill(~self.mask(task).to(logits.device), -torch.inf)

    def logits(self, x: Tensor) -> Tensor:
        """The outputs of the model; `scores` calls it.

        Args:
            x: Inputs on the model's device, one row each.

        Returns:
            A tensor of shape (rows, labels).
        """
        return torch.cat([self.model_(rows) for rows in split(self.model_, x)])

    # What is planned and reported: functions of public facts.

    def charges(self) -> list[list[DpEvent]]:
        """The events that a unit may be charged in one task; called after `start`.

        Returns:
            One list of events for each way in which a unit may be read. A unit that recurs may be charged a mixture.
        """
        return []

    def representative_plan(self, task: TaskInfo) -> GradientPlan | None:
        """A plan that shapes the filter of the task's block, where plans are chosen during the task.

        Args:
            task: The public facts of the task.

        Returns:
            The plan; None if everything is planned before, and the block is committed to it.
        """
        return None

    def consumption(self, task: TaskInfo) -> Consumption | None:
        """Expected numbers of records that a task reads, keeps and retires.

        Args:
            task: The public facts of the task.

        Returns:
            The numbers; None if they are unknown.
        """
        return None

    def claims(self) -> tuple[Claim, ...]:
        """What the paper claims for the tasks learned so far, by its own formula; never what tacit certifies.

        Returns:
            The claims, which certificates state beside the certified bound.
        """
        return ()

    def claimed(self) -> Claimed | None:
        """The paper's bound for the tasks learned so far.

        Returns:
            The bound; None if the paper has none.
        """
        return None

    def public_coins(self) -> str | None:
        """What was drawn with public randomness, where the bound is conditional on it.

        Returns:
            The draws in words, for the certificate; None if the bound is not conditional.
        """
        return None

    def stop_reason(self, number: int) -> str | None:
        """Why task `number` and all later tasks are never learned, from public settings.

        Args:
            number: The number of the task, from 0.

        Returns:
            The reason; None if the task may be learned.
        """
        return None

    def groups(self) -> list[range]:
        """Where several networks take turns: the tasks learned so far that each of them predicts for.

        Returns:
            One range of task numbers for each network; empty if there is one network.
        """
        return []

    # What may be given besides the tasks.

    @property
    def needs_public_records(self) -> bool:
        """Whether it looks at public records of a task while it learns; `receive_public_records` takes them."""
        return False

    def receive_public_records(self, X: Any, y: Any) -> None:
        """Takes public records like those of the next tasks, for learners that want them.

        Args:
            X: Features of public records.
            y: Their labels.
        """
        return

    @property
    def held_out_access(self) -> Literal["public", "charged"] | None:
        """How it reads the tasks that are held out from the stream, if it does; `receive_held_out` takes them."""
        return None

    def receive_held_out(self, blocks: Sequence[Block], vault: Vault) -> None:
        """Takes the held-out tasks, before the first task and after every restart, for learners that want them.

        Args:
            blocks: The handles of the held-out tasks' records.
            vault: The vault that holds them.
        """
        return

    # Releases.

    @property
    def tasks_learned(self) -> int:
        """Number of tasks learned so far. On an endless stream `tasks_` holds only the last `window` of them."""
        return self.tasks_[-1].number + 1 if self.stream_.endless and self.tasks_ else len(self.tasks_)

    def tensors(self) -> dict[str, Tensor]:
        """All that was learned: released values. Of a public backbone only its key is among them.

        Returns:
            The tensors by name.
        """
        return weights.released(self.model_)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores the state that `tensors` returned.

        Args:
            tensors: The tensors by name.
        """
        weights.load(self.model_, tensors)

    def restore(
        self,
        tensors: Mapping[str, Tensor],
        tasks: Sequence[TaskInfo],
        vault: Vault | None = None,
        *,
        part: str = "all",
    ) -> None:
        """Resumes from a release: after a crash, in another process, or (without a vault) to predict only.

        Args:
            tensors: What `tensors` returned.
            tasks: The tasks learned so far.
            vault: The vault whose store holds remembered records.
            part: Which part of each task's records the learner was given.
        """
        self.tasks_ = self._last(tasks)
        self.load(tensors)
        if vault is not None:
            self.reopen_memory(vault, part)

    def release(self, task: TaskInfo, block: Block, vault: Vault) -> Release:
        """The state after a task, with the certificate of the stream as the ledger stands now.

        Args:
            task: The task that was learned last.
            block: The handle of its records.
            vault: The vault, whose ledger is read.

        Returns:
            The release, which may be published.
        """
        self.certificate_ = self.certify(block, vault)
        return self.last_release()

    def last_release(self) -> Release:
        """The state after the last task, with its certificate.

        Returns:
            The release, which may be published.
        """
        return Release(
            task=self.tasks_[-1], method=type(self).__name__, tensors=self.tensors(), info=self.stream_,
            certificate=self.certificate_, tasks=self.tasks_, settings=Stored.of(self),
            reference=getattr(type(self), "reference", ""),
            card=self.card_[1] if self.card_[0] == self.certificate_.id else "",
        )  # fmt: skip

    def certify(self, block: Block, vault: Vault, *, beside: Sequence[str] = ()) -> Certificate:
        """The certificate of the stream as the ledger stands now.

        Args:
            block: A block of the stream.
            vault: The vault, whose ledger is read.
            beside: What else went into the release, in words.

        Returns:
            The certificate.
        """
        return issue(
            vault.ledger, block, method=type(self).__name__, claims=self.claims(), coins=self.public_coins(),
            tuning=self.tuned_.on, tuned=self.tuned_.about, remembers=self.remembers, beside=beside,
        )  # fmt: skip

    # Records of earlier tasks.

    def episodic_memory(self) -> Memory | None:
        """The episodic memory, for learners that hold one in `memory_`.

        Returns:
            The memory; None if there is none.
        """
        memory: Memory | None = getattr(self, "memory_", None)
        return memory

    @property
    def has_memory(self) -> bool:
        """Whether it holds records of earlier tasks that it will read again."""
        memory = self.episodic_memory()
        return memory is not None and bool(memory.blocks)

    def reopen_memory(self, vault: Vault, part: str) -> None:
        """Holds again, in a new process, the records of earlier tasks that are still to be read.

        Args:
            vault: The vault whose store has them.
            part: Which part of each task's records the learner was given.
        """
        if (memory := self.episodic_memory()) is not None:
            memory.reopen(self.tasks_learned, part, vault)

    def on_saved(self, block: Block, vault: Vault) -> None:
        """Called once a task's release is saved: retires records that are never read again.

        Args:
            block: The handle of the task's records.
            vault: The vault that holds them.
        """
        if (memory := self.episodic_memory()) is not None:
            memory.retire(block, self.tasks_, vault)

    def retire_records(self, vault: Vault) -> None:
        """Retires all records that are held, because no further task is learned. Idempotent.

        Args:
            vault: The vault that holds them.
        """
        if (memory := self.episodic_memory()) is not None:
            memory.retire_all(self.tasks_learned, vault)

    def rehearsal(self) -> Self:
        """A learner for a dry run on synthetic records: it has learned nothing and charges nothing.

        Returns:
            A new learner with the same settings, without ledger, store and stream.
        """
        return type(self)(**self.get_params() | {"ledger": None, "store": None, "stream": None})

    def settings(self) -> dict[str, Any]:
        """All settings that decide what is learned and predicted, except the network. Grants are pinned to them.

        Returns:
            The settings by name, and the method.
        """
        elsewhere = {"network", "stream", "ledger", "store"}
        return {"method": type(self).__name__} | {k: v for k, v in self.get_params().items() if k not in elsewhere}

    # scikit-learn's shape, and releases as files.

    partial_fit = standalone.partial_fit
    predict = estimator.predict
    predict_proba = estimator.predict_proba
    score = estimator.score
    classes_ = property(estimator.classes)
    n_features_in_ = property(estimator.number_of_features)
    get_params = estimator.get_params
    set_params = estimator.set_params
    save = standalone.save
    from_release = classmethod(standalone.from_release)
    __sklearn_clone__ = estimator.new_with_same_settings
    __sklearn_tags__ = estimator.classifier_tags
    __repr__ = estimator.short_repr
    __getstate__ = estimator.released_state
    __setstate__ = estimator.restore_state

    # Parts that methods use.

    def report(self, step: Step) -> None:
        """Passes a step to the callback: a method calls it before each step of a task, and once after the last.

        Args:
            step: The position within the task.
        """
        with calling_back(self.device):
            self.callback.on_step(step)

    @contextmanager
    def seeded_randomness(self, *numbers: int) -> Iterator[None]:
        """Seeds torch for random draws outside the vault (noise layers); on exit torch's generators are restored.

        Args:
            numbers: Public numbers that, with the learner's public seed, decide the draws.

        Returns:
            A context manager.
        """
        with forked_random_state(self.device):
            torch.manual_seed(int(np.random.SeedSequence([self.seed, *numbers]).generate_state(1, np.uint64)[0] >> 1))
            yield

    def check_next(self, task: TaskInfo) -> None:
        """Refuses any task but the next planned one. A label set that was learned privately may be smaller.

        Args:
            task: The public facts of the task.

        Raises:
            LearnerError: There is no stream yet, or another task is the next one.
        """
        if not hasattr(self, "stream_"):
            raise LearnerError(f"{type(self).__name__} has no stream yet; call start(stream.info) first")
        planned = self.stream_.task(self.tasks_learned)
        fits = planned is not None and set(task.labels) <= set(planned.labels)
        if planned is None or not fits or replace(task, labels=planned.labels) != planned:
            what = "no more" if planned is None else planned.name
            raise LearnerError(f"task {task.name!r} is not the next one that was planned ({what}); learn in order")

    def build(self) -> nn.Module:
        """A new model, the same for the same seed.

        Returns:
            The model, on the learner's device.
        """
        check_device(self.device)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            network = self.network_for(self.stream_)
        return network.to(self.device)

    def network_for(self, info: StreamInfo) -> nn.Module:
        """The network of the settings, for records with these public facts.

        Args:
            info: The public facts of the stream.

        Returns:
            A new network, or a copy of the module in the settings.
        """
        if isinstance(self.network, str):
            return models.build(self.network, info.shape, len(info.labels))
        return deepcopy(self.network) if isinstance(self.network, nn.Module) else self.network(info)

    def loss(self) -> Loss:
        """The loss of the model, which returns one value for each record.

        Cross-entropy; where the task is given at test and follows from the label, over the task's labels only. With
        interval bounds, of the record and of the worst case; with smoothing, the mean over noisy copies.

        Returns:
            A function of outputs and label positions.
        """
        return smoothed_loss(self.model_, robust_loss(self.model_, masks.loss(self.stream_, self.device)))

    def mask(self, task: TaskInfo) -> Tensor:
        """Which outputs belong to a task.

        Args:
            task: The public facts of the task.

        Returns:
            A boolean tensor with one entry for each label of the stream.
        """
        return masks.of_task(task, self.labels_)

    def positions(self, labels: Sequence[Label] | NDArray[Any]) -> Tensor:
        """Positions of labels among the outputs.

        Args:
            labels: Labels.

        Returns:
            Whole numbers; −1 for an unknown label.
        """
        return torch.from_numpy(positions(np.asarray(labels), self.labels_))

    def _last(self, tasks: Sequence[TaskInfo]) -> tuple[TaskInfo, ...]:
        return tuple(tasks[-self.window :] if self.stream_.endless else tasks)
