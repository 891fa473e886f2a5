"""Reports: one page about runs and sweeps, and single figures, from public and charged values only."""

from typing import TYPE_CHECKING

from tacit.lazy import attach

if TYPE_CHECKING:
    from tacit.report.live import LiveReport
    from tacit.report.page import write_report
    from tacit.report.plotting import plot

__all__ = ["LiveReport", "plot", "write_report"]

__getattr__, __dir__ = attach(__name__, __file__)
