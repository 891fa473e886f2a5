"""A ledger of many tasks: what is asked once a task costs the database the same after forty tasks as after hundreds.

Work is counted in steps of SQLite's virtual machine, which scans cannot hide from, and never in seconds."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import event

from tacit import Budget, Ledger
from tacit.certificate import signing
from tacit.certificate.issuance import issue
from tacit.privacy.accounting.events import gaussian, poisson_gaussian
from tacit.privacy.ledger import StreamTerms, grants, stream_summary
from tacit.privacy.ledger.limits.policy import Policy

BUDGET = Budget(epsilon=8.0, delta=1e-5)
TRAIN, READ = poisson_gaussian(0.2, 4.0, 3), poisson_gaussian(0.1, 4.0, 3)
FEW, MANY = 40, 160
LOOKED = 4
"""So many tasks are measured."""
EVERY = 50
"""Steps of the virtual machine that are counted as one."""


class Steps:
    """How much SQLite does for a ledger while `counted`."""

    def __init__(self, ledger: Ledger) -> None:
        self.taken = 0
        event.listen(ledger._engine, "connect", self._listen)
        ledger._engine.dispose()  # connections that nobody listens to

    def _listen(self, connection: Any, _record: object) -> None:
        connection.set_progress_handler(self._count, EVERY)
        connection.execute("PRAGMA synchronous=OFF")

    def _count(self) -> int:
        self.taken += 1
        return 0

    def of(self, action: Callable[[], object]) -> int:
        before = self.taken
        action()
        return self.taken - before


@pytest.fixture(params=["", "a cap on all streams"])
def ledger(request: pytest.FixtureRequest) -> Iterator[Ledger]:
    """Thrown away, so that nothing waits for the disk."""
    with Ledger.throwaway() as book:
        if request.param:
            book.adopt(Policy(unit_cap=Budget(epsilon=90.0, delta=1e-5)), by="officer", why="test")  # type: ignore[arg-type]
        yield book


def learn(ledger: Ledger, stream: int, number: int, memory: list[int], k: int) -> dict[str, Callable[[], object]]:
    """What one task asks of its ledger, in its order."""
    made: dict[str, Any] = {}
    work = {"holder": "h", "kind": "gradient", "plan": {"steps": 3}}

    def admit() -> None:
        name = f"task-{number}"
        overlap = "declared" if k == 1 else "enforced"
        root = ledger.block(stream, name, size=30, labels=(0, 1), fingerprint=f"f{number}", overlap=overlap)  # type: ignore[arg-type]
        if k > 1:
            people = np.arange(30, dtype=np.uint64) + 30 * (number // k)
            made["in"] = ledger.enroll(stream, name, people, k)
        made["train"], made["memory"] = (row.id for row in ledger.split(root.id, {"train": 24, "memory": 6}))

    def grant(reads: list[tuple[int, Any]]) -> None:
        ticket = ledger.reserve(reads, pin=f"{number} {len(reads)}", **work)  # type: ignore[arg-type]
        with ledger._write() as txn:  # inside `together` too, where a charge would not be on disk when it returns
            grants.charge(txn, ticket)
            grants.release(txn, ticket, None)

    def remember() -> None:
        if memory:
            grant([(block, READ) for block in memory])
        memory.append(made["memory"])
        if len(memory) > 3:
            ledger.retire(memory.pop(0))

    return {
        "admit": admit,
        "commit": lambda: ledger.commit({made["train"]: [TRAIN], made["memory"]: [READ] * 3}),
        "train": lambda: grant([(made["train"], TRAIN)]),
        "remember": remember,
        "epsilon": lambda: ledger.epsilon(stream),
        "find": lambda: ledger.find_block("s", f"task-{number}", "train"),
        "states": lambda: ledger.grant_states("s", f"task-{number}"),
        "unfinished": lambda: ledger.unfinished(stream, "h"),
        "resume": lambda: ledger.resume(pin="nothing", holder="h"),
        "certificate": lambda: issue(ledger, stream, method="m"),
        "sweep": ledger.void_expired,
    }


@pytest.mark.parametrize("k", [1, 3], ids=["records", "people who recur"])
def test_the_work_of_a_task_does_not_grow_with_the_stream(ledger: Ledger, k: int) -> None:
    stream = ledger.stream(StreamTerms(name="s", budget=BUDGET, tasks_per_unit=k, public=True))
    steps, memory = Steps(ledger), list[int]()
    taken: dict[int, dict[str, int]] = {}
    for start, end in ((0, FEW), (FEW, MANY)):
        with ledger.transaction():
            for number in range(start, end - LOOKED):
                actions = learn(ledger, stream, number, memory, k)
                for name in ("admit", "commit", "train", "remember"):
                    actions[name]()
        taken[end] = dict.fromkeys(actions, 0)
        for number in range(end - LOOKED, end):
            for name, action in learn(ledger, stream, number, memory, k).items():
                taken[end][name] += steps.of(action)
    for name, few in taken[FEW].items():
        assert taken[MANY][name] <= 1.15 * few + 20, (name, few, taken[MANY][name])
    # The same measure grows with what does go through all tasks, so it can fail.
    assert steps.of(lambda: ledger.statement(stream)) > 20 * steps.of(lambda: ledger.epsilon(stream))


def test_a_long_certificate_is_short_and_exact(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l") as ledger:
        stream = ledger.stream(StreamTerms(name="s", budget=BUDGET))
        blocks = [ledger.block(stream, f"t{number}", size=10).id for number in range(stream_summary.MAX_LISTED)]
        ledger.commit({block: [gaussian(2.0) if place == 1 else gaussian(5.0)] for place, block in enumerate(blocks)})
        whole = issue(ledger, stream, method="m")
        assert len(whole.claims.certified.tasks) == stream_summary.MAX_LISTED and not whole.claims.certified.alike
        assert '"alike"' not in whole.to_json() and "other_mechanisms" not in whole.to_json()
        more = [ledger.block(stream, f"u{number}", size=10).id for number in range(40)]
        for place, block in enumerate(more):
            ledger.bill([(block, gaussian(5.0))], pin=str(place), holder="h", kind="sums", plan={})
        short = issue(ledger, stream, method="m")
        full = ledger.statement(stream)
    certified = short.claims.certified
    names = [task.task for task in certified.tasks]
    assert len(names) < 13 and "t1" in names and names[-8:] == [f"u{number}" for number in range(32, 40)]
    assert certified.epsilon == whole.epsilon == max(block.epsilon for block in full.blocks)
    assert certified.all_tasks == 72 and sum(one.tasks for one in certified.alike) == 72 - len(names)
    assert short.other_mechanisms == {"sums": 40 - len(short.mechanisms)} and 8 <= len(short.mechanisms) <= 12
    said = str(short)
    assert f"… and {72 - len(names)} other tasks, each at most ε = {full.blocks[0].epsilon:.4g}" in said
    assert "72 task(s)" in said
    basic = next(rule for rule in certified.over_tasks if rule.rule == "basic")
    assert basic.epsilon == pytest.approx(sum(block.epsilon for block in full.blocks)) and basic.tasks == 72


def test_a_long_certificate_can_be_signed_and_priced_again(tmp_path: Path) -> None:
    signing.new_key(tmp_path / "key")
    with Ledger(tmp_path / "l") as ledger:
        stream = ledger.stream(StreamTerms(name="s", budget=BUDGET, tasks_per_unit=30))
        blocks = [ledger.block(stream, f"t{number}", size=10).id for number in range(60)]
        ledger.commit({block: [gaussian(9.0)] for block in blocks})
        certificate = issue(ledger, stream, method="m")
    signing.verify(signing.sign(certificate, tmp_path / "key"), tmp_path / "key.pub")
    # The tasks that are only counted hold the number up too: those with a line of their own are not thirty.
    assert len(certificate.claims.certified.tasks) < 30
    forged = certificate.model_dump(mode="json")
    forged["claims"]["certified"]["epsilon"] *= 0.95
    with pytest.raises(signing.CertificateError, match="a unit in 30 tasks loses"):
        signing.reprice(type(certificate).model_validate(forged))


def test_many_kinds_of_tasks_are_counted_together_at_last(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l") as ledger:
        stream = ledger.stream(StreamTerms(name="s", budget=BUDGET))
        blocks = [ledger.block(stream, f"t{number}", size=10).id for number in range(60)]
        ledger.commit({block: [gaussian(3.0 + place)] for place, block in enumerate(blocks)})
        certified = issue(ledger, stream, method="m").claims.certified
        full = {block.row.task: block.epsilon for block in ledger.statement(stream).blocks}
    assert certified.all_tasks == 60 and len(certified.alike) < 20
    merged, listed = certified.alike[-1], {task.task for task in certified.tasks}
    rest = sorted((loss for task, loss in full.items() if task not in listed), reverse=True)
    assert merged.events == () and merged.epsilon == rest[len(certified.alike) - 1] and certified.epsilon == full["t0"]


def test_kinds_of_tasks_are_told_apart_as_far_as_a_unit_meets_them(tmp_path: Path) -> None:
    """The check of a certificate composes events of as many tasks as a unit is in, and none as free."""
    signing.new_key(tmp_path / "key")
    with Ledger(tmp_path / "l") as ledger:
        stream = ledger.stream(StreamTerms(name="s", budget=BUDGET, tasks_per_unit=30))
        blocks = [ledger.block(stream, f"t{number}", size=10).id for number in range(60)]
        ledger.commit({block: [gaussian(20.0 + place / 10)] for place, block in enumerate(blocks)})
        certificate = issue(ledger, stream, method="m")
    certified = certificate.claims.certified
    assert certified.all_tasks == 60 and len(certified.alike) == 31 and certified.alike[-1].events == ()
    signing.verify(signing.sign(certificate, tmp_path / "key"), tmp_path / "key.pub")
    forged = certificate.model_dump(mode="json")
    forged["claims"]["certified"]["epsilon"] *= 0.85  # the twenty costliest alone lose less
    with pytest.raises(signing.CertificateError, match="a unit in 30 tasks loses"):
        signing.reprice(type(certificate).model_validate(forged))
    without = certificate.model_dump(mode="json")
    for one in without["claims"]["certified"]["alike"]:
        one["events"] = []
    with pytest.raises(signing.CertificateError, match="a unit in 30 tasks loses inf"):
        signing.reprice(type(certificate).model_validate(without))


def test_a_count_that_was_changed_is_noticed(tmp_path: Path) -> None:
    import sqlite3

    from tacit.errors import LedgerError

    path = tmp_path / "l"
    with Ledger(path) as ledger:
        stream = ledger.stream(StreamTerms(name="s", budget=BUDGET))
        ledger.bill([(ledger.block(stream, "t", size=10).id, TRAIN)], pin="1", holder="h", kind="sums", plan={})
    for change in ("UPDATE profiles SET faces = '[]'", "DELETE FROM uses"):
        with sqlite3.connect(path) as connection:
            connection.execute(change)
        connection.close()
        with Ledger(path) as ledger, pytest.raises(LedgerError, match="differs from the log"):
            ledger.verify()
