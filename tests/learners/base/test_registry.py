"""Learners of installed packages: found by name, run like tacit's own, and never imported to open a release."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tacit
from support.shell import tacit as shell
from support.small_world import GENEROUS, facts, records
from tacit.errors import ConfigError, LearnerError, PolicyError
from tacit.learners import find, load_learner, matching
from tacit.plugins import only_code

MODULE = """
from dataclasses import dataclass
from pathlib import Path

from tacit.learners import Learner
from tacit.learners.closed_form.cosine import CosineClassifier

Path(__file__).with_suffix(".imported").touch()
NUMBER = 3


@dataclass(kw_only=True, eq=False, repr=False)
class FakeMethod(CosineClassifier):
    extra: int = 1


class Abstract(Learner):
    pass
"""
CONFIG = """
name: fake
data: {source: digits, scenario: permuted, tasks: 2, records: 200}
learner: NAME
seeds: [0]
"""
Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package that registers learners; returns the file that exists once its module is imported."""
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(site)

    def add(package: str = "fake_method", code: str = MODULE, **names: str) -> Path:
        info = site / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        points = "\n".join(f"{name} = {value}" for name, value in names.items())
        (info / "entry_points.txt").write_text(f"[tacit.learners]\n{points}\n")
        (site / f"{package}.py").write_text(code)
        monkeypatch.delitem(sys.modules, package, raising=False)
        return site / f"{package}.imported"

    return add


def test_a_run_uses_the_learner_of_an_installed_package(tmp_path: Path, install: Install) -> None:
    imported = install(FakeMethod="fake_method:FakeMethod")
    assert matching("fake-method") == ["FakeMethod"] and not imported.exists()
    config = tmp_path / "fake.yaml"
    config.write_text(CONFIG.replace("NAME", "{method: FakeMethod, extra: 2}"))
    tacit.run(config, tmp_path / "called")
    assert imported.exists() and find("FakeMethod").__module__ == "fake_method"
    config.write_text(CONFIG.replace("NAME", "FakeMethod"))
    shell("run", config, "--out", tmp_path / "typed")
    assert '"FakeMethod"' in next((tmp_path / "typed").rglob("release.json")).read_text()


@pytest.mark.parametrize(
    ("names", "asked", "sentence"),
    [
        ({"DPCL": "fake_method:FakeMethod"}, "DPCL", "fake_method:FakeMethod is registered as the learner 'DPCL'"),
        ({"dp_cl": "fake_method:FakeMethod"}, "dp_cl", "as the learner 'dp_cl', a name of tacit's own DPCL; uninstall"),
        ({"Fake": "fake_method:NUMBER"}, "Fake", "fake_method has no learner 'NUMBER': a class that inherits"),
        ({"Fake": "fake_method"}, "Fake", "fake_method is not a learner: a class that inherits"),
        ({"Fake": "fake_method:Abstract"}, "Fake", r"Abstract in fake_method has no method fit\(task, block, vault\)"),
        ({"Fake": "fake_method:Absent"}, "Fake", "'Fake' of fake_method:Absent cannot be imported: AttributeError"),
        ({"Fake": "no_such_module:Fake"}, "Fake", "cannot be imported: ModuleNotFoundError: No module named"),
    ],
)
def test_an_unusable_entry_point_is_refused_in_one_sentence(
    tmp_path: Path, install: Install, names: dict[str, str], asked: str, sentence: str
) -> None:
    install(**names)
    with pytest.raises(LearnerError, match=sentence) as refused:
        find(asked)
    assert "\n" not in str(refused.value)
    config = tmp_path / "fake.yaml"
    config.write_text(CONFIG.replace("NAME", asked))
    with pytest.raises(ConfigError, match=sentence):
        tacit.run(config, tmp_path / "run")


def test_an_import_that_fails_is_refused_in_one_sentence(install: Install) -> None:
    install(code="raise ValueError('broken')", Fake="fake_method:Fake")
    with pytest.raises(LearnerError, match="'Fake' of fake_method:Fake cannot be imported: ValueError: broken"):
        find("Fake")
    assert find("DPCL").__name__ == "DPCL"


def test_a_name_that_two_packages_register_is_refused(install: Install) -> None:
    install(Fake="fake_method:FakeMethod")
    imported = install("other_method", Fake="other_method:FakeMethod")
    with pytest.raises(LearnerError, match="both register a learner 'Fake'; uninstall one of them"):
        find("Fake")
    assert not imported.exists()


def test_an_unknown_name_lists_the_registered_learners(install: Install) -> None:
    install(FakeMethod="fake_method:FakeMethod")
    with pytest.raises(LearnerError, match=r"there is no learner 'nothing'; there are .*RoutedExperts, FakeMethod, or"):
        find("nothing")


def test_a_release_is_opened_by_the_imported_class_only(tmp_path: Path, install: Install) -> None:
    imported = install(FakeMethod="fake_method:FakeMethod")
    kind = find("FakeMethod")
    learner = kind(stream=facts(1), budget=GENEROUS).partial_fit(*records(0))
    learner.save(tmp_path / "release")
    del sys.modules["fake_method"]
    imported.unlink()
    with pytest.raises(LearnerError, match=r"import the class and use FakeMethod\.from_release"):
        load_learner(tmp_path / "release")
    with only_code(()), pytest.raises(PolicyError, match="'FakeMethod' is code of an installed package"):
        find("FakeMethod")
    assert not imported.exists() and "fake_method" not in sys.modules
    again = kind.from_release(tmp_path / "release")
    assert (again.predict(records(0)[0]) == learner.predict(records(0)[0])).all()
    assert not imported.exists()
