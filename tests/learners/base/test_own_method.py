"""A method of one's own: one file, found by its path, run like the others."""

from pathlib import Path

import pytest

from tacit.errors import LearnerError
from tacit.experiment.config.loading import load
from tacit.learners import find

METHOD = """
from dataclasses import dataclass
from typing import ClassVar

from tacit.learners.base.gradient import GradientLearner


@dataclass(kw_only=True, eq=False)
class Mine(GradientLearner):
    twice: int = 1
    reference: ClassVar[str] = "me"
    certifies: ClassVar[str] = "a record: its own plan, once"

    def fit(self, task, block, vault):
        grant = vault.grant(block, self.plan(task), self.model_, self.loss_, work=self.settings())
        optimizer = self.optimizer(task)
        for _ in self.training_steps(grant, task):
            self.update(optimizer, grant.gradient())
"""


def test_a_file_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(METHOD)
    assert find(f"{file}:Mine").__name__ == "Mine"
    found = load("desai2021/permuted-mnist", [f"learner.method={file}:Mine", "learner.twice=3"])
    assert found.learner.options["twice"] == 3 and found.learner.options["batch"] == 1000


@pytest.mark.parametrize("name", ["nowhere.py:Mine", "{file}:Other", "{file}:ClassVar"])
def test_what_is_not_there_is_said(tmp_path: Path, name: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(METHOD)
    with pytest.raises(LearnerError, match=r"file\.py:Class|has no learner"):
        find(name.format(file=file))
