"""Finds the certificate or release that a path means: a file, a release, or the last release of a run."""

import re
from pathlib import Path

from tacit.errors import CertificateError
from tacit.words import counted

EXPECTED = "give a certificate file, or the folder of a run or a release"


def locate(path: Path) -> tuple[Path, Path | None]:
    """The certificate file at a path, and its release folder if it is part of a release."""
    if not path.exists():
        raise CertificateError(f"there is no file or folder {path}; {EXPECTED}")
    file = _last_certificate(path) if path.is_dir() else path
    in_release = file.name == "certificate.json" and (path.is_dir() or (file.parent / "release.json").exists())
    return file, file.parent if in_release else None


def _last_certificate(folder: Path) -> Path:
    """The certificate of the last release in a folder: of a run (its first seed), a seed, releases, or one release."""
    if folder.name == "releases" and (folder.parent / "releases").is_dir():
        folder = folder.parent
    seeds = folder.glob("seed-*" if folder.name == "seeds" else "seeds/*")
    for seed in sorted(seeds, key=_by_number) or [folder]:
        releases = sorted(seed.glob("releases/*/certificate.json"), key=lambda file: _by_number(file.parent))
        if releases:
            return releases[-1]
    if (folder / "certificate.json").exists():
        return folder / "certificate.json"
    if runs := sorted(str(run.parent) for run in folder.glob("*/seeds")):
        raise CertificateError(f"{folder} has {counted(len(runs), 'run')}; give one of them: {', '.join(runs)}")
    raise CertificateError(f"there is no certificate in {folder}; {EXPECTED}")


def _by_number(path: Path) -> tuple[int, str]:
    """Sorts by the first number in the name, so that seed-10 follows seed-9."""
    match = re.search(r"\d+", path.name)
    return int(match.group()) if match else -1, path.name
