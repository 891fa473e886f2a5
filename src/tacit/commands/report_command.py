"""`tacit report` and `tacit plot`: a page about runs, also while they go on or after every run, and one figure."""

import os
import shlex
import signal
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from tacit.commands.console import TRACEBACK, err, out
from tacit.errors import ConfigError, TacitError

Folders = Annotated[
    list[Path],
    typer.Argument(metavar="RUN…", help="Folders of runs, sweeps or endless streams, or of several of them."),
]
Report = Annotated[bool, typer.Option("--report/--no-report", help="Write report.html into the folder.")]
SUFFIXES = (".html", ".htm")
KINDS = "accuracy, forgetting, matrix, epsilon, budget, tradeoff or attacks"


def report(
    folders: Folders,
    file: Annotated[
        Path | None,
        typer.Option(
            "--out", help="The HTML file. Default: report.html in the folder, or in the working directory for several."
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show the page at an address of this machine while the runs go on.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="With --watch: the port. Default: a free one.", show_default=False)
    ] = 0,
) -> None:
    """Write one HTML page about runs: accuracy, forgetting, privacy, certificates, and how to repeat them.

    The page works offline and contains public and charged values only. Of a folder that is incomplete or damaged, it
    shows what can be read. With --watch it follows the runs until Ctrl-C, and is written to the file then.

    \b
    tacit report runs/quickstart-20260101-120000
    tacit report runs/january runs/february --out both.html
    tacit report --watch runs
    """
    from tacit.report import write_report

    if file is not None and file.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{str(file)!r} has no known suffix; use one of {', '.join(SUFFIXES)}")
    if watch:
        _watch(folders, port)
    elif port:
        raise ConfigError(f"--port {port} is for --watch; add --watch, or leave it out")
    out.print(f"report  {write_report(folders, file)}")


def _watch(folders: list[Path], port: int) -> None:
    """Serves the page until Ctrl-C."""
    from tacit.report import LiveReport

    live = LiveReport(folders, port)
    out.print(f"open    {live.address}")
    out.print("        for this machine only; Ctrl-C ends it and writes the page to a file")
    # A script that starts it in the background has it ignore Ctrl-C, which is the way to end it.
    endings = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(ending, signal.default_int_handler) for ending in endings]
    try:
        with suppress(KeyboardInterrupt):
            live.serve()
    finally:
        for ending, handler in zip(endings, before, strict=True):
            signal.signal(ending, handler)


def plot(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, a sweep or an endless stream.")],
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"The figure: {KINDS}.")],
    file: Annotated[Path | None, typer.Option("--out", help="The file: .png, .svg or .pdf. Default: KIND.png.")] = None,
) -> None:
    """Draw one figure of a run or sweep, for a paper.

    accuracy and forgetting: over tasks, with a band over seeds. matrix: accuracy on each task after each task. epsilon:
    certified and claimed, over tasks. budget: what each block has left. tradeoff: accuracy against ε, of several runs.
    attacks: accuracy under attack, of sweeps whose configuration has attacks.

    \b
    tacit plot runs/quickstart-20260101-120000 accuracy
    tacit plot runs/quickstart-20260101-120000 matrix --out matrix.pdf
    """
    from tacit.report import plot as draw

    out.print(f"figure  {draw([folder], kind, file or Path(f'{kind}.png'))}")


def draw_report(folder: Path, *, wanted: bool, as_json: bool) -> None:
    """Writes the page of a run that has finished and prints where it is; a failure is a sentence, never an error."""
    if not wanted or not folder.is_dir():
        return
    try:
        from tacit.report import write_report

        path = write_report([folder])
        if not as_json:  # a script reads what is printed
            out.print(f"report       {path}")
    except Exception as error:
        if os.environ.get(TRACEBACK) == "1":
            traceback.print_exc()
        known = isinstance(error, TacitError | OSError) or not str(error)
        why = str(error) if known and str(error) else type(error).__name__
        err.print(
            f"the results are complete, but report.html could not be drawn ({why}); try: tacit report "
            f"{shlex.quote(str(folder))}",
            style="yellow",
        )
