"""Files of the repository as pages of the site, and links to them.

Pages of docs/ and the Markdown files beside it link to each other, to sources and to folders, as on a code host.
In the site a file outside docs/ is the page `repo/<path>`, which is made if some page links to it.
"""

import ast
import posixpath
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^ *(```|~~~)")
LINK = re.compile(r"(!?\[(?:[^\[\]`]|`[^`\n]*`|\[[^\]]*\])*\]\()<?([^)\s>]+)>?(\))")
LANGUAGES = {
    ".py": "python",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
    ".sh": "sh",
    ".txt": "text",
    ".cff": "yaml",
}


@dataclass(kw_only=True)
class Repository:
    """The files of a repository that pages of the site link to.

    Attributes:
        root: The repository.
        linked: Paths of files and folders outside docs/ that a page links to.
    """

    root: Path = ROOT
    linked: set[str] = field(default_factory=set)

    def page(self, path: str) -> str:
        """The source page in the site of a path of the repository."""
        if (self.root / path).is_dir():
            index = f"{path.removeprefix('docs').removeprefix('/')}/index.md".removeprefix("/")
            return (
                index if (self.root / "docs" / index).exists() and path.startswith("docs") else f"repo/{path}/index.md"
            )
        if path.startswith("docs/"):
            shown = path.endswith((".md", ".png", ".svg"))
            return path.removeprefix("docs/") if shown else f"repo/{path}.md"
        folder, name = posixpath.split(path)
        stem = name.removesuffix(".md").lower() if name.endswith(".md") else name
        return posixpath.join("repo", folder, f"{stem}.md")

    def instead(self, words: str, path: str) -> str | None:
        """The generated page that a link to a source means in the site.

        Args:
            words: The text of the link.
            path: Where it leads in the repository.

        Returns:
            The page of a tutorial, of the learner that the words name, of the learners, or of a package's API.
        """
        if path.startswith("docs/tutorials/") and path.endswith(".py"):
            return f"tutorials/{Path(path).stem}.md"
        if path == "src/tacit/learners":
            return "learners/index.md"
        name = words.strip("`")
        if path.startswith("src/tacit/learners/") and re.search(rf"^class {re.escape(name)}\(", self._text(path), re.M):
            return f"learners/{name}.md"
        room = re.fullmatch(r"src/tacit/(\w+)/__init__\.py", path)
        return f"api/{room[1]}.md" if room else None

    def _text(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8") if path.endswith(".py") else ""

    def rewritten(self, text: str, path: str) -> str:
        """A page whose links lead to pages of the site.

        Args:
            text: Its Markdown.
            path: Its path in the repository.

        Returns:
            The same with other links to files of the repository; what is no link, or leads elsewhere, stays.
        """
        here = posixpath.dirname(self.page(path))

        def moved(found: re.Match[str]) -> str:
            target, _, section = found[2].partition("#")
            if not target or "://" in target or target.startswith(("mailto:", "/")):
                return found[0]
            full = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            if full.startswith("..") or not (self.root / full).exists():
                return found[0]
            site = self.instead(found[1][1:].removesuffix("]("), full) or self.page(full)
            if site == self.page(path):
                return found[0]
            if site.startswith("repo/"):
                self.linked.add(full)
            link = posixpath.relpath(site, here or ".")
            return f"{found[1]}{link}{'#' + section if section else ''}{found[3]}"

        return outside_code(text, lambda line: LINK.sub(moved, line))

    def content(self, path: str) -> str:
        """The Markdown of a linked file or folder: Markdown as it is, a source with its lines, a folder as a list."""
        place = self.root / path
        if place.is_dir():
            return self._folder(path)
        text = place.read_text(encoding="utf-8")
        if path.endswith(".md"):
            return self.rewritten(text, path)
        fence = "`" * (max((len(run) for run in re.findall(r"`{3,}", text)), default=2) + 1)
        language = LANGUAGES.get(place.suffix, "text")
        return (
            f"---\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n# `{path}`\n\n"
            f'{fence} {{ .{language} linenums="1" }}\n{text.rstrip()}\n{fence}\n'
        )

    def _folder(self, path: str) -> str:
        lines = [f"---\nsearch:\n  exclude: true\n---\n# `{path}/`\n", "| file | what it is |", "|---|---|"]
        for file in sorted((self.root / path).iterdir()):
            if file.name.startswith((".", "__pycache__")) or (file.is_dir() and not any(file.glob("*.*"))):
                continue
            full = f"{path}/{file.name}"
            name = f"`{file.name}{'/' if file.is_dir() else ''}`"
            page = self.page(full)
            made = full in self.linked or not page.startswith("repo/")
            shown = f"[{name}]({posixpath.relpath(page, f'repo/{path}')})" if made else name
            lines.append(f"| {shown} | {_about(file)} |")
        return "\n".join(lines) + "\n"


def _about(file: Path) -> str:
    """The first line of a module's docstring."""
    module = file / "__init__.py" if file.is_dir() else file
    if module.suffix != ".py" or not module.exists():
        return ""
    first = (ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or "").partition("\n")[0]
    return first.replace("|", r"\|").replace("<", "&lt;")


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """A page with every line changed that is not in a fenced block; links inside `code` stay.

    Args:
        text: Markdown.
        change: What becomes of a line.

    Returns:
        The changed page.
    """
    lines, fence = [], ""
    for line in text.split("\n"):
        found = FENCE.match(line)
        if found and not fence:
            fence = found[1]
        elif found and found[1] == fence:
            fence = ""
        elif not fence:
            line = change(line)
        lines.append(line)
    return "\n".join(lines)


def everything_linked(repository: Repository, pages: Iterable[tuple[str, str]]) -> None:
    """Find all files that pages link to, and those that linked Markdown files link to in turn.

    Args:
        repository: Its `linked` has them then.
        pages: Text and path of the pages to begin with.
    """
    for text, path in pages:
        repository.rewritten(text, path)
    read: set[str] = set()
    while waiting := {path for path in repository.linked - read if path.endswith(".md")}:
        for path in waiting:
            repository.rewritten((repository.root / path).read_text(encoding="utf-8"), path)
        read |= waiting
