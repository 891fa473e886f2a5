"""What is public about private records: the declaration, the handle, and the read.

Nothing here is taken from the data. A number that depends on the data and reaches a learner would be a query.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from torch import Tensor, nn

from tacit.data.stream import Label
from tacit.errors import VaultError
from tacit.privacy.budget import Budget


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The public facts about a task's records, said by the person who admits them."""

    stream: str
    """Name of the data, for ever: its budget is found by it in the ledger."""
    task: str
    budget: Budget
    """What one unit may lose over the whole stream."""
    size: int
    """Nominal number of units of the task. It need not be exact; it divides sums, and is never corrected."""
    labels: Sequence[Label] | None = None
    """The public label set; records outside it are skipped in silence. None: labels are not known (see label_set)."""
    other: Label | None = None
    """A label of the set that records outside it get, in silence too. None: they are skipped."""
    shape: tuple[int, ...] | None = None
    """Shape of one record's features; needed only where the source may be empty and cannot tell."""
    tasks_per_unit: int = 1
    records_per_unit: int = 1
    """Per task. Units named by ids that exceed a bound are skipped in silence."""
    open: bool = False
    """False: all reads of the block are in its first charge. True: they are chosen as one goes, behind a filter."""
    like: Any = None
    """For open blocks: a plan or event whose Rényi curve gives the filter its shape."""
    fixed_schedule: bool = True
    """The plans of all tasks were fixed in advance, not chosen after seeing releases."""
    public: bool = False
    """The data is public: a benchmark. Test keys and unsafe exits are then allowed."""

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
        in_the_set(self.other, self.labels)


def label_set(labels: Any) -> tuple[Label, ...]:
    """Public labels as plain whole numbers or plain texts, each once."""
    if isinstance(labels, str) or not hasattr(labels, "__iter__"):
        raise VaultError(f"labels must be a list of whole numbers or texts, got {labels!r}")
    plain = tuple(label.item() if hasattr(label, "item") else label for label in labels)
    kinds = {type(label) for label in plain}
    if not plain or len(kinds) != 1 or not kinds <= {int, str}:
        raise VaultError(f"labels must be all whole numbers or all texts, got {list(plain)[:5]}")
    if len(set(plain)) != len(plain):
        raise VaultError("the label set names a label twice; give each label once")
    return plain


def in_the_set(other: Label | None, labels: Sequence[Label] | None) -> None:
    """Refuse a label for what is outside the set that is not in it."""
    if other is not None and other not in (labels or ()):
        raise VaultError(f"other = {other!r} is where labels outside the set go, so it must be in it; name it there")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A handle to records in the vault. It holds public facts only and cannot be read."""

    id: int
    name: str
    """Keyed name, unique over all ledgers."""
    root: int
    """The block of the whole task; a unit of the task is in one part of it."""
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


def label_space(block: Block, labels: Sequence[Label] | None = None) -> tuple[Label, ...]:
    """The labels that are asked for, or the block's own."""
    space = block.labels if labels is None else tuple(labels)
    if space is None:
        raise VaultError(f"{block} has no public label set; name the labels, or learn them with label_set")
    return space


@dataclass(frozen=True)
class Read:
    """One block's part in a grant: at which rate, which records (a public rule), through which frozen feature map."""

    block: Block
    rate: float | None = None
    """None: the plan's rate."""
    _: KW_ONLY
    select: Callable[[Tensor, Tensor], Tensor] | None = None
    """A rule on one record, `(x, y) → bool tensor`, with public constants and released models; mapped by vmap."""
    through: nn.Module | None = None
    """A frozen map from records to features, run inside the vault."""


Loss = Callable[[Any, Tensor], Tensor]


def several(given: Any) -> list[Any]:
    """One block or read, or a sequence of them, as a list."""
    return [given] if isinstance(given, Read | Block) else list(given)
