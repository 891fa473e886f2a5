"""A page for each learner: its guarantee and sharp edges from docstrings, its figures from docs/figures.yaml."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from site_builder.figures import Benchmark, epsilon_words, load, spread_words, table
from site_builder.repository import ROOT

PART = re.compile(r"^(Reference|Claim[^:\n]*|Certified[^:\n]*|Sharp edges):\s*", re.MULTILINE)
VERBATIM = re.compile(r"tacit\.$|\w+=")
"""What keeps its small letter at the beginning of a sentence: the name, and settings."""
FAMILIES = {
    "experts": "One private model for each task",
    "closed_form": "Noisy sums: one pass, no training",
    "replay": "A memory of records, read with noise",
    "pool": "Learners in turn",
    "adaptive": "Noise or records chosen on the way",
    "baselines": "Bounds to compare with",
    "published": "The papers' methods as published: not private",
}
REPRODUCTION = "../reproduction.md"


@dataclass(frozen=True, kw_only=True)
class Words:
    """The parts of a learner's docstring.

    Attributes:
        about: What it is.
        reference: Where the method is from.
        claim: The paper's claim.
        certified: What tacit certifies, in words.
        edges: Where it fails, or asks for care; nothing where the docstring has none.
    """

    about: str
    reference: str
    claim: str
    certified: str
    edges: str


def words(learner: type) -> Words:
    """The parts of a learner's docstring.

    Args:
        learner: The class.

    Returns:
        Its parts.

    Raises:
        ValueError: One of them is missing.
    """
    text = inspect.cleandoc(learner.__doc__ or "")
    found = list(PART.finditer(text))
    parts = {"about": text[: found[0].start()].strip() if found else text}
    for one, following in zip(found, [*found[1:], None], strict=False):
        body = text[one.end() : following.start() if following else None].strip()
        name, _, more = one[1].partition(" ")
        if one[1] == "Sharp edges":
            name, more = "edges", ""
        said = f"{more.strip('(), ')}: {body}" if more else body
        parts[name.lower().strip(",")] = said if VERBATIM.match(said) else said[0].upper() + said[1:]
    missing = {"about", "reference", "claim", "certified", "edges"} - set(parts)
    if missing:
        raise ValueError(f"the docstring of {learner.__name__} has no part {', '.join(sorted(missing))}")
    return Words(**parts)


def classes() -> dict[str, type[Any]]:
    """The learners of tacit by name, in the order of the families."""
    from tacit.learners import LEARNERS, find

    order = list(FAMILIES)
    names = sorted(LEARNERS, key=lambda name: (order.index(LEARNERS[name].partition(".")[0]), name.lower()))
    return {name: find(name) for name in names}


def family(learner: type) -> str:
    """The folder of a learner, which says what family it is of."""
    return learner.__module__.split(".")[2]


def pages() -> dict[str, str]:
    """The pages of all learners and their overview, by their place in the site."""
    benchmarks = load()
    known = classes()
    made = {"learners/index.md": _overview(known, benchmarks)}
    for name, learner in known.items():
        made[f"learners/{name}.md"] = _page(name, learner, benchmarks)
    return made


def _overview(known: dict[str, type[Any]], benchmarks: tuple[Benchmark, ...]) -> str:
    lines = [
        "# Learners\n",
        "Each learner is one class in one file. Its page has its guarantee, where it fails, what was measured and its",
        "settings. `tacit run … --method NAME` chooses one; the beginning of a name is enough (`--method moments`).\n",
        "## Which one?\n",
        "| you have | take |",
        "|---|---|",
        "| a pretrained backbone, or embeddings | [`MomentsClassifier`](MomentsClassifier.md), with nothing to tune |",
        "| no backbone, and tasks that look different | [`RoutedExperts`](RoutedExperts.md), the default |",
        "| hundreds of tasks, each read once | [`LifelongDP`](LifelongDP.md) |",
        "| a stream without a last task | [`Pool`](Pool.md), [`DPCL`](DPCL.md) or [`MeteredGD`](MeteredGD.md) |",
        "| one network of fixed size | [`DPER`](DPER.md) |",
        "| a paper's method to compare with | [`DPCL`](DPCL.md), [`CosineClassifier`](CosineClassifier.md), "
        "[`PEFTEnsemble`](PEFTEnsemble.md), … below |",
        "\n## All of them\n",
    ]
    for folder, title in FAMILIES.items():
        lines += [f"### {title}\n", "| learner | what it is | from | certified |", "|---|---|---|---|"]
        for name, learner in known.items():
            if family(learner) == folder:
                said = words(learner)
                bound = "**no finite ε**" if _no_bound(said) else learner.certifies
                about, reference = _cell(_first(said.about)), _line(said.reference).rstrip(".")
                lines.append(f"| [`{name}`]({name}.md) | {about} | {reference} | {_cell(bound)} |")
        lines.append("")
    lines.append("## Measured\n")
    lines.append(
        "From one file, [docs/figures.yaml](../figures.yaml), which a test compares with the tables of the "
        "[reproduction](../reproduction.md).\n"
    )
    for benchmark in benchmarks:
        lines += [
            f"### {benchmark.title}\n",
            f"{benchmark.setting[0].upper()}{benchmark.setting[1:]}. {spread_words(benchmark)}.",
        ]
        lines += [_source(benchmark) + "\n", table(benchmark, link="./")]
    return "\n".join(lines).replace("](./", "](") + "\n"


def _first(text: str) -> str:
    """The first sentence."""
    return " ".join(re.split(r"(?<=[.:;])\s", text, maxsplit=1)[0].split()).rstrip(".:;")


def _no_bound(said: Words) -> bool:
    return said.certified.lower().startswith("no finite")


def _page(name: str, learner: type[Any], benchmarks: tuple[Benchmark, ...]) -> str:
    said = words(learner)
    file = Path(inspect.getsourcefile(learner) or "").resolve().relative_to(ROOT)
    kind, title = ("danger", "Not private") if _no_bound(said) else ("success", "Certified")
    lines = [
        f"# {name}\n",
        f"{said.about}\n",
        f'!!! {kind} "{title}"\n',
        *(f"    {line}" for line in said.certified.splitlines()),
        "",
        "| | |",
        "|---|---|",
        f"| reference | {_line(said.reference)} |",
        f"| what its paper claims | {_line(said.claim)} |",
        f"| in a certificate | {_cell(learner.certifies)} |",
        f"| in Python | `from tacit.learners import {name}` ([API](../api/learners.md#tacit.learners.{name})) |",
        f"| on the command line | `tacit run quickstart --method {name}` |",
        f"| source | [{file}](../../{file}) |",
        "\n## Sharp edges\n",
        said.edges,
        "\n## Measured\n",
        *_measured(name, benchmarks),
        "## How it works\n",
        _algorithm(learner),
        "\n## Settings\n",
        *_settings(learner),
    ]
    return "\n".join(lines) + "\n"


def _measured(name: str, benchmarks: tuple[Benchmark, ...]) -> Iterator[str]:
    rows = [(b, f) for b in benchmarks for f in b.figures if f.learner == name]
    if not rows:
        yield f"Nothing was measured on a whole benchmark; see [what was not run]({REPRODUCTION}#not-run).\n"
        return
    yield "Average accuracy after the last task on test sets, in %; mean ± standard deviation over seeds.\n"
    yield "| benchmark | | ε | accuracy | seeds | repeat it | where |"
    yield "|---|---|---|---|---|---|---|"
    for benchmark, figure in rows:
        epsilon = epsilon_words(figure).removeprefix("ε = ")
        command = (
            f"`{figure.command}`" if figure.command.startswith("tacit") and "(" not in figure.command else "on the page"
        )
        yield (
            f"| {benchmark.title} | {figure.variant} | {epsilon} | **{figure.written()}** | {figure.seeds} | {command} "
            f"| [table](../{figure.page}) |"
        )
    yield ""
    yield (
        "Beside other learners: [all tables](index.md#measured). Settings, forgetting and what was not run: "
        f"[reproduction]({REPRODUCTION}).\n"
    )


def _source(benchmark: Benchmark) -> str:
    command = f"`{benchmark.command}`" if benchmark.command.startswith("tacit") and "(" not in benchmark.command else ""
    return f"{command + '; ' if command else ''}[table with settings and spreads](../{benchmark.page})."


def _algorithm(learner: type) -> str:
    """The docstring of the learner's file: the method as its paper prints it, with indented lines as code."""
    text = ast.get_docstring(ast.parse(Path(inspect.getsourcefile(learner) or "").read_text(encoding="utf-8"))) or ""
    made: list[str] = []
    code = False
    for line in text.splitlines():
        indented = line.startswith("    ")
        if indented and not code and not (made and made[-1].lstrip().startswith(("*", "-"))):
            made += ["", "```text"]
            code = True
        elif code and line.strip() and not indented:
            made += ["```", ""]
            code = False
        made.append(line[4:] if code and indented else line)
    return "\n".join([*made, "```"] if code else made)


def _settings(learner: type[Any]) -> Iterator[str]:
    """The learner's own settings as a table, and those that it inherits folded away."""
    given: dict[type, list[Field[Any]]] = {}
    for field in fields(learner):
        if field.name.startswith("_") or not field.init:
            continue
        owner = next(one for one in learner.__mro__ if field.name in vars(one).get("__annotations__", {}))
        given.setdefault(owner, []).append(field)
    own = given.pop(learner, [])
    yield "`--set learner.NAME=VALUE`, `learner:` of a configuration, or arguments of the class.\n"
    yield from _setting_rows(learner, own) if own else ["It has no settings of its own.\n"]
    for owner in sorted(given, key=learner.__mro__.index):
        yield f'??? note "from {owner.__name__}"\n'
        yield from (f"    {line}".rstrip() for line in _setting_rows(owner, given[owner], learner))


def _setting_rows(owner: type, settings: list[Field[Any]], learner: type | None = None) -> Iterator[str]:
    yield "| setting | default | meaning |"
    yield "|---|---|---|"
    for setting in settings:
        places = (learner or owner).__mro__
        about = next((said for one in places if (said := _attributes(one).get(setting.name))), "")
        default = setting.default if setting.default is not MISSING else None
        required = setting.default is MISSING and setting.default_factory is MISSING
        shown = "required" if required else f"`{_cell(repr(default))}`" if setting.default is not MISSING else ""
        yield f"| `{setting.name}` | {shown} | {_line(about)} |"
    yield ""


@cache
def _attributes(owner: type) -> dict[str, str]:
    """The docstrings that follow the fields of a class."""
    if not owner.__module__.startswith("tacit"):
        return {}
    tree = ast.parse(Path(inspect.getsourcefile(owner) or "").read_text(encoding="utf-8"))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner.__name__)
    found = {}
    for one, following in pairwise(body):
        if (
            isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            found[one.target.id] = str(following.value.value)
    return found


def _line(text: str) -> str:
    """Text of several lines in one cell."""
    return _cell(" ".join(text.split()))


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
