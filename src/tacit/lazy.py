"""Imports the public names of a package on first use.

A package's `__init__.py` imports its public names under `if TYPE_CHECKING:`, where type checkers and readers find them,
and `attach` performs the same imports at run time when a name is first used. Importing the package is then instant:
`import tacit` and `tacit --help` import neither torch nor the accountants.
"""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the `__getattr__` and `__dir__` of a package whose public names are imported on first use.

    A public name must differ from the names of the package's own modules, because importing a module sets it as an
    attribute of the package.

    Args:
        package: The package's `__name__`.
        file: The package's `__file__`, whose `if TYPE_CHECKING:` block names the imports.
    """
    homes = {
        alias.name: node.module
        for block in ast.parse(Path(file).read_text(encoding="utf-8")).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return __getattr__, __dir__
