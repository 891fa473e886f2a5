"""A learner of one's own that fails: the error names it and the task, and the run goes on once it is corrected."""

from pathlib import Path

import pytest

from support.months import MONTHS, declare, grow, tacit
from tacit.commands import console
from tacit.errors import LearnerError
from tacit.experiment.config.loading import load
from tacit.experiment.runs.runner import run
from tacit.learners.base.callbacks import Callback, Step
from tacit.privacy.ledger import Ledger

METHOD = """
from dataclasses import dataclass
from typing import ClassVar

from tacit.learners.base.gradient import GradientLearner


@dataclass(kw_only=True, eq=False)
class Boom(GradientLearner):
    reference: ClassVar[str] = "me"
    certifies: ClassVar[str] = "a record: its own plan, once"

    def start(self, stream):
        {start}
        super().start(stream)

    def fit(self, task, block, vault):
        grant = vault.grant(block, self.plan(task), self.model_, self.loss_, work=self.settings())
        optimizer = self.optimizer(task)
        for _ in self.training_steps(grant, task):
            self.update(optimizer, grant.gradient())
        {fit}
"""
SHORT = ("--set", "learner.steps=2", "--set", "threads=1", "--quiet", "--out", "r")


def write(fit: str = "pass", start: str = "pass") -> None:
    Path("boom.py").write_text(METHOD.format(fit=fit, start=start))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TACIT_LEDGER", raising=False)
    monkeypatch.delenv(console.TRACEBACK, raising=False)
    monkeypatch.setenv("COLUMNS", "400")


def test_an_own_learner_that_fails_on_private_records_is_named_without_its_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(declare(tmp_path), *MONTHS)
    # In the dry run the same task is public.
    write("if task.name == '2026-02' and not self.stream_.public: raise RuntimeError('patient 7')")
    words = ("run", "visits.yaml", "--ledger", "v.ledger", "--method", "boom.py:Boom", *SHORT)
    failed = tacit(*words)
    assert failed.exit_code == 1 and failed.stderr.count("\n") == 1
    said = "error: learner boom.py:Boom raised RuntimeError in task '2026-02' (after its charge); fix it and continue "
    assert failed.stderr.startswith(said + "with --resume") and "patient 7" not in failed.output
    monkeypatch.setenv(console.TRACEBACK, "1")
    assert "patient 7" in tacit("run", "r", "--resume", "--quiet").stderr  # the owner asked for it
    write()
    done = tacit("run", "r", "--resume", "--quiet")
    assert done.exit_code == 0, done.output
    with Ledger(tmp_path / "v.ledger") as book:
        kinds = [grant.kind for grant in book.statement(1).grants]
        assert kinds.count("gradient") == len(MONTHS)  # nothing was charged twice


def test_on_public_records_the_message_is_shown(tmp_path: Path) -> None:
    grow(declare(tmp_path, public=True), *MONTHS)
    write("raise RuntimeError('no such head\\nof the network')")
    for more in ((), ("--seeds", "2", "--processes", "2")):  # in this process, and in workers
        failed = tacit("run", "visits.yaml", "--method", "boom.py:Boom", *SHORT[:-1], f"r{len(more)}", *more)
        said = "learner boom.py:Boom raised RuntimeError (no such head) in task '2026-01'; fix it and continue with"
        assert failed.exit_code == 1 and said in failed.stderr and failed.stderr.count("\n") == 1, failed.output


def test_one_that_cannot_start_is_named_as_well(tmp_path: Path) -> None:
    grow(declare(tmp_path, public=True), *MONTHS)
    write(start="stream['labels']")
    failed = tacit("run", "visits.yaml", "--method", "boom.py:Boom", *SHORT)
    assert failed.exit_code == 1 and not Path("r").exists()
    assert "learner boom.py:Boom raised TypeError ('StreamInfo' object is not subscriptable) while" in failed.stderr


class _Ends(Callback):
    def on_step(self, step: Step) -> None:
        raise ZeroDivisionError


def test_errors_of_a_callback_are_passed_on(tmp_path: Path) -> None:
    grow(declare(tmp_path, public=True), *MONTHS)
    write()
    config = load("visits.yaml", ["learner=boom.py:Boom", "learner.steps=2"])
    with pytest.raises(ZeroDivisionError):
        run(config, "r", callback=_Ends())
    write("raise KeyError('x')")
    with pytest.raises(LearnerError, match="raised KeyError") as caught:
        run(config.model_copy(), "s")
    assert isinstance(caught.value.__cause__, KeyError)
