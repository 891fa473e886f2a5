"""Reports: one page about runs and sweeps, single figures, and trackers, from public and charged values only."""

from typing import TYPE_CHECKING

from tacit.lazy import attach

if TYPE_CHECKING:
    from tacit.report.live import LiveReport
    from tacit.report.page import write_report
    from tacit.report.plotting import plot
    from tacit.report.tracking.choosing import find_trackers
    from tacit.report.tracking.mlflow_tracker import MLflow
    from tacit.report.tracking.tensorboard_tracker import TensorBoard

__all__ = ["LiveReport", "MLflow", "TensorBoard", "find_trackers", "plot", "write_report"]

__getattr__, __dir__ = attach(__name__, __file__)
