"""`tacit report`, `tacit plot`, and the page that every run and sweep leaves in its folder."""

import json
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from support.report_folders import tiny_sweep
from support.shell import tacit
from tacit.experiment.progress import Stopped

FAST = ["--set", "data.limit=60", "--set", "data.tasks=2", "--set", "learner.steps=3", "--set", "learner.batch=20",
        "--set", "threads=1", "--seeds", "1", "--processes", "1", "--method", "NaiveDPSGD", "--quiet"]  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TACIT_LEDGER", raising=False)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_sweep(tmp_path_factory.mktemp("commands") / "tiny")


def test_a_run_leaves_a_page_and_says_where() -> None:
    found = tacit("run", "quickstart", *FAST, "--out", "r")
    assert "report       r/report.html\n" in found.stdout
    assert "NaiveDPSGD learned 2 tasks" in Path("r/report.html").read_text()
    Path("r/report.html").unlink()
    again = tacit("run", "r", "--resume", "--no-report", "--json", "--quiet")
    assert "report" not in again.output and not Path("r/report.html").exists()
    as_json = tacit("run", "r", "--resume", "--json", "--quiet")
    assert json.loads(as_json.output)["method"] == "NaiveDPSGD" and Path("r/report.html").exists()


def test_a_sweep_leaves_one_page_for_all_cells(swept: Path) -> None:
    shown = tacit("sweep", swept, "--resume", "--quiet").stdout
    assert f"report       {swept}/report.html\n" in shown
    assert "RoutedExperts" in (swept / "report.html").read_text()


def test_an_endless_stream_leaves_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    small = ["--set", "learner={method: NaiveDPSGD, steps: 2, batch: 10, lr: 0.5}", "--set", "threads=1", "--quiet"]
    found = tacit("run", "hassanpour2022/endless", *small, "--tasks", "2", "--out", "e")
    assert "report       e/report.html\n" in found.stdout and "2 tasks learned" in Path("e/report.html").read_text()
    Path("e/report.html").unlink()

    def stopped(*arguments: Any, **named: Any) -> None:
        raise Stopped("stopped after task 2")

    monkeypatch.setattr("tacit.experiment.runs.endless.run_endless", stopped)
    tacit("run", "e", "--resume", "--quiet", code=130)
    assert Path("e/report.html").exists()


def test_a_page_that_cannot_be_drawn_fails_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **named: Any) -> None:
        raise RuntimeError("a secret of a library")

    monkeypatch.setattr("tacit.report.page.page", broken)
    found = tacit("run", "quickstart", *FAST, "--out", "r")
    said = "the results are complete, but report.html could not be drawn (RuntimeError); try: tacit report r"
    assert said in found.stderr.replace("\n", " ") and "secret" not in found.output
    assert Path("r/metrics.json").exists() and not Path("r/report.html").exists()


def test_report_of_several_folders(swept: Path) -> None:
    assert tacit("report", swept, "--out", "one.html").stdout == "report  one.html\n"
    assert tacit("report", *sorted(one for one in swept.iterdir() if one.is_dir())).stdout == "report  report.html\n"
    assert Path("report.html").read_text().count('<tr data-run="r') == 3
    assert "there is no folder 'nowhere'" in tacit("report", "nowhere", code=1).stderr
    assert "cannot read or write no/where.html" in tacit("report", swept, "--out", "no/where.html", code=1).stderr


def test_plot(swept: Path) -> None:
    assert tacit("plot", swept, "accuracy").stdout == "figure  accuracy.png\n"
    tacit("plot", swept, "matrix", "--out", "matrix.pdf")
    assert Path("matrix.pdf").read_bytes().startswith(b"%PDF") and Path("accuracy.png").stat().st_size > 5000
    assert "did you mean epsilon?" in tacit("plot", swept, "epsilom", code=1).stderr
    shown = tacit("plot", "--help").stdout
    assert all(
        kind in shown for kind in ("accuracy", "forgetting", "matrix", "epsilon", "budget", "tradeoff", "attacks")
    )


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_watching_ends_with_a_file(ending: int, swept: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(swept, folder / "tiny")
    (folder / "tiny" / "report.html").unlink(missing_ok=True)
    command = [sys.executable, "-m", "tacit", "report", "--watch", str(folder)]
    ignored = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)  # as a shell starts what runs in the background
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=ignored) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().removeprefix("open").strip()
            with urlopen(address, timeout=60) as answer:
                assert b"<h1>" in answer.read()
            server.send_signal(ending)
            printed, _ = server.communicate(timeout=60)
        finally:
            server.kill()
    assert server.returncode == 0
    assert f"report  {folder / 'report.html'}" in printed and "<h1>" in (folder / "report.html").read_text()
    assert "data-live" not in (folder / "report.html").read_text()


def test_a_page_is_html(swept: Path, tmp_path: Path) -> None:
    said = tacit("report", swept, "--out", tmp_path / "page.pdf", code=1).stderr
    assert "has no known suffix; use one of .html, .htm" in said and not (tmp_path / "page.pdf").exists()


def test_a_port_is_for_watching(swept: Path) -> None:
    assert "--port 9 is for --watch; add --watch, or leave it out" in tacit("report", swept, "--port", 9, code=1).stderr
