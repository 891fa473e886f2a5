"""Whether this process may have charged a ledger that outlives it, and the message after Ctrl-C that depends on it.

This module imports nothing, so that the message can be printed even while the command line is still being imported.
"""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells expect it."""

_written = False


def touch() -> None:
    """Records that this process is about to write to a ledger that outlives it."""
    global _written
    _written = True


def touched() -> bool:
    """Whether this process may have written to a ledger that outlives it."""
    return _written


def interrupted_message() -> str:
    """The message after Ctrl-C, true at the moment of the call."""
    if touched():
        return "stopped; what was charged stays charged (see tacit ledger show), and --resume charges nothing twice"
    return "stopped; nothing was charged by this call"
