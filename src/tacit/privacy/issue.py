"""Issuing a certificate: from the ledger's statement to the numbers that may be printed.

Guarantee: the certified ε is the ledger's own, by the composition rule that holds for the stream as it was declared;
the other rules are printed beside it and marked as not applying. Anything that voids the guarantee (test keys, records
let out raw, an audit above the bound) gives null and the reason, never a number.
"""

import json
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from tacit.errors import CertificateError
from tacit.privacy.certificate import (
    FROM_DATA,
    Assumption,
    Audit,
    Certificate,
    Claims,
    LabelPolicy,
    Labels,
    LedgerSection,
    Library,
    Mechanism,
    Observer,
    PaperClaim,
    Schedule,
    UnitSection,
)
from tacit.privacy.claims import Claim
from tacit.privacy.composition import certified as composed
from tacit.privacy.composition import finite
from tacit.privacy.functional import SHARED_NOISE
from tacit.privacy.ledger import GrantStatement, Ledger, Statement
from tacit.privacy.noise import CIPHER_CPU, CIPHER_GPU
from tacit.privacy.tuned import Tuning

_NOT_ACCOUNTED = (
    "pre-training data of feature maps and initial weights",
    "preprocessing with statistics of private data done before admission",
    "floating-point rounding of the noisy sums",
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
) -> Certificate:
    """The certificate of a stream as the ledger stands now. `tuning`: how hyper-parameters were chosen (declared), and
    `tuned` what was tried, on what data, in public words; `coins`: which public coins the bound is conditional on."""
    statement = ledger.statement(stream_id)
    terms, budget = statement.terms, statement.terms.budget
    if tuning == "not accounted" and not terms.public:
        ledger.policy.require("allow_uncharged_tuning", what="a certificate of a model tuned on uncharged private data")
    test_keys = ledger.keys.test
    certified = composed(statement, _reason(statement, test_keys))
    refuting = [
        audit for audit in audits if certified.epsilon is not None and audit.epsilon_lower_bound > certified.epsilon
    ]
    if refuting:
        raise CertificateError(
            f"an audit found ε ≥ {refuting[0].epsilon_lower_bound:.4g}, above the certified {certified.epsilon:.4g}; "
            "nothing is certified until this is explained"
        )
    if _tuned_here(statement) and tuning == "none":
        tuning = "charged"
    if tuning == "charged" and not _tuned_here(statement):
        raise CertificateError(
            f"the settings are said to be tuned under a charge, and the ledger holds no tuning of {terms.name!r}; say "
            "how they were tuned"
        )
    return Certificate(
        id=uuid.uuid4().hex,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        library=library(),
        method=method,
        mode="uncertified" if certified.epsilon is None else "certified",
        unit=UnitSection(
            kind=budget.unit,
            max_records_per_unit_per_task=terms.records_per_unit,
            max_tasks_per_unit=terms.tasks_per_unit,
            overlap_policy="enforced" if _enforced(statement) else "declared",
        ),
        adjacency=budget.adjacency,
        observer=observer or Observer(metrics_released=_metrics(statement)),
        claims=Claims(paper=tuple(_paper(claim) for claim in claims), certified=certified),
        mechanisms=tuple(_mechanism(grant, test_keys) for grant in statement.grants if grant.state != "VOID"),
        labels=Labels(policy=_label_policy(statement)),
        task_schedule=Schedule(plans_fixed_in_advance=terms.fixed_schedule),
        assumptions=tuple(_assumptions(statement, test_keys, coins)),
        tuning=f"{tuning}: {tuned}" if tuned else tuning,
        not_accounted=(
            *(("hyper-parameter tuning on private data",) if tuning == "not accounted" else ()),
            *_NOT_ACCOUNTED,
        ),
        audit=tuple(audits),
        ledger=LedgerSection(
            id=statement.ledger,
            stream=terms.name,
            budget_epsilon=budget.epsilon,
            budget_delta=budget.delta,
            head_seq=statement.head.seq,
            head_hash=statement.head.hash,
            policy=dict(statement.policy),
            policy_digest=statement.policy_digest,
            raised=tuple(
                f"from ε = {r.before.epsilon:g} to {r.after.epsilon:g} by {r.by}: {r.why}" for r in statement.raises
            ),
            roll_backs_accepted=statement.reanchored,
        ),
        data_fingerprint=statement.identity,
    )


def _reason(statement: Statement, test_keys: bool) -> str | None:
    if test_keys:
        return "the keys of sampler and noise are test keys that anyone can recompute: not private"
    if statement.reanchored:
        return "a roll-back of the ledger was accepted, so charges may be missing: " + "; ".join(statement.reanchored)
    reasons = {why for _, why in statement.exposures}
    if reasons == {FROM_DATA}:
        return "label sets were read off the data (unsafe exit), and one record decides them: not private"
    if reasons and reasons <= {SHARED_NOISE, FROM_DATA}:
        return (
            "all records share one draw of noise (unsafe exit, the functional mechanism as published), so differences "
            "of perturbed records are exact: not private"
        )
    if any(block.row.exposed for block in statement.blocks):
        return "records were let out raw (unsafe exit): not private"
    return None


def _assumptions(statement: Statement, test_keys: bool, coins: str | None) -> list[Assumption]:
    terms = statement.terms
    person = f"one {terms.budget.unit} is in at most {terms.tasks_per_unit} task(s)"
    exposed = any(block.row.exposed for block in statement.blocks)

    def one(name: str, state: Any, says: str) -> Assumption:
        return Assumption(name=name, state=state, says=says)

    found = [
        one(
            "units",
            "checked" if _enforced(statement) else "declared",
            f"{person}, with at most {terms.records_per_unit} record(s) in each",
        ),
        one(
            "secure noise",
            "violated" if test_keys else "checked",
            "sampler and noise keys come from operating-system entropy",
        ),
        one(
            "no raw records",
            "violated" if exposed else "checked",
            "records left the vault only through charged mechanisms",
        ),
        one(
            "separate examples",
            "checked",
            "model, loss and feature maps treat each record by itself (tested on synthetic records)",
        ),
        *(one(*facts) for facts in _public_facts(_label_policy(statement))),
        one("secrets", "declared", "the key file, the store and the stored records are secret"),
    ]
    if any(grant.kind == "gradient" for grant in statement.grants):
        coined = "batches are drawn by the vault's secret Poisson coins at the billed rate"
        found.append(one("poisson", "checked", coined))
    if terms.tasks_per_unit > 1 and terms.fixed_schedule:
        found.append(one("fixed schedule", "declared", "the plans of all tasks were fixed before the first release"))
    if coins is not None:
        found.append(one("public coins", "declared", f"the bound is conditional on public coins: {coins}"))
    if statement.raises:
        found.append(one("raised budget", "declared", "the decision to raise the budget did not depend on releases"))
    if any("through" in grant.plan for grant in statement.grants):
        found.append(one("feature maps", "declared", "feature maps inside the vault are public or already released"))
    return found


def _public_facts(policy: LabelPolicy) -> list[tuple[str, Any, str]]:
    """What is said not to depend on the data; a label set that was taken from them is not among it."""
    facts = "nominal sizes, number and timing of tasks do not depend on the data"
    if policy == "learned privately":
        learned = "label sets left the vault by charged mechanisms only"
        return [("public facts", "declared", f"candidate labels, {facts}"), ("label sets", "checked", learned)]
    if policy == "from data, not private":
        return [("public facts", "declared", facts), ("label sets", "violated", "label sets do not depend on the data")]
    return [("public facts", "declared", facts if policy == "none" else f"label sets, {facts}")]


def _mechanism(grant: GrantStatement, test_keys: bool) -> Mechanism:
    gradient = grant.kind == "gradient"
    return Mechanism(
        grant=grant.id,
        kind=grant.kind,
        state="RELEASED" if grant.state == "RELEASED" else "CHARGED" if grant.state == "CHARGED" else "RESERVED",
        plan=dict(grant.plan),
        reads=tuple({"block": block, "event": json.loads(event)} for block, event in grant.reads),
        sampler="poisson, secret coins" if gradient else "all units, once",
        denominator="public expected batch" if gradient else "none, or the public nominal size",
        noise="TEST KEYS" if test_keys else f"one draw on the sum; CPU: {CIPHER_CPU}; GPU: {CIPHER_GPU}",
    )


def _label_policy(statement: Statement) -> LabelPolicy:
    """Where the label sets come from, as the ledger has seen it; the least private source counts."""
    if any(why == FROM_DATA for _, why in statement.exposures):
        return "from data, not private"
    if any(grant.kind == "label set" and grant.state != "VOID" for grant in statement.grants):
        return "learned privately"
    sets = {block.row.task: block.row.labels for block in statement.blocks}
    if not any(sets.values()):
        return "none"
    if len(sets) == 1:
        return "declared public"
    return "declared constant" if len(set(sets.values())) == 1 else "declared per task"


def _tuned_here(statement: Statement) -> bool:
    return any(grant.kind == "tuning" for grant in statement.grants)


def _metrics(statement: Statement) -> tuple[str, ...]:
    return tuple(sorted({grant.kind for grant in statement.grants if grant.kind in ("accuracy", "count")}))


def _enforced(statement: Statement) -> bool:
    return all(block.row.overlap == "enforced" for block in statement.blocks)


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
