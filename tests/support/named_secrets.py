"""Secrets that follow from a name (see tests/conftest.py)."""

import hashlib
import os
import secrets as real
import uuid
from itertools import count

SALT = os.environ.get("TACIT_TEST_SALT", "")
"""Another salt gives every test other noise: to see how often a statistical test fails by chance."""


class Told:
    """`secrets.token_bytes` and `uuid.uuid4`, from a name; in a forked process, those of the operating system."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.start("tests")

    def start(self, name: str) -> None:
        self.name, self.numbers = SALT + name, count()

    def token_bytes(self, length: int) -> bytes:
        if os.getpid() != self.process:
            return real.token_bytes(length)
        return hashlib.shake_256(f"{self.name} {next(self.numbers)}".encode()).digest(length)

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.token_bytes(16), version=4)


TOLD = Told()
