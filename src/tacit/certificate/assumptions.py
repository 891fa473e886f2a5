"""The assumptions of a certificate: those that the vault checks, and those that a person declares."""

import json
from typing import Any

from tacit.certificate.sections import Assumption
from tacit.privacy.ledger import StreamSummary
from tacit.privacy.ledger.statement import EXACT
from tacit.privacy.ledger.storage.values import FROM_DATA, LabelPolicy


def assumptions(summary: StreamSummary, test_keys: bool | None, coins: str | None) -> list[Assumption]:
    """Every assumption with its state: checked by the vault, declared by a person, or violated.

    `test_keys` is None for a ledger of an earlier version that is read without its keys.
    """
    terms = summary.terms
    kinds = {count.kind for count in summary.counts}
    found: list[Assumption] = []

    def assume(name: str, state: Any, says: str, *, where: object = True) -> None:
        if where:
            found.append(Assumption(name=name, state=state, says=says))

    units = f"one {terms.budget.unit} is in at most {terms.tasks_per_unit} task(s), with at most"
    enforced = "checked" if summary.enforced else "declared"
    assume("units", enforced, f"{units} {terms.records_per_unit} record(s) in each")
    entropy = "sampler and noise keys come from operating-system entropy"
    assume("secure noise", {True: "violated", False: "checked", None: "declared"}[test_keys], entropy)
    charged = "records were released only through charged mechanisms"
    assume("no raw records", "violated" if summary.exposed else "checked", charged)
    alone = "model, loss and feature maps process each record independently (tested on synthetic records)"
    assume("separate examples", "checked", alone)
    for facts in _public_facts(label_policy(summary)):
        assume(*facts)
    assume("secrets", "declared", "the key file, the store and the stored records are secret")
    sampled = "batches are drawn by secret Poisson sampling at the charged rate"
    assume("poisson", "checked", sampled, where="gradient" in kinds)
    assume("individual filters", "checked", _individual(summary), where="meter" in kinds)
    chosen = "plans of open tasks, noise included, were chosen adaptively; ε is that of a Rényi filter fixed in advance"
    assume("adaptive plans", "checked", chosen, where=any(group.mode == "open" for group in summary.groups))
    fixed = "the plans of all tasks were fixed before the first release"
    assume("fixed schedule", "declared", fixed, where=terms.tasks_per_unit > 1 and terms.fixed_schedule)
    conditional = f"the bound is conditional on public random choices: {coins}"
    assume("public coins", "declared", conditional, where=coins is not None)
    raised = "the decision to raise the budget did not depend on releases"
    assume("raised budget", "declared", raised, where=summary.raises)
    moved = f"the ledger was moved, and no other copy of it is in use: {'; '.join(summary.moved)}"
    assume("one copy", "declared", moved, where=summary.moved)
    maps = "feature maps inside the vault are public or already released"
    assume("feature maps", "declared", maps, where=any(count.through for count in summary.counts))
    return found


def metered_by(summary: StreamSummary) -> str | None:
    """The accountant's name where units have individual filters, which are bounded by Rényi curves only; else None."""
    lists = [events for group in summary.groups for events in group.lists]
    metered = [any(json.loads(event)["type"] == "zcdp" for event in events) for events in lists]
    if not any(metered) or summary.accountant != EXACT:
        return None
    others = "" if all(metered) else "; min(PLD, RDP) of the event lists without individual filters"
    return f"RDP of whole event lists, with the ρ of each unit's individual filter{others}"


def _individual(summary: StreamSummary) -> str:
    bounds = sorted({grant.plan["rho"] for grant in summary.grants if grant.kind == "meter" and "rho" in grant.plan})
    most = "ρ" if not bounds else f"ρ = {bounds[-1]:.4g}" if len(bounds) == 1 else f"ρ ≤ {bounds[-1]:.4g}"
    return f"each unit is used until its own loss reaches {most}; which units are excluded is secret; no amplification"


def _public_facts(policy: LabelPolicy) -> list[tuple[str, Any, str]]:
    """The facts that are declared not to depend on the data, and the state of the label sets."""
    facts = "nominal sizes, number and timing of tasks do not depend on the data"
    if policy == "learned privately":
        learned = "label sets were released by charged mechanisms only"
        return [("public facts", "declared", f"candidate labels, {facts}"), ("label sets", "checked", learned)]
    if policy == "from data, not private":
        return [("public facts", "declared", facts), ("label sets", "violated", "label sets do not depend on the data")]
    return [("public facts", "declared", facts if policy == "none" else f"label sets, {facts}")]


def label_policy(summary: StreamSummary) -> LabelPolicy:
    """The source of the label sets as the ledger records it; of several, the least private."""
    if FROM_DATA in summary.exposed:
        return "from data, not private"
    if any(count.kind == "label set" for count in summary.counts):
        return "learned privately"
    if summary.label_sets == "none":
        return "none"
    if summary.tasks == 1:
        return "declared public"
    return "declared constant" if summary.label_sets == "the same" else "declared per task"
