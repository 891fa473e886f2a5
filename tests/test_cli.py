"""The command as a whole: its groups, help, completion and exit codes; and that it starts without torch."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tacit.cli import GROUPS, app
from tacit.commands._shared import sentences
from tacit.errors import TacitError

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
    assert COMMANDS == ["run", "sweep", "presets", "tune", "attack"]
    for name in COMMANDS:
        assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0


def test_exit_codes() -> None:
    assert CliRunner().invoke(app, ["nonsense"]).exit_code == 2
    assert CliRunner().invoke(app, ["ledger", "show"], env={"TACIT_LEDGER": ""}).exit_code == 2
    assert CliRunner().invoke(app, ["ledger", "show", "--ledger", "/nowhere/at/all"]).exit_code == 1


def test_an_error_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BaseException) as stopped, sentences():
        raise TacitError("drawing needs matplotlib; pip install 'tacit[plots]'")
    assert getattr(stopped.value, "exit_code", None) == 1
    assert capsys.readouterr().err == "error: drawing needs matplotlib; pip install 'tacit[plots]'\n"


def test_the_command_starts_without_what_it_does_not_need() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from tacit.cli import app; "
        "print(CliRunner().invoke(app, ['--help']).exit_code, "
        "[name for name in ('torch', 'numpy', 'scipy', 'dp_accounting', 'sqlalchemy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split(maxsplit=1) == ["0", "[]\n"], done.stderr


def test_tab_completion_knows_the_commands() -> None:
    asked = {"_TACIT_COMPLETE": "complete_bash", "COMP_WORDS": "tacit ", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-m", "tacit"], capture_output=True, text=True, env=os.environ | asked)
    assert {*COMMANDS, *GROUPS} <= set(done.stdout.split()), done.stderr
