"""A learner that crashes inside a task and is begun again ends with the weights of one that did not, billed once."""

from pathlib import Path

import pytest
import torch

from support.small_world import Stopped, facts, fixed, given, learn, records, same, started, stop_at, take, whole_run
from tacit import Vault
from tacit.errors import TacitError
from tacit.learners.base.learner import Learner
from tacit.learners.base.release import Release
from tacit.memory import Memory

STEPS = given("DPCL union")["steps"]


def saved(learner: Learner, vault: Vault, number: int) -> Release:
    """One task; its grants are marked released when the release is (here: would be) saved."""
    with vault.until_saved():
        (release,) = learn(learner, vault, [number])
    return release


def crashed(name: str, vault: Vault, before: Release | None, number: int, step: int) -> None:
    """A learner that crashes at a step; only the ledger and the store are used afterwards."""
    learner = begun(name, vault, before)
    interrupt(learner, number, step)
    with pytest.raises(Stopped):
        saved(learner, vault, number)


def interrupt(learner: Learner, number: int, step: int) -> None:
    learner.callback = stop_at(number, step)


def begun(name: str, vault: Vault, before: Release | None) -> Learner:
    learner = started(name, **given(name))
    if before is not None:
        learner.restore(before.tensors, before.tasks, vault)
    return learner


def states(vault: Vault) -> list[str]:
    return [grant.state for grant in vault.ledger.statement(1).grants]


MOMENTS = [
    *(("DPCL union", step) for step in (0, 1, STEPS)),
    *((name, STEPS - 1) for name in ("DPCL block", "DPAGEM each", "DPER", "Joint", "NaiveGaussian", "experts")),
]


@pytest.mark.parametrize(("name", "step"), MOMENTS)
def test_a_crash_at_a_step_changes_nothing(name: str, step: int, tmp_path: Path) -> None:
    """In the last task; step 0 is before the first, step `STEPS` after the last one of the task."""
    _, twin, releases = whole_run(name)
    vault = fixed(tmp_path / "store")
    learner = started(name, **given(name))
    second = [saved(learner, vault, number) for number in range(2)][-1]
    crashed(name, Vault(vault.ledger, tmp_path / "store"), second, 2, step)
    if step:
        assert "CHARGED" in states(vault)  # paid for, and not finished
    later = Vault(vault.ledger, tmp_path / "store")
    last = saved(begun(name, later, second), later, 2)
    assert same(last.tensors, releases[2].tensors)
    assert states(later) == ["RELEASED"] * len(states(twin))
    later.ledger.verify()


def test_crashes_in_every_task(tmp_path: Path) -> None:
    _, twin, releases = whole_run("DPCL union")
    ledger = fixed(tmp_path / "store").ledger
    before: Release | None = None
    for number in range(3):
        for step in (3, 1):  # the second crash is earlier than the first
            crashed("DPCL union", Vault(ledger, tmp_path / "store"), before, number, step)
        later = Vault(ledger, tmp_path / "store")
        before = saved(begun("DPCL union", later, before), later, number)
        assert same(before.tensors, releases[number].tensors)
    assert states(later) == states(twin)


def test_a_crash_between_keeping_the_memory_and_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, twin, releases = whole_run("DPCL union")
    vault = fixed(tmp_path / "store")
    first = saved(started("DPCL union", **given("DPCL union")), vault, 0)
    honest = Memory.add

    def add(memory: Memory, *given: object) -> None:
        honest(memory, *given)  # type: ignore[arg-type]
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(Memory, "add", add)
        crashed("DPCL union", Vault(vault.ledger, tmp_path / "store"), first, 1, step=-1)
    later = Vault(vault.ledger, tmp_path / "store")
    learner = begun("DPCL union", later, first)
    second = saved(learner, later, 1)
    last = saved(learner, later, 2)
    assert same(second.tensors, releases[1].tensors) and same(last.tensors, releases[2].tensors)
    assert states(later) == states(twin)


@pytest.mark.parametrize("change", [{"lr": 0.1}, {"seed": 1}, {"memory_noise": 2.0}, {"noise": 2.0}])
def test_other_work_after_a_crash_is_refused(change: dict[str, float], tmp_path: Path) -> None:
    vault = fixed(tmp_path / "store")
    crashed("DPCL union", vault, None, 0, 3)
    later = Vault(vault.ledger, tmp_path / "store")
    other = started("DPCL union", **given("DPCL union", **change))
    with pytest.raises(TacitError):
        saved(other, later, 0)


def test_another_projection_after_a_crash_cannot_get_a_second_gradient(tmp_path: Path) -> None:
    """Every setting is part of the pin: it is other work."""
    vault = fixed(tmp_path / "store")
    first = saved(started("DPCL union", **given("DPCL union")), vault, 0)
    crashed("DPCL union", Vault(vault.ledger, tmp_path / "store"), first, 1, STEPS)
    later = Vault(vault.ledger, tmp_path / "store")
    other = started("DPCL union", **given("DPCL union", project="always"))
    other.restore(first.tensors, first.tasks, later)
    with pytest.raises(TacitError, match="held by an unfinished grant"):
        saved(other, later, 1)


def test_other_records_after_a_crash_are_refused(tmp_path: Path) -> None:
    vault = fixed(tmp_path / "store")
    crashed("NaiveDPSGD", vault, None, 0, 3)
    later = Vault(vault.ledger, tmp_path / "store")
    learner = started("NaiveDPSGD", **given("NaiveDPSGD"))
    x, y = records(0)
    with pytest.raises(TacitError), later.until_saved():
        block = take(later, learner.stream_, 0, (x + 1, y), learner.budget)
        learner.learn(learner.stream_.tasks[0], block, later)


def test_a_prediction_before_the_crash_does_not_matter(tmp_path: Path) -> None:
    vault = fixed(tmp_path / "store")
    learner = started("DPCL union", **given("DPCL union"))
    first = saved(learner, vault, 0)
    learner.predict(records(0)[0])
    interrupt(learner, 1, 3)
    with pytest.raises(Stopped):
        saved(learner, vault, 1)
    later = Vault(vault.ledger, tmp_path / "store")
    saved(begun("DPCL union", later, first), later, 1)


def test_a_person_who_interrupts_can_go_on_in_the_same_process(tmp_path: Path) -> None:
    """In a notebook the traceback lives on, and with it the grants."""
    vault = fixed(tmp_path / "store")
    learner = started("DPCL union", **given("DPCL union"))
    interrupt(learner, 0, 3)
    with pytest.raises(Stopped) as error:
        saved(learner, vault, 0)
    again = started("DPCL union", **given("DPCL union"))
    saved(again, vault, 0)
    assert error.tb is not None


def test_an_interrupted_router_can_be_restored(tmp_path: Path) -> None:
    vault = fixed(tmp_path / "store")
    learner = started("experts", **given("experts"))
    first, second = (saved(learner, vault, number) for number in range(2))
    x = torch.from_numpy(records(0)[0])
    wanted = learner.scores(x)
    interrupt(learner, 2, 3)
    with pytest.raises(Stopped):
        saved(learner, vault, 2)
    learner.restore(second.tensors, (*first.tasks, second.task), vault)
    assert torch.equal(learner.scores(x), wanted)


def test_dropout_is_the_same_again(tmp_path: Path) -> None:
    """Its coins are the vault's too."""

    def network(info: object) -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(6, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)
        )

    ends = []
    for step in (None, 3):
        vault = fixed(tmp_path / str(step))
        for at in [at for at in (step, -1) if at is not None]:
            learner = started("NaiveDPSGD", facts(), **given("NaiveDPSGD", network=network))
            interrupt(learner, 0, at)
            try:
                ends.append(saved(learner, vault, 0).tensors)
            except Stopped:
                continue
    assert len(ends) == 2 and same(*ends)
