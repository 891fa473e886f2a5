"""Issuing a certificate: from the ledger's summary to the numbers that may be printed.

Guarantee: the certified ε is the ledger's own, by the composition rule that holds for the stream as it was declared;
the other rules are printed beside it and marked as not applying. Anything that voids the guarantee (test keys, records
let out raw, an audit above the bound) gives null and the reason, never a number.
"""

import json
import subprocess
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path

from tacit.errors import CertificateError
from tacit.privacy.assumptions import assumptions, label_policy, metered_by
from tacit.privacy.certificate import (
    FROM_DATA,
    Audit,
    Certificate,
    Claims,
    Labels,
    LedgerSection,
    Library,
    Mechanism,
    Observer,
    OtherStream,
    PaperClaim,
    SameUnits,
    Schedule,
    UnitSection,
)
from tacit.privacy.claims import Claim
from tacit.privacy.composition import certified as composed
from tacit.privacy.composition import finite
from tacit.privacy.functional import SHARED_NOISE
from tacit.privacy.ledger import NOT_AUTHENTICATED, GrantStatement, Ledger, Summary
from tacit.privacy.noise import CIPHER_CPU, CIPHER_GPU
from tacit.privacy.tuned import Tuning

FLOATS = "floating-point rounding, which gives records away, of what was released before sums were exact"
_NOT_ACCOUNTED = (
    "pre-training data of feature maps and initial weights",
    "preprocessing with statistics of private data done before admission",
    "last digits of a model's own arithmetic that depend on the other records of a batch",
    "timing and memory side channels",
    "runs outside this ledger",
)


def issue(
    ledger: Ledger,
    stream_id: int,
    *,
    method: str,
    claims: Sequence[Claim] = (),
    tuning: Tuning = "none",
    tuned: str = "",
    audits: Sequence[Audit] = (),
    observer: Observer | None = None,
    coins: str | None = None,
    remembers: bool = True,
    beside: Sequence[str] = (),
) -> Certificate:
    """The certificate of a stream as the ledger stands now.

    `tuning`: how hyper-parameters were chosen (declared), and `tuned` what was tried, on what data, in public words;
    `coins`: which public coins the bound is conditional on; `remembers`: whether records of a task are kept for later
    ones; `beside`: what else went into the release, in public words."""
    summary = ledger.summary(stream_id)
    terms, budget = summary.terms, summary.terms.budget
    if tuning == "not accounted" and not terms.public:
        ledger.policy.require("allow_uncharged_tuning", what="a certificate of a model tuned on uncharged private data")
    test_keys = ledger.keys.test
    certified = composed(summary, broken(summary, test_keys))
    if (by := metered_by(summary)) is not None:
        certified = certified.model_copy(update={"accountant": certified.accountant.replace(summary.accountant, by)})
    refuting = [
        audit for audit in audits if certified.epsilon is not None and audit.epsilon_lower_bound > certified.epsilon
    ]
    if refuting:
        raise CertificateError(
            f"an audit found ε ≥ {refuting[0].epsilon_lower_bound:.4g}, above the certified {certified.epsilon:.4g}; "
            "nothing is certified until this is explained"
        )
    if _tuned_here(summary) and tuning == "none":
        tuning = "charged"
    if tuning == "charged" and not _tuned_here(summary):
        raise CertificateError(
            f"the settings are said to be tuned under a charge, and the ledger holds no tuning of {terms.name!r}; say "
            "how they were tuned"
        )
    listed = [grant for grant in summary.grants if grant.state != "VOID"]
    now = datetime.now(UTC)
    return Certificate(
        id=uuid.uuid4().hex,
        # Two certificates of a run in seconds would tell how long a task took, and so about its number of records.
        created=now.isoformat(timespec="seconds") if terms.public else now.date().isoformat(),
        library=library(),
        method=method,
        mode="uncertified" if certified.epsilon is None else "certified",
        unit=UnitSection(
            kind=budget.unit,
            max_records_per_unit_per_task=terms.records_per_unit,
            max_tasks_per_unit=terms.tasks_per_unit,
            overlap_policy="enforced" if summary.enforced else "declared",
        ),
        adjacency=budget.adjacency,
        observer=observer or _observer(summary, remembers=remembers),
        claims=Claims(paper=tuple(_paper(claim) for claim in claims), certified=certified),
        mechanisms=tuple(_mechanism(grant, test_keys) for grant in listed),
        labels=Labels(policy=label_policy(summary)),
        task_schedule=Schedule(plans_fixed_in_advance=terms.fixed_schedule),
        assumptions=tuple(assumptions(summary, test_keys, coins)),
        tuning=f"{tuning}: {tuned}" if tuned else tuning,
        not_accounted=(
            *(("hyper-parameter tuning on private data",) if tuning == "not accounted" else ()),
            *((FLOATS,) if summary.in_floats else ()),
            *_NOT_ACCOUNTED,
        ),
        audit=tuple(audits),
        ledger=LedgerSection(
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


def _same_units(ledger: Ledger, summary: Summary, *, certified: bool) -> SameUnits | None:
    """The other private streams of the ledger, and what one unit may have lost in all of them."""
    own, kind = summary.terms.name, summary.terms.budget.unit
    if summary.terms.public or sum(not terms.public for _, terms in ledger.streams()) < 2:
        return None
    totals = {total.unit: total for total in ledger.totals()}
    others = tuple(
        OtherStream(
            stream=one.stream,
            unit=total.unit,
            adjacency=one.adjacency,
            epsilon=finite(one.epsilon),
            delta=one.delta,
            added=total.unit == kind,
        )
        for total in totals.values()
        for one in total.streams
        if one.stream != own
    )
    mine = totals[kind]
    return SameUnits(
        streams=others,
        disjoint=mine.disjoint,
        adjacency=mine.adjacency,
        epsilon=finite(mine.epsilon) if certified else None,
        delta=mine.delta,
        accountant=mine.accountant,
    )


def broken(summary: Summary, test_keys: bool) -> str | None:
    """Why nothing finite is certified; None where something is."""
    if test_keys:
        return "the keys of sampler and noise are test keys that anyone can recompute: not private"
    if summary.reanchored:
        return "a roll-back of the ledger was accepted, so charges may be missing: " + "; ".join(summary.reanchored)
    reasons = set(summary.exposed)
    if reasons == {FROM_DATA}:
        return "label sets were read off the data (unsafe exit), and one record decides them: not private"
    if reasons and reasons <= {SHARED_NOISE, FROM_DATA}:
        return (
            "all records share one draw of noise (unsafe exit, the functional mechanism as published), so differences "
            "of perturbed records are exact: not private"
        )
    if reasons:
        return "records were let out raw (unsafe exit): not private"
    return None


def _mechanism(grant: GrantStatement, test_keys: bool) -> Mechanism:
    gradient = grant.kind == "gradient"
    metered = "all units in every step, each until its own losses reach its bound; who is out stays secret"
    return Mechanism(
        grant=grant.id,
        kind=grant.kind,
        state="RELEASED" if grant.state == "RELEASED" else "CHARGED" if grant.state == "CHARGED" else "RESERVED",
        plan=dict(grant.plan),
        reads=tuple({"block": block, "event": json.loads(event)} for block, event in grant.reads),
        sampler="poisson, secret coins" if gradient else metered if grant.kind == "meter" else "all units, once",
        denominator="public expected batch" if gradient else "none, or the public nominal size",
        noise="TEST KEYS" if test_keys else f"one draw on the sum; CPU: {CIPHER_CPU}; GPU: {CIPHER_GPU}",
    )


def _not_listed(summary: Summary, listed: Sequence[GrantStatement]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for use in summary.uses:
        counts[use.kind] += use.grants
    counts.subtract(grant.kind for grant in listed)
    return {kind: count for kind, count in sorted(counts.items()) if count > 0}


def _tuned_here(summary: Summary) -> bool:
    return any(use.kind == "tuning" for use in summary.uses)


def _observer(summary: Summary, *, remembers: bool) -> Observer:
    kinds = {use.kind for use in summary.uses}
    return Observer(
        memory="secret" if remembers else "none",
        batch_membership="none" if kinds and "gradient" not in kinds else "secret",
        metrics_released=_metrics(summary),
    )


def _metrics(summary: Summary) -> tuple[str, ...]:
    return tuple(sorted({use.kind for use in summary.uses if use.kind in ("accuracy", "count")}))


def _paper(claim: Claim) -> PaperClaim:
    return PaperClaim(
        paper=claim.paper,
        formula=claim.formula,
        adjacency=claim.adjacency,
        epsilon=finite(claim.epsilon),
        delta=claim.delta,
        max_order=claim.max_order,
        source=claim.source,
    )


@cache
def library() -> Library:
    """This version of tacit; asked for once in a process."""
    return Library(name="tacit", version=metadata.version("tacit"), git_commit=checkout().commit)


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """The state of the source that runs; all None where it is not in a git checkout."""

    commit: str | None = None
    dirty: bool | None = None
    """Tracked files differ from the commit."""


@cache
def checkout(root: Path = Path(__file__).parents[3]) -> Checkout:
    """Git's answer, asked for once in a process."""
    if not (root / ".git").exists():
        return Checkout()
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    # Without optional locks: looking must not get into the way of whoever works in the checkout.
    changes = _git(root, "--no-optional-locks", "status", "--porcelain", "--untracked-files=no")
    return Checkout(commit=commit, dirty=None if commit is None or changes is None else changes != "")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except OSError:  # git is not installed
        return None
    return done.stdout.strip() if done.returncode == 0 else None
