"""A small world of real files for fuzzing: private visits, their declaration, a ledger, a run with releases, keys.

Each case works on its own copy. `Held` is the property that every case has to keep: an exit code that the documentation
names, at most one sentence of error, no traceback, and no charge that neither a release nor `--resume` makes use of.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import yaml
from hypothesis import HealthCheck, Phase, settings
from typer.testing import CliRunner, Result

from tacit.cli import app
from tacit.errors import TacitError
from tacit.privacy.ledger import Ledger

MONTHS = ("2026-01", "2026-02")
HEADER = "patient,visit,month,age,pulse,diagnosis\n"
FACTS: dict[str, Any] = {
    "name": "visits",
    "files": {"train": "visits.csv"},
    "columns": {"label": "diagnosis", "task": "month", "person": "patient"},
    "features": ["age", "pulse"],
    "scaling": {"age": [0, 100], "pulse": [30, 200]},
    "labels": ["well", "sick"],
    "tasks": [{"name": month, "size": 30} for month in MONTHS],
    "unit": "person",
    "tasks_per_unit": 2,
}
QUICK = ("--set", "learner.steps=1", "--set", "learner.batch=4", "--quiet")
RELEASE = "r/seeds/seed-0/releases/02-2026-02"
CODES = {0, 1, 2}
"""Done; something is wrong; a wrong call. 3, a mistake in tacit itself, is what fuzzing looks for."""


def rows(month: str, count: int = 30) -> str:
    rng = np.random.default_rng(int(month[-2:]))
    ill = rng.integers(0, 2, count)
    age, pulse = rng.uniform(20, 90, count), 60 + 50 * ill + rng.uniform(-9, 9, count)
    return "".join(
        f"{n},{month}/{n},{month},{age[n]:.1f},{pulse[n]:.1f},{('well', 'sick')[ill[n]]}\n" for n in range(count)
    )


@cache
def original() -> Path:
    """The world that every case starts from; made once in a process."""
    folder = Path(tempfile.mkdtemp(prefix="tacit-fuzz-"))
    (folder / "visits.csv").write_text(HEADER + "".join(map(rows, MONTHS)))
    (folder / "visits.yaml").write_text(yaml.safe_dump(FACTS))
    (folder / "space.yaml").write_text("learner.lr: {low: 0.1, high: 1}\n")
    (folder / "policy.toml").write_text("allow_unsafe = false\n")
    (folder / "notes.txt").write_text("no configuration\n")
    (folder / "empty").touch()
    (folder / "junk").write_bytes(bytes(range(256)) * 8)
    (folder / "folder").mkdir()
    with chdir(folder):
        for words in (
            ("run", "visits.yaml", "--ledger", "v.ledger", "--out", "r", *QUICK),
            ("run", "visits.yaml", "--ledger", "half.ledger", "--out", "half", "--until", MONTHS[0], *QUICK),
            ("keys", "signing", "key"),
        ):
            made = CliRunner().invoke(app, list(words))
            assert made.exit_code == 0, made.output
    return folder


@contextmanager
def copied(*names: str) -> Iterator[Path]:
    """A copy of the world, or of these parts of it, as the current folder."""
    source = original()
    with tempfile.TemporaryDirectory(prefix="tacit-case-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        for path in source.iterdir():
            if names and not path.name.startswith(names):
                continue
            if path.is_dir():
                shutil.copytree(path, folder / path.name)
            else:
                shutil.copy2(path, folder / path.name)
        with chdir(folder):
            yield folder


def tacit(words: Sequence[str]) -> Result:
    # `tacit report --watch` answers until Ctrl-C, which comes at once here.
    with patch("tacit.report.live.LiveReport.serve", side_effect=KeyboardInterrupt):
        return CliRunner().invoke(app, list(words), input="\n" * 20)


def sound(words: Sequence[str], result: Result) -> None:
    """The exit code is a documented one, and what is wrong is one sentence."""
    told = f"tacit {' '.join(map(ascii, words))}\n{result.output[-3000:]}"
    assert result.exception is None or isinstance(result.exception, SystemExit), f"{told}\n{result.exception!r}"
    assert result.exit_code in CODES, told
    assert "Traceback" not in result.output, told
    if result.exit_code == 1:
        wrong = [line for line in result.output.splitlines() if line.startswith("error: ")]
        said_otherwise = any(mark in result.output for mark in ("no ", "failed", "not run", "Aborted.", '"ok": false'))
        assert len(wrong) == 1 or (not wrong and said_otherwise), told


def charged(ledger: Path) -> float:
    """What a unit of the dearest stream has lost; 0 where this is no ledger that can be opened."""
    if not ledger.is_file() or ledger.stat().st_size == 0:
        return 0.0
    try:
        with Ledger(ledger) as book:
            return max((book.epsilon(number) for number, _ in book.streams()), default=0.0)
    except TacitError:
        return 0.0


def paid_for(ledger: Path, folder: Path) -> None:
    """Whatever was charged to a new ledger has a release, or a run folder that goes on by --resume."""
    if charged(ledger) > 0:
        released = list(folder.glob("seeds/*/releases/*/certificate.json"))
        resumable = (folder / "config.yaml").is_file() and list(folder.glob("seeds/*/private"))
        assert released or resumable, f"{ledger} was charged, and {folder} has neither a release nor a way to go on"


def raises_only_sentences(deed: Callable[[], object]) -> None:
    """The deed succeeds, or fails with one sentence of tacit's own."""
    try:
        deed()
    except TacitError as error:
        assert str(error).strip() and "Traceback" not in str(error)


def profile(cases: int) -> settings:
    """So many cases, the same in every run."""
    return settings(
        max_examples=cases,
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.generate,),  # a failing case is small enough as it is
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
