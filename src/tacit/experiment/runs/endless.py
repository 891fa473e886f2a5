"""`run_endless(config, folder)`: learn an endless stream, task after task, until it is stopped or its budget is spent.

Killed at any moment, the next call resumes where it was and charges nothing twice (`finite_and_endless.EndlessLoop`).
What is kept in memory and on disk does not grow with the number of tasks, except for the ledger. ε is that of one
task's plan for ever, since no unit recurs more often than declared. When nothing more may be spent, the last release is
kept and nothing is charged. Where the learner's own settings end the stream, no further task is admitted and all
records that it holds are retired.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.data.stream import Stream, StreamInfo
from tacit.errors import ConfigError
from tacit.experiment.config.endless_config import Endless
from tacit.experiment.config.loading import load_as
from tacit.experiment.process import available_cores, threads
from tacit.experiment.progress import OnEvent, Stop, Stopped, ignore, notify, stop_on_ctrl_c
from tacit.experiment.runs import charged_ledger, location
from tacit.experiment.runs.charged_ledger import UnitCap
from tacit.experiment.runs.checks import refuse_spent
from tacit.experiment.runs.endless_folder import EndlessFolder
from tacit.experiment.runs.evaluation import Evaluation, NoTests, PublicTests
from tacit.experiment.runs.finite_and_endless import EndlessLoop
from tacit.experiment.runs.held_out import HeldOutTasks
from tacit.experiment.runs.reporting import starting
from tacit.experiment.runs.resolver import Streams, check_sources, features_at, make_budget, make_learner, open_stream
from tacit.experiment.trackers import Tracker, careful, following, send_all
from tacit.learners.base.callbacks import Callback
from tacit.learners.base.learner import Learner
from tacit.learners.base.rehearsal import rehearse
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.vault import Vault


@dataclass(frozen=True, kw_only=True)
class EndlessStatus:
    """How far an endless stream has come.

    Attributes:
        folder: The run folder.
        learned: The number of tasks so far.
        epsilon: Certified for one unit over the whole stream; None if there is no finite bound or no task yet.
        accuracy: The mean over the public test sets of the last tasks.
        ended: Why nothing more can be learned; None if the stream can go on.
    """

    folder: Path
    learned: int
    epsilon: float | None
    accuracy: float | None
    ended: str | None

    @property
    def release(self) -> Path:
        """The last release; `tacit.learners.load_learner(release)` loads it."""
        return self.folder / "releases" / "last"


def run_endless(
    config: Endless | str | Path | Mapping[str, Any],
    folder: str | Path,
    *,
    ledger: str | Path | None = None,
    resume: bool = False,
    tasks: int | None = None,
    stream: Streams | None = None,
    unit_cap: UnitCap = None,
    moved: bool = False,
    data: str | Path | None = None,
    progress: OnEvent | None = None,
    stop: Stop | None = None,
    callback: Callback | None = None,
    trackers: Sequence[Tracker] = (),
) -> EndlessStatus:
    """Learn the tasks of an endless stream into a folder.

    Args:
        config: A configuration of the kind "endless", or the name of a preset, the path of a file, or plain values.
        folder: The run folder; it is made if it does not exist.
        ledger: The ledger that private data is charged to. It outlives the folder. Public data needs none.
        resume: Continue the stream that is in the folder.
        tasks: The number of tasks to learn in all; None: until it is stopped or may spend no more.
        stream: Gives the endless stream of a seed, in place of the one that the configuration names.
        unit_cap: For a new ledger, the ε that one unit may lose over all its streams, or "none"; by default the budget
            of this run.
        moved: With `resume`: the folder was moved, and its ledger and its data are where they were.
        data: With `resume`: where the declaration of the data is now.
        progress: Receives events.
        stop: Stops the run between two steps.
        callback: Is called as tasks and steps begin and end.
        trackers: Are sent the stream after each task and at the end; see `run`.

    Returns:
        How far the stream has come.

    Raises:
        ConfigError: The configuration, the folder or the ledger cannot be used; nothing is charged.
        Stopped: A stop was requested; the stream can be resumed.
    """
    config = config if isinstance(config, Endless) else load_as(Endless, config)
    run_folder, stop, progress = EndlessFolder(path=Path(folder)), stop or Stop(), progress or ignore
    if resume or moved or data is not None:
        location.check_location(run_folder, moved=moved, ledger=ledger, data=data)
        config = Endless.of(location.with_data(config, data).plain())
    seed = config.seeds[0]
    seed_folder = run_folder.seed(seed)
    if stream is None and not run_folder.has_run:
        check_sources(config.data)
    features = features_at(config, seed_folder, progress, stop)
    opened = open_stream(config.data, seed, features) if stream is None else stream(seed)
    info = _endless(opened.info)
    book = charged_ledger.checked_ledger(
        config, info, run_folder.ledger().get("path") if ledger is None and resume else ledger
    )
    if book is not None and not run_folder.has_run:
        refuse_spent(info, book)
    if config.threads is None and not run_folder.has_run:
        config = config.model_copy(update={"threads": available_cores()})
    budget = make_budget(config.budget, info.unit)
    learner = make_learner(config, budget, seed)
    with starting(config.learner.method, learner):
        learner.start(info)  # what is impossible is refused before a folder is made
    HeldOutTasks(opened).check(learner)
    tests = _tests(config, opened, budget)
    if book is not None:
        rehearse(learner.rehearsal, info)
    cap = None
    if book is not None and (not run_folder.has_run or not book.exists()):
        cap = charged_ledger.cap_of_new(book, info, budget, unit_cap)
    begun = run_folder.begin(config, resume=resume)
    assert isinstance(begun, Endless)
    with seed_folder.locked(), threads(begun.threads or 1), stop_on_ctrl_c(stop):
        if book is not None:
            charged_ledger.write_ledger_reference(book, run_folder, cap)
            notify(progress, *charged_ledger.notices(begun, info, book, cap))
        with (
            charged_ledger.open_ledger(begun, seed_folder, info, book) as kept,
            Vault(kept, seed_folder.private / "store") as vault,
        ):
            sent = careful(trackers, progress)
            follow = following(sent, run_folder.path, progress)
            loop = EndlessLoop(begun, run_folder, opened, learner, tests, vault, follow, stop, callback)
            try:
                ended = loop.run(tasks)
            except Stopped:  # which is how an endless stream usually ends
                send_all(sent, run_folder.path)
                raise
            send_all(sent, run_folder.path)
            learned = learner.tasks_learned
            return EndlessStatus(
                folder=run_folder.path,
                learned=learned,
                epsilon=learner.certificate_.claims.certified.epsilon if learned else None,
                accuracy=loop.accuracy,
                ended=ended,
            )


class LastTasks(PublicTests):
    """The public test sets of the last `window` tasks; older ones are not kept."""

    def __init__(self, stream: Stream, budget: Budget, window: int) -> None:
        super().__init__(stream, budget)
        self._window = window

    def after(self, learner: Learner, number: int) -> list[float | None]:
        first = max(0, number + 1 - self._window)
        self._kept = {task: rows for task, rows in self._kept.items() if task >= first}
        return [self.now(learner, task) for task in range(first, number + 1)]


def _tests(config: Endless, stream: Stream, budget: Budget) -> Evaluation:
    """How accuracy is measured after each task."""
    tested = stream.task(0).test is not None
    if config.evaluation.test == "public" and not tested:
        raise ConfigError(
            f"evaluation.test = 'public' needs public test sets and {stream.info.name!r} has none; use 'none'"
        )
    if not tested or config.evaluation.test == "none":
        return NoTests(stream.info, budget)
    return LastTasks(stream, budget, config.window)


def _endless(info: StreamInfo) -> StreamInfo:
    if not info.endless:
        raise ConfigError(
            f"the stream {info.name!r} has an end, after {len(info.tasks)} tasks; use kind: run, or a scenario without "
            "one (data.scenario = 'drifting')"
        )
    return info
