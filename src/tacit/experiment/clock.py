"""Where the time of a run goes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Seconds by part; a part inside another one is taken out of it."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._spent: dict[str, float] = {}
        self._open: list[str] = ["rest"]

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._turn()
        self._open.append(name)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def take(self) -> dict[str, float]:
        """What was spent since the last call."""
        self._turn()
        spent, self._spent = self._spent, {}
        return {name: round(seconds, 6) for name, seconds in spent.items()}

    def _turn(self) -> None:
        now = time.perf_counter()
        self._spent[self._open[-1]] = self._spent.get(self._open[-1], 0.0) + now - self._since
        self._since = now
