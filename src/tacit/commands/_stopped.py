"""What is said after Ctrl-C where nothing else is: whether the call charged anything."""

from tacit.privacy.touched import touched

STOPPED = 130
"""Exit code after Ctrl-C."""


def sentence() -> str:
    """True at this moment."""
    if touched():
        return "stopped; what was charged stays charged (tacit ledger show), and --resume charges nothing twice"
    return "stopped; nothing was charged by this call"
