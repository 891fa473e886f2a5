"""The public side of private records: the declaration, the handle to a block, and the read of a block.

Nothing here is computed from the data.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from torch import Tensor, nn

from tacit.data.stream import Label
from tacit.errors import VaultError
from tacit.privacy.accounting.budget import Budget, Unit


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The public facts about a task's records, declared by their owner. The guarantee holds if they are true.

    Attributes:
        stream: The permanent name of the data, by which the ledger finds its budget.
        task: The name of the task.
        budget: What one unit may lose over the whole stream.
        size: The nominal number of units of the task. It need not be exact; it divides sums, and is never corrected.
        labels: The public label set; records outside it are skipped silently. None if labels are not known (see
            `vault.label_set`).
        other: A label of the set that records outside it get instead of being skipped.
        shape: The shape of one record's features. Arrays tell it; a list, Dataset or iterable does not.
        ids: Whether the records of a Dataset or iterable come with ids, as (x, y, id), by which bounds are enforced.
            None: they do if the budget protects persons, or a unit may have several records. Without it ids are not
            looked at. Arrays tell it: (x, y, ids).
        integers: Whether the features in a list, Dataset or iterable are whole numbers, such as tokens; otherwise each
            record becomes float32.
        tasks_per_unit: The largest number of tasks of the stream that one unit may be in.
        records_per_unit: The largest number of records of one unit in a task. Units with ids that exceed a bound are
            skipped silently.
        open: Whether reads are chosen adaptively, behind a Rényi filter. If false, the first charge of the block must
            contain all its reads.
        like: For open blocks, a plan or event whose Rényi curve gives the filter its shape.
        fixed_schedule: Whether the plans of all tasks were fixed in advance, not chosen after seeing releases.
        public: Whether the data is public (a benchmark). Test keys and unsafe exits are then allowed.
    """

    stream: str
    task: str
    budget: Budget
    size: int
    labels: Sequence[Label] | None = None
    other: Label | None = None
    shape: tuple[int, ...] | None = None
    ids: bool | None = None
    integers: bool = False
    tasks_per_unit: int = 1
    records_per_unit: int = 1
    open: bool = False
    like: Any = None
    fixed_schedule: bool = True
    public: bool = False

    def __post_init__(self) -> None:
        for name in ("stream", "task"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise VaultError(f"{name} must be a name (text), got {getattr(self, name)!r}")
        if not isinstance(self.budget, Budget):
            raise VaultError(f"budget must be a Budget(epsilon=…, delta=…), got {self.budget!r}")
        for name in ("size", "tasks_per_unit", "records_per_unit"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise VaultError(f"{name} must be a whole number ≥ 1 that you expect or bound, got {value!r}")
        if self.labels is not None:
            object.__setattr__(self, "labels", label_set(self.labels))
        check_other_label(self.other, self.labels)

    @property
    def has_ids(self) -> bool:
        """Whether the records of a Dataset or iterable are declared to come with ids."""
        return self.budget.unit is Unit.PERSON or self.records_per_unit > 1 if self.ids is None else self.ids


def label_set(labels: Any) -> tuple[Label, ...]:
    """A label set as a tuple of plain integers or plain strings, each once."""
    if isinstance(labels, str) or not hasattr(labels, "__iter__"):
        raise VaultError(f"labels must be a list of whole numbers or texts, got {labels!r}")
    plain = tuple(label.item() if hasattr(label, "item") else label for label in labels)
    kinds = {type(label) for label in plain}
    if not plain or len(kinds) != 1 or not kinds <= {int, str}:
        raise VaultError(f"labels must be all whole numbers or all texts, got {list(plain)[:5]}")
    if len(set(plain)) != len(plain):
        raise VaultError("the label set names a label twice; give each label once")
    return plain


def check_other_label(other: Label | None, labels: Sequence[Label] | None) -> None:
    """Refuses a label for records outside the set that is not in the set itself."""
    if other is not None and other not in (labels or ()):
        raise VaultError(f"other = {other!r} is where labels outside the set go, so it must be in it; name it there")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A handle to records in the vault. It holds public facts only.

    Attributes:
        id: The block's number in the ledger.
        name: A keyed name, unique over all ledgers.
        root: The block of the whole task. A unit of the task is in one part of it.
        stream_id: The stream's number in the ledger.
        stream: The name of the stream.
        task: The name of the task.
        part: The part of the task; "all" if it was not split.
        size: The nominal number of units.
        labels: The label set; None if it is not known.
        budget: What one unit may lose over the whole stream.
        tasks_per_unit: The largest number of tasks that one unit may be in.
        records_per_unit: The largest number of records of one unit in a task.
        public: Whether the data is declared public.
    """

    id: int
    name: str
    root: int
    stream_id: int
    stream: str
    task: str
    part: str
    size: float
    labels: tuple[Label, ...] | None
    budget: Budget
    tasks_per_unit: int
    records_per_unit: int
    public: bool

    def __str__(self) -> str:
        return f"{self.stream}/{self.task}/{self.part}"

    def __repr__(self) -> str:
        return f"Block({str(self)!r}, size={self.size:g})"


def label_space(block: Block, labels: Sequence[Label] | None = None) -> tuple[Label, ...]:
    """The given labels, or the block's own label set."""
    space = block.labels if labels is None else tuple(labels)
    if space is None:
        raise VaultError(f"{block} has no public label set; name the labels, or learn them with label_set")
    return space


@dataclass(frozen=True)
class Read:
    """How a grant reads one block.

    Attributes:
        block: The block.
        rate: The sampling rate; the plan's rate by default.
        select: A rule on one record, `(x, y) → bool tensor`, that uses public constants and released models only. It is
            mapped over records by `torch.func.vmap`.
        through: A frozen feature map that is applied inside the vault.
    """

    block: Block
    rate: float | None = None
    _: KW_ONLY
    select: Callable[[Tensor, Tensor], Tensor] | None = None
    through: nn.Module | None = None


Loss = Callable[[Any, Tensor], Tensor]
"""A function of a model's output and the targets that returns one loss per row."""


def as_list(given: Any) -> list[Any]:
    """A block or read, or a sequence of them, as a list."""
    return [given] if isinstance(given, Read | Block) else list(given)
