"""Docstrings and ARCHITECTURE.md name parameters, modules and members that exist."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from support.import_graph import FILES, ROOT

PAGE = Path(__file__).parent.parent / "ARCHITECTURE.md"
Function = ast.FunctionDef | ast.AsyncFunctionDef


def documented(docstring: str) -> list[str]:
    """The names under `Args:`."""
    _, found, rest = inspect.cleandoc(docstring).partition("\nArgs:\n")
    section = rest.split("\n\n")[0] if found else ""
    return re.findall(r"^    \*{0,2}(\w+)(?:, \w+)*:", section, re.M)


def parameters(node: Function | ast.ClassDef) -> set[str] | None:
    """The parameters of a function, or of a class that defines `__init__`; None for other classes."""
    if isinstance(node, ast.ClassDef):
        made = [one for one in node.body if isinstance(one, Function) and one.name == "__init__"]
        return parameters(made[0]) if made else None
    every = node.args
    lists = (*every.posonlyargs, *every.args, *every.kwonlyargs, *filter(None, (every.vararg, every.kwarg)))
    return {one.arg for one in lists}


def docstrings() -> Iterator[tuple[str, ast.AST, str]]:
    for module, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, Function | ast.ClassDef | ast.Module) and (text := ast.get_docstring(node)):
                yield module, node, text


def test_documented_parameters_exist() -> None:
    seen = 0
    for module, node, text in docstrings():
        if isinstance(node, Function | ast.ClassDef) and (known := parameters(node)) is not None:
            names = documented(text)
            seen += len(names)
            assert set(names) <= known, f"{module}.{node.name} documents {sorted(set(names) - known)}"
    assert seen > 500


def test_modules_that_docstrings_name_exist() -> None:
    """Such as `finite_and_endless.EndlessLoop`: a module of tacit, and a class of it."""
    classes = {path.stem: set(re.findall(r"^class (\w+)", path.read_text(), re.M)) for path in FILES.values()}
    seen = 0
    for module, _, text in docstrings():
        for room, stem, name in re.findall(r"`((?:\w+\.)*)([a-z]\w*)\.([A-Z]\w+)`", text):
            if room.split(".")[0] in ("torch", "nn", "np", "scipy") or stem in ("torch", "nn", "np", "data"):
                continue
            seen += 1
            assert name in classes.get(stem, ()), f"{module} names {room}{stem}.{name}"
    assert seen


def test_architecture_names_members_that_exist() -> None:
    sources = "\n".join(path.read_text() for path in FILES.values())
    text = PAGE.read_text()
    for file in re.findall(r"\]\((src/[^)#]+)\)", text):
        assert (ROOT.parent.parent / file).exists(), file
    members = re.findall(r"`([A-Z]\w+)\.(\w+)`", text)
    assert len(members) > 5
    for owner, member in members:
        assert f"class {owner}" in sources, owner
        assert re.search(rf"def {member}\b|^    {member}:", sources, re.M), f"{owner}.{member}"
