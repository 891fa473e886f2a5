"""The import graph of the package, read from its source files.

Every import statement counts, wherever it stands: at the top of a file, inside a function, or under `TYPE_CHECKING`.
"""

import ast
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import tacit

ROOT = Path(tacit.__file__).parent
Graph = Mapping[str, set[str]]


def _name(path: Path) -> str:
    parts = ("tacit", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {_name(path): path for path in sorted(ROOT.rglob("*.py"))}
"""Every module of the package and its file."""


def imports(module: str) -> set[str]:
    """The modules of the package that a module imports; `from tacit.data import stream` imports `tacit.data.stream`."""
    imported = set()
    for node in ast.walk(ast.parse(FILES[module].read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names if alias.name.split(".")[0] == "tacit"}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import on line {node.lineno}; write its full name"
            assert node.module is not None
            if node.module.split(".")[0] == "tacit":
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                imported |= {name if name in FILES else node.module for name in names}
    return imported - {module}


MODULES: Graph = {module: imports(module) for module in FILES}


def is_package(module: str) -> bool:
    return FILES[module].name == "__init__.py"


def room(module: str) -> str:
    """The part of the package directly below `tacit`: a folder or a file. The package's own `__init__` is `tacit`."""
    return module if module == "tacit" else module.split(".")[1]


def folder(module: str) -> str:
    """What a module is counted with: the other files of its folder.

    A folder's `__init__` exports names of the files below it, so it is counted by itself: a file that imports the
    `__init__` above it makes a cycle. Files directly below `tacit` are rooms by themselves.
    """
    if is_package(module):
        return f"{module}.__init__"
    parent = module.rpartition(".")[0]
    return module if parent == "tacit" else parent


def grouped(group: Mapping[str, str]) -> Graph:
    """The graph between groups of modules, where `group` gives the group of each."""
    edges: dict[str, set[str]] = {name: set() for name in group.values()}
    for module, imported in MODULES.items():
        edges[group[module]] |= {group[other] for other in imported} - {group[module]}
    return edges


def cycle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """A cycle of the graph, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []
