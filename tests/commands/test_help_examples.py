"""The examples in help texts are valid: commands and options exist, and the configurations of presets load."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from tacit.cli import app
from tacit.commands.arguments import load_base_config, load_config, load_sweep, settings_from_options
from tacit.experiment.config.loading import preset_names

ROOT: Any = typer.main.get_command(app)


def commands(command: Any) -> Iterator[Any]:
    """All commands without subcommands."""
    for inner in getattr(command, "commands", {}).values():
        yield from commands(inner) if hasattr(inner, "commands") else [inner]


EXAMPLES = sorted(
    {line.strip() for one in commands(ROOT) for line in one.help.splitlines() if line.strip().startswith("tacit ")}
)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 20


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_valid(example: str) -> None:
    _, *words = shlex.split(example)
    command = ROOT
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    given = command.make_context(command.name, words).params  # refuses unknown options and wrong values
    target, sets = given.get("target"), given.get("sets")
    if target not in preset_names():
        return
    if command.name == "sweep":
        load_sweep(target, given["grid"] or [], sets or [])
    elif command.name in ("run", "tune"):
        settings = settings_from_options(sets, given["method"], given["epsilon"], given["seeds"])
        (load_base_config if command.name == "tune" else load_config)(target, settings)
