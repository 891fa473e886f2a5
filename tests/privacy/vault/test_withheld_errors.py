"""Errors of a data source or of user code that sees private records leave as one sentence, at every exit.

The message is gone from the whole chain: `raise … from None` would keep it in `__context__`.
"""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tacit import Block, Budget, Declared, GradientPlan, Ledger, Read, SumPlan, Vault
from tacit.errors import DataError, VaultError
from tacit.privacy.vault import FilterPlan, LabelPlan

BUDGET = Budget(epsilon=1e6, delta=1e-5)
SECRET = "John Doe"


class Patients:
    """A Dataset that fails, once it is told to, with a message that quotes a record."""

    def __init__(self, error: type[BaseException] = ValueError) -> None:
        self.broken, self.error = False, error

    def __len__(self) -> int:
        return 6

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        if self.broken:
            try:
                raise KeyError(SECRET)
            except KeyError as cause:
                raise self.error(f"cannot parse {SECRET!r}") from cause
        return torch.full((4,), row + 1.0), row % 2


class Quoting(nn.Module):
    """A map, rule or model that works on the vault's synthetic rows, and quotes a private one."""

    def forward(self, x: Tensor) -> Tensor:
        if float(x.max()) > 1:
            raise ValueError(f"{SECRET}: {x.tolist()}")
        return x


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output, y, reduction="none")


def gradient(vault: Vault, block: Block) -> None:
    plan = GradientPlan(rate=1.0, steps=1, clip=1.0, noise=1.0)
    vault.grant(block, plan, nn.Linear(4, 2), cross_entropy).gradient()


def selected(vault: Vault, block: Block) -> None:
    plan = GradientPlan(rate=1.0, steps=1, clip=1.0, noise=1.0)
    read = Read(block, select=lambda x, y: x.sum() > 0)
    vault.grant([read], plan, nn.Linear(4, 2), cross_entropy).gradient()


def metered(vault: Vault, block: Block) -> None:
    vault.individual_filter(block, FilterPlan(rho=1.0)).gradient(nn.Linear(4, 2), cross_entropy, noise=1.0, clip=1.0)


EXITS: dict[str, Callable[[Vault, Block], object]] = {
    "sums": lambda vault, block: vault.sums(block, SumPlan(noise=1.0)),
    "second moment": lambda vault, block: vault.second_moment(block, SumPlan(noise=1.0)),
    "accuracy": lambda vault, block: vault.accuracy(block, nn.Linear(4, 2).eval(), SumPlan(noise=1.0)),
    "keep": lambda vault, block: vault.keep(block),
    "gradient": gradient,
    "selection": selected,
    "meter": metered,
}


def admitted(tmp_path: Path, source: Any, **said: Any) -> tuple[Vault, Block]:
    vault = Vault(Ledger(tmp_path / "ledger"), tmp_path / "store")
    facts = {"stream": "s", "task": "t", "budget": BUDGET, "size": 6, "labels": (0, 1), "shape": (4,)} | said
    return vault, vault.admit(source, Declared(**facts))


def check(refused: pytest.ExceptionInfo[BaseException]) -> None:
    """Neither the error, nor what caused it, nor what was handled meanwhile, nor a printed traceback quotes it."""
    assert "withheld" in str(refused.value)
    error: BaseException | None = refused.value
    assert error is not None and error.__cause__ is None and error.__context__ is None
    assert SECRET not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize("error", [ValueError, DataError, SystemExit])
@pytest.mark.parametrize("name", EXITS)
def test_a_source_that_fails_at_an_exit_is_not_quoted(tmp_path: Path, name: str, error: type[BaseException]) -> None:
    source = Patients(error)
    vault, block = admitted(tmp_path, source)
    source.broken = True
    with pytest.raises(VaultError, match="withheld") as refused:
        EXITS[name](vault, block)
    check(refused)


def test_exits_that_read_labels_alone_do_not_ask_the_source(tmp_path: Path) -> None:
    source = Patients()
    vault, block = admitted(tmp_path, source)
    count, labels = SumPlan(noise=1.0), LabelPlan(noise=1.0, threshold=1.0, candidates=(0, 1))
    source.broken = True
    vault.commit({block: [count, labels]})
    vault.count(block, count)
    vault.label_set(block, labels)


@pytest.mark.parametrize("error", [ValueError, DataError, SystemExit])
def test_a_source_that_fails_at_admission_is_not_quoted(tmp_path: Path, error: type[BaseException]) -> None:
    source = Patients(error)
    source.broken = True

    def loader() -> Any:
        raise error(f"line 3: {SECRET}")

    for given in (source, loader, (loader() for _ in range(2))):
        with pytest.raises(VaultError, match="withheld") as refused:
            admitted(tmp_path, given)
        check(refused)


@pytest.mark.parametrize("exit", ["sums", "second_moment"])
def test_a_map_that_quotes_records_is_not_quoted(tmp_path: Path, exit: str) -> None:
    vault, block = admitted(tmp_path, Patients())
    with pytest.raises(VaultError, match="withheld") as refused:
        getattr(vault, exit)(block, SumPlan(noise=1.0), through=Quoting().eval())
    check(refused)


class Full(nn.Module):
    """A model whose batch does not fit into memory, once it sees the records."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        if float(x.detach().max()) > 5:  # synthetic rows are smaller
            raise torch.OutOfMemoryError("CUDA out of memory")
        out: Tensor = self.linear(x)
        return out


def test_a_lack_of_memory_is_seen_on_public_records_alone(tmp_path: Path) -> None:
    """A sweep on public data then tries again with fewer runs side by side; on private records it says as little."""
    plan = GradientPlan(rate=1.0, steps=1, clip=1.0, noise=1.0)
    for public, expected in ((False, VaultError), (True, torch.OutOfMemoryError)):
        (tmp_path / str(public)).mkdir()
        vault, block = admitted(tmp_path / str(public), Patients(), public=public)
        with pytest.raises(expected):
            vault.grant(block, plan, Full(), cross_entropy).gradient()


def test_tacits_own_sentences_leave_without_what_caused_them(tmp_path: Path) -> None:
    def loader() -> Any:
        try:
            raise ValueError(SECRET)
        except ValueError:
            return {"x": 1}  # refused by tacit, while nothing is handled any more

    with pytest.raises(VaultError, match="records come as a tuple") as refused:
        admitted(tmp_path, loader)
    assert refused.value.__context__ is None and SECRET not in "".join(traceback.format_exception(refused.value))
