"""Every program in `examples/` runs as it is, in an empty folder; what needs a GPU is opened only."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
SHOWN = {
    "monthly_releases": "accuracy of the last release",
    "own_csv": "2026-03: certified ε = ",
    "own_exit": "noisy mean",
    "own_learner": "average accuracy",
}


SLOW = {"monthly_releases"}
"""It starts a process for each month."""
ON_GPU = {"film"}
"""They need a GPU and a public data set, and have a configuration of the same name."""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(file, id=file.stem, marks=[pytest.mark.slow] * (file.stem in SLOW))
        for file in EXAMPLES
        if file.stem not in ON_GPU
    ],
)
def test_an_example_runs(program: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TACIT_LEDGER"}
    done = subprocess.run(
        [sys.executable, program, tmp_path / "out"], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert SHOWN[program.stem] in done.stdout


@pytest.mark.parametrize("name", sorted(ON_GPU))
def test_the_configuration_of_an_example_for_a_gpu_is_accepted(name: str, tmp_path: Path) -> None:
    """Reading it imports the learner that it names, and checks its settings."""
    code = f"from tacit.experiment.config.loading import load; print(load('{name}.yaml').learner.method)"
    for file in (FOLDER / f"{name}.py", FOLDER / f"{name}.yaml"):
        shutil.copy(file, tmp_path)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{name}.py:" in done.stdout


def test_the_page_of_examples_lists_them_all() -> None:
    page = (EXAMPLES[0].parent / "README.md").read_text(encoding="utf-8")
    files = [*EXAMPLES, *sorted(FOLDER.glob("*.yaml"))]
    assert [path.name for path in files if f"[{path.name}]({path.name})" not in page] == []
