"""How fast the ledger is: charging a plan, and a ledger with 100,000 blocks. Run: python bench/ledger.py [blocks]."""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tacit.privacy.accounting.budget import Budget
from tacit.privacy.accounting.events import gaussian, poisson_gaussian
from tacit.privacy.ledger import Ledger, StreamTerms

BUDGET = Budget(epsilon=1.0, delta=1e-5)
PLAN = poisson_gaussian(0.01, 1.3, 600)
WORK = {"pin": "p", "holder": "bench", "kind": "gradient", "plan": {"rate": 0.01, "steps": 600, "noise": 1.3}}


def timed(label: str, action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    seconds = time.perf_counter() - start
    print(f"{label:<58}{seconds * 1e3:12.1f} ms")
    return seconds


def charging(folder: Path) -> None:
    with Ledger(folder / "small") as ledger:
        stream = ledger.stream(StreamTerms(name="s", budget=BUDGET))
        first = ledger.block(stream, "first", size=1000).id
        timed("first charge of a plan (its price is worked out)", lambda: ledger.bill([(first, PLAN)], **WORK))
        taken: dict[str, list[float]] = {"make a block": [], "bill a known plan": [], "bill an open block": []}
        opened = ledger.block(stream, "open", mode="open", like=PLAN, size=1000).id
        for number in range(50):
            marks = [time.perf_counter()]
            block = ledger.block(stream, str(number), size=1000).id
            marks.append(time.perf_counter())
            ledger.bill([(block, PLAN)], **WORK)
            marks.append(time.perf_counter())
            ledger.bill([(opened, gaussian(400.0))], **WORK)
            marks.append(time.perf_counter())
            for name, start, end in zip(taken, marks, marks[1:], strict=False):
                taken[name].append(end - start)
        for name, values in taken.items():
            print(f"{name + ' (median of 50)':<58}{statistics.median(values) * 1e3:12.2f} ms")


def many(folder: Path, count: int) -> None:
    path = folder / "large"
    ledger = Ledger(path)
    stream = ledger.stream(StreamTerms(name="s", budget=BUDGET))

    def fill() -> None:
        with ledger.transaction():
            ids = [ledger.block(stream, f"task {number}", size=1000).id for number in range(count)]
            plans = [PLAN]
            ledger.commit(dict.fromkeys(ids, plans))

    timed(f"make and commit {count:,} blocks in one transaction", fill)
    last = ledger.block(stream, "one more", size=1000).id
    timed("bill one more block", lambda: ledger.bill([(last, PLAN)], **WORK))
    ledger.close()

    def look() -> None:
        with Ledger(path) as again:
            head = again.head
            assert again.contains(head)
            print(f"  entry {head.seq:,}, ε = {again.epsilon(stream):.4f}")

    timed("open, check the head, print ε", look)
    with Ledger(path) as again:
        timed("statement (everything a certificate needs)", lambda: again.statement(stream))
        timed("verify: replay everything", again.verify)
    print(f"file: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        charging(Path(folder))
        many(Path(folder), int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
