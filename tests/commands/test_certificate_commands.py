"""`tacit certificate`: files, and the folders of runs."""

import json
import shutil
from pathlib import Path

from support.shell import tacit


def test_sign_and_verify(book: Path, tmp_path: Path) -> None:
    key, certificate = tmp_path / "officer", tmp_path / "c.json"
    tacit("keys", "signing", key)
    assert "not signed" in tacit("certificate", "verify", certificate, "--key", f"{key}.pub", code=1).output
    tacit("certificate", "sign", certificate, "--key", key)
    assert "genuine" in tacit("certificate", "verify", certificate, "--key", f"{key}.pub").output
    certificate.write_text(certificate.read_text().replace('"method": "sums"', '"method": "magic"'))
    assert "changed" in tacit("certificate", "verify", certificate, "--key", f"{key}.pub", code=1).output


def test_show_certificate_and_schema(book: Path, tmp_path: Path) -> None:
    text = tacit("certificate", "show", tmp_path / "c.json").output
    assert "PRIVACY CERTIFICATE" in text and "ε = 1" in text
    assert json.loads(tacit("certificate", "show", tmp_path / "c.json", "--json").output)["method"] == "sums"
    assert json.loads(tacit("certificate", "schema").output)["title"] == "Certificate"


def release(run: Path, place: str, method: str) -> None:
    """A certificate in a run's folder, as a runner leaves it."""
    (run / place).mkdir(parents=True)
    text = (run.parent / "c.json").read_text().replace('"method": "sums"', f'"method": "{method}"')
    (run / place / "certificate.json").write_text(text)


def test_the_last_certificate_of_a_run(book: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for place in ("09-september", "10-october", "9b-extra", "100-last", "11-november"):
        release(run, f"seeds/seed-2/releases/{place}", place)
        release(run, f"seeds/seed-10/releases/{place}", f"other {place}")

    def shown(*words: object) -> str:
        return str(json.loads(tacit("certificate", *words, "--json").output)["method"])

    assert shown("show", run) == "100-last"
    assert shown("show", run / "seeds" / "seed-10") == "other 100-last"
    assert shown("show", run / "seeds" / "seed-2" / "releases" / "10-october") == "10-october"
    shutil.rmtree(run / "seeds" / "seed-2")
    assert shown("show", run) == "other 100-last"


def test_a_path_alone_is_shown(book: Path, tmp_path: Path) -> None:
    release(tmp_path / "run", "seeds/seed-0/releases/01-a", "a")
    assert "PRIVACY CERTIFICATE" in tacit("certificate", tmp_path / "run").output
    assert json.loads(tacit("certificate", tmp_path / "c.json", "--json").output)["method"] == "sums"
    assert "No such command" in tacit("certificate", "shwo", tmp_path / "c.json", code=2).output


def test_what_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    for words in (("certificate",), ("certificate", "show")):
        for place in (tmp_path / "january.json", "NOPE", "runs/nope"):
            output = tacit(*words, place, code=1).output
            assert output.count("\n") == 1 and f"there is no file or folder {place}; " in output
            assert "give a certificate file, or the folder of a run or a release" in output


def test_a_folder_without_certificates_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "run [1]").mkdir()
    output = tacit("certificate", "show", tmp_path / "run [1]", code=1).output
    assert output.count("\n") == 1 and "no certificate in" in output and "run [1]" in output
