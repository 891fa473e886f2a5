"""The hooks of MkDocs: generated pages, links into the repository, executed tutorials."""

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
for place in (ROOT, ROOT / "src"):
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))

import nbformat  # noqa: E402
from mkdocs.config.defaults import MkDocsConfig  # noqa: E402
from mkdocs.exceptions import PluginError  # noqa: E402
from mkdocs.structure.files import File, Files  # noqa: E402

from site_builder import learner_pages, notebooks, reference  # noqa: E402
from site_builder.repository import Repository, everything_linked  # noqa: E402

SHOWN = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Files beside docs/ that the navigation names, whether or not a page links to them."""


def generated() -> dict[str, str]:
    """All generated pages but those of tutorials and files of the repository."""
    return {**reference.api_pages(), **reference.command_pages(), **learner_pages.pages()}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fills in the parts of the navigation that are generated: an entry whose page ends with `/`.

    Args:
        config: The configuration; the pages are kept in it for `on_files`.

    Returns:
        The same.
    """
    config.extra["generated"] = generated()
    config.nav = _filled(config.nav, list(config.extra["generated"]))
    return config


def _filled(entries: Any, pages: list[str]) -> Any:
    if isinstance(entries, list):
        made = []
        for entry in entries:
            if isinstance(entry, str) and entry.endswith("/"):
                made += [page for page in pages if page.startswith(entry)]
            else:
                made.append(_filled(entry, pages))
        return made
    if isinstance(entries, dict):
        return {title: _filled(inside, pages) for title, inside in entries.items()}
    return entries


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages, the tutorials, and the files of the repository that pages link to.

    Args:
        files: The files of docs/.
        config: The configuration.

    Returns:
        All files of the site.
    """
    repository = Repository(linked=set(SHOWN))
    for path, text in config.extra.pop("generated").items():
        files.append(File.generated(config, path, content=text))
    try:
        executed = notebooks.executed(notebooks.sources())
    except notebooks.CellError as error:
        raise PluginError(str(error)) from None
    for name, notebook in executed.items():
        files.append(File.generated(config, f"tutorials/{name}.md", content=notebooks.page(name, notebook)))
        written = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
        files.append(File.generated(config, f"tutorials/{name}.ipynb", content=written))
    everything_linked(repository, [(file.content_string, _path(file)) for file in files.documentation_pages()])
    for path in sorted(repository.linked):
        text = repository.content(path)
        files.append(File.generated(config, repository.page(path), content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Links to files of the repository become links to pages of the site.

    Args:
        markdown: The page.
        page: What MkDocs knows about it.
        config: The configuration.
        files: All files of the site.

    Returns:
        The page with its links changed.
    """
    if page.file.src_uri.startswith("repo/"):
        return markdown  # done when it was made
    return Repository().rewritten(markdown, _path(page.file))


def _path(file: File) -> str:
    """The place in the repository that a page's links start from."""
    return f"docs/{file.src_uri}"
