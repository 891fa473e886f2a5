"""A configuration is checked before anything runs, says all of itself, and a wrong one is one sentence."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from blobs import make_config

from tacit.errors import ConfigError
from tacit.experiment.config import Accumulation, Config, Sweep
from tacit.experiment.loading import load, override, preset_names, presets

PLAIN: dict[str, Any] = {"name": "n", "data": {"source": "digits", "scenario": "permuted", "tasks": 2}}


def test_it_reads_back_as_itself_with_every_setting_in_it(config: Config) -> None:
    again = Config.of(yaml.safe_load(config.to_yaml()))
    assert again == config
    assert again.learner.options["memory_share"] == 0.1  # a default that nobody gave
    assert again.model.options == {"hidden": [6], "activation": "relu"}
    assert "limit: null" in config.to_yaml()


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_valid_and_reads_back(name: str) -> None:
    found = load(name)
    assert found.name == name and found.description
    assert isinstance(found, Accumulation | Sweep) or Config.of(yaml.safe_load(found.to_yaml())) == found


def test_presets_say_what_data_they_need(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    listed = {one.name: one for one in presets()}
    assert listed["quickstart"].missing == () and listed["compare"].needs == ("digits",)
    assert listed["desai2021/permuted-mnist"].missing == ("mnist",)


def test_seeds_are_a_number_or_a_list() -> None:
    assert Config.of({**PLAIN, "seeds": 3}).seeds == (0, 1, 2)
    assert Config.of({**PLAIN, "seeds": [4, 2]}).seeds == (4, 2)


WRONG = {
    "learner.stepz=3": "learner.stepz = 3 is not a setting of DPCL; did you mean steps?",
    "learner.steps=many": "learner.steps must be a whole number or a list, each a whole number or null, got 'many'",
    "learner.project=alway": "learner.project must be one of 'conflict', 'always', got 'alway'; did you mean always?",
    "learner.method=DPLC": "learner.method = 'DPLC' is not a learner; did you mean DPCL",
    "model.network=mpl": "model.network = 'mpl' is not a network; did you mean mlp",
    "model.hiden=[3]": r"model.hiden = \[3\] is not a setting of mlp; did you mean hidden",
    "data.scenario=permute": "data.scenario = 'permute' is not a scenario; did you mean permuted",
    "data.task_id=given": "data.task_id = 'given' is not a setting of the scenario 'permuted'",
    "data.held=-1": "data.held = -1 is not possible: should be greater than or equal to 0",
    "budget.epsilon=0": "budget.epsilon = 0 is not possible: should be greater than 0",
    "budget.adjacency=add": "budget.adjacency must be one of .*, got 'add'; did you mean",
    "bugdet.epsilon=1": "bugdet = .* is not a key of a configuration; did you mean budget?",
    "evaluation.test=pubic": "evaluation.test must be one of .*, got 'pubic'; did you mean public",
    "seeds=[1, 1]": r"seeds must be different whole numbers ≥ 0, got \[1, 1\]",
    "name=": "name must be a text, got None",
    "kind=rum": "kind = 'rum' is not a kind of configuration; did you mean run",
    "learner": "--set takes key=value",
    "seeds.first=1": None,
}


@pytest.mark.parametrize("setting", WRONG)
def test_a_wrong_one_names_the_key_the_value_and_the_nearest(setting: str) -> None:
    with pytest.raises(ConfigError, match=WRONG[setting]) as caught:
        load({**PLAIN, "seeds": 2} if setting.startswith("seeds.") else PLAIN, [setting])
    assert "\n" not in str(caught.value)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ConfigError, match=r"data.tasks is missing: the scenario 'permuted' needs it, a whole number"):
        Config.of({"name": "n", "data": {"source": "digits", "scenario": "permuted"}})
    with pytest.raises(ConfigError, match=r"^data is missing"):
        Config.of({"name": "n"})


def test_set_reads_yaml_and_leaves_the_base_alone() -> None:
    found = load(PLAIN, ["learner.steps=[5, 6]", "learner.lr=1e-2", "evaluation.share=0.2", "repeatable_noise=true"])
    assert isinstance(found, Config)
    assert found.learner.options["steps"] == [5, 6] and found.learner.options["lr"] == 0.01
    assert found.repeatable_noise and "learner" not in PLAIN


def test_another_method_leaves_out_what_it_does_not_have() -> None:
    base = make_config(learner={"method": "DPCL", "memory": "block", "steps": 7}).plain()
    changed = override(base, [("learner.method", "NaiveDPSGD")])["learner"]
    assert changed["steps"] == 7 and "memory" not in changed
    with pytest.raises(ConfigError, match=r"learner.memory = 'union' is not a setting of NaiveDPSGD"):
        load(base, ["learner.method=NaiveDPSGD", "learner.memory=union"])


def test_a_name_that_is_nothing_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'quikstart'; did you mean quickstart"):
        load("quikstart")


def test_a_broken_file_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("name: [1\n")
    with pytest.raises(ConfigError, match=r"c.yaml is not valid YAML at line"):
        load(file)
    file.write_text("- 1\n")
    with pytest.raises(ConfigError, match="holds no keys"):
        load(file)
