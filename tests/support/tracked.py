"""What tests of trackers share: a text that must reach none of them, and a tracker that fails."""

from pathlib import Path

SECRET = "secret-0451-of-a-record"


class Failing:
    """A tracker whose server is down; counts the attempts."""

    name = "mlflow"

    def __init__(self, failures: int = 10**9) -> None:
        self.attempts: list[bool] = []
        self._left = failures

    def send(self, folder: Path, *, final: bool = True) -> None:
        self.attempts.append(final)
        if self._left:
            self._left -= 1
            raise ConnectionError("no answer from http://user:password@127.0.0.1:1\nand more lines")
