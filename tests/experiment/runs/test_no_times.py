"""The folder of a run on private data tells no times of its work: they follow the number of records."""

import re
from pathlib import Path

from support.months import MONTHS, config_of, declare, grow
from tacit.experiment.runs.runner import run

CLOCK = re.compile(rb"\d\d:\d\d:\d\d|seconds|elapsed|(?<![\d.])1[6-9]\d{8}(\.\d+|\d{3})?\b")
"""A time of day, a duration, or seconds and milliseconds since 1970; not the digits of a fraction."""


def told(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".safetensors"]
    return sorted(path.name for path in files if CLOCK.search(path.read_bytes()))


def test_no_file_of_a_private_run_tells_a_time(tmp_path: Path) -> None:
    declared = declare(tmp_path / "private")
    grow(declared, *MONTHS)
    config = config_of(declared, "NaiveDPSGD", repeatable_noise=False)
    run(config, tmp_path / "r", ledger=tmp_path / "visits.ledger")
    assert told(tmp_path / "r") == []
    assert not list((tmp_path / "r").rglob("timing.json"))
    certificates = list((tmp_path / "r").rglob("certificate.json"))
    assert len(certificates) == 3
    assert all(re.search(r'"created": "\d{4}-\d\d-\d\d"', one.read_text()) for one in certificates)


def test_a_time_is_told_from_a_fraction() -> None:
    assert all(CLOCK.search(said) for said in (b'{"at": 1763322000}', b"1763322000.25", b"1763322000123"))
    assert not any(CLOCK.search(said) for said in (b"0.1666666666666", b"[0.1763322000, 12.1763322000123]"))


def test_one_of_public_data_does(tmp_path: Path) -> None:
    """So that the test above can fail."""
    declared = declare(tmp_path / "public", public=True)
    grow(declared, *MONTHS)
    run(config_of(declared, "NaiveDPSGD"), tmp_path / "r")
    assert {"certificate.json", "progress.jsonl"} <= set(told(tmp_path / "r"))
