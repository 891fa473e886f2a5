"""Tutorials: Python files with cells (`# %%`), executed as notebooks when the site is built.

Git holds no output. A cell that fails, or takes longer than a minute, fails the build. Executed notebooks are kept in
build/tutorials under a hash of the tutorial and of the package, so that a build without changes runs none again.
"""

import base64
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
CACHE = ROOT / "build" / "tutorials"
SECONDS = 600
"""The most that one cell may take, on a machine that does other things as well."""


class CellError(Exception):
    """A cell of a tutorial failed."""


def sources(folder: Path = TUTORIALS) -> list[Path]:
    """The tutorials, as Python files with cells."""
    return sorted(folder.glob("*.py"))


def executed(files: list[Path], cache: Path = CACHE) -> dict[str, Any]:
    """Run tutorials, two at a time, each in an empty folder of its own.

    Args:
        files: Python files with cells.
        cache: Where executed notebooks are kept.

    Returns:
        The notebooks with their outputs, by the name of the file.

    Raises:
        CellError: A cell failed.
    """
    with ThreadPoolExecutor(2) as pool:
        return dict(zip([file.stem for file in files], pool.map(lambda file: _one(file, cache), files), strict=True))


def _one(file: Path, cache: Path) -> Any:
    import jupytext
    import nbformat
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    kept = cache / f"{file.stem}-{_state(file)}.ipynb"
    if kept.exists():
        return nbformat.read(kept, as_version=4)  # type: ignore[no-untyped-call]
    notebook = jupytext.read(file)
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    written = [cell.source for cell in notebook.cells]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source = _checked(cell.source, fails="fails" in cell.metadata.get("tags", []))
    with tempfile.TemporaryDirectory(prefix="tacit-") as place:
        folder = Path(place) / "work"
        folder.mkdir()
        kernel = AsyncKernelManager(transport="ipc", ip=f"{place}/kernel", kernel_name="python3")  # no open port
        client = NotebookClient(notebook, km=kernel, timeout=SECONDS, resources={"metadata": {"path": str(folder)}})
        try:
            client.execute(env=_environment(Path(place)), cleanup_kc=True)  # the kernel ends, too
        except (CellExecutionError, CellTimeoutError) as error:
            raise CellError(f"a cell of {file.name} failed: {error}") from error
    for cell, source in zip(notebook.cells, written, strict=True):
        cell.source = source
    cache.mkdir(parents=True, exist_ok=True)
    for old in cache.glob(f"{file.stem}-*.ipynb"):
        old.unlink(missing_ok=True)
    nbformat.write(notebook, kept)  # type: ignore[no-untyped-call]
    return notebook


def _checked(source: str, *, fails: bool) -> str:
    """A cell whose commands (`!tacit …`) have to succeed; of a cell with the tag `fails`, to fail."""
    test = f"assert (_exit_code != 0) is {fails}, f'exit code {{_exit_code}}'"
    return "\n".join(f"{line}\n{test}" if line.startswith("!") else line for line in source.splitlines())


def _environment(place: Path) -> dict[str, str]:
    """The environment of a kernel: an empty state folder, this tacit as a command, plain output of a fixed width."""
    (place / "bin").mkdir()
    command = place / "bin" / "tacit"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tacit "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name not in ("TACIT_LEDGER", "TACIT_DATA")}
    return kept | {
        "TACIT_STATE": str(place / "state"),
        "PATH": os.pathsep.join([str(command.parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        "NO_COLOR": "1",
        "COLUMNS": "100",
        "TERM": "dumb",
        "OMP_NUM_THREADS": "1",  # two tutorials at a time, on machines with two cores
        "OMP_WAIT_POLICY": "PASSIVE",
    }


def _state(file: Path) -> str:
    """A hash of a tutorial, of this file and of the package."""
    digest = hashlib.sha256(file.read_bytes() + Path(__file__).read_bytes())
    for source in sorted((ROOT / "src" / "tacit").rglob("*")):
        if source.is_file() and source.suffix in (".py", ".yaml", ".html", ".js", ".css"):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def page(name: str, notebook: Any) -> str:
    """An executed notebook as a page: text, code, and what it printed.

    Args:
        name: The file's name, for the links to the source and to the notebook.
        notebook: The executed notebook.

    Returns:
        Markdown.
    """
    parts = []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            title, _, rest = cell.source.partition("\n") if number == 0 else ("", "", cell.source)
            if title:
                parts += [title, f"[Notebook]({name}.ipynb){{ .md-button }} [Python file]({name}.py){{ .md-button }}"]
            parts.append(rest.strip())
        elif cell.cell_type == "code" and cell.source.strip():
            parts.append(f"```python\n{cell.source}\n```")
            parts += _outputs(cell.outputs)
    return "\n\n".join(parts) + "\n"


def _outputs(outputs: list[Any]) -> Iterator[str]:
    text = ""
    for output in outputs:
        if output.output_type == "stream":
            text += output.text
            continue
        data = output.data
        if "image/png" in data:
            picture = "".join(data["image/png"].split())
            base64.b64decode(picture, validate=True)
            yield f"![what the cell draws](data:image/png;base64,{picture})"
        elif "text/html" in data and "text/plain" not in data:
            yield str(data["text/html"])
        else:
            text += data["text/plain"] + "\n"
    if text.strip():
        plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).replace("\r\n", "\n").replace("\r", "\n").strip("\n")
        plain = "\n".join(line.rstrip() for line in plain.splitlines())
        fence = "`" * max(3, max((len(run) + 1 for run in re.findall(r"`{3,}", plain)), default=3))
        yield f'{fence} {{ .text .output title="Output" }}\n{plain}\n{fence}'
