"""Every program in `examples/` runs as it is, in an empty folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
SHOWN = {
    "monthly_releases": "accuracy of the last release",
    "own_csv": "2026-03: certified ε = ",
    "own_exit": "noisy mean",
    "own_learner": "average accuracy",
}


SLOW = {"monthly_releases"}
"""It starts a process for each month."""


@pytest.mark.parametrize(
    "program",
    [pytest.param(file, id=file.stem, marks=[pytest.mark.slow] * (file.stem in SLOW)) for file in EXAMPLES],
)
def test_an_example_runs(program: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TACIT_LEDGER"}
    done = subprocess.run(
        [sys.executable, program, tmp_path / "out"], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert SHOWN[program.stem] in done.stdout


def test_the_page_of_examples_lists_them_all() -> None:
    page = (EXAMPLES[0].parent / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES if f"[{path.name}]({path.name})" not in page] == []
