"""Errors a person can act on: one sentence, the value, the way out."""


class TacitError(Exception):
    """Base of every error that tacit raises on purpose."""


class PlanError(TacitError, ValueError):
    """A budget, plan or event that makes no sense, or cannot be met."""


class UnsupportedModel(TacitError, TypeError):
    """A model or loss whose per-example gradients do not exist (it mixes examples, or a layer is unknown)."""


class DataError(TacitError):
    """Data that is missing, or not as it was declared."""


class LearnerError(TacitError, ValueError):
    """A learner that cannot do what it was asked: a wrong setting, or tasks that were not planned."""


class NotLearnt(LearnerError, AttributeError):
    """What a learner has only once it has learnt something; for scikit-learn, an attribute that is not there yet."""


class ConfigError(TacitError, ValueError):
    """A configuration with a wrong key or value."""


class LedgerError(TacitError):
    """The ledger could not be opened, trusted or written. Nothing was released."""


class BudgetExceeded(LedgerError):
    """A charge that the gate refuses. Nothing was charged and nothing was read."""


class PolicyError(TacitError):
    """What was asked for is forbidden by the policy that the ledger holds."""


class VaultError(TacitError):
    """A request the vault refuses. Nothing was released."""


class CertificateError(TacitError):
    """A certificate that is malformed, was changed, or cannot be issued."""
