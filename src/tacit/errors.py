"""The errors that tacit raises. A message is one sentence with the offending value and what to do about it."""

OUT_OF_MEMORY = "memory ran out; what was learned is kept: repeat the command with fewer --processes"
_MEMORY = ("out of memory", "can't allocate memory", "_ALLOC_FAILED")  # torch, its CPU allocator; cuBLAS and cuDNN


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a GPU or a CPU. torch raises a `RuntimeError` for most of them."""
    known = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return known or (isinstance(error, RuntimeError) and any(words in str(error) for words in _MEMORY))


class TacitError(Exception):
    """Base class of all errors that tacit raises on purpose."""


class PlanError(TacitError, ValueError):
    """A budget, plan or event is invalid, or no plan meets the budget."""


class UnsupportedModel(TacitError, TypeError):
    """Per-example gradients of a model or loss do not exist: it mixes examples, or has an unknown layer."""


class DataError(TacitError):
    """Data is missing, or does not match its declaration."""


class LearnerError(TacitError, ValueError):
    """A learner's setting is invalid, or a task was not planned."""


class NotLearned(LearnerError, AttributeError):
    """An attribute of a learner does not exist before its first task, as in scikit-learn."""


class ConfigError(TacitError, ValueError):
    """A configuration has a wrong key or value."""


class LedgerError(TacitError):
    """The ledger cannot be opened, trusted or written. Nothing was released."""


class BudgetExceeded(LedgerError):
    """A charge exceeds the budget. Nothing was charged, and no record was read."""


class PolicyError(TacitError):
    """The ledger's policy forbids the request."""


class VaultError(TacitError):
    """The vault refuses a request. Nothing was released."""


class CertificateError(TacitError):
    """A certificate is malformed, was altered, or cannot be issued."""
