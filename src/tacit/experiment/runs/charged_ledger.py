"""The ledger that a run is charged to: which one, how it is made, and how the run folder refers to it.

Private data is charged to a lasting ledger outside the run folder. Public data is charged to a ledger of the run's own,
which is deleted when the seed is done. A ledger that a run makes has a cap in its first entry: the most that one unit
may lose over all streams that will ever be in it. By default it is the budget of the stream that the ledger is made
for, until its owner adopts another policy. A run that is refused makes no ledger.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from tacit.data.stream import StreamInfo
from tacit.errors import ConfigError, PlanError
from tacit.experiment.config.config import Config
from tacit.experiment.files import write_json
from tacit.experiment.runs.folder import RunFolder, SeedFolder
from tacit.experiment.runs.resolver import make_budget, open_stream
from tacit.learners import find
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.ledger import Ledger, LedgerView, StreamTerms
from tacit.privacy.ledger.storage.values import Head
from tacit.privacy.randomness.keys import KeyRing

UnitCap = str | float | None
"""The most that one unit may lose over all streams, as a user gives it: "none", ε, or "ε,δ"; None: not given."""
Cap = Budget | Literal["none"]


def checked_ledger(config: Config, info: StreamInfo | None, ledger: str | Path | None) -> Path | None:
    """The lasting ledger that a run is charged to, checked before a folder is made; None for public data.

    Raises:
        ConfigError: The data is private and the run has no ledger, several seeds, repeatable noise or a learner that is
            not private.
    """
    if info is None or info.public:
        return None
    make_budget(config.budget, info.unit).check_units(info.units, repr(info.name))
    if config.repeatable_noise:
        raise ConfigError(
            "repeatable_noise = true makes noise that anyone can recompute, and this stream is private; set it to false"
        )
    if not find(config.learner.method).private and not _allows_unsafe(ledger):
        raise ConfigError(
            f"{config.learner.method} is not private, and the stream {info.name!r} is; use a learner that is private "
            "(such as DPCL, DPER or NaiveDPSGD), or public data; docs/privacy.md explains exits without noise (rule 25)"
        )
    if len(config.seeds) > 1:
        raise ConfigError(
            f"seeds = {list(config.seeds)}: the stream {info.name!r} is private, and each seed would charge the same "
            "people again; use one seed"
        )
    return _needed(info, None if ledger is None else Path(ledger)).absolute()


def open_ledger(config: Config, folder: SeedFolder, info: StreamInfo, ledger: Path | None) -> Ledger:
    """Open the ledger of private data; for public data, one of the run's own."""
    if info.public:
        keys = KeyRing.for_tests(folder.seed) if config.repeatable_noise else None
        return Ledger(folder.private / "throwaway.ledger", keys=keys)
    return Ledger(_needed(info, ledger))


def cap_of_new(ledger: Path, info: StreamInfo, budget: Budget, unit_cap: UnitCap) -> Cap | None:
    """The cap of a ledger that is to be made; None if it exists, and then it must have room for the stream."""
    if not ledger.exists():
        return budget if unit_cap is None else parsed_cap(str(unit_cap), budget)
    with LedgerView(ledger) as book:
        if unit_cap is not None:
            _check_cap(book, parsed_cap(str(unit_cap), budget))
        book.check_new_stream(StreamTerms(name=info.name, budget=budget, tasks_per_unit=info.tasks_per_unit))
    return None


def parsed_cap(text: str, budget: Budget) -> Cap:
    """The cap that a text means, for a stream with this budget.

    For an ε without δ, δ has room for as many such streams as fit into that ε."""
    if text.strip().lower() == "none":
        return "none"
    epsilon, comma, delta = (part.strip() for part in text.partition(","))
    try:
        value = float(epsilon)
        times = math.floor(Decimal(repr(value)) / Decimal(repr(float(budget.epsilon)))) if math.isfinite(value) else 0
        cap = replace(budget, epsilon=value, delta=float(delta) if comma else budget.delta * max(1, times))
    except (ValueError, PlanError):
        raise ConfigError(
            f"the unit cap must be an ε above 0, an ε and a δ such as 4,1e-5, or none, got {text!r}"
        ) from None
    if cap.epsilon < budget.epsilon or cap.delta < budget.delta:
        raise ConfigError(
            f"a unit cap of ε = {cap.epsilon:g}, δ = {cap.delta:g} has no room for this stream, whose budget is "
            f"ε = {budget.epsilon:g}, δ = {budget.delta:g}; give a larger one, or a smaller budget"
        )
    return cap


def budget_of_new(ledger: Path | None, config: Config) -> Budget | None:
    """The budget of the stream that a ledger would be made for; None if none would be made."""
    if ledger is None or ledger.exists() or config.data.scenario != "declared":
        return None
    info = open_stream(config.data, config.seeds[0]).info
    return None if info.public else make_budget(config.budget, info.unit)


def preview(ledger: Path, cap: Cap | None) -> Ledger:
    """The ledger, or a throw-away one with the same cap where it is still to be made."""
    return Ledger(ledger) if ledger.exists() else Ledger.throwaway(unit_cap=cap)


def make(ledger: Path, cap: Cap | None) -> None:
    """Make the ledger with this cap, unless it exists."""
    if not ledger.exists():
        Ledger(ledger, unit_cap=cap).close()


def notices(config: Config, info: StreamInfo, ledger: Path, cap: Cap | None) -> list[str]:
    """Notices for the user: where a run is charged, and the cap of a new ledger."""
    budget = make_budget(config.budget, info.unit)
    charged = (
        f"this run is charged to {ledger} as stream {info.name!r}, {budget}; keep that file, its .keys and its "
        ".anchor. What is charged stays charged: --resume charges nothing twice, a new run on the same records is "
        "charged again or refused"
    )
    if cap is None:
        return [charged]
    if cap == "none":
        made = f"{ledger} is made without a unit_cap: every stream that is added to it may cost its people more"
        return [charged, made]
    made = (
        f"{ledger} is made with a unit_cap: over all its streams together a {cap.unit} may lose ε = {cap.epsilon:g}, "
        f"δ = {cap.delta:g}; --unit-cap sets another when a ledger is made, tacit policy adopt later"
    )
    return [charged, made]


def write_planned_ledger(ledger: Path, folder: RunFolder) -> None:
    """Write to the folder which ledger a new run will be charged to; of a resumed run, check that it is the same one.

    Another ledger, or an older copy, does not know what was charged."""
    begun = folder.ledger()
    check_same(ledger, folder)
    if "id" not in begun and begun.get("path") != str(ledger):
        write_json(folder.path / "ledger.json", {"kind": "kept", "path": str(ledger)})


def check_same(ledger: Path, folder: RunFolder) -> None:
    """Refuse to resume a run with another ledger than the one that it is charged to, or where that one is missing."""
    begun = folder.ledger()
    if "id" not in begun:
        return
    if not ledger.exists():
        raise ConfigError(f"the ledger of {folder.path} is not at {ledger}; pass its new path with --ledger")
    _check_begun(ledger, begun, folder)


def write_ledger_reference(ledger: Path, folder: RunFolder, cap: Cap | None = None) -> None:
    """Make the ledger if there is none, and write to the folder which one `--resume` charges."""
    write_planned_ledger(ledger, folder)  # first, since the process may be killed before the ledger is made
    if "id" not in folder.ledger():
        make(ledger, cap)
    write_json(folder.path / "ledger.json", ledger_reference(ledger))


def ledger_reference(ledger: Path) -> dict[str, Any]:
    """What `ledger.json` says of a lasting ledger."""
    with Ledger(ledger) as book:
        head = book.head
        return {"kind": "kept", "path": str(ledger), "id": book.id, "head": {"seq": head.seq, "hash": head.hash}}


def _check_begun(ledger: Path, begun: Mapping[str, Any], folder: RunFolder) -> None:
    with Ledger(ledger) as book:
        same, current = book.id == begun["id"], book.contains(Head(**begun["head"]))
    if not same:
        raise ConfigError(
            f"{ledger} is not the ledger that {folder.path} was begun with ({begun['path']}); use that one, because it "
            "records what was charged"
        )
    if not current:
        raise ConfigError(
            f"{ledger} is older than {folder.path}: it lacks charges that this run made; restore the newest copy of "
            "the ledger, its .keys and its .anchor"
        )


def _needed(info: StreamInfo, ledger: Path | None) -> Path:
    if ledger is None:
        raise ConfigError(
            f"the stream {info.name!r} is private, so its charges must outlast the run; pass the ledger of the data "
            "with --ledger FILE or TACIT_LEDGER (a new file is made the first time; keep it)"
        )
    return ledger


def _allows_unsafe(ledger: str | Path | None) -> bool:
    """Whether the policy of the ledger allows records to be released without protection."""
    if ledger is None or not Path(ledger).exists():
        return False
    with Ledger(ledger) as book:
        return book.policy.allow_unsafe


def _check_cap(book: LedgerView, wanted: Cap) -> None:
    cap = book.policy.cap
    if cap != (None if wanted == "none" else wanted):
        existing = "no unit_cap" if cap is None else f"a unit_cap of ε = {cap.epsilon:g}, δ = {cap.delta:g}"
        raise ConfigError(
            f"the ledger {book.path} already exists, with {existing}; omit --unit-cap, or adopt another one with "
            "tacit policy adopt"
        )
