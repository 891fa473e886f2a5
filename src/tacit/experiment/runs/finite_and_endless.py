"""Where finite and endless streams differ. Both learn task after task by `TaskLoop`, and can be killed at any moment.

|              | `FiniteLoop`                              | `EndlessLoop`                                            |
|--------------|-------------------------------------------|----------------------------------------------------------|
| tasks        | all planned tasks, or the first `goal`    | up to `goal`, the learner's last task, or a spent budget |
| ends         | with the last task: `finished` in the log | with a reason: `ended` in `state.json`                   |
| releases     | all                                       | the last `keep`; the link `last` names the newest        |
| log          | `progress.jsonl`, read as a whole         | `metrics.jsonl`, rotated, and `state.json`               |
| accuracy     | public tests or charged queries, of all   | public tests, of the last `window` tasks                 |
| resumes from | the last whole release in the folder      | the release that `last` names                            |
"""

import math
from pathlib import Path

from tacit.data.stream import Stream, Task, TaskInfo
from tacit.errors import BudgetExceeded, PolicyError, TacitError
from tacit.experiment.config.endless_config import Endless
from tacit.experiment.progress import OnEvent, Stop, Stopped
from tacit.experiment.runs.checks import check_facts
from tacit.experiment.runs.endless_folder import EndlessFolder
from tacit.experiment.runs.evaluation import Accuracies, Evaluation, mean_of_learned, measured
from tacit.experiment.runs.held_out import delete_features
from tacit.experiment.runs.planning import SeedPlan, end_note
from tacit.experiment.runs.record_counts import consumed
from tacit.experiment.runs.reporting import Reporter, learning
from tacit.learners.base.callbacks import Callback, Callbacks, Step
from tacit.learners.base.learner import Learner
from tacit.learners.base.release import Release, restate
from tacit.learners.base.task_loop import Clock, TaskLoop
from tacit.privacy.vault import Block, Vault


class FiniteLoop(TaskLoop):
    """Learns the planned tasks of one seed, or those that are left.

    Args:
        plan: The seed's learner, label sets and evaluation, planned.
        progress: Receives events.
        stop: Stops the loop between two steps.
        callback: A callback of the user.
        clock: Has counted the time of planning.
    """

    learner: Learner

    def __init__(
        self,
        plan: SeedPlan,
        progress: OnEvent,
        stop: Stop,
        callback: Callback | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(plan.learner, plan.vault, plan.stream.info, plan.budget)
        self.clock = clock or self.clock
        self.plan, self.folder, self.stop, self._callback = plan, plan.folder, stop, callback
        self.part, self.evaluation = plan.part, plan.evaluation
        self.reporter = Reporter(
            progress, stop, seed=plan.folder.seed, tasks=len(plan.stream), before_step=self._before_step
        )
        self.learner.callback = Callbacks([self.reporter, callback or Callback()])
        self.curve: list[float | None] = []
        self.accuracies: Accuracies = []

    def run(self, goal: int | None) -> None:
        """Learn up to `goal` tasks in all; None: all planned tasks."""
        tasks = self.plan.stream
        done = self._resume()
        self.plan.held_out.hand_over(self.learner, self.vault, self.budget)
        last = self.reporter.tasks = max(done, len(tasks) if goal is None else goal)
        self.reporter.report("begin", task=done)
        settled = {note["task"] for note in self.folder.notes() if note.get("settled")}
        for number in range(last):
            if number not in settled:
                self.stop.check()
                with learning(self, self.plan.config.learner.method, tasks[number].info, self._callback):
                    self.learn(tasks[number], released=number < done)
                    self.settle(tasks[number].info, released=number < done)
        self.folder.note(end_note(self.plan, last))
        self.reporter.report("done", task=last)

    def learn(self, task: Task, *, released: bool = False) -> None:
        try:
            super().learn(task, released=released)
        except Stopped:
            raise
        except TacitError:
            # What was charged is resumed from the very same features.
            if not self.vault.ledger.grant_states(self.facts.name, task.info.name):
                delete_features(task)
            raise

    def prepare(self, task: TaskInfo, block: Block) -> tuple[TaskInfo, Block]:
        self.curve, self._stream_id = [], block.stream_id
        return self.plan.prepare(task, block)

    def save(self, release: Release, block: Block) -> None:
        self.folder.note({"task": release.task.number, "curve": self.curve})
        release.save(self._release_path(release.task))
        self.reporter.epsilon = self.vault.ledger.epsilon(block.stream_id)

    def evaluate(self, task: TaskInfo) -> None:
        """Measure accuracy and note it; what was measured before a crash is not measured again."""
        number = task.number
        noted = [note["accuracy"] for note in self.folder.notes() if note.get("task") == number and "accuracy" in note]
        self.accuracies = noted[0] if noted else self.evaluation.after(self.learner, number)
        # Times depend on the number of records: for private data they are not written.
        times = {"seconds": self.clock.take()} if self.facts.public else {}
        used = consumed(self.learner, self.plan.labels.info.tasks[number])
        self.folder.note({"task": number, "accuracy": self.accuracies, **used, **times})

    def settle(self, task: TaskInfo, *, released: bool = False) -> Block:
        """Also writes the accuracies into the release's card, and reissues the certificate of private data, which then
        includes the queries of the evaluation."""
        if released:
            self.plan.held_out.settle(self.vault)
        block = super().settle(task, released=released)
        certificate = None if self.facts.public else self.learner.certify(block, self.vault)
        found = measured(self.evaluation, self.learner, self.accuracies[: task.number + 1], self.plan.weights)
        restate(self._release_path(task), certificate, found)
        delete_features(self.plan.stream[task.number])
        self.folder.note({"task": task.number, "settled": True})
        accuracy = mean_of_learned(self.accuracies, task.number, self.plan.weights)
        self.reporter.report("task", task=task.number, name=task.name, accuracy=accuracy)
        return block

    def _before_step(self, step: Step) -> None:
        """Measure the learning curve over the first `lca` steps of a task."""
        if not step.before and step.step == len(self.curve) <= self.plan.config.lca:
            with self.clock.part("evaluate"):
                self.curve.append(self.evaluation.now(self.learner, step.task.number))
        if step.step == 1:  # the task's plan is charged by now
            self.reporter.epsilon = self.vault.ledger.epsilon(self._stream_id)

    def _resume(self) -> int:
        """Resume from the last whole release; returns the number of released tasks."""
        planned = self.plan.labels.info
        done = self.plan.released
        if done:
            last = Release.load(self._release_path(planned.tasks[done - 1]))
            check_facts(last, planned)
            self.learner.restore(last.tensors, last.tasks, self.vault, part=self.part)
            self.evaluation.reopen(done)
        elif not any("untrained" in note for note in self.folder.notes()):
            with self.clock.part("evaluate"):
                weights = {"weights": self.plan.weights} if set(self.plan.weights) != {1.0} else {}
                untrained = self.evaluation.untrained(self.learner)
                self.folder.note({"untrained": untrained, "sequential": self.learner.sequential, **weights})
        return done

    def _release_path(self, task: TaskInfo) -> Path:
        return self.folder.release(task.number, task.name)


class EndlessLoop(TaskLoop):
    """Learns the tasks of an endless stream. All of its state has constant size.

    Args:
        config: The configuration of the run.
        folder: Where the last releases and the state are kept.
        stream: An endless stream.
        learner: A started learner.
        tests: Measures accuracy after each task.
        vault: Admits the records.
        progress: Receives events.
        stop: Stops the loop between two steps.
        callback: A callback of the user.
    """

    learner: Learner

    def __init__(
        self,
        config: Endless,
        folder: EndlessFolder,
        stream: Stream,
        learner: Learner,
        tests: Evaluation,
        vault: Vault,
        progress: OnEvent,
        stop: Stop,
        callback: Callback | None = None,
    ) -> None:
        super().__init__(learner, vault, stream.info, learner.budget)
        self.config, self.folder, self.stream, self.tests, self.stop = config, folder, stream, tests, stop
        self._callback = callback
        self.seed = folder.seed(config.seeds[0])
        self.reporter = Reporter(progress, stop, seed=self.seed.seed)
        self.learner.callback = Callbacks([self.reporter, callback or Callback()])
        self.accuracies: Accuracies = []
        self.accuracy: float | None = None

    def run(self, goal: int | None) -> str | None:
        """Learn up to `goal` tasks in all, or as many as the budget and the learner allow.

        Returns:
            Why nothing more can be learned; None if the stream can go on.
        """
        state = self.folder.state()
        ended: str | None = state.get("ended")
        done = self._resume(int(state.get("settled", 0)))
        if self.learner.stop_reason(done) is not None:
            ended = self._end(done)
        elif ended is None or state["head"] != self.vault.ledger.head.hash:  # otherwise the answer has not changed
            self.reporter.report("begin", task=done)
            ended = self._learn_on(done, goal)
        if ended is not None:
            self.reporter.report("notice", name=f"{ended}; the last release is {self.folder.last}")
        return ended

    def prepare(self, task: TaskInfo, block: Block) -> tuple[TaskInfo, Block]:
        if self.learner.needs_public_records:
            self.tests.give_public_records(self.learner, task.number)
        return task, block

    def save(self, release: Release, block: Block) -> None:
        path = self.seed.release(release.task.number, release.task.name)
        release.save(path)
        self.folder.publish(path)

    def evaluate(self, task: TaskInfo) -> None:
        self.accuracies = self.tests.after(self.learner, task.number)
        measured = [accuracy for accuracy in self.accuracies if accuracy is not None]
        self.accuracy = math.fsum(measured) / len(measured) if measured else None

    def settle(self, task: TaskInfo, *, released: bool = False) -> Block:
        """Also notes the accuracy and deletes old releases."""
        block = super().settle(task, released=released)
        self.reporter.epsilon = self.vault.ledger.epsilon(block.stream_id)
        expected = self.learner.consumption(task)
        reads = None if expected is None else expected.trained + expected.read
        remembered = None if expected is None else expected.held
        # Times depend on the number of records: for private data they are not written.
        times = {"seconds": self.clock.take()} if self.facts.public else {}
        self.folder.note(
            {"task": task.number, "name": task.name, "accuracy": self.accuracies,
             "epsilon": _finite(self.reporter.epsilon), **consumed(self.learner, task), **times}
        )  # fmt: skip
        learned = task.number + 1
        restate(self.seed.release(task.number, task.name), None, measured(self.tests, self.learner, self.accuracies))
        self._write_state(learned, None)
        self.folder.forget(learned, self.config.keep)
        delete_features(self.stream.task(task.number))
        values = {"accuracy": self.accuracy, "read": reads, "remembered": remembered}
        self.reporter.report("task", task=task.number, name=task.name, **values)
        return block

    def _learn_on(self, done: int, goal: int | None) -> str | None:
        """Learn task after task; returns why the stream ended, unless the goal was reached."""
        while self.learner.stop_reason(done) is None:
            if goal is not None and done >= goal:
                return None
            self.stop.check()
            task = self.stream.task(done)
            try:
                with learning(self, self.config.learner.method, task.info, self._callback):
                    self.learn(task)
                    self.settle(task.info)
            except (BudgetExceeded, PolicyError) as refused:
                if done == 0:  # there is no release to keep
                    raise
                ended = f"nothing more may be spent, so the stream ends after task {done}: {refused}"
                self._write_state(done, ended)
                return ended
            done += 1
        return self._end(done)

    def _end(self, done: int) -> str:
        """End after the learner's last task: all records that it holds are retired. It may be repeated."""
        self.learner.retire_records(self.vault)
        ended = f"the stream ends after task {done}: {self.learner.stop_reason(done)}"
        self._write_state(done, ended)
        return ended

    def _resume(self, settled: int) -> int:
        """Resume from the last release; returns the number of released tasks."""
        done = self.folder.tasks_learned
        if done:
            last = Release.load(self.folder.last)
            check_facts(last, self.facts)
            # After the learner's last task its records are retired: there may be none left to reopen.
            over = self.learner.stop_reason(done) is not None
            self.learner.restore(last.tensors, last.tasks, None if over else self.vault)
            self.learner.certificate_ = last.certificate
            state = self.folder.state()
            self.reporter.epsilon, self.accuracy = state.get("epsilon"), state.get("accuracy")
            if settled < done:  # the crash came between the release and what follows it
                self.learn(self.stream.task(done - 1), released=True)
                self.settle(last.task, released=True)
        return done

    def _write_state(self, settled: int, ended: str | None) -> None:
        self.folder.write_state(
            {"settled": settled, "epsilon": _finite(self.reporter.epsilon), "accuracy": self.accuracy, "ended": ended,
             "head": self.vault.ledger.head.hash}
        )  # fmt: skip


def _finite(epsilon: float | None) -> float | None:
    """As JSON can hold it; without privacy there is no number."""
    return None if epsilon is None or math.isinf(epsilon) else epsilon
