"""The page: one self-contained HTML file, from a Jinja template, with the charts' data and libraries inside."""

import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tacit import __version__
from tacit.experiment.files import write
from tacit.experiment.sweeps.significance import CAVEAT
from tacit.report.bibliography import bibtex
from tacit.report.certificate_words import in_words
from tacit.report.charts.chart_theme import theme
from tacit.report.charts.figure import Figure
from tacit.report.charts.figures import figures
from tacit.report.exports import figure_csv, latex, results_csv
from tacit.report.paired_tests import best
from tacit.report.reading.run_data import Collection, RunData
from tacit.report.reading.run_folders import read_folders
from tacit.report.recipes import recipe
from tacit.report.results_table import COLUMNS, results
from tacit.report.sentences import clipped, headline, isolated
from tacit.words import counted

ASSETS = Path(__file__).parent / "assets"
FILE = "report.html"
SNIPPET = "window.vegaEmbed = vegaEmbed;"
"""The only name that the script of the page uses."""
PICKED = 8
"""Runs that the charts show at first, where there are more: the most accurate ones."""
SECTIONS = (
    ("results", "Results"), ("curves", "Over tasks"), ("matrix", "What is remembered"), ("privacy", "Privacy"),
    ("attacks", "Attacks"), ("audits", "Audits"), ("certificate", "Certificate"), ("repeat", "How to repeat it"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Download:
    name: str
    text: str


def write_report(folders: Sequence[str | Path], out: str | Path | None = None) -> Path:
    """Write the page about some runs. It contains public and charged values only.

    Args:
        folders: Folders of runs, sweeps or endless streams.
        out: The file; by default `report.html` in the only folder, or in the working directory.

    Returns:
        The path of the file.

    Raises:
        ConfigError: A folder does not exist, or contains no run.
        OSError: The file cannot be written.
    """
    path = Path(out) if out is not None else (Path(folders[0]) if len(folders) == 1 else Path()) / FILE
    write(path, page(read_folders(folders)))
    return path


def page(found: Collection, *, live: str = "") -> str:
    """The page as text.

    Args:
        found: The runs.
        live: The version of the runs, for a page that asks its server for later ones; empty for a page of its own.

    Returns:
        HTML.
    """
    from markupsafe import Markup

    drawn = figures(found.runs)
    return rendered(
        "page.html.j2",
        **_content(found, drawn),
        live=live,
        nonce=secrets.token_urlsafe(16) if live else "",  # what a server sends later runs no code
        version=__version__,
        style=Markup((ASSETS / "page.css").read_text(encoding="utf-8")),
        script=Markup((ASSETS / "page.js").read_text(encoding="utf-8")),
        bundle=Markup(_bundle()),
        data=Markup(_safe_json(_data(found.runs, drawn))),
    )


def content(found: Collection) -> dict[str, Any]:
    """What changes on the page while runs go on, without styles and scripts.

    Args:
        found: The runs.

    Returns:
        The title of the page, the HTML of its content, and the data of its charts.
    """
    drawn = figures(found.runs)
    text = rendered("content.html.j2", **_content(found, drawn))
    return {"title": title(found), "content": text, "data": _data(found.runs, drawn)}


def title(found: Collection) -> str:
    """The title of the page."""
    return f"{clipped(found.title)} · tacit report"


def rendered(template: str, **values: Any) -> str:
    """A template of the package, filled; every value is escaped.

    Args:
        template: The name of the file.
        values: What it shows.

    Returns:
        HTML.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text: str = environment.get_template(template).render(**values)
    return text.encode("utf-8", "replace").decode()


def _content(found: Collection, drawn: dict[str, Figure]) -> dict[str, Any]:
    """The values of the template of the content."""
    ids = {"results", "privacy", "attacks", "audits", "certificate", "repeat"}
    ids |= {"matrix"} & drawn.keys() | ({"curves"} if {"accuracy", "forgetting"} & drawn.keys() else set())
    top = best(found.runs, private=True) or best(found.runs)
    ordered = sorted(found.runs, key=lambda run: run is not top)
    words = in_words(ordered)
    attacked = [run.attacks for run in found.runs if run.attacks is not None]
    return {
        "found": found,
        "title": title(found),
        "headline": headline(found),
        "count": counted(len(found.runs), "run"),
        "winner": "" if top is None or len(found.runs) == 1 else top.key,
        "columns": COLUMNS,
        "rows": results(found.runs),
        "legend": _legend(found.runs),
        "figures": drawn,
        "sections": [(name, heading) for name, heading in SECTIONS if name in ids],
        "missing": _missing(found),
        "certificates": words,
        "audits": [(one.runs[0], sentence) for one in words for sentence in one.audits],
        "attack_notes": list(dict.fromkeys(note for one in attacked for note in one.notes())),
        "recipes": [recipe(run) for run in ordered],
    }


def _missing(found: Collection) -> list[tuple[str, str]]:
    """The sentences on what could not be read, with the names of the runs that they are about."""
    about: dict[str, list[str]] = {one: [] for one in found.missing}
    for run in found.runs:
        for sentence in run.missing:
            about.setdefault(sentence, []).append(clipped(run.label))
    return [
        (", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else ""), isolated(sentence))
        for sentence, names in about.items()
    ]


def _legend(runs: Sequence[RunData]) -> str:
    """What the columns of the table mean, and how accuracy was measured."""
    tests = CAVEAT.replace("the baseline", "the baseline, or the best private run").replace(
        "over the average accuracies after each task / over seeds", "over seeds / over the accuracies after each task"
    )
    given = {run.task_given for run in runs if run.task_given is not None}
    known = {True: "the task of a test record is given", False: "the task of a test record is not given"}
    measured = sorted({clipped(run.accuracy_from) for run in runs if run.accuracy_from})
    said = [f"accuracy: {'; '.join(measured or ['not measured'])}"]
    said += [known[one] for one in given] if len(given) == 1 else []
    said += ["± is one standard deviation over seeds"]
    said += [tests] if len(runs) > 1 else []
    caveats = list(dict.fromkeys(isolated(one) for run in runs for one in run.caveats))
    return "; ".join([*said, *caveats]) + "."


def _data(runs: Sequence[RunData], drawn: dict[str, Figure]) -> dict[str, Any]:
    """What the script needs, as plain values."""
    names = {run.key: run.label for run in runs}
    downloads = {kind: _Download(name=f"{kind}.csv", text=figure_csv(one, names)) for kind, one in drawn.items()}
    downloads |= {
        "csv": _Download(name="results.csv", text=results_csv(runs)),
        "latex": _Download(name="results.tex", text=latex(runs)),
        "bibtex": _Download(name="methods.bib", text=bibtex(run.method for run in runs)),
    }
    ranked = sorted(runs, key=lambda run: -run.average_accuracy.mean if run.average_accuracy else 1.0)
    fields = ("title", "spec", "columns", "headings", "rows", "panels")
    return {
        "runs": [{"key": run.key, "name": run.label[:300]} for run in runs],
        "best": [run.key for run in ranked[:PICKED]],
        "themes": {"light": theme(), "dark": theme(dark=True)},
        "figures": {kind: {name: getattr(one, name) for name in fields} for kind, one in drawn.items()},
        "downloads": {name: asdict(one) for name, one in downloads.items()},
    }


def _safe_json(plain: Any) -> str:
    """JSON that is safe inside HTML."""
    text = json.dumps(plain, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _bundle() -> str:
    """The JavaScript of Vega, Vega-Lite and Vega-Embed, which vl-convert contains."""
    import vl_convert

    text: str = vl_convert.javascript_bundle(SNIPPET)
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")
