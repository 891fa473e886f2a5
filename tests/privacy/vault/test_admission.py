"""What comes in: bounds in silence, splits by coins, identities by keyed hashes, nothing in the clear."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from support.made_up import BUDGET, REJECTED, Admit, rate_is
from tacit import Budget, Declared, Ledger, SumPlan, Vault
from tacit.certificate.issuance import issue
from tacit.errors import LedgerError, PolicyError, VaultError
from tacit.privacy.vault.intake import records
from tacit.privacy.vault.intake.feature_map import FeatureMap

KEY = bytes(32)
PERSON = Budget(epsilon=1e9, delta=1e-5, unit="person")
QUIET = SumPlan(noise=1e-3)


def declared(**facts: Any) -> Declared:
    return Declared(**({"stream": "s", "task": "t", "budget": BUDGET, "size": 10, "labels": range(10)} | facts))


def count(vault: Vault, block: Any) -> int:
    return round(vault.count(block, QUIET))


class Lazy(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, n: int) -> None:
        self.n, self.asked = n, 0

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        self.asked += 1
        return torch.full((2,), float(i)), i % 3


@pytest.mark.parametrize(
    "source",
    [
        (np.arange(6.0).reshape(3, 2), [0, 1, 2]),
        (torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 2])),
        TensorDataset(torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 2])),
        [(np.asarray([0.0, 1]), 0), (np.asarray([2.0, 3]), 1), (np.asarray([4.0, 5]), 2)],
    ],
)
def test_arrays_datasets_and_iterables_are_the_same_records(source: Any, ledger: Ledger) -> None:
    vault = Vault(ledger)
    out = vault.sums(vault.admit(source, declared(labels=(0, 1, 2), shape=(2,))), SumPlan(noise=1e-4, clip=100.0))
    assert torch.allclose(out, torch.tensor([[0.0, 1], [2, 3], [4, 5]]), atol=0.1)


def test_features_are_known_by_what_they_were_made_from(ledger: Ledger) -> None:
    """And yet told apart: the same noise never meets other features."""
    x, y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 2])
    first, second = column_map(0), column_map(1)
    plain = records.read((x, y), KEY, 1)
    once, twice = (records.read((x, y), KEY, 1, (2,), partial(column.apply, task="t")) for column in (first, second))
    assert once.origin == twice.origin == plain.origin == plain.fingerprint
    assert len({plain.digest, once.digest, twice.digest}) == 3
    vault = Vault(ledger)
    assert vault.admit((x, y), declared(shape=(1,)), through=first).size == 10
    with pytest.raises(LedgerError, match="these records are already in the ledger as stream 's', task 't'"):
        vault.admit((x, y), declared(stream="other", shape=(1,)), through=second)


class Column(nn.Module):
    """One column of a row."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, self.number, None]


def column_map(number: int) -> FeatureMap:
    return FeatureMap(Column(number).eval(), key=f"column {number}", width=1, shape=(2,))


def test_a_block_holds_the_features_of_a_map(ledger: Ledger) -> None:
    """From arrays and from a Dataset."""
    x, y = torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 2])
    vault = Vault(ledger)
    for stream, source in (("arrays", (x, y)), ("dataset", TensorDataset(x + 1, y))):
        block = vault.admit(source, declared(stream=stream, labels=(0, 1, 2), shape=(1,)), through=column_map(1))
        out = vault.sums(block, SumPlan(noise=1e-4, clip=100.0))
        assert torch.allclose(out, torch.tensor([[1.0], [3.0], [5.0]]) + (stream == "dataset"), atol=0.1)


def test_an_iterator_is_read_once(ledger: Ledger) -> None:
    def stream() -> Iterator[tuple[np.ndarray, int]]:
        yield from ((np.ones(2), 0) for _ in range(5))

    vault = Vault(ledger)
    assert count(vault, vault.admit(stream(), declared(shape=(2,)))) == 5


def test_a_person_beyond_the_records_bound_is_cut_and_others_are_not_touched() -> None:
    x, ids = np.arange(20.0)[:, None], ["a"] * 10 + ["b"] * 2 + ["c"] * 8
    found = records.read((x, np.zeros(20), ids), KEY, 3)
    assert sorted(np.diff(found.starts).tolist()) == [2, 3, 3]

    # Which of a's records stay depends on a's records alone: without c they are the same.
    def of_a(r: records.Records) -> list[float]:
        rows = r.features(torch.arange(len(r.rows)))[:, 0].tolist()
        return sorted(v for v in rows if v < 10)

    without_c = records.read((x[:12], np.zeros(12), ids[:12]), KEY, 3)
    assert of_a(found) == of_a(without_c)
    assert len(of_a(found)) == 3


def test_nobody_decides_which_records_of_another_person_are_kept() -> None:
    """A's records equal one of each other person's; without A, the others keep the same ones."""
    rng = np.random.default_rng(0)
    others = rng.normal(size=(50, 4, 2)).astype(np.float32)
    x = np.concatenate([others[:, 0], others.reshape(-1, 2)])
    ids = np.asarray(["A"] * 50 + [f"p{i}" for i in range(50) for _ in range(4)])
    whole = records.read((x, np.zeros(len(x)), ids), KEY, 1)
    without = records.read((x[50:], np.zeros(200), ids[50:]), KEY, 1)
    kept = {
        name: tuple(row)
        for name, row in zip(whole.names.tolist(), whole.features(torch.arange(51)).tolist(), strict=True)
    }
    for name, row in zip(without.names.tolist(), without.features(torch.arange(50)).tolist(), strict=True):
        assert kept[name] == tuple(row)


def test_a_person_is_the_same_however_a_file_was_read() -> None:
    x = np.ones((3, 1))
    names = [
        records.read((x, np.zeros(3), ids), KEY, 1).names for ids in ([7, 8, 9], ["7", "8", "9"], np.int32([7, 8, 9]))
    ]
    assert all((names[0] == other).all() for other in names)
    missing = records.read((x, np.zeros(3), [7.0, 8.0, np.nan]), KEY, 1)
    assert missing.names.tolist() == records.read((x[:2], np.zeros(2), [7, 8]), KEY, 1).names.tolist()


@pytest.mark.parametrize(
    "source",
    [
        np.ones((4, 3)),
        {"x": 1},
        "data.csv",
        (np.ones((2, 1)), None),
        (np.ones((2, 1)), np.ones((2, 3))),
        (np.asarray([["a"], ["b"]]), [0, 1]),
        [1.0, 2.0],
        7,
    ],
)
def test_wrong_sources_get_a_sentence(source: Any, ledger: Ledger) -> None:
    with pytest.raises(VaultError):
        Vault(ledger).admit(source, declared())
    assert ledger.streams() == []


@pytest.mark.parametrize("labels", [4, "abc", [], [1, "a"], [0.5], [1, 1]])
def test_wrong_labels_get_a_sentence(labels: Any) -> None:
    with pytest.raises(VaultError):
        declared(labels=labels)


def test_labels_of_another_kind_are_read_one_by_one_and_tensors_are_read(ledger: Ledger) -> None:
    vault = Vault(ledger)
    block = vault.admit((np.arange(4.0)[:, None], ["0", "1", "one", " 1"]), declared(labels=range(2)))
    assert sorted(vault._admission.records(block).y.tolist()) == [0, 1, 1]
    assert declared(labels=torch.arange(3)).labels == (0, 1, 2)


def test_empty_tasks_are_not_the_same_records(ledger: Ledger) -> None:
    vault = Vault(ledger)
    for task in ("a", "b"):
        block = vault.admit(iter([]), declared(task=task, shape=(2,)))
        assert vault.second_moment(block, QUIET).shape == (2, 2)


def test_records_outside_the_label_set_leave_no_trace(ledger: Ledger) -> None:
    vault = Vault(ledger)
    block = vault.admit((np.ones((1, 2)), [77]), declared())
    assert float(vault.second_moment(block, QUIET).abs().max()) < 0.02


def test_the_order_in_which_parts_are_named_does_not_matter(ledger: Ledger) -> None:
    x, y = np.arange(300)[:, None], np.zeros(300)
    sides = []
    for parts in ({"train": 0.5, "memory": 0.5}, {"memory": 0.5, "train": 0.5}):
        vault = Vault(ledger)
        made = vault.split(vault.admit((x, y), declared()), parts)
        sides.append({block.part: set(vault._admission.records(block).names.tolist()) for block in made})
    assert sides[0] == sides[1]
    vault = Vault(ledger)
    with pytest.raises(LedgerError, match="made once"):
        vault.split(vault.admit((x, y), declared()), {"train": 0.52, "memory": 0.48})
    with pytest.raises(LedgerError, match="would change sides"):
        vault.admit((x[1:], y[1:]), declared())


def scaled_map(factor: float) -> FeatureMap:
    """A backbone whose features differ a little from one processor or version of torch to another."""
    scale = nn.Linear(2, 2, bias=False)
    nn.init.eye_(scale.weight)
    scale.weight.data.mul_(factor)
    return FeatureMap(scale.eval(), key="scale", width=2, shape=(2,))


def test_a_unit_without_an_id_keeps_its_side_whatever_its_features(ledger: Ledger) -> None:
    x, y = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32), np.zeros(100)
    sides = []
    for factor in (1.0, 1 + 2**-9):
        vault = Vault(ledger)
        block = vault.admit((x, y), declared(shape=(2,)), through=scaled_map(factor))
        train, _ = vault.split(block, {"train": 0.5, "memory": 0.5})
        held = vault._admission.records(train)
        features = held.features(torch.arange(len(held.rows)))
        sides.append(set(torch.cdist(features, torch.from_numpy(x)).argmin(1).tolist()))
    assert sides[0] == sides[1] and 30 < len(sides[0]) < 70


def test_records_that_were_not_split_are_refused_though_they_were_admitted_before(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(20, 2)), np.zeros(20)
    parts = {"train": 0.5, "memory": 0.5}
    with Ledger(tmp_path / "l") as ledger:
        earlier, later = Vault(ledger), Vault(ledger, store=tmp_path / "store")
        not_split = earlier.admit((x * 1.001, y), declared())
        later.split(later.admit((x, y), declared()), parts)
        with pytest.raises(LedgerError, match="would change sides"):
            earlier.split(not_split, parts)
        with pytest.raises(LedgerError, match="would change sides"):
            Vault(ledger).admit((x * 1.001, y), declared())
        again = Vault(ledger)
        assert len(again.split(again.admit((x, y), declared()), parts)) == 2


@pytest.mark.parametrize("split", [False, True], ids=["whole", "a part"])
def test_records_that_left_raw_are_not_private_afterwards(ledger: Ledger, split: bool) -> None:
    x, y = np.random.default_rng(0).normal(size=(30, 2)), np.zeros(30)
    vault = Vault(ledger)
    public = vault.admit((x, y), declared(stream="public", public=True))
    vault.unsafe.records(vault.split(public, {"a": 0.5, "b": 0.5})[0] if split else public, "baseline")
    with pytest.raises(LedgerError, match="left the vault raw"):
        vault.admit((x, y), declared())


def test_records_of_a_private_stream_do_not_leave_raw_as_public_ones(ledger: Ledger) -> None:
    x, y = np.random.default_rng(0).normal(size=(30, 2)), np.zeros(30)
    vault = Vault(ledger)
    public = vault.admit((x, y), declared(stream="public", public=True))
    private = vault.admit((x, y), declared())
    with pytest.raises(LedgerError, match="also in the private stream 's', task 't'"):
        vault.unsafe.records(public, "baseline")
    vault.sums(private, SumPlan.for_budget(BUDGET))
    assert issue(ledger, private, method="sums").claims.certified.epsilon is not None


def test_a_map_that_mixes_rows_a_little_is_refused(ledger: Ledger) -> None:
    """What is small here may be scaled up later, to unit length say."""

    class Mixed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2e-5 * (x - x.mean(0))

    through = FeatureMap(Mixed().eval(), key="mixed", width=2, shape=(2,))
    with pytest.raises(VaultError, match="mixes rows"):
        Vault(ledger).admit((np.ones((3, 2)), np.zeros(3)), declared(), through=through)


def test_two_ledgers_may_share_a_store(tmp_path: Path) -> None:
    """Blocks are named by keyed hashes: the first block of one ledger is not that of another."""
    with Ledger(tmp_path / "a") as one, Ledger.throwaway() as other:
        vault = Vault(one, store=tmp_path / "store")
        vault.keep(vault.admit((np.full((3, 2), 7.0), np.zeros(3)), declared()))
        stranger = Vault(other, store=tmp_path / "store")
        block = stranger.admit((np.ones((1, 2)), [0]), declared(public=True))
        with pytest.raises(VaultError, match="does not hold"):
            stranger.reopen(block)


def test_a_later_process_finds_and_reopens_what_was_kept(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l") as ledger:
        vault = Vault(ledger, store=tmp_path / "store")
        parts = vault.split(
            vault.admit((np.arange(40)[:, None], np.zeros(40)), declared()), {"train": 0.5, "memory": 0.5}
        )
        vault.keep(parts[1])
    with Ledger(tmp_path / "l") as ledger:
        later = Vault(ledger, store=tmp_path / "store")
        found = later.reopen(later.find("s", "t", "memory"))
        assert (
            found == parts[1]
            and (later._admission.records(found).names == vault._admission.records(parts[1]).names).all()
        )
        with pytest.raises(LedgerError, match="no block"):
            later.find("s", "t", "validation")


def test_a_unit_beyond_its_tasks_is_skipped_in_silence(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    vault = Vault(ledger)
    people = ["ann", "bob", "cat"]
    x = np.arange(3.0)[:, None]
    counts = []
    for task in range(4):
        facts = declared(budget=PERSON, task=str(task), tasks_per_unit=2)
        who = people if task != 1 else people[:1]  # ann is in task 0, 1; bob and cat in 0 and, next, in 2
        block = vault.admit((x[: len(who)] + task, np.zeros(len(who)), who), facts)
        counts.append(count(vault, block))
    assert counts == [3, 1, 2, 0]
    assert capsys.readouterr() == ("", "")


def test_the_same_task_again_does_not_use_up_its_units(ledger: Ledger) -> None:
    facts = declared(budget=PERSON)
    source = (np.ones((2, 1)), np.zeros(2), ["ann", "bob"])
    Vault(ledger).admit(source, facts)
    vault = Vault(ledger)
    assert count(vault, vault.admit(source, facts)) == 2


def test_no_id_is_stored_in_the_clear(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        vault = Vault(ledger, store=tmp_path / "store")
        ids = ["patient-4711-smith", "patient-4712-jones"]
        block = vault.admit((np.ones((2, 1)), np.zeros(2), ids), declared(budget=PERSON))
        vault.keep(block)
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"smith" not in stored and b"patient" not in stored


def test_persons_need_ids(ledger: Ledger) -> None:
    with pytest.raises(VaultError, match="whose each record is"):
        Vault(ledger).admit((np.ones((2, 1)), np.zeros(2)), declared(budget=PERSON))


def test_a_split_tosses_one_coin_per_unit(fixed: Vault, admit_fixed: Admit) -> None:
    vault, n = fixed, 20_000
    ids = np.arange(n) // 2
    block = admit_fixed(np.arange(n)[:, None], np.zeros(n), ids=ids, budget=PERSON, records_per_unit=2, size=n // 2)
    train, memory = vault.split(block, {"train": 0.9, "memory": 0.1})
    held = vault._admission.records(memory).names
    assert rate_is(len(held), n // 2, 0.1)
    assert not rate_is(len(held), n // 2, 0.1 * 1.3, REJECTED)
    assert not rate_is(len(held), n // 2, 0.1 * 0.7, REJECTED)
    assert not set(held) & set(vault._admission.records(train).names)  # a person goes wholly to one side
    assert (train.size, memory.size) == (9000, 1000)  # nominal, not counted
    with pytest.raises(VaultError, match="does not hold"):
        vault.count(block, QUIET)


def test_one_record_more_moves_no_other_record() -> None:
    """With exact sizes an added record would push another one to the other side."""
    with Ledger.throwaway() as ledger:
        sides = []
        for n in (500, 501):
            vault = Vault(ledger)
            facts = declared(public=True, stream=f"s{n}", task="t")
            block = vault.admit((np.arange(n)[:, None], np.zeros(n)), facts)
            key = ledger.keys.subkey(ledger.keys.identity_key, "split", "same")
            from tacit.privacy.randomness.sampling import coins

            names = vault._admission.records(block).names
            sides.append(dict(zip(names.tolist(), coins(names, key, [0.9, 0.1]).tolist(), strict=True)))
    assert len(sides[1]) == 501
    assert all(sides[1][name] == side for name, side in sides[0].items())


def test_the_same_split_again_gives_the_same_sides(ledger: Ledger) -> None:
    x, y = np.arange(200)[:, None], np.zeros(200)
    sides = []
    for _ in range(2):
        vault = Vault(ledger)
        _, memory = vault.split(vault.admit((x, y), declared()), {"train": 0.8, "memory": 0.2})
        sides.append(vault._admission.records(memory).names.tolist())
    assert sides[0] == sides[1]


@pytest.mark.parametrize("shares", [{"a": 1.0}, {"a": 0.5, "b": 0.6}, {"a": 1.0, "b": 0.0}, {}])
def test_bad_shares_are_refused(shares: dict[str, float], vault: Vault, admit: Admit) -> None:
    with pytest.raises(VaultError, match="add up to 1"):
        vault.split(admit(np.ones((3, 1)), np.zeros(3)), shares)


def test_the_same_records_under_another_name_are_found(vault: Vault, admit: Admit) -> None:
    x = np.arange(10.0)[:, None]
    admit(x, np.zeros(10), task="january")
    order = np.random.default_rng(0).permutation(10)
    with pytest.raises(LedgerError, match="these records were already learned as task 'january'"):
        admit(x[order], np.zeros(10), task="february")


def test_memory_can_be_kept_reopened_and_retired(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        vault = Vault(ledger, store=tmp_path / "store")
        x, y = np.arange(6.0).reshape(3, 2).astype(np.float32), ["a", "b", "a"]
        block = vault.admit((x, y, [7, 8, 7]), declared(labels=("a", "b"), budget=PERSON, records_per_unit=2))
        plan = SumPlan(noise=1e-4, clip=50.0)
        vault.commit({block: [plan, plan, plan]})
        before = vault.sums(block, plan)
        vault.keep(block)
        later = Vault(ledger, store=tmp_path / "store")
        assert torch.allclose(later.sums(later.reopen(block), plan), before, atol=0.05)
        assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "store").rglob("*"))
        later.retire(block)
        assert not list((tmp_path / "store" / "blocks").iterdir())
        for held_or_not in (later, vault):
            with pytest.raises(LedgerError, match="retired"):
                held_or_not.sums(block, plan)


def test_features_of_a_dataset_are_read_only_when_sampled(ledger: Ledger) -> None:
    data = Lazy(50)
    vault = Vault(ledger)
    block = vault.admit(data, declared(size=50, shape=(2,)))
    before = data.asked
    vault.count(block, QUIET)
    assert data.asked == before


def test_raw_records_need_the_policy(vault: Vault, admit: Admit, ledger: Ledger) -> None:
    block = admit(np.ones((3, 1)), np.zeros(3))
    with pytest.raises(PolicyError, match="allow_unsafe"):
        vault.unsafe.records(block, "to show an attack")
    assert ledger.epsilon(block.stream_id) == 0
    public = admit(np.ones((4, 1)), np.zeros(4), stream="p", public=True)
    x, y = vault.unsafe.records(public, "non-private baseline")
    assert x.shape == (4, 1) and y.tolist() == [0, 0, 0, 0]
    certificate = issue(vault.ledger, public, method="none")
    assert certificate.epsilon is None and "raw" in certificate.claims.certified.reason


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"size": 0}, "size"),
        ({"tasks_per_unit": 0}, "tasks_per_unit"),
        ({"labels": (1, 1)}, "twice"),
        ({"task": 1}, "task"),
    ],
)
def test_bad_declarations_are_refused(facts: dict[str, Any], words: str) -> None:
    with pytest.raises(VaultError, match=words):
        declared(**facts)


def test_an_empty_source_without_a_shape_says_what_to_do(ledger: Ledger) -> None:
    with pytest.raises(VaultError, match="shape"):
        Vault(ledger).admit(iter([]), declared())


def test_lengths_must_agree(ledger: Ledger) -> None:
    with pytest.raises(VaultError, match="lengths differ"):
        Vault(ledger).admit((np.ones((2, 1)), np.zeros(3)), declared())
