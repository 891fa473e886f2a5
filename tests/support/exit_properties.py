"""The properties that every exit of the vault must have, as checks of a `Contract`.

Add a function to `PROPERTIES`, and it is checked for every exit.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from support.exit_contracts import FEATURES, SIZE, Contract
from tacit.errors import BudgetExceeded, LedgerError, VaultError
from tacit.privacy import Block, Budget, Declared, Ledger, LedgerView, Vault
from tacit.privacy.accounting import events
from tacit.privacy.randomness.keys import KeyRing
from tacit.privacy.randomness.noise import Normals

BUDGET = Budget(epsilon=1e9, delta=1e-5)
LABELS = (0, 1, 2, 3)
SECRET = 31337.0

Records = list[tuple[Tensor, int, str]]
BASE: Records = [(torch.full((FEATURES,), 0.1 * n), n % 4, f"p{n // 2}") for n in range(6)]
"""Three persons with two records each."""


def admit(vault: Vault, records: Any, *, public: bool = False) -> Block:
    facts = Declared(
        stream="s", task="t", budget=BUDGET, size=SIZE, labels=LABELS, shape=(FEATURES,), records_per_unit=2,
        public=public,
    )  # fmt: skip
    return vault.admit(records, facts)


def open_vault(folder: Path) -> Vault:
    return Vault(Ledger(folder / "ledger"), folder / "store")


def repeatable(seed: int, records: Any) -> tuple[Vault, Block]:
    """A vault with test keys, so that statistical tests give the same verdict in every run."""
    opened = Vault(Ledger.throwaway(keys=KeyRing.for_tests(seed)))
    return opened, admit(opened, records, public=True)


def the_charge_is_the_plans_event(contract: Contract, folder: Path, patch: pytest.MonkeyPatch) -> None:
    vault = open_vault(folder)
    block = admit(vault, BASE)
    contract.use(vault, block, contract.plan, None)
    (grant,) = vault.ledger.statement(1).grants
    assert [(read, event) for read, event in grant.reads] == [(block.id, events.to_json(contract.event))]


class Spied(Dataset[tuple[Tensor, int, str]]):
    """Notes what another reader of the ledger's file sees at every read of a record."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seen = folder, list[tuple[str, list[str]]]()

    def note(self, what: str) -> None:
        with LedgerView(self.folder) as view:
            self.seen.append((what, [grant.state for grant in view.statement(1).grants]))

    def __len__(self) -> int:
        return len(BASE)

    def __getitem__(self, i: int) -> tuple[Tensor, int, str]:
        if self.seen:
            self.note("read")
        return BASE[i]


def the_charge_is_durable_before_records_and_noise(contract: Contract, folder: Path, patch: pytest.MonkeyPatch) -> None:
    vault = open_vault(folder)
    source = Spied(folder / "ledger")
    block = admit(vault, source)
    source.note("admitted")
    honest = Normals.fill_

    def spied(self: Normals, out: Tensor, scale: float) -> Tensor:
        source.note("noise")
        return honest(self, out, scale)

    patch.setattr(Normals, "fill_", spied)
    contract.use(vault, block, contract.plan, None)
    assert source.seen[0] == ("admitted", [])
    assert {what for what, _ in source.seen[1:]} >= ({"read", "noise"} if contract.takes_code else {"noise"})
    assert all(states == ["CHARGED"] for _, states in source.seen[1:])


def noise_has_the_stated_scale(contract: Contract, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Also for a block without records. Noise that is 30 % too large or too small would be noticed."""
    has_scale = contract.noise(*repeatable(0, []))
    assert has_scale(1.0) and not has_scale(1.3) and not has_scale(0.7)


def statistic(contract: Contract, records: Records) -> Tensor:
    vault, block = repeatable(1, records)
    if contract.statistic is not None:
        return contract.statistic(vault, block)
    return contract.use(vault, block, contract.quiet, None).double()


HUGE = torch.full((FEATURES,), 1e6)
UNITS: dict[str, Records] = {
    "large": [(HUGE, 0, "new")],
    "two large records": [(HUGE, 0, "new"), (HUGE, 0, "new")],
    "two labels": [(HUGE, 0, "new"), (-HUGE, 3, "new")],
    "beyond its bound": [(HUGE * n, n % 4, "new") for n in range(1, 8)],
    "small": [(torch.full((FEATURES,), 0.01), 1, "new")],
    "not finite": [
        (torch.full((FEATURES,), float("nan")), 1, "new"),
        (torch.full((FEATURES,), float("inf")), 2, "new"),
    ],
    "an unknown label": [(HUGE, 99, "new")],
}


def one_unit_moves_the_statistic_by_at_most_the_sensitivity(
    contract: Contract, folder: Path, patch: pytest.MonkeyPatch
) -> None:
    without = statistic(contract, BASE)
    moved = {name: float((statistic(contract, BASE + unit) - without).norm()) for name, unit in UNITS.items()}
    assert max(moved.values()) <= contract.sensitivity * 1.03, moved
    assert max(moved.values()) >= contract.sensitivity * 0.97, "the bound is attained, so this test sees it"


def results_are_on_the_public_grid(contract: Contract, folder: Path, patch: pytest.MonkeyPatch) -> None:
    vault = open_vault(folder)
    out = contract.use(vault, admit(vault, BASE), contract.plan, None)
    if contract.grid is None:
        assert not out.is_floating_point()
    else:
        steps = out.double() / contract.grid
        assert torch.equal(steps, steps.round()) and float(steps.abs().max()) > 0


class Stopped(Exception):
    """A crash after the release, before its result is saved."""


def repeated_work_is_charged_once(contract: Contract, folder: Path, patch: pytest.MonkeyPatch) -> None:
    out = []
    refused: list[str] = []
    with Ledger(folder / "ledger") as ledger:
        for _ in range(2):
            with Vault(ledger, folder / "store") as vault:  # as a new process opens it
                block = admit(vault, BASE)
                try:
                    with vault.until_saved():
                        out.append(contract.use(vault, block, contract.plan, None))
                        raise Stopped
                except Stopped:
                    pass
                except BudgetExceeded as error:
                    refused.append(str(error))
        assert len(ledger.statement(1).grants) == 1  # one charge in any case
    assert len(refused) == (contract.repeats == "never")
    assert contract.repeats == "never" or torch.equal(*out) == (contract.repeats == "same bits")


def retired_blocks_are_refused_in_one_sentence(contract: Contract, folder: Path, patch: pytest.MonkeyPatch) -> None:
    vault = open_vault(folder)
    block = admit(vault, BASE)
    vault.retire(block)
    for again in (False, True):
        if again:
            admit(vault, BASE)
        with pytest.raises(LedgerError) as refused:
            contract.use(vault, block, contract.plan, None)
        with pytest.raises(LedgerError) as expected:
            vault.ledger.require_live(block.id)
        assert str(refused.value) == str(expected.value) and "\n" not in str(refused.value)
    assert not vault.ledger.statement(1).grants


class Quoting(nn.Module):
    """Works on synthetic rows, and quotes a private record in its error."""

    def __init__(self) -> None:
        super().__init__()
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        if bool((x == SECRET).any()):
            raise ValueError(f"cannot use {x.tolist()}")
        return x


def errors_of_user_code_are_withheld(contract: Contract, folder: Path, patch: pytest.MonkeyPatch) -> None:
    if not contract.takes_code:
        return
    vault = open_vault(folder)
    block = admit(vault, [(torch.full((FEATURES,), SECRET), 0, "p")])
    with pytest.raises(VaultError, match="its message is withheld") as refused:
        contract.use(vault, block, contract.plan, Quoting())
    assert str(SECRET) not in repr(refused.value)
    assert refused.value.__cause__ is None and refused.value.__context__ is None


PROPERTIES: list[Callable[[Contract, Path, pytest.MonkeyPatch], None]] = [
    the_charge_is_the_plans_event,
    the_charge_is_durable_before_records_and_noise,
    noise_has_the_stated_scale,
    one_unit_moves_the_statistic_by_at_most_the_sensitivity,
    results_are_on_the_public_grid,
    repeated_work_is_charged_once,
    retired_blocks_are_refused_in_one_sentence,
    errors_of_user_code_are_withheld,
]
