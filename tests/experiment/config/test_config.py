"""A configuration is checked before anything runs, says all of itself, and a wrong one is one sentence."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from support.blobs import make_config
from tacit.errors import ConfigError
from tacit.experiment.config.changes import override, parse, value_of
from tacit.experiment.config.config import Accumulation, Config, Sweep
from tacit.experiment.config.loading import load, preset_names, presets
from tacit.experiment.config.setting_types import parameters
from tacit.learners import LEARNERS, find

PLAIN: dict[str, Any] = {"name": "n", "data": {"source": "digits", "scenario": "permuted", "tasks": 2}}


def test_it_reads_back_as_itself_with_every_setting_in_it(config: Config) -> None:
    again = Config.of(yaml.safe_load(config.to_yaml()))
    assert again == config
    assert again.learner.options["memory_share"] == 0.1  # a default that nobody gave
    assert again.model.options == {"hidden": [6], "activation": "relu", "centred": False, "length": None}
    assert "limit: null" in config.to_yaml()


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_valid_and_reads_back(name: str) -> None:
    found = load(name)
    assert found.name == name and found.description
    assert isinstance(found, Accumulation | Sweep) or type(found).of(yaml.safe_load(found.to_yaml())) == found


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
    "learner.lr=true": "learner.lr must be a number or a list, each a number, got True",
    "learner.lr=[0.1, true]": "learner.lr must be a number or a list, each a number, got",
    "model.hidden=[true]": r"model.hidden must be a list, each a whole number, got \[True\]",
    "budget.epsilon=true": "budget.epsilon must be a number, got True",
    "lca=true": "lca must be a whole number, got True",
    "learner.project=alway": "learner.project must be one of 'conflict', 'always', got 'alway'; did you mean always?",
    "learner.method=DPLC": "learner.method = 'DPLC' is not a learner; did you mean DPCL, DPFC",
    "model.network=mpl": "model.network = 'mpl' is not a network; did you mean mlp",
    "model.hiden=[3]": r"model.hiden = \[3\] is not a setting of mlp; did you mean hidden",
    "data.scenario=permute": "data.scenario = 'permute' is not a scenario; did you mean permuted",
    "data.classes_per_task=2": "data.classes_per_task = 2 is not a setting of the scenario 'permuted'",
    "data.held=-1": "data.held = -1 is out of range: should be greater than or equal to 0",
    "budget.epsilon=0": "budget.epsilon must be a finite number > 0, got 0; 1 is a common choice",
    "budget.adjacency=add": "budget.adjacency must be one of .*, got 'add'; did you mean add-or-remove",
    "bugdet.epsilon=1": "bugdet = .* is not a key of a configuration; did you mean budget?",
    "evaluation.test=pubic": "evaluation.test must be one of .*, got 'pubic'; did you mean public",
    "seeds=[1, 1]": r"seeds must be different whole numbers ≥ 0, got \[1, 1\]",
    "name=": "name must be a text, got None",
    "device=gpu": r"device must be 'cpu' or 'cuda' \(one of several GPUs: 'cuda:1'\), got 'gpu'",
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
    with pytest.raises(ConfigError, match=r"data.tasks is missing; the scenario 'permuted' needs it as a whole number"):
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


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_shows_all_its_keys(name: str) -> None:
    """Also where nothing is set, and what is written down reads back."""
    found = Config.of({**PLAIN, "learner": name})
    hidden = {"budget", "network", "seed", "device", "stream", "ledger", "store"}
    assert set(found.learner.options) == set(parameters(find(name))) - hidden
    written = yaml.safe_load(found.to_yaml())
    assert Config.of(written) == found and ("model" in written) == found.learner.has_network
    assert not found.learner.has_network or written["model"]["hidden"] == [256, 256]


def test_a_learner_without_a_network_takes_no_model() -> None:
    linear = load({**PLAIN, "learner": "cosine"}, ["model.network=linear", "model.zero=true"])
    assert linear == Config.of({**PLAIN, "learner": "cosine"})
    for name in ("CosineClassifier", "MomentsClassifier", "LifelongDP"):
        with pytest.raises(ConfigError, match=rf"{name} trains no network, so model\.network = 'pretrained' and its"):
            load({**PLAIN, "learner": name}, ["model.adapter=film"])


def test_an_adapter_by_one_option() -> None:
    base = {**PLAIN, "data": PLAIN["data"] | {"features": "vit-b16"}, "model": {"network": "linear", "zero": True}}
    base["learner"] = "PEFTEnsemble"
    film = load(base, ["model.adapter=film"])
    assert isinstance(film, Config) and film.data.features is None and film.model.network == "pretrained"
    assert film.model.options["backbone"] == "vit-b16" and film.model.options["adapter"] == "film"
    lora = load(base, ["model.adapter=lora", "data.features=efficientnet-lite0", "model.rank=4"])
    assert isinstance(lora, Config) and lora.data.features is None
    assert lora.model.options["backbone"] == "efficientnet-lite0" and lora.model.options["rank"] == 4
    with pytest.raises(ConfigError, match=r"is trained inside a backbone, but data\.features = 'a\.npy' is a file"):
        load(base, ["model.adapter=film", "data.features=a.npy"])


def test_none_is_null() -> None:
    found = load({**PLAIN, "learner": {"method": "AGEM", "steps": 3}}, ["learner.steps=None"])
    assert isinstance(found, Config) and found.learner.options["steps"] is None and value_of("[None, 1]") == [None, 1]


def test_directories_and_files_are_written_down_by_their_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vit").mkdir()
    (tmp_path / "AGEM").mkdir()
    (tmp_path / "vit-b16").mkdir()
    (tmp_path / "own.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert parse("data.features=vit") == ("data.features", str(tmp_path / "vit"))
    assert parse("model.backbone=./vit")[1] == str(tmp_path / "vit")
    assert parse("learner.backbone=own.py:Net")[1] == f"{tmp_path / 'own.py'}:Net"
    assert parse("data.features=vit-b16")[1] == "vit-b16" and parse("learner=AGEM")[1] == "AGEM"
    assert parse("data.features=nothing/here")[1] == "nothing/here"


def test_a_file_without_a_name_is_called_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({"data": PLAIN["data"]}))
    assert load(file).name == "mine"
    file.write_text(yaml.safe_dump({"kind": "sweep", "base": {"data": PLAIN["data"]}, "grid": {"seeds": [1]}}))
    found = load(file)
    assert isinstance(found, Sweep) and isinstance(found.base, dict) and found.name == found.base["name"] == "mine"
