"""Issuing a certificate: from the ledger's statement to the numbers that may be printed.

Guarantee: the certified ε is the ledger's own, by the composition rule that holds for the stream as it was declared;
the other rules are printed beside it and marked as not applying. Anything that voids the guarantee (test keys, records
let out raw, an audit above the bound) gives null and the reason, never a number.
"""

import json
import math
import subprocess
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from tacit.errors import CertificateError
from tacit.privacy import accounting, events
from tacit.privacy.budget import Budget
from tacit.privacy.certificate import (
    Assumption,
    Audit,
    Certificate,
    Certified,
    Claims,
    Labels,
    LedgerSection,
    Library,
    Mechanism,
    Observer,
    OverTasks,
    PaperClaim,
    Schedule,
    TaskBound,
    UnitSection,
)
from tacit.privacy.claims import Claim
from tacit.privacy.filters import RenyiFilter
from tacit.privacy.ledger import BlockStatement, GrantStatement, Ledger, Statement
from tacit.privacy.noise import CIPHER_CPU, CIPHER_GPU

Tuning = Literal["none", "public data", "charged", "not accounted"]
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
    audits: Sequence[Audit] = (),
    observer: Observer | None = None,
) -> Certificate:
    """The certificate of a stream as the ledger stands now. `tuning`: how hyper-parameters were chosen (declared)."""
    if tuning == "not accounted":
        ledger.policy.require("allow_uncharged_tuning", what="a certificate of a model tuned on uncharged private data")
    statement = ledger.statement(stream_id)
    terms, budget = statement.terms, statement.terms.budget
    test_keys = ledger.keys.test
    certified = _certified(statement, _reason(statement, test_keys))
    refuting = [
        audit for audit in audits if certified.epsilon is not None and audit.epsilon_lower_bound > certified.epsilon
    ]
    if refuting:
        raise CertificateError(
            f"an audit found ε ≥ {refuting[0].epsilon_lower_bound:.4g}, above the certified {certified.epsilon:.4g}; "
            "nothing is certified until this is explained"
        )
    if any(grant.kind == "tuning" for grant in statement.grants) and tuning == "none":
        tuning = "charged"
    return Certificate(
        id=uuid.uuid4().hex,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        library=_library(),
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
        assumptions=tuple(_assumptions(statement, test_keys)),
        tuning=tuning,
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


def _certified(statement: Statement, broken: str | None) -> Certified:
    budget = statement.terms.budget
    tasks = [_task(root, budget) for root in _roots(statement)]
    rules = _over_tasks(statement, tasks)
    applying = next(rule for rule in rules if rule.applies)
    epsilon = None if broken else _finite(statement.epsilon)
    reason = broken or ("" if epsilon is not None else "the charges have no finite epsilon") or applying.holds_for
    return Certified(
        epsilon=epsilon,
        delta=budget.delta,
        reason=reason,
        curve=() if epsilon is None else _curve(statement, tasks, epsilon),
        accountant=f"{statement.accountant}; dp-accounting {metadata.version('dp-accounting')}",
        tasks=tuple(tasks),
        over_tasks=tuple(rules),
    )


def _roots(statement: Statement) -> list[list[BlockStatement]]:
    """The leaves of every task: a unit is in one of them."""
    roots: dict[int, list[BlockStatement]] = {}
    for block in statement.blocks:
        if block.row.state != "split":
            roots.setdefault(block.row.root_id, []).append(block)
    return list(roots.values())


def _task(leaves: list[BlockStatement], budget: Budget) -> TaskBound:
    worst = max(leaves, key=lambda leaf: math.inf if leaf.row.exposed else leaf.epsilon)
    return TaskBound(
        task=worst.row.task,
        part=worst.row.part,
        mode=worst.row.mode,
        epsilon=None if worst.row.exposed else _finite(worst.epsilon),
        delta=budget.delta,
        events=tuple(json.loads(text) for text in worst.events),
    )


def _over_tasks(statement: Statement, tasks: list[TaskBound]) -> list[OverTasks]:
    """Every rule for a unit in n tasks; exactly one applies."""
    terms, budget = statement.terms, statement.terms.budget
    k = terms.tasks_per_unit
    n = len(tasks) if k == 1 else min(k, len(tasks))
    losses = sorted((math.inf if t.epsilon is None else t.epsilon for t in tasks), reverse=True)[:n]
    applies = "parallel" if k == 1 else "accountant" if terms.fixed_schedule else "adaptive filter"

    def rule(name: Any, epsilon: float, delta: float, holds_for: str) -> OverTasks:
        return OverTasks(
            rule=name, epsilon=_finite(epsilon), delta=delta, tasks=n, applies=name == applies, holds_for=holds_for
        )

    by_accountant = statement.epsilon if applies == "accountant" else _compose(tasks, n, budget)
    by_filter = (
        RenyiFilter.for_budget(budget).epsilon(budget.delta) if applies == "adaptive filter" else _rdp(tasks, n, budget)
    )
    return [
        rule("parallel", max(losses, default=0.0), budget.delta, "a unit that is in one task only"),
        rule("basic", sum(losses), min(1.0, n * budget.delta), f"a unit in {n} tasks, plans chosen in any way"),
        rule("accountant", by_accountant, budget.delta, f"a unit in {n} tasks whose plans were fixed in advance"),
        rule(
            "adaptive filter",
            by_filter,
            budget.delta,
            f"a unit in {n} tasks, plans chosen as one goes, under a Rényi filter",
        ),
    ]


def _compose(tasks: list[TaskBound], n: int, budget: Budget) -> float:
    """ε of the n costliest tasks together; open tasks have no event list and fall back to their sum."""
    worst = sorted(tasks, key=lambda task: math.inf if task.epsilon is None else task.epsilon, reverse=True)[:n]
    if any(task.mode == "open" or task.epsilon is None for task in worst):
        return sum(math.inf if task.epsilon is None else task.epsilon for task in worst)
    whole = events.compose(events.from_json(json.dumps(event)) for task in worst for event in task.events)
    return accounting.epsilon(whole, budget.delta, budget.adjacency)


def _rdp(tasks: list[TaskBound], n: int, budget: Budget) -> float:
    worst = sorted(tasks, key=lambda task: math.inf if task.epsilon is None else task.epsilon, reverse=True)[:n]
    if any(task.mode == "open" or task.epsilon is None for task in worst):
        return math.inf
    whole = events.compose(events.from_json(json.dumps(event)) for task in worst for event in task.events)
    return accounting.epsilon(whole, budget.delta, budget.adjacency, "rdp")


def _curve(statement: Statement, tasks: list[TaskBound], epsilon: float) -> tuple[tuple[float | None, float], ...]:
    """(ε, δ) at other δ, for streams whose units are in one committed task; otherwise the certified pair alone."""
    budget = statement.terms.budget
    if statement.terms.tasks_per_unit > 1 or any(task.mode == "open" for task in tasks):
        return ((epsilon, budget.delta),)
    lists = {json.dumps(task.events, sort_keys=True): task.events for task in tasks}
    points: list[tuple[float | None, float]] = []
    for factor in (1e-2, 1.0, 1e2):
        delta = budget.delta * factor
        if delta < 1 and factor != 1.0:
            losses = [
                accounting.epsilon(
                    events.compose(events.from_json(json.dumps(event)) for event in each), delta, budget.adjacency
                )
                for each in lists.values()
            ]
            points.append((_finite(max(losses, default=0.0)), delta))
        elif factor == 1.0:
            points.append((epsilon, delta))
    return tuple(points)


def _reason(statement: Statement, test_keys: bool) -> str | None:
    if test_keys:
        return "the keys of sampler and noise are test keys that anyone can recompute: not private"
    if any(block.row.exposed for block in statement.blocks):
        return "records were let out raw (unsafe exit): not private"
    return None


def _assumptions(statement: Statement, test_keys: bool) -> list[Assumption]:
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
        one("poisson", "checked", "batches are drawn by the vault's secret Poisson coins at the billed rate"),
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
        one(
            "public facts",
            "declared",
            "label sets, nominal sizes, number and timing of tasks do not depend on the data",
        ),
        one("secrets", "declared", "the key file, the store and the stored records are secret"),
    ]
    if terms.tasks_per_unit > 1 and terms.fixed_schedule:
        found.append(one("fixed schedule", "declared", "the plans of all tasks were fixed before the first release"))
    if statement.raises:
        found.append(one("raised budget", "declared", "the decision to raise the budget did not depend on releases"))
    if any("through" in grant.plan for grant in statement.grants):
        found.append(one("feature maps", "declared", "feature maps inside the vault are public or already released"))
    return found


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


def _label_policy(statement: Statement) -> Literal["declared public", "learned privately", "none"]:
    if any(grant.kind == "label set" for grant in statement.grants):
        return "learned privately"
    return "declared public" if any(block.row.labels for block in statement.blocks) else "none"


def _metrics(statement: Statement) -> tuple[str, ...]:
    return tuple(sorted({grant.kind for grant in statement.grants if grant.kind in ("accuracy", "count")}))


def _enforced(statement: Statement) -> bool:
    return all(block.row.overlap == "enforced" for block in statement.blocks)


def _paper(claim: Claim) -> PaperClaim:
    return PaperClaim(
        paper=claim.paper,
        formula=claim.formula,
        adjacency=claim.adjacency,
        epsilon=_finite(claim.epsilon),
        delta=claim.delta,
        max_order=claim.max_order,
        source=claim.source,
    )


def _library() -> Library:
    root = Path(__file__).parents[3]
    commit = None
    if (root / ".git").exists():
        done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
        commit = done.stdout.strip() or None
    return Library(name="tacit", version=metadata.version("tacit"), git_commit=commit)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
