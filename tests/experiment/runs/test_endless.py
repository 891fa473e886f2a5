"""An endless stream: it survives kills at any moment, grows nothing, and stops in one sentence."""

import json
import os
import random
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
from typer.testing import CliRunner

from support.blobs import killed_at
from tacit.cli import app
from tacit.data.benchmarks.named import load as load_set
from tacit.data.scenarios.drifting import drifting, order
from tacit.data.stream import Stream, StreamInfo, Task, TaskInfo
from tacit.errors import BudgetExceeded, ConfigError, DataError, LearnerError
from tacit.experiment.config.endless_config import Endless
from tacit.experiment.config.loading import load, preset_names
from tacit.experiment.progress import Event, Stop, Stopped
from tacit.experiment.runs.endless import run_endless
from tacit.experiment.runs.endless_folder import EndlessFolder
from tacit.experiment.runs.finite_and_endless import EndlessLoop
from tacit.learners import LEARNERS, find, load_learner
from tacit.learners.base.release import Release
from tacit.learners.baselines.naive import NaiveDPSGD
from tacit.privacy.ledger import Ledger
from tacit.privacy.randomness.keys import KeyRing
from tacit.privacy.vault import Block, Vault

SIZE = 40
NAIVE = {"method": "NaiveDPSGD", "steps": 3, "batch": 10, "lr": 0.5}
POOL = {
    "method": "Pool", "steps": 3, "batch": 10, "lr": 0.5, "memory_share": 0.3, "memory_batch": 5, "stay": 2,
    "leave": "thinning", "tasks_per_learner": 3, "early_start": True, "finished": 1,
}  # fmt: skip


def blobs(*, public: bool = True) -> Callable[[int], Stream]:
    """Two Gaussian blobs that wander, for ever."""

    def stream(seed: int) -> Stream:
        info = StreamInfo.uniform("blobs", labels=(0, 1), shape=(4,), size=SIZE, tasks=1, public=public, endless=True)

        def task(number: int) -> Task:
            def load(part: int) -> tuple[np.ndarray, np.ndarray]:
                rng = np.random.default_rng([seed, number, part])
                y = rng.integers(0, 2, SIZE)
                centres = 2 * np.array([[np.cos(number / 9), 1, 0, -1], [-1, np.sin(number / 9), 1, 0]])
                return (centres[y] + rng.normal(size=(SIZE, 4))).astype(np.float32), y

            facts = info.task(number)
            assert facts is not None
            return Task(info=facts, records=lambda: load(0), test=lambda: load(1))

        return Stream(info, [task(0)], later=task)

    return stream


def config(**changes: Any) -> Endless:
    values: dict[str, Any] = {
        "kind": "endless",
        "name": "blobs",
        "data": {"source": "digits", "scenario": "drifting"},
        "learner": NAIVE,
        "model": {"network": "mlp", "hidden": [6]},
        "budget": {"epsilon": 2.0, "delta": 1e-3},
        "threads": 1,
        "repeatable_noise": True,
        "keep": 2,
        "window": 3,
    }
    return Endless.of({**values, **changes})


def killed_after(calls: int, work: Callable[[], object]) -> None:
    """Do the work in a process that dies by SIGKILL at so many calls of functions."""
    child = os.fork()
    if child == 0:
        left = [calls]

        def count(_frame: object, _event: str, _argument: object) -> None:
            left[0] -= 1
            if left[0] <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(count)
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
        os._exit(3)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status


def calls_of(work: Callable[[], object]) -> int:
    """How many calls of functions it makes."""
    made = [0]

    def count(_frame: object, _event: str, _argument: object) -> None:
        made[0] += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made[0]


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def weights(folder: Path) -> dict[str, Any]:
    return {name: value.tolist() for name, value in load_file(folder / "releases/last/model.safetensors").items()}


def check_books(ledger: Ledger, tasks: int, budget: float) -> None:
    """Every task of the stream was charged once, in order, and nothing stays open."""
    ledger.verify()
    found = ledger.statement(1)
    whole = [block.row for block in found.blocks if block.row.part == "all"]
    assert [row.task for row in whole][:tasks] == [f"task-{number + 1}" for number in range(tasks)]
    assert len(whole) in (tasks, tasks + 1)  # the next one may be admitted, and is not charged
    charged = [grant for grant in found.grants if grant.state != "VOID"]
    assert len({grant.pin for grant in charged}) == len(charged)
    known = {row.id for row in whole[:tasks]}
    roots = {block.row.id: block.row.root_id for block in found.blocks}
    assert {roots[block] for grant in charged for block, _ in grant.reads} == known
    assert {grant.state for grant in charged} == {"RELEASED"}
    assert 0 < found.epsilon <= budget


def lives(again: Callable[[], object], kills: int, most: int) -> None:
    """So many lives, each ended at a random moment."""
    coins = random.Random(2022)
    for _ in range(kills):
        killed_after(coins.randint(1, most), again)


@pytest.mark.slow
def test_fifty_kills_change_nothing(tmp_path: Path) -> None:
    """A pool with all that has to be taken up again: a memory that thins out, an early start, finished learners."""
    folder, whole, pool = tmp_path / "killed", tmp_path / "whole", config(learner=POOL)

    def go_on(place: Path, tasks: int | None = None) -> Any:
        return run_endless(pool, place, stream=blobs(), resume=True, tasks=tasks)

    go_on(whole, 4)
    most = 2 * calls_of(lambda: go_on(whole, 5))
    lives(lambda: go_on(folder), 50, most)
    learned = lines(folder)[-1]["task"] + 2
    assert learned > 10, "the lives are too short"
    found, once = go_on(folder, learned), go_on(whole, learned)
    assert (found.learned, found.accuracy) == (once.learned, once.accuracy) == (learned, once.accuracy)
    assert weights(folder) == weights(whole)
    kept = [{key: value for key, value in line.items() if key != "seconds"} for line in lines(folder)]
    assert kept == [{key: value for key, value in line.items() if key != "seconds"} for line in lines(whole)]
    assert [line["task"] for line in kept] == list(range(learned))
    assert len({line["epsilon"] for line in kept}) == 1
    with Ledger(folder / "private" / "throwaway.ledger", keys=KeyRing.for_tests(0)) as ledger:
        check_books(ledger, learned, 2.0)
        killed = charges(ledger)
    with Ledger(whole / "private" / "throwaway.ledger", keys=KeyRing.for_tests(0)) as ledger:
        assert charges(ledger) == killed


def charges(ledger: Ledger) -> list[tuple[Any, ...]]:
    return [(grant.kind, grant.pin, grant.reads) for grant in ledger.statement(1).grants if grant.state != "VOID"]


MOMENTS = {
    "before the release is written": (Release, "save", 2, True),
    "before it is the last one": (EndlessFolder, "publish", 2, True),
    "before its grants are marked": (EndlessFolder, "publish", 2, False),
    "before its records are retired": (NaiveDPSGD, "on_saved", 2, True),
    "before it is noted": (EndlessFolder, "note", 2, True),
    "before it is settled": (EndlessFolder, "write_state", 2, True),
    "before old releases are deleted": (EndlessFolder, "forget", 3, True),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    run_endless(config(), folder, stream=blobs(), tasks=4)
    return folder


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_at_a_bad_moment(moment: str, tmp_path: Path, whole: Path) -> None:
    owner, name, count, before = MOMENTS[moment]
    killed_at(owner, name, count, before=before, work=lambda: run_endless(config(), tmp_path, stream=blobs()))
    run_endless(config(), tmp_path, stream=blobs(), resume=True, tasks=4)
    assert weights(tmp_path) == weights(whole)
    assert [line["task"] for line in lines(tmp_path)] == list(range(4))
    assert len(list((tmp_path / "releases").iterdir())) == 3
    assert not list((tmp_path / "private/store/grants").iterdir())
    with Ledger(tmp_path / "private" / "throwaway.ledger", keys=KeyRing.for_tests(0)) as ledger:
        check_books(ledger, 4, 2.0)
        assert {block.row.state for block in ledger.statement(1).blocks} == {"retired"}


@pytest.mark.slow
def test_private_records_are_charged_once_too(tmp_path: Path) -> None:
    """With keys that nobody knows, and a ledger that outlives the folder."""
    folder, ledger, plain = tmp_path / "killed", tmp_path / "data.ledger", config(repeatable_noise=False)

    def again(tasks: int | None = None) -> Any:
        return run_endless(plain, folder, ledger=ledger, stream=blobs(public=False), resume=True, tasks=tasks)

    again(1)
    lives(again, 12, 2 * calls_of(lambda: again(2)))
    learned = lines(folder)[-1]["task"] + 2
    found = again(learned)
    assert found.epsilon is not None and 0 < found.epsilon <= 2.0
    assert all("seconds" not in line for line in lines(folder))  # they follow the number of records
    with Ledger(ledger) as book:
        check_books(book, learned, 2.0)


def sizes(run: EndlessLoop, folder: Path) -> dict[str, Any]:
    """All that may grow, but for the ledger."""
    release = folder / "releases" / "last"
    return {
        "tensors": {name: tuple(value.shape) for name, value in run.learner.tensors().items()},
        "tasks": len(run.learner.tasks_),
        "records in memory": len(run.vault._admission._records),
        "tests": len(run.tests._kept),  # type: ignore[attr-defined]
        "kept blocks": len(list((folder / "private/store/blocks").iterdir())),
        "open grants": len(list((folder / "private/store/grants").iterdir())),
        "releases": len(list(release.parent.iterdir())),
        "files": sorted(file.name for file in folder.iterdir()),
        "state": (folder / "state.json").stat().st_size // 64,
        "release": len(json.loads((release / "release.json").read_text())["learnt"]),
        "certificate": (release / "certificate.json").stat().st_size // 512,
    }


@pytest.mark.slow
@pytest.mark.parametrize("learner", [NAIVE, POOL], ids=["naive", "pool"])
def test_nothing_grows(learner: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.privacy.ledger.stream_summary.MAX_LISTED", 10)  # longer streams list some tasks
    runs: list[EndlessLoop] = []
    run = EndlessLoop.run
    monkeypatch.setattr(EndlessLoop, "run", lambda self, goal: runs.append(self) or run(self, goal))
    found = []
    for tasks in (12, 24):  # the pool is at the same place of its turn
        run_endless(config(learner=learner), tmp_path, stream=blobs(), tasks=tasks, resume=True)
        found.append(sizes(runs[-1], tmp_path))
    assert found[0] == found[1]
    assert found[0]["tasks"] == found[0]["release"] == runs[-1].learner.window
    assert found[0]["records in memory"] == found[0]["kept blocks"] == (3 if learner is POOL else 0)
    assert found[0]["open grants"] == 0
    assert found[0]["releases"] == 3  # two and the link


def test_the_log_is_put_aside_when_it_is_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.experiment.runs.endless_folder.LOG_BYTES", 400)
    run_endless(config(), tmp_path, stream=blobs(), tasks=8)
    aside = [json.loads(line) for line in (tmp_path / "metrics.1.jsonl").read_text().splitlines()]
    numbers = [line["task"] for line in [*aside, *lines(tmp_path)]]
    assert numbers == list(range(numbers[0], 8)) and numbers[0] > 0


SHORT = """
from tacit.errors import BudgetExceeded
from tacit.learners.baselines.naive import NaiveDPSGD


class Short(NaiveDPSGD):
    def fit(self, task, block, vault):
        if task.number == 3:
            raise BudgetExceeded("all learners have spent what is theirs")
        super().fit(task, block, vault)
"""


def test_when_nothing_more_may_be_spent(tmp_path: Path) -> None:
    """It says so, keeps the last release, charges nothing, and says the same again at once."""
    (tmp_path / "short.py").write_text(SHORT)
    short = config(learner={**NAIVE, "method": f"{tmp_path / 'short.py'}:Short"})
    folder, heard = tmp_path / "run", []

    def again() -> Any:
        return run_endless(short, folder, stream=blobs(), resume=True, progress=heard.append)

    first = again()
    assert first.learned == 3 and first.ended is not None and "all learners have spent what is theirs" in first.ended
    before, state = weights(folder), (folder / "state.json").read_bytes()
    with Ledger(folder / "private" / "throwaway.ledger", keys=KeyRing.for_tests(0)) as ledger:
        check_books(ledger, 3, 2.0)
        head = ledger.head
    heard.clear()
    second = again()
    assert second == first and [said.kind for said in heard] == ["notice"]
    assert first.ended in heard[0].name and "releases/last" in heard[0].name
    assert (weights(folder), (folder / "state.json").read_bytes()) == (before, state)
    with Ledger(folder / "private" / "throwaway.ledger", keys=KeyRing.for_tests(0)) as ledger:
        assert ledger.head == head


def test_it_tries_again_when_the_ledger_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner may raise what is allowed; then the recorded end is no longer the answer."""
    fit = NaiveDPSGD.fit

    def refused(self: NaiveDPSGD, task: TaskInfo, *rest: Any) -> None:
        if task.number == 2:
            raise BudgetExceeded("the cap of all streams is reached")
        fit(self, task, *rest)

    monkeypatch.setattr(NaiveDPSGD, "fit", refused)
    assert run_endless(config(), tmp_path, stream=blobs()).ended is not None
    monkeypatch.setattr(NaiveDPSGD, "fit", fit)
    assert run_endless(config(), tmp_path, stream=blobs(), resume=True, tasks=4).learned == 2
    with Ledger(tmp_path / "private" / "throwaway.ledger", keys=KeyRing.for_tests(0)) as ledger:
        ledger.adopt(ledger.policy.__class__(allow_unsafe=True), by="owner", why="test")
    found = run_endless(config(), tmp_path, stream=blobs(), resume=True, tasks=4)
    assert (found.learned, found.ended) == (4, None)


def test_nothing_is_kept_where_nothing_was_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise BudgetExceeded("nothing is left")

    monkeypatch.setattr(NaiveDPSGD, "fit", refused)
    with pytest.raises(BudgetExceeded, match="nothing is left"):
        run_endless(config(), tmp_path, stream=blobs())


def test_it_stops_between_two_steps_and_goes_on(tmp_path: Path) -> None:
    stop = Stop()

    def hear(said: Event) -> None:
        if said.kind == "step" and said.task == 2:
            stop.request()

    with pytest.raises(Stopped):
        run_endless(config(), tmp_path / "stopped", stream=blobs(), progress=hear, stop=stop)
    found = run_endless(config(), tmp_path / "stopped", stream=blobs(), resume=True, tasks=4)
    once = run_endless(config(), tmp_path / "once", stream=blobs(), tasks=4)
    assert (found.learned, found.accuracy) == (once.learned, once.accuracy)
    assert weights(tmp_path / "stopped") == weights(tmp_path / "once")


def test_the_last_release_answers_and_learns_on(tmp_path: Path) -> None:
    found = run_endless(config(), tmp_path, stream=blobs(), tasks=11)
    x, y = blobs()(0).task(10).test()  # type: ignore[misc]
    learner = load_learner(found.release)
    assert learner.tasks_learned == 11 and len(learner.tasks_) == learner.window
    assert learner.score(x, y) > 0.5
    assert learner.stream_.task(11) == TaskInfo(name="task-12", number=11, labels=(0, 1), size=SIZE)


def test_partial_fit_goes_on_for_ever() -> None:
    info = blobs()(0).info
    learner = find("NaiveDPSGD")(stream=info, steps=2, batch=10)  # type: ignore[call-arg]
    for number in range(10):
        learner.partial_fit(*blobs()(0).task(number).records())
    assert learner.tasks_learned == 10 and [task.number for task in learner.tasks_] == list(range(2, 10))


def test_learners_that_plan_ahead_refuse() -> None:
    can = [name for name in LEARNERS if find(name).supports_endless]
    assert "NaiveDPSGD" in can
    for name in set(LEARNERS) - set(can):
        with pytest.raises(LearnerError, match=r"has no last one; use .*NaiveDPSGD"):
            find(name)().start(blobs()(0).info)
    with pytest.raises(LearnerError, match="steps has a value for each of 2 tasks"):
        NaiveDPSGD(steps=[2, 3]).start(blobs()(0).info)


def test_a_pool_at_its_end(tmp_path: Path) -> None:
    few = config(learner=POOL | {"learners": 1})
    found = run_endless(few, tmp_path, stream=blobs())
    assert found.learned == 3 and found.ended is not None and "may have 1 learner(s)" in found.ended
    assert run_endless(few, tmp_path, stream=blobs(), resume=True) == found
    with Ledger(tmp_path / "private" / "throwaway.ledger", keys=KeyRing.for_tests(0)) as ledger:
        check_books(ledger, 3, 2.0)
        assert {block.row.task for block in ledger.statement(1).blocks} == {"task-1", "task-2", "task-3"}
    assert not list((tmp_path / "private/store/blocks").iterdir())


def test_the_end_of_a_pool_is_known_as_soon_as_its_last_task_is_learned(tmp_path: Path) -> None:
    few = config(learner=POOL | {"learners": 1})
    found = run_endless(few, tmp_path, stream=blobs(), tasks=3)
    assert (
        found.ended
        == "the stream ends after task 3: this pool may have 1 learner(s), and they have learned their 3 tasks"
    )


def test_an_erasure_that_was_interrupted_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few, retire, retired = config(learner=POOL | {"learners": 1}), Vault.retire, []

    def killed(vault: Vault, block: Block) -> None:
        if block.part.startswith("memory"):
            retired.append(block.part)
            if len(retired) == 3:  # one at its time after task 2, one at its time and one of the rest after task 3
                raise KeyboardInterrupt
        retire(vault, block)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Vault, "retire", killed)
        run_endless(few, tmp_path, stream=blobs())
    blocks = tmp_path / "private/store/blocks"
    assert list(blocks.iterdir())
    again = run_endless(few, tmp_path, stream=blobs(), resume=True)
    assert again.learned == 3 and again.ended is not None and not list(blocks.iterdir())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seeds": 2}, "one seed"),
        ({"evaluation": {"test": "charged"}}, "unlimited number of charged queries"),
        ({"data": {"source": "digits", "scenario": "drifting", "label_space": "constant"}}, "labels that it declares"),
        ({"keep": 0}, "keep"),
    ],
)
def test_a_configuration_without_end(changes: Mapping[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        config(**changes)


def test_a_stream_with_an_end_is_refused(tmp_path: Path) -> None:
    permuted = config(data={"source": "digits", "scenario": "permuted", "tasks": 2})
    with pytest.raises(ConfigError, match="has an end, after 2 tasks"):
        run_endless(permuted, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run_endless(config(), tmp_path / "run", stream=blobs(), tasks=1)
    with pytest.raises(ConfigError, match="--resume"):
        run_endless(config(), tmp_path / "run", stream=blobs(), tasks=2)
    with pytest.raises(ConfigError, match=r"learner\.steps = 3"):
        run_endless(config(learner={**NAIVE, "steps": 4}), tmp_path / "run", stream=blobs(), resume=True)


def test_digits_drift_for_ever() -> None:
    """Each task moves a tenth of the places, the same in every call, and no two tasks are alike."""
    stream = drifting(load_set("digits"), 3, pace=0.1, limit=50)
    far, again = stream.task(123_456), drifting(load_set("digits"), 3, pace=0.1, limit=50).task(123_456)
    assert far.info == TaskInfo(name="task-123457", number=123_456, labels=stream.info.labels, size=50)
    assert np.array_equal(np.asarray(far.records()[0]), np.asarray(again.records()[0]))
    assert np.array_equal(order(3, 0, 0.1, 64), np.arange(64))
    for number in (0, 9, 10, 1000):
        now, then = (order(3, n, 0.1, 64) for n in (number, number + 1))
        assert sorted(now) == list(range(64)) and 0 < np.count_nonzero(now != then) <= 2 * 7
    with pytest.raises(DataError, match="endless"):
        stream[1:]
    with pytest.raises(DataError, match="pace"):
        drifting(load_set("digits"), pace=0)


def test_the_preset_is_endless() -> None:
    found = load("hassanpour2022/endless")
    assert "hassanpour2022/endless" in preset_names() and isinstance(found, Endless)
    assert find(found.learner.method).supports_endless


@pytest.mark.slow
def test_as_a_person_calls_it(tmp_path: Path) -> None:
    """Up to some tasks, on, and what is wrong with other calls; the exit code of an end is 0."""
    folder = str(tmp_path / "run")
    quick = ["--set", "data.limit=60", "--set", "learner.steps=2", "--set", "learner.batch=20", "--set", "threads=1"]
    quick += ["--set", "learner.memory_batch=5", "--set", "learner.learners=1", "--set", "learner.tasks_per_learner=3"]

    def tacit(*arguments: str) -> Any:
        return CliRunner().invoke(app, list(arguments))

    first = tacit("run", "hassanpour2022/endless", "--tasks", "2", "--out", folder, *quick)
    assert first.exit_code == 0, first.output
    assert "2 tasks learned, accuracy on the last tasks" in first.stdout and "certified ε 2" in first.stdout
    assert f"tacit run {folder} --resume" in first.stdout and "releases/last" in first.stdout
    assert "task-2 released, accuracy on the last tasks" in first.stderr and "records remembered" in first.stderr
    for _ in range(2):
        end = tacit("run", folder, "--resume", "--json")
        assert end.exit_code == 0 and "the stream ends after task 3: this pool may have 1 learner(s)" in end.stderr
        assert json.loads(end.stdout)["learned"] == 3 and json.loads(end.stdout)["ended"]
    for call, sentence in (
        (("run", folder), "has a run; continue it with"),
        (("run", folder, "--resume", "--until", "task-9"), "--until task-9 is for a single run"),
        (("run", "quickstart", "--tasks", "3"), "--tasks 3 is for an endless stream"),
    ):
        wrong = tacit(*call)
        assert wrong.exit_code == 1 and sentence in wrong.stderr and wrong.stderr.count("error:") == 1
