"""A task of private data is learned once its rows have arrived: its folder exists, or the owner says so.

A month that is learned before its rows are there is charged for, and its rows can never be used.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from support.blobs import killed_at, make_config
from support.months import MONTHS, begun, charged, config_of, declare, everything, grow, tacit
from tacit.errors import ConfigError
from tacit.experiment.runs.runner import run
from tacit.privacy.vault import Grant


def test_a_month_whose_rows_are_not_there_is_not_learned(tmp_path: Path) -> None:
    """The finding: `--resume --until 2026-03` before its rows exist was learned and charged in silence."""
    config, folder = begun(tmp_path)
    before = everything(tmp_path)
    for call in ({"until": MONTHS[2]}, {}):
        with pytest.raises(ConfigError, match=rf"pass --arrived {MONTHS[2]}"):
            run(config, folder, resume=True, **call)  # type: ignore[arg-type]
    assert everything(tmp_path) == before
    ledger = tmp_path / "visits.ledger"
    assert all(MONTHS[2] not in months for *_, months in charged(ledger))
    grow(tmp_path / "visits.yaml", MONTHS[2])
    with pytest.raises(
        ConfigError, match="cannot be known without counting them"
    ):  # nor does a look at the rows decide
        run(config, folder, resume=True, until=MONTHS[2])
    assert run(config, folder, resume=True, arrived=[MONTHS[2]]).left == ()


def test_months_arrive_in_their_order(tmp_path: Path) -> None:
    declared = declare(tmp_path)
    grow(declared, MONTHS[0])
    config = config_of(declared, "NaiveDPSGD", repeatable_noise=False)
    run(config, tmp_path / "r", ledger=tmp_path / "visits.ledger", until=MONTHS[0])
    with pytest.raises(ConfigError, match=rf"rows of task '{MONTHS[1]}' .* pass --arrived {MONTHS[1]}"):
        run(config, tmp_path / "r", resume=True, until=MONTHS[2], arrived=[MONTHS[2]])
    with pytest.raises(ConfigError, match="--arrived 2026-3: the stream 'visits' has no such task; did you mean"):
        run(config, tmp_path / "r", resume=True, arrived=["2026-3"])
    found = run(config, tmp_path / "r", resume=True, arrived=MONTHS[1:])
    assert found.left == ()


def test_a_first_call_speaks_for_what_it_learns_also_after_a_kill(tmp_path: Path) -> None:
    declared = declare(tmp_path)
    grow(declared, *MONTHS)
    config = config_of(declared, "NaiveDPSGD", repeatable_noise=False)
    work = lambda: run(config, tmp_path / "r", ledger=tmp_path / "visits.ledger")  # noqa: E731
    killed_at(Grant, "gradient", 8, before=False, work=work)
    assert run(config, tmp_path / "r", resume=True).left == ()


def test_a_killed_month_goes_on_without_being_named_again(tmp_path: Path) -> None:
    config, folder = begun(tmp_path)
    grow(tmp_path / "visits.yaml", MONTHS[2])
    work = lambda: run(config, folder, resume=True, arrived=[MONTHS[2]])  # noqa: E731
    killed_at(Grant, "gradient", 3, before=False, work=work)
    assert run(config, folder, resume=True).left == ()


def test_the_command_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    refused = tacit("run", str(tmp_path / "r"), "--resume", "--until", MONTHS[2])
    assert refused.exit_code == 1 and f"pass --arrived {MONTHS[2]}" in refused.stderr
    wrong = tacit("run", "quickstart", "--arrived", "permutation-2")
    assert wrong.exit_code == 1 and "--arrived permutation-2 is for a single run" in wrong.stderr


def pictures(folder: Path, *months: str) -> None:
    for month in months:
        rng = np.random.default_rng(MONTHS.index(month))
        for label in ("cat", "dog"):
            (folder / month / label).mkdir(parents=True, exist_ok=True)
            for n in range(6):
                Image.fromarray(rng.integers(0, 255, (4, 4), dtype=np.uint8)).save(folder / month / label / f"{n}.png")


def test_where_a_task_has_its_own_folder_that_decides(tmp_path: Path) -> None:
    facts: dict[str, Any] = {
        "name": "pets", "files": {"train": "pets"}, "labels": ["cat", "dog"], "shape": [1, 4, 4],
        "tasks": [{"name": month, "size": 12} for month in MONTHS],
    }  # fmt: skip
    (tmp_path / "pets.yaml").write_text(yaml.safe_dump(facts))
    pictures(tmp_path / "pets", *MONTHS[:2])
    learner = {"method": "NaiveDPSGD", "steps": 2, "batch": 4}
    config = make_config(
        data={"source": str(tmp_path / "pets.yaml"), "scenario": "declared"},
        learner=learner,
        repeatable_noise=False,
    )
    with pytest.raises(ConfigError, match=rf"task '{MONTHS[2]}' of 'pets' has no file or folder yet"):
        run(config, tmp_path / "r", ledger=tmp_path / "pets.ledger")
    assert not (tmp_path / "r").exists() and not (tmp_path / "pets.ledger").exists()
    run(config, tmp_path / "r", ledger=tmp_path / "pets.ledger", until=MONTHS[1])
    with pytest.raises(ConfigError, match="have arrived and are learned"):
        run(config, tmp_path / "r", resume=True)
    pictures(tmp_path / "pets", MONTHS[2])
    assert run(config, tmp_path / "r", resume=True).left == ()
