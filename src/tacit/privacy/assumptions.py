"""What a certificate rests on: which of it the vault checks, and which is somebody's word."""

import json
from typing import Any

from tacit.privacy.certificate import FROM_DATA, Assumption, LabelPolicy
from tacit.privacy.ledger import Summary
from tacit.privacy.ledger.reading import EXACT


def assumptions(summary: Summary, test_keys: bool, coins: str | None) -> list[Assumption]:
    """Each with its state: checked by the vault, declared by a person, or violated."""
    terms = summary.terms
    person = f"one {terms.budget.unit} is in at most {terms.tasks_per_unit} task(s)"
    exposed = bool(summary.exposed)

    def one(name: str, state: Any, says: str) -> Assumption:
        return Assumption(name=name, state=state, says=says)

    found = [
        one(
            "units",
            "checked" if summary.enforced else "declared",
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
        *(one(*facts) for facts in _public_facts(label_policy(summary))),
        one("secrets", "declared", "the key file, the store and the stored records are secret"),
    ]
    if any(use.kind == "gradient" for use in summary.uses):
        coined = "batches are drawn by the vault's secret Poisson coins at the billed rate"
        found.append(one("poisson", "checked", coined))
    if any(use.kind == "meter" for use in summary.uses):
        found.append(one("individual filters", "checked", _individual(summary)))
    if any(one.mode == "open" for one in summary.alike):
        chosen = "plans of open tasks were chosen as one went, noise too; ε is that of a Rényi filter fixed before"
        found.append(one("adaptive plans", "checked", chosen))
    if terms.tasks_per_unit > 1 and terms.fixed_schedule:
        found.append(one("fixed schedule", "declared", "the plans of all tasks were fixed before the first release"))
    if coins is not None:
        found.append(one("public coins", "declared", f"the bound is conditional on public coins: {coins}"))
    if summary.raises:
        found.append(one("raised budget", "declared", "the decision to raise the budget did not depend on releases"))
    if summary.moved:
        says = f"the ledger was moved, and no other copy of it is in use: {'; '.join(summary.moved)}"
        found.append(one("one copy", "declared", says))
    if any(use.through for use in summary.uses):
        found.append(one("feature maps", "declared", "feature maps inside the vault are public or already released"))
    return found


def metered_by(summary: Summary) -> str | None:
    """What to say in place of `EXACT` where units have meters of their own: those are bounded at Rényi orders only."""
    lists = [events for one in summary.alike for events in one.lists]
    metered = [any(json.loads(event)["type"] == "zcdp" for event in events) for events in lists]
    if not any(metered) or summary.accountant != EXACT:
        return None
    others = "" if all(metered) else "; min(PLD, RDP) of the event lists without a meter"
    return f"RDP of whole event lists, ρ of each unit's own filter in them{others}"


def _individual(summary: Summary) -> str:
    bounds = sorted({grant.plan["rho"] for grant in summary.grants if grant.kind == "meter" and "rho" in grant.plan})
    most = "ρ" if not bounds else f"ρ = {bounds[-1]:.4g}" if len(bounds) == 1 else f"ρ ≤ {bounds[-1]:.4g}"
    return f"each unit is used until its own losses reach {most}; who is out is secret; no sampling is counted on"


def _public_facts(policy: LabelPolicy) -> list[tuple[str, Any, str]]:
    """What is said not to depend on the data; a label set that was taken from them is not among it."""
    facts = "nominal sizes, number and timing of tasks do not depend on the data"
    if policy == "learned privately":
        learned = "label sets left the vault by charged mechanisms only"
        return [("public facts", "declared", f"candidate labels, {facts}"), ("label sets", "checked", learned)]
    if policy == "from data, not private":
        return [("public facts", "declared", facts), ("label sets", "violated", "label sets do not depend on the data")]
    return [("public facts", "declared", facts if policy == "none" else f"label sets, {facts}")]


def label_policy(summary: Summary) -> LabelPolicy:
    """Where the label sets come from, as the ledger has seen it; the least private source counts."""
    if FROM_DATA in summary.exposed:
        return "from data, not private"
    if any(use.kind == "label set" for use in summary.uses):
        return "learned privately"
    if summary.label_sets == "none":
        return "none"
    if summary.tasks == 1:
        return "declared public"
    return "declared constant" if summary.label_sets == "the same" else "declared per task"
