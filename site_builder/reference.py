"""Pages of the API, from docstrings, and of the command line, from its help texts."""

import ast
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tacit"
MODULES = ("metrics", "errors")
"""Modules without `__all__` whose public functions and classes are all shown."""
FIRST = ("privacy", "data", "learners", "experiment", "certificate")
"""The rooms that most programs need; the others follow by name."""
COMMAND = re.compile(r"^(tacit [\w-]|export TACIT)")


def exported(module: Path) -> list[str]:
    """The names in `__all__` of a module, or none."""
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def rooms() -> list[str]:
    """The subpackages that export names."""
    found = sorted(folder.parent.name for folder in PACKAGE.glob("*/__init__.py") if exported(folder))
    return [*(room for room in FIRST if room in found), *(room for room in found if room not in FIRST)]


def api_pages() -> dict[str, str]:
    """The pages of the API by their place in the site: an overview, one page for each room, and two modules.

    Returns:
        Markdown with directives of mkdocstrings.
    """
    pages = {"api/index.md": _overview()}
    for room in rooms():
        module = PACKAGE / room / "__init__.py"
        names = exported(module)
        about = _docstring(module)
        shown = "\n\n".join(f"::: tacit.{room}.{name}" for name in names)
        pages[f"api/{room}.md"] = f"# tacit.{room}\n\n{about}\n\n{shown}\n"
    for name in MODULES:
        options = (
            "    options:\n      show_root_heading: false\n      show_root_toc_entry: false\n      heading_level: 2\n"
        )
        options += "      show_docstring_description: true\n"
        pages[f"api/{name}.md"] = f"# tacit.{name}\n\n::: tacit.{name}\n{options}"
    return pages


def _overview() -> str:
    lines = [
        "# API\n",
        "Every public name is exported by a package: `from tacit.privacy import Vault`. Those most programs need",
        "are also in `tacit` itself, and are imported on first use:\n",
        "| name | package | what it is |",
        "|---|---|---|",
    ]
    homes = {name: room for room in reversed(rooms()) for name in exported(PACKAGE / room / "__init__.py")}
    for name in exported(PACKAGE / "__init__.py"):
        room = homes[name]
        lines.append(f"| [`{name}`]({room}.md#tacit.{room}.{name}) | `tacit.{room}` | {_first_line(name)} |")
    lines += ["", "| package | contents |", "|---|---|"]
    for room in rooms():
        about = _docstring(PACKAGE / room / "__init__.py").partition("\n")[0]
        lines.append(f"| [`tacit.{room}`]({room}.md) | {_cell(about)} |")
    for name in MODULES:
        about = _docstring(PACKAGE / f"{name}.py").partition("\n")[0]
        lines.append(f"| [`tacit.{name}`]({name}.md) | {_cell(about)} |")
    return "\n".join(lines) + "\n"


def _first_line(name: str) -> str:
    """The first line of the docstring of a public class or function."""
    import tacit

    return _cell((getattr(tacit, name).__doc__ or "").strip().partition("\n")[0])


def _docstring(module: Path) -> str:
    return ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""


def _cell(text: str) -> str:
    """Text for a cell of a table; outside code, bars and what looks like HTML are shown as text. In code they are."""
    parts = text.split("`")
    return "`".join(
        part.replace("|", r"\|").replace("<", "&lt;") if number % 2 == 0 else part for number, part in enumerate(parts)
    )


def command_pages() -> dict[str, str]:
    """The pages of the command line by their place in the site: an overview, and one page for each command or group.

    Returns:
        Markdown.
    """
    import typer.main

    from tacit.cli import app

    root: Any = typer.main.get_command(app)
    lines = [
        "# Commands\n",
        "`tacit COMMAND --help` prints the same. Exit codes: 0 success, 1 an error, 2 wrong usage, 3 an unexpected",
        "error in tacit itself, 130 stopped by Ctrl-C.\n",
        "| command | what it does |",
        "|---|---|",
    ]
    pages = {}
    for name, command in root.commands.items():
        lines.append(f"| [`tacit {name}`]({name}.md) | {_cell(_about(command))} |")
        pages[f"commands/{name}.md"] = _command(command, f"tacit {name}", 1)
    return {"commands/index.md": "\n".join(lines) + "\n", **pages}


def _about(command: Any) -> str:
    return str(command.help or "").strip().partition("\n\n")[0].replace("\n", " ")


def _command(command: Any, called: str, level: int) -> str:
    """A command with its subcommands."""
    parts = [f"{'#' * level} `{called}`", _help(str(command.help or ""))]
    inner = getattr(command, "commands", None)
    if inner:
        parts += [_command(one, f"{called} {name}", level + 1) for name, one in inner.items()]
    else:
        parts += _parameters(command)
    return "\n\n".join(parts) + "\n"


def _help(text: str) -> str:
    """A help text: commands as a block of code, everything else as text."""
    parts: list[str] = []
    for paragraph in text.replace("\b", "").split("\n\n"):
        lines = [line.strip() for line in paragraph.strip().splitlines()]
        if lines and all(COMMAND.match(line) for line in lines):
            parts.append("```sh\n" + "\n".join(lines) + "\n```")
        elif lines:
            parts.append("\n".join(line.replace("<", "&lt;").replace("*", r"\*") for line in lines))
    return "\n\n".join(parts)


def _parameters(command: Any) -> list[str]:
    """Tables of a command's arguments and options."""
    arguments, options = [], []
    for parameter in command.params:
        if parameter.name == "help" or getattr(parameter, "hidden", False):
            continue
        about = _cell(str(getattr(parameter, "help", "") or "")).replace("*", r"\*")
        default = parameter.default
        if parameter.param_type_name == "argument":
            arguments.append(f"| `{_value(parameter)}` | {about} |")
            continue
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        value = "" if parameter.is_flag else f" `{_value(parameter)}`"
        if default not in (None, "", (), [], False) and not callable(default) and not parameter.is_flag:
            about += f" Default: `{getattr(default, 'value', default)}`."
        if parameter.envvar:
            about += f" Environment: `{parameter.envvar}`."
        options.append(f"| {names}{value} | {about} |")
    tables = []
    if arguments:
        tables.append("\n".join(["| argument | |", "|---|---|", *arguments]))
    if options:
        tables.append("\n".join(["| option | |", "|---|---|", *options]))
    return tables


def _value(parameter: Any) -> str:
    """What stands for the value of an option or argument."""
    if parameter.metavar:
        return str(parameter.metavar)
    kind = parameter.type_descriptor.annotation
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper()
    return {int: "N", float: "X", str: "TEXT"}.get(kind, str(getattr(kind, "__name__", "TEXT")).upper())
