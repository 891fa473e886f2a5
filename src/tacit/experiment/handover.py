"""What happens when one learner of a pool follows another: Figs. 6 to 8 of Hassanpour et al. 2022, as one table."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from tacit.experiment.table import of


def table(names: Sequence[str], found: Sequence[Mapping[str, Any] | None]) -> Table | None:
    """Of a sweep's cells with several learners: what each forgot of its own tasks, and the drop where it began."""
    pools = [(name, one["learners"]) for name, one in zip(names, found, strict=True) if one and "learners" in one]
    pools = [(name, learners) for name, learners in pools if len(learners) > 1]
    if not pools:
        return None
    shown = Table(
        "learners in turn", "forgetting of each", "drop where the next begins", box=None, padding=(0, 2, 0, 0)
    )
    for name, learners in pools:
        each, later = ([of(one[key]) for one in learners] for key in ("forgetting", "drop"))
        shown.add_row(name, ", ".join(each), ", ".join(later[1:]))
    return shown
