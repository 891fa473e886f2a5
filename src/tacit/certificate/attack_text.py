"""The bounds on attackers in words, for the text of a certificate, reports and documents: one source for all of them.

Every number is rounded up, so that what is printed is a bound, too.
"""

from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal

from tacit.certificate.attack_bounds import FALSE_POSITIVES, AttackBounds, GroupBounds, attack_bounds
from tacit.certificate.sections import Contents
from tacit.privacy.accounting.tradeoff import PAIR, PLD, RENYI

_METHODS = {
    PLD: "privacy loss distributions of the charged events",
    RENYI: "the Rényi curves of filters and adaptive events",
    PAIR: "the certified (ε, δ) alone, because the certificate does not list all events",
}


@dataclass(frozen=True, kw_only=True)
class AttackWords:
    """The bounds on attackers in words.

    Attributes:
        advantage: The largest difference between true and false positives.
        true_positives: The largest true positives at few false positives.
        mu: The smallest known µ, or "none", and its condition.
        gaussian: The guarantee as µ-GDP.
        groups: The bounds for several units: how many, ε, advantage, and true positives at each false-positive rate.
        computed: What the numbers were computed from.
    """

    advantage: str
    true_positives: str
    mu: tuple[str, str]
    gaussian: str
    groups: tuple[tuple[str, ...], ...]
    computed: str


def attack_words(certificate: Contents) -> AttackWords | None:
    """The bounds on attackers in words.

    Args:
        certificate: The certificate.

    Returns:
        The words; None if no finite ε is certified, so that nothing is guaranteed.
    """
    bounds = attack_bounds(certificate)
    if bounds is None:
        return None
    kind, one, number = certificate.unit.kind, bounds.one, _gaussian(bounds)
    rates = " and ".join(
        f"at most {percent(value)} at {rate * 100:g}\u202f% false positives"
        for rate, value in zip(FALSE_POSITIVES, one.true_positives, strict=True)
    )
    return AttackWords(
        advantage=(
            f"at most {percent(one.advantage)}: who guesses whether a {kind} was in the data accuses, of those that "
            "were, at most that share more than of those that were not"
        ),
        true_positives=f"{rates}; without any information, as many as false positives",
        mu=number,
        gaussian="no finite µ is known" if number[0] == "none" else f"at most µ = {number[0]}, {number[1]}",
        groups=tuple(_row(group) for group in bounds.groups),
        computed="; ".join(_METHODS[method] for method in bounds.methods) + _alone(certificate),
    )


def _alone(certificate: Contents) -> str:
    """Says that the bounds do not count other streams that may have the same units, where there are any."""
    total = certificate.same_units
    if total is None or not any(other.added for other in total.streams):
        return ""
    kind = certificate.unit.kind
    return (
        f", for what this stream released alone: other streams of the ledger may have the same {kind}s, and add to it"
    )


def _gaussian(bounds: AttackBounds) -> tuple[str, str]:
    """The smallest µ that is known, and on what condition; "none" if there is no finite one."""
    alone, with_delta = bounds.mu, bounds.mu_with_delta
    if alone is not None and (with_delta is None or alone <= 1.01 * with_delta):
        return up(alone), "without any additional δ"
    if with_delta is None:
        return "none", "no finite µ is known"
    otherwise = "no finite µ is known" if alone is None else f"at most {up(alone)}"
    return up(with_delta), f"up to δ = {bounds.delta:g}; without this δ, {otherwise}"


def percent(share: float) -> str:
    """A share as a percentage, rounded up to three digits.

    Args:
        share: The share.

    Returns:
        Such as `3.97 %`, with a narrow space that does not break.
    """
    return f"{up(min(1.0, share) * 100)}\u202f%"


def up(value: float) -> str:
    """A number with three digits, rounded up.

    Args:
        value: The number, at least 0.

    Returns:
        Its text.
    """
    if value <= 0:
        return "0"
    return f"{Context(prec=3, rounding=ROUND_CEILING).create_decimal(Decimal(value)):g}"


def _row(group: GroupBounds) -> tuple[str, ...]:
    epsilon = "none found" if group.epsilon is None else up(group.epsilon)
    return (str(group.units), epsilon, percent(group.advantage), *map(percent, group.true_positives))
