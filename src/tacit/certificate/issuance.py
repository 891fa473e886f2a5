"""Issuing a certificate from the ledger's summary of a stream.

Formal guarantees:

* The certified ε is the ledger's own, by the composition rule that is valid for the stream as it was declared. The
  other rules are printed beside it and marked as not applying.
* Where the guarantee is void (test keys, raw records released, an accepted roll-back), ε is null and the reason is
  stated. An audit above the certified bound prevents the certificate.
"""

import json
import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from tacit.certificate import sections
from tacit.certificate.assumptions import assumptions, label_policy, metered_by
from tacit.certificate.certificate import Certificate, Tuning
from tacit.certificate.claims import Claim
from tacit.certificate.composition import certified as composed
from tacit.certificate.composition import finite
from tacit.certificate.provenance import library
from tacit.errors import CertificateError
from tacit.privacy.ledger import NOT_AUTHENTICATED, GrantStatement, Ledger, StreamSummary
from tacit.privacy.ledger.storage.values import FROM_DATA, SHARED_NOISE
from tacit.privacy.randomness.noise import CIPHER_CPU, CIPHER_GPU
from tacit.privacy.vault import Block

FLOATS = "floating-point rounding of what was released before sums were exact, which leaks records"
_NOT_ACCOUNTED = (
    "pre-training data of feature maps and initial weights",
    "preprocessing with statistics of private data done before admission",
    "last digits of a model's own arithmetic that depend on the other records of a batch",
    "timing and memory side channels",
    "runs outside this ledger",
)


def issue(
    ledger: Ledger,
    stream: int | Block,
    *,
    method: str,
    claims: Sequence[Claim] = (),
    tuning: Tuning = "none",
    tuned: str = "",
    audits: Sequence[sections.Audit] = (),
    observer: sections.Observer | None = None,
    coins: str | None = None,
    remembers: bool = True,
    beside: Sequence[str] = (),
) -> Certificate:
    """Issue the certificate of a stream from the current state of the ledger.

    Args:
        ledger: The ledger, or a view of it.
        stream: The stream's id, or one of its blocks.
        method: The learning method, as it is to be printed.
        claims: What papers claim for the method.
        tuning: How hyper-parameters were tuned (declared).
        tuned: What was tried on which data, in public words.
        audits: Lower bounds on ε from attacks.
        observer: What the attacker sees; by default it is derived from the grants.
        coins: The public coins that the bound is conditional on, in words.
        remembers: Whether records of a task are kept for later tasks.
        beside: Other data in the release, in public words.

    Returns:
        The certificate, not yet signed or bound to a release.

    Raises:
        CertificateError: An audit refutes the certified ε, or tuning is declared as charged and is not in the ledger.
        PolicyError: The model was tuned on uncharged private data, which the policy forbids.
    """
    summary = ledger.summary(stream.stream_id if isinstance(stream, Block) else stream)
    terms, budget = summary.terms, summary.terms.budget
    if tuning == "not accounted" and not terms.public:
        ledger.policy.require("allow_uncharged_tuning", what="a certificate of a model tuned on uncharged private data")
    test_keys = ledger.keys.test
    certified = composed(summary, void_reason(summary, test_keys))
    if (by := metered_by(summary)) is not None:
        certified = certified.model_copy(update={"accountant": certified.accountant.replace(summary.accountant, by)})
    for audit in audits:
        if certified.epsilon is not None and audit.epsilon_lower_bound > certified.epsilon:
            raise CertificateError(
                f"an audit found ε ≥ {audit.epsilon_lower_bound:.4g}, above the certified {certified.epsilon:.4g}; "
                "nothing is certified until this is explained"
            )
    if _tuned_here(summary) and tuning == "none":
        tuning = "charged"
    if tuning == "charged" and not _tuned_here(summary):
        raise CertificateError(
            f"the settings are declared as tuned under a charge, and the ledger has no tuning of {terms.name!r}; state "
            "how they were tuned"
        )
    listed = [grant for grant in summary.grants if grant.state != "VOID"]
    now = datetime.now(UTC)
    return Certificate(
        id=uuid.uuid4().hex,
        # The times of two certificates would show how long a task took, which depends on its number of records.
        created=now.isoformat(timespec="seconds") if terms.public else now.date().isoformat(),
        library=library(),
        method=method,
        mode="uncertified" if certified.epsilon is None else "certified",
        unit=sections.UnitSection(
            kind=budget.unit,
            max_records_per_unit_per_task=terms.records_per_unit,
            max_tasks_per_unit=terms.tasks_per_unit,
            overlap_policy="enforced" if summary.enforced else "declared",
        ),
        adjacency=budget.adjacency,
        observer=observer or _observer(summary, remembers=remembers),
        claims=sections.Claims(paper=tuple(_paper(claim) for claim in claims), certified=certified),
        mechanisms=tuple(_mechanism(grant, test_keys) for grant in listed),
        labels=sections.Labels(policy=label_policy(summary)),
        task_schedule=sections.Schedule(plans_fixed_in_advance=terms.fixed_schedule),
        assumptions=tuple(assumptions(summary, test_keys, coins)),
        tuning=f"{tuning}: {tuned}" if tuned else tuning,
        not_accounted=(
            *(("hyper-parameter tuning on private data",) if tuning == "not accounted" else ()),
            *((FLOATS,) if summary.in_floats else ()),
            *_NOT_ACCOUNTED,
        ),
        audit=tuple(audits),
        ledger=sections.LedgerSection(
            id=summary.ledger,
            stream=terms.name,
            budget_epsilon=budget.epsilon,
            budget_delta=budget.delta,
            head_seq=summary.head.seq,
            head_hash=summary.head.hash,
            policy=dict(summary.policy),
            policy_digest=summary.policy_digest,
            raised=tuple(
                f"from ε = {r.before.epsilon:g} to {r.after.epsilon:g} by {r.by} "
                f"({'signed' if r.signed else NOT_AUTHENTICATED}): {r.why}"
                for r in summary.raises
            ),
            roll_backs_accepted=summary.reanchored,
        ),
        data_fingerprint=summary.identity,
        other_mechanisms=_not_listed(summary, listed),
        beside=tuple(beside),
        arithmetic=None if summary.in_floats else "exact",
        same_units=_same_units(ledger, summary, certified=certified.epsilon is not None),
    )


def _same_units(ledger: Ledger, summary: StreamSummary, *, certified: bool) -> sections.SameUnits | None:
    """The other private streams of the ledger, and the total over all of them."""
    own, kind = summary.terms.name, summary.terms.budget.unit
    if summary.terms.public or sum(not terms.public for _, terms in ledger.streams()) < 2:
        return None
    totals = {total.unit: total for total in ledger.totals()}
    others = tuple(
        sections.OtherStream(
            stream=loss.stream,
            unit=total.unit,
            adjacency=loss.adjacency,
            epsilon=finite(loss.epsilon),
            delta=loss.delta,
            added=total.unit == kind,
        )
        for total in totals.values()
        for loss in total.streams
        if loss.stream != own
    )
    mine = totals[kind]
    return sections.SameUnits(
        streams=others,
        disjoint=mine.disjoint,
        adjacency=mine.adjacency,
        epsilon=finite(mine.epsilon) if certified else None,
        delta=mine.delta,
        accountant=mine.accountant,
    )


def void_reason(summary: StreamSummary, test_keys: bool | None) -> str | None:
    """Why no finite ε can be certified; None if one can."""
    if test_keys:
        return "the keys of sampler and noise are test keys, which anyone can recompute: not private"
    if summary.reanchored:
        return "a roll-back of the ledger was accepted, so charges may be missing: " + "; ".join(summary.reanchored)
    reasons = set(summary.exposed)
    if reasons == {FROM_DATA}:
        return "label sets were read from the data (unsafe exit), and a single record can change them: not private"
    if reasons and reasons <= {SHARED_NOISE, FROM_DATA}:
        return (
            "all records share one draw of noise (unsafe exit, the functional mechanism as published), so differences "
            "of perturbed records are exact: not private"
        )
    if reasons:
        return "raw records were released (unsafe exit): not private"
    return None


def _mechanism(grant: GrantStatement, test_keys: bool | None) -> sections.Mechanism:
    gradient = grant.kind == "gradient"
    metered = "all units in every step, each until its own loss reaches its bound; which units are excluded is secret"
    return sections.Mechanism(
        grant=grant.id,
        kind=grant.kind,
        state="RELEASED" if grant.state == "RELEASED" else "CHARGED" if grant.state == "CHARGED" else "RESERVED",
        plan=dict(grant.plan),
        reads=tuple({"block": block, "event": json.loads(event)} for block, event in grant.reads),
        sampler="poisson, secret coins" if gradient else metered if grant.kind == "meter" else "all units, once",
        denominator="public expected batch" if gradient else "none, or the public nominal size",
        noise="TEST KEYS" if test_keys else f"one draw on the sum; CPU: {CIPHER_CPU}; GPU: {CIPHER_GPU}",
    )


def _not_listed(summary: StreamSummary, listed: Sequence[GrantStatement]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for count in summary.counts:
        counts[count.kind] += count.grants
    counts.subtract(grant.kind for grant in listed)
    return {kind: count for kind, count in sorted(counts.items()) if count > 0}


def _tuned_here(summary: StreamSummary) -> bool:
    return any(count.kind == "tuning" for count in summary.counts)


def _observer(summary: StreamSummary, *, remembers: bool) -> sections.Observer:
    kinds = {count.kind for count in summary.counts}
    return sections.Observer(
        memory="secret" if remembers else "none",
        batch_membership="none" if kinds and "gradient" not in kinds else "secret",
        metrics_released=tuple(sorted(kinds & {"accuracy", "count"})),
    )


def _paper(claim: Claim) -> sections.PaperClaim:
    return sections.PaperClaim(**vars(claim) | {"epsilon": finite(claim.epsilon)})
