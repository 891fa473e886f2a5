"""A learner by a short name: `learner: moments`, `--set learner=lifelong`, and in a sweep the learner of every cell."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.blobs import make_config
from support.months import MONTHS, declare, grow
from tacit.cli import app
from tacit.commands.arguments import load_config, load_sweep, settings_from_options
from tacit.errors import ConfigError, LearnerError
from tacit.experiment.config.changes import left_out
from tacit.experiment.config.config import Config, Sweep
from tacit.experiment.config.loading import load
from tacit.experiment.sweeps.sweep import cells_of
from tacit.learners import LEARNERS, find, matching

PLAIN: dict[str, Any] = {"name": "n", "data": {"source": "digits", "scenario": "permuted", "tasks": 2}}


@pytest.mark.parametrize(
    ("short", "whole"),
    [
        ("moments", "MomentsClassifier"), ("MOMENTS classifier", "MomentsClassifier"), ("dp-agem", "DPAGEM"),
        ("agem", "AGEM"), ("experts", "RoutedExperts"), ("naive_gaussian", "NaiveGaussian"), ("lifelong", "LifelongDP"),
        ("naive-dp", "NaiveDPSGD"), ("l2dp-ml", "L2DPML"),
    ],
)  # fmt: skip
def test_short_names(short: str, whole: str) -> None:
    assert matching(short) == [whole]


def test_every_whole_name_means_itself() -> None:
    assert all(matching(name) == [name] == matching(name.lower()) for name in LEARNERS)
    assert matching("") == matching("-") == matching("nothing") == []


def test_a_name_that_may_be_two_is_refused_with_both() -> None:
    with pytest.raises(
        ConfigError, match=r"learner.method = 'naive' is ambiguous: NaiveDPSGD or NaiveGaussian; write the full name"
    ):
        Config.of({**PLAIN, "learner": "naive"})
    with pytest.raises(LearnerError, match="NaiveDPSGD, NaiveGaussian"):
        find("naive")
    with pytest.raises(
        ConfigError, match=r"learner.method = 'momnets' is not a learner; there are AGEM, .* and \d+ more"
    ):
        load(PLAIN, ["learner=momnets"])


def test_a_name_is_the_section_with_that_method() -> None:
    assert Config.of({**PLAIN, "learner": "moments"}) == Config.of(
        {**PLAIN, "learner": {"method": "MomentsClassifier"}}
    )
    found = load({**PLAIN, "learner": "naive-dp"}, ["learner.steps=4"])
    assert isinstance(found, Config) and found.learner.method == "NaiveDPSGD" and found.learner.options["steps"] == 4


def test_settings_that_the_new_one_does_not_have_are_left_out() -> None:
    base = make_config(learner={"method": "DPCL", "memory": "block", "steps": 7}).plain()
    found = load(base, ["learner=naive-dp"])
    assert isinstance(found, Config) and found.learner.options["steps"] == 7
    assert {"memory", "memory_batch", "smooth"} <= set(left_out(base, [("learner", "naive-dp")]))
    assert "steps" not in left_out(base, [("learner", "naive-dp")])
    with pytest.raises(ConfigError, match=r"learner.memory = 'union' is not a setting of NaiveDPSGD"):
        load(base, ["learner=naive-dp", "learner.memory=union"])  # said, so not left out in silence


def cells(what: str, *sets: str) -> list[Config]:
    return [cell.config for cell in cells_of(load_sweep(what, [], list(sets)), Path("nowhere"))]


def test_in_a_sweep_it_is_the_learner_of_every_cell() -> None:
    (one,) = cells("quickstart", "learner=moments")
    assert one.learner.method == "MomentsClassifier" and one.budget.epsilon == 2.0
    (several,) = cells("quickstart", "learner=naive-dp", "learner.steps=5")
    assert several.learner.options["steps"] == 5 and several.learner.options["batch"] == 300


def test_a_learner_that_has_cells_keeps_its_own() -> None:
    (agem,) = cells("quickstart", "learner=agem")
    assert agem.learner.method == "AGEM" and agem.learner.options["batch"] == 10
    (other,) = cells("quickstart", "learner=agem", "learner.batch=20")
    assert other.learner.options["batch"] == 20


def test_what_else_cells_differ_in_stays() -> None:
    found = cells("desai2021/permuted-mnist-certified", "learner=moments")
    assert {one.learner.method for one in found} == {"MomentsClassifier"}
    assert [one.budget.epsilon for one in found] == [1.0, 0.5, 2.0]  # what they say of the network goes with it
    grid = cells("desai2021/permuted-mnist-paper", "learner=moments")
    assert len(grid) == 1  # its grid is over steps, which the learner does not have
    untuned = Config.of(PLAIN).tuned.how  # what cells say of how their own learners were tuned goes with them
    assert {one.tuned.how for one in cells("tobaben2025/split-cifar100", "learner=experts")} == {untuned}


def test_the_command_leaves_out_settings_that_it_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call = ["run", "quickstart", "--set", "learner=cosine", "--set", "data.tasks=2", "--set", "data.limit=60"]
    found = CliRunner().invoke(app, [*call, "--seeds", "1", "--quiet", "--processes", "1", "--out", "r"])
    assert found.exit_code == 0, found.output
    assert "no setting" not in found.stderr  # the preset set them, not the user
    assert (tmp_path / "r" / "metrics.json").exists()  # one cell is left: it is the run


def test_what_the_user_set_is_not_left_out_unseen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a file it is said, by --set it is refused; the defaults of a declaration are nobody's."""
    file = tmp_path / "mine.yaml"
    file.write_text(
        "data: {source: digits, scenario: permuted, tasks: 2}\nlearner: {method: DPCL, steps: 9, lr: 0.5}\n"
    )
    load_config(str(file), ["learner=cosine"])
    said = f"CosineClassifier has no setting steps, lr: what {file} says of it is not used"
    assert said in capsys.readouterr().err.replace("\n", " ")
    with pytest.raises(ConfigError, match=r"learner\.steps = 9 is not a setting of CosineClassifier"):
        load_config("quickstart", ["learner=cosine", "learner.steps=9"])
    grow(declare(tmp_path / "d"), *MONTHS)
    load_config(str(tmp_path / "d" / "visits.yaml"), ["learner=cosine"])
    assert capsys.readouterr().err == ""


def test_every_way_to_name_it_is_the_same() -> None:
    """Its own cells with their settings, the grid, and the paper's table beside."""
    ways = (
        ["learner=PEFTEnsemble"],
        ["learner.method=PEFTEnsemble"],
        settings_from_options(None, "PEFTEnsemble", None, None),
    )
    first, *others = [load_config("tobaben2025/split-cifar100", way) for way in ways]
    assert isinstance(first, Sweep) and first.reference == "tobaben2025/A3" and all(one == first for one in others)
    found = cells_of(first, Path("nowhere"))
    assert [cell.config.budget.epsilon for cell in found] == [0.5, 1, 2, 8, 1e4]
    assert {cell.config.learner.options["batch"] for cell in found} == {2500}
    alone = [
        load_config("quickstart", way)
        for way in (["learner.method=agem"], settings_from_options(["seeds=2"], "agem", None, None))
    ]
    assert all(isinstance(one, Config) and one.learner.options["batch"] == 10 for one in alone) and alone[0] == alone[1]


@pytest.mark.parametrize("preset", ["lai2022/permuted-mnist", "lai2022/unequal-tasks", "lai2022/har"])
def test_a_learner_can_be_picked_out_of_a_preset_with_a_baseline(preset: str) -> None:
    found = cells(preset, "learner=lifelong")
    assert found and {config.learner.method for config in found} == {"LifelongDP"}


def test_a_learner_that_counts_epochs_takes_the_steps_of_the_one_it_replaces() -> None:
    (found,) = cells("quickstart", "learner=naivegaussian")
    made = find("NaiveGaussian")(**found.learner.options)
    assert made.steps == 60 and made.epochs is None
