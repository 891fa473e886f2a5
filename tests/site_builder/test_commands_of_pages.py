"""What the pages of the site tell to type works: `sh` and `python` blocks run, options in `console` blocks exist."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from site_builder.repository import ROOT

from tacit.cli import app

DOCS = ROOT / "docs"
PAGES = [DOCS / "start.md", *sorted((DOCS / "how-to").glob("*.md")), *sorted((DOCS / "concepts").glob("*.md"))]
COMMANDS: Any = typer.main.get_command(app)
VISITS = """
import numpy as np
rng = np.random.default_rng(0)
lines = ["patient,month,age,pressure,diagnosis"]
for month in ("2026-01", "2026-02", "2026-03"):
    for patient in rng.choice(1500, size=300, replace=False):
        sick = int(rng.random() < 0.5)
        age, pressure = rng.normal(40 + 20 * sick, 8), rng.normal(120 + 30 * sick, 10)
        lines.append(f"{patient},{month},{age:.0f},{pressure:.0f},{'sick' if sick else 'well'}")
open("visits.csv", "w").write("\\n".join(lines) + "\\n")
open("policy.toml", "w").write('may_raise = ["officer"]\\n')
"""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[str]:
    """The calls of tacit in blocks for a shell, here-documents left out."""
    text = "\n".join(blocks(page, "sh") + blocks(page, "console"))
    text = re.sub(r"<<'EOF'.*?^EOF$", "", text, flags=re.DOTALL | re.MULTILINE)
    return [line for line in text.splitlines() if line.startswith("tacit ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_options_exist(page: Path) -> None:
    for line in commands(page):
        _, *words = shlex.split(line, comments=True)
        command = COMMANDS
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        command.make_context(command.name, words)  # refuses unknown options and wrong values


def test_there_are_commands() -> None:
    assert sum(len(commands(page)) for page in PAGES) > 40


@pytest.mark.slow
@pytest.mark.parametrize("page", [one for one in PAGES if blocks(one, "sh")], ids=lambda page: page.stem)
def test_commands_run(page: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tacit").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tacit "$@"\n', encoding="utf-8")
    (tmp_path / "bin" / "tacit").chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name not in ("TACIT_LEDGER", "TACIT_DATA")}
    paths = {"PATH": f"{tmp_path / 'bin'}:{kept['PATH']}", "TACIT_STATE": str(tmp_path / "state")}
    subprocess.run([sys.executable, "-c", VISITS], cwd=tmp_path, check=True)
    script = "\n".join(["set -e", *blocks(page, "sh")])
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=kept | paths, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("page", [one for one in PAGES if blocks(one, "python")], ids=lambda page: page.stem)
def test_python_runs(page: Path, tmp_path: Path) -> None:
    for number, block in enumerate(blocks(page, "python")):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = subprocess.run([sys.executable, "-c", block], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
