"""Several processes on one file, and processes that are killed at any moment.

The tests run this file as a program: it forks workers from one process that has imported everything.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tacit.errors import BudgetExceeded, LedgerError
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.accounting.epsilon import ORDERS, rdp_curve
from tacit.privacy.accounting.events import from_json, gaussian
from tacit.privacy.accounting.filters import cost_units
from tacit.privacy.ledger import Ledger, StreamTerms

BUDGET = Budget(epsilon=1.0, delta=1e-5)
SMALL, LIST = gaussian(30.0), gaussian(8.0)
WORK = {"kind": "sum", "plan": {}}


def run(mode: str, folder: Path, timeout: float) -> str:
    command = [sys.executable, __file__, mode, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def grants(ledger: Ledger) -> dict[str, str]:
    with ledger._read() as connection:
        return {row.id: row.state for row in connection.exec_driver_sql("SELECT id, state FROM grants")}


def most(ledger: Ledger, block: int) -> int:
    """How many times SMALL fits into the filter of an open block."""
    cost = dict(zip(ORDERS, cost_units(rdp_curve(SMALL, BUDGET.adjacency)), strict=True))
    (row,) = (one for one in ledger.statement(1).blocks if one.row.id == block)
    return min(limit // cost[order] for order, limit in zip(row.orders, row.limits, strict=True))


def test_processes_that_make_one_ledger_agree(tmp_path) -> None:
    ids = run("open", tmp_path, 120).split()
    assert len(ids) == 4 and len(set(ids)) == 1


def test_processes_never_overspend_together(tmp_path) -> None:
    counts = [int(word) for word in run("spend", tmp_path, 120).split()]
    with Ledger(tmp_path / "l") as ledger:
        assert sum(counts) == most(ledger, 1) == len(grants(ledger))
        (row,) = ledger.statement(1).blocks[:1]
        assert all(spent <= limit for spent, limit in zip(row.spent, row.limits, strict=True))
        assert ledger.verify()


@pytest.mark.slow
def test_two_hundred_kills_lose_budget_and_never_privacy(tmp_path) -> None:
    assert run("kill", tmp_path, 120).split() == ["killed", "200"]
    outputs = [line for file in tmp_path.glob("output.*") for line in file.read_text().split("\n")[:-1]]
    with Ledger(tmp_path / "l") as ledger:
        ledger.void_expired(now=time.time() + 1e6)
        states = grants(ledger)
        assert len(outputs) > 50 and len(set(outputs)) == len(outputs)
        assert {states.get(one) for one in outputs} <= {"CHARGED", "RELEASED"}  # no output without a durable charge
        count = Counter(states.values())
        assert count["RESERVED"] == 0 and count["RELEASED"] <= len(outputs) <= count["CHARGED"] + count["RELEASED"]
        report = ledger.statement(1)
        for row in report.blocks:
            assert all(spent <= limit for spent, limit in zip(row.spent, row.limits, strict=True))
            if row.row.mode == "open":
                billed = Counter(row.events)
                units = [cost_units(rdp_curve(from_json(one), BUDGET.adjacency)) for one in billed]
                for order, spent in zip(row.orders, row.spent, strict=True):
                    place = ORDERS.index(order)
                    assert spent == sum(n * u[place] for n, u in zip(billed.values(), units, strict=True))
        assert report.epsilon <= BUDGET.epsilon
        assert ledger.verify().entries == ledger.head.seq


# ---- the program -----------------------------------------------------------------------------------------------


def fork(action) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            action()
            status = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    return child


def say(text: object) -> None:
    os.write(1, f"{text}\n".encode())


def make(folder: Path, open_blocks: int) -> None:
    with Ledger(folder / "l") as ledger:
        ledger.stream(StreamTerms(name="s", budget=BUDGET))
        for number in range(open_blocks):
            ledger.block(1, f"open {number}", size=10, mode="open")


def open_one(folder: Path) -> None:
    with Ledger(folder / "l") as ledger:
        ledger.stream(StreamTerms(name="s", budget=BUDGET))
        say(ledger.id)


def spend(folder: Path) -> None:
    done = 0
    with Ledger(folder / "l") as ledger, suppress(BudgetExceeded):
        while True:
            ledger.bill([(1, SMALL)], pin="p", holder=str(os.getpid()), **WORK)
            done += 1
    say(done)


def work_for_ever(folder: Path, seed: int, blocks: int) -> None:
    rng = random.Random(seed)
    output = os.open(folder / f"output.{seed % 4}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    ledger = Ledger(folder / "l")
    while True:
        with suppress(BudgetExceeded):
            if rng.random() < 0.2:
                block, event = ledger.block(1, f"task {rng.random()}", size=10).id, LIST
            else:
                block, event = rng.randint(1, blocks), SMALL
            ticket = ledger.reserve([(block, event)], pin=str(seed), holder="me", lease_s=0.2, **WORK)
            if rng.random() < 0.1:
                ledger.void(ticket)
                continue
            try:
                ledger.charge(ticket)
            except LedgerError:  # swept by another process meanwhile
                continue
            os.write(output, f"{ticket.grant}\n".encode())
            os.fsync(output)
            ledger.release(ticket, "hash")
            if rng.random() < 0.1:
                ledger.void_expired()


def kill(folder: Path) -> None:
    make(folder, 3)
    rng = random.Random(7)
    workers = {seed: fork(lambda seed=seed: work_for_ever(folder, seed, 3)) for seed in range(4)}
    try:
        for _ in range(200):
            time.sleep(rng.uniform(0.01, 0.12))
            seed = rng.choice(sorted(workers))
            os.kill(workers[seed], signal.SIGKILL)
            _, status = os.waitpid(workers.pop(seed), 0)
            assert os.WIFSIGNALED(status), "a worker failed before it was killed"
            fresh = seed + 4
            workers[fresh] = fork(lambda seed=fresh: work_for_ever(folder, seed, 3))
    finally:
        for child in workers.values():
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    say("killed 200")


def main() -> None:
    mode, folder = sys.argv[1], Path(sys.argv[2])
    if mode == "kill":
        kill(folder)
        return
    if mode == "spend":
        make(folder, 1)
    children = [fork(lambda: (open_one if mode == "open" else spend)(folder)) for _ in range(4)]
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)


if __name__ == "__main__":
    main()
