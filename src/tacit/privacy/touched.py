"""Whether this process may have charged a lasting ledger: for what is said when it is stopped.

It imports nothing, so that the command can ask before anything else is loaded.
"""

_written = False


def touch() -> None:
    """A lasting ledger is written to from here on."""
    global _written
    _written = True


def touched() -> bool:
    return _written
