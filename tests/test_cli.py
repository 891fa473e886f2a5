"""The command as a whole: its groups, help, completion and exit codes; and that it starts without torch."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tacit import Budget, Ledger, charge_flag
from tacit.charge_flag import interrupted_message
from tacit.cli import GROUPS, app
from tacit.commands.console import CommandGroup
from tacit.errors import TacitError
from tacit.privacy.ledger import StreamTerms

TERMS = StreamTerms(name="scans", budget=Budget(epsilon=1.0, delta=1e-5))
COMMANDS = [command.name or "" for command in app.registered_commands]


def test_version_and_help() -> None:
    assert CliRunner().invoke(app, ["--version"]).output.strip() == "0.1.0"
    shown = CliRunner().invoke(app, ["--help"]).output
    assert all(name in shown for name in (*COMMANDS, *GROUPS)) and "--install-completion" in shown


@pytest.mark.parametrize("name", GROUPS)
def test_every_group_and_command_has_help(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0 and "Usage" in result.output
    for command in GROUPS[name].registered_commands:
        assert command.name and command.callback is not None and command.callback.__doc__, command.name
        assert CliRunner().invoke(app, [name, command.name, "--help"]).exit_code == 0


def test_the_commands_without_a_group() -> None:
    assert COMMANDS == ["run", "sweep", "predict", "report", "plot", "track", "presets", "reproduce", "tune", "attack"]
    for name in COMMANDS:
        assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0


def test_exit_codes() -> None:
    assert CliRunner().invoke(app, ["nonsense"]).exit_code == 2
    assert CliRunner().invoke(app, ["ledger", "show"], env={"TACIT_LEDGER": ""}).exit_code == 2
    assert CliRunner().invoke(app, ["ledger", "show", "--ledger", "/nowhere/at/all"]).exit_code == 1


def test_an_error_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    small = typer.Typer(cls=CommandGroup)

    @small.command()
    def draw() -> None:
        raise TacitError("drawing needs matplotlib; pip install 'tacit[plots]'")

    @small.command()
    def other() -> None: ...

    with pytest.raises(SystemExit) as stopped:
        small(["draw"])
    assert stopped.value.code == 1
    assert capsys.readouterr().err == "error: drawing needs matplotlib; pip install 'tacit[plots]'\n"


def test_the_command_starts_without_what_it_does_not_need() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from tacit.cli import app; "
        "print(CliRunner().invoke(app, ['--help']).exit_code, "
        "[name for name in ('torch', 'numpy', 'scipy', 'dp_accounting', 'sqlalchemy', 'altair', 'jinja2', "
        "'vl_convert') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split(maxsplit=1) == ["0", "[]\n"], done.stderr


START = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
class Interrupted:
    def find_spec(self, name, *_):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupted())
sys.argv = ["tacit", *{words!r}]
from tacit.__main__ import main
main()
"""


@pytest.mark.parametrize(
    "name", ["typer", "tacit.commands.privacy.keys_commands", "torch", "tacit.experiment.runs.runner"]
)
def test_ctrl_c_while_it_is_loaded_is_one_line(name: str, tmp_path: Path) -> None:
    code = START.format(name=name, words=["run", "quickstart", "--out", str(tmp_path / "r")])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "stopped; nothing was charged by this call\n" and done.stdout == ""
    assert done.returncode in (130, -signal.SIGINT)  # a shell says 130 for both
    assert not (tmp_path / "r").exists()


def test_ctrl_c_says_nothing_was_charged_only_while_that_is_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charge_flag, "_written", False)
    with Ledger.throwaway() as book:
        book.stream(replace(TERMS, public=True))
    assert interrupted_message() == "stopped; nothing was charged by this call"
    with Ledger(tmp_path / "l") as book:
        assert interrupted_message() == "stopped; nothing was charged by this call"
        book.stream(TERMS)
    assert interrupted_message().startswith("stopped; what was charged stays charged")

    def pressed() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tacit.experiment.config.loading.presets", pressed)
    result = CliRunner().invoke(app, ["presets"])
    assert result.exit_code == 130 and result.stderr == interrupted_message() + "\n"


def test_tab_completion_knows_the_commands() -> None:
    asked = {"_TACIT_COMPLETE": "complete_bash", "COMP_WORDS": "tacit ", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-m", "tacit"], capture_output=True, text=True, env=os.environ | asked)
    assert {*COMMANDS, *GROUPS} <= set(done.stdout.split()), done.stderr
