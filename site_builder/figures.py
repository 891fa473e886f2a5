"""The figures of docs/figures.yaml: checked against the tables of docs/, rendered into README.md and the site.

python -m site_builder.figures check | take | render
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from site_builder.tables import cell

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "figures.yaml"
README = ROOT / "README.md"
GUARANTEES = ("certified", "claimed", "none")
SEEDS = re.compile(r"\((\d+)(?: seeds?)?\)|\((\d+) seeds?[;)]")
BLOCK = re.compile(r"(<!-- figures:([\w-]+) -->\n)(.*?)(<!-- /figures -->)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """An average accuracy of a learner.

    Attributes:
        table: The name of its benchmark in docs/figures.yaml.
        learner: The class.
        variant: What distinguishes it from other rows of the learner, or nothing.
        epsilon: ε, None without privacy.
        guarantee: certified, claimed (by the paper only) or none.
        mean: In %.
        std: Over seeds; None of one seed, or where none is given.
        seeds: The number of seeds.
        command: What repeats it.
        page: The page in docs/ that has it.
        section: The heading of its section there.
        at: The row and the column of its cell.
    """

    table: str
    learner: str
    variant: str
    epsilon: float | None
    guarantee: str
    mean: float | None
    std: float | None
    seeds: int
    command: str
    page: str
    section: str
    at: tuple[str, str]

    def written(self) -> str:
        """The mean and its spread, as in the tables."""
        return f"{self.mean}" if self.std is None else f"{self.mean} ± {self.std}"

    def cell(self, docs: Path = ROOT / "docs") -> str:
        """The text of the cell that it is written in."""
        return cell(docs / self.page, self.section, *self.at)


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Figures that can be compared.

    Attributes:
        name: Its name in docs/figures.yaml, and in the marks of README.md.
        title: One line.
        setting: What is the same for all of them.
        command: What repeats them.
        page: The page in docs/ with their context.
        figures: The figures.
    """

    name: str
    title: str
    setting: str
    command: str
    page: str
    figures: tuple[Figure, ...]


def load(file: Path = FILE) -> tuple[Benchmark, ...]:
    """The benchmarks of a file of figures.

    Args:
        file: docs/figures.yaml, or another one like it.

    Returns:
        The benchmarks in the file's order.
    """
    read = yaml.safe_load(file.read_text(encoding="utf-8"))
    return tuple(_benchmark(name, facts) for name, facts in read.items())


def _benchmark(name: str, facts: dict[str, Any]) -> Benchmark:
    figures = []
    for line in facts["figures"]:
        guarantee = line.get("guarantee", "certified")
        if guarantee not in GUARANTEES or (guarantee == "none") != ("epsilon" not in line):
            raise ValueError(f"{name}: {line} needs an epsilon, or guarantee: none")
        row, column = line["at"]
        figures.append(
            Figure(
                table=name,
                learner=line["learner"],
                variant=line.get("variant", ""),
                epsilon=line.get("epsilon"),
                guarantee=guarantee,
                mean=line.get("mean"),
                std=line.get("std"),
                seeds=line.get("seeds", facts["seeds"]),
                command=line.get("command", facts["command"]),
                page=line.get("page", facts["page"]),
                section=line.get("section", facts["section"]),
                at=(row, column),
            )
        )
    kept = {key: facts[key] for key in ("title", "setting", "command", "page")}
    return Benchmark(name=name, figures=tuple(figures), **kept)


def measured(text: str) -> tuple[float, float | None]:
    """Mean and spread that a cell begins with.

    Raises:
        ValueError: It begins with no number.
    """
    found = re.match(r"(\d+\.\d+)(?: ± (\d+\.\d+))?", text)
    if not found:
        raise ValueError(f"the cell {text!r} does not begin with an accuracy")
    return float(found[1]), float(found[2]) if found[2] else None


def disagreements(benchmarks: tuple[Benchmark, ...], docs: Path = ROOT / "docs") -> Iterator[str]:
    """What differs between figures and the tables in which they are written, one sentence each."""
    for benchmark in benchmarks:
        for figure in benchmark.figures:
            try:
                text = figure.cell(docs)
                found = measured(text)
            except ValueError as error:
                yield f"{benchmark.name}, {figure.learner}: {error}"
                continue
            if found != (figure.mean, figure.std):
                yield (
                    f"{benchmark.name}: {figure.learner} {figure.variant} has {figure.written()} in docs/figures.yaml "
                    f"and {text!r} in docs/{figure.page}; `python -m site_builder.figures take` takes that of the page"
                )
            said = SEEDS.search(text)
            if said and int(said[1] or said[2]) != figure.seeds:
                yield f"{benchmark.name}: {figure.learner} has seeds: {figure.seeds}, docs/{figure.page} {text!r}"


def epsilon_words(figure: Figure) -> str:
    """The heading of a figure's column."""
    if figure.epsilon is None:
        return "no privacy"
    number = "10⁴" if figure.epsilon == 10000 else f"{figure.epsilon:g}"
    return f"ε = {number}" + (" claimed" if figure.guarantee == "claimed" else "")


def table(benchmark: Benchmark, *, link: str = "") -> str:
    """A benchmark's figures as a Markdown table: learners by ε.

    Args:
        benchmark: The benchmark.
        link: The folder of the learners' pages, for links; without it names are not linked.

    Returns:
        The table, its lines ended.
    """
    order = sorted({(f.epsilon is None, f.epsilon or 0.0, f.guarantee, epsilon_words(f)) for f in benchmark.figures})
    columns = [words for *_, words in order]
    rows: dict[tuple[str, str], dict[str, Figure]] = {}
    for figure in benchmark.figures:
        rows.setdefault((figure.learner, figure.variant), {})[epsilon_words(figure)] = figure
    usual = usual_seeds(benchmark)
    lines = [f"| learner | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for (learner, variant), given in rows.items():
        name = f"[`{learner}`]({link}{learner}.md)" if link else f"`{learner}`"
        shown = [_shown(given.get(column), usual) for column in columns]
        lines.append(f"| {name}{', ' + variant if variant else ''} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def usual_seeds(benchmark: Benchmark) -> int:
    """The number of seeds of most figures of a benchmark."""
    seeds = [figure.seeds for figure in benchmark.figures]
    return max(sorted(set(seeds)), key=seeds.count)


def _shown(figure: Figure | None, usual: int) -> str:
    if figure is None:
        return ""
    return figure.written() + (f" ({figure.seeds})" if figure.seeds != usual else "")


def block(benchmark: Benchmark) -> str:
    """What stands between the marks in README.md: a line about the setting, and the table."""
    words = (
        f"{benchmark.title}: {benchmark.setting}. {spread_words(benchmark)} (`{benchmark.command}`; "
        f"[more](docs/{benchmark.page})):"
    )
    return f"{words}\n\n{table(benchmark)}"


def spread_words(benchmark: Benchmark) -> str:
    """What the numbers of a table are."""
    usual = usual_seeds(benchmark)
    over = "one seed" if usual == 1 else f"mean ± standard deviation over {usual} seeds"
    differ = any(figure.seeds != usual for figure in benchmark.figures)
    other = ", or over the number of seeds in brackets" if differ else ""
    return f"Average accuracy after the last task on test sets in %, {over}{other}"


def rendered(text: str, benchmarks: tuple[Benchmark, ...]) -> str:
    """A page with the blocks between its marks made anew.

    Raises:
        ValueError: A mark names no benchmark.
    """
    known = {benchmark.name: benchmark for benchmark in benchmarks}

    def made(found: re.Match[str]) -> str:
        if found[2] not in known:
            raise ValueError(f"there are no figures {found[2]!r} in docs/figures.yaml; there are {', '.join(known)}")
        return f"{found[1]}{block(known[found[2]])}{found[4]}"

    return BLOCK.sub(made, text)


def take(file: Path = FILE) -> None:
    """Write the numbers of the tables in docs/ into a file of figures, whose lines keep their order."""
    figures = iter([figure for benchmark in load(file) for figure in benchmark.figures])
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("    - {learner:"):
            mean, std = measured(next(figures).cell())
            line = re.sub(r", mean: [\d.]+(, std: [\d.]+)?", "", line)
            numbers = f"mean: {mean}" + ("" if std is None else f", std: {std}")
            line = line.replace(", at: [", f", {numbers}, at: [", 1)
        lines.append(line)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(command: str) -> int:
    """Run one of the commands; 0 where all agrees."""
    if command == "take":
        take()
    if command in ("take", "render"):
        README.write_text(rendered(README.read_text(encoding="utf-8"), load()), encoding="utf-8")
    wrong = list(disagreements(load()))
    text = README.read_text(encoding="utf-8")
    if rendered(text, load()) != text:
        wrong.append(
            "README.md has other figures than docs/figures.yaml; write them: python -m site_builder.figures render"
        )
    print("\n".join(wrong) or "all figures agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) == 2 else ""
    if chosen not in ("check", "take", "render"):
        raise SystemExit("usage: python -m site_builder.figures check|take|render")
    raise SystemExit(main(chosen))
