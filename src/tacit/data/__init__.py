"""Streams of tasks: named benchmarks, scenarios that turn a data set into tasks, and declarations of private data."""

from typing import TYPE_CHECKING

from tacit.lazy import attach

if TYPE_CHECKING:
    from tacit.data.benchmarks.named import load
    from tacit.data.declared.declaration import Declaration
    from tacit.data.scenarios.scenario_registry import scenario
    from tacit.data.stream import Stream, StreamInfo, Task, TaskInfo

__all__ = ["Declaration", "Stream", "StreamInfo", "Task", "TaskInfo", "load", "scenario"]

__getattr__, __dir__ = attach(__name__, __file__)
