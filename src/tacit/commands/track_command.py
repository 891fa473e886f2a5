"""`tacit track`: sends what is in a run folder to a tracker, and the option `--track` of commands that run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.commands.console import err, out

if TYPE_CHECKING:
    from tacit.experiment.trackers import Tracker

Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="TRACKER",
        envvar="TACIT_TRACK",
        help="Send results to tensorboard or mlflow after each task, or to tensorboard=FOLDER or mlflow=URI; repeat it "
        "for several.",
    ),
]


def chosen(names: list[str] | None) -> "list[Tracker]":
    """The trackers that were asked for; wrong names and missing packages are refused before anything is run."""
    if not names:
        return []
    from tacit.experiment.trackers import Careful
    from tacit.report import find_trackers

    return [Careful(tracker, lambda sentence: err.print(sentence, style="yellow")) for tracker in find_trackers(names)]


def track(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders of runs, sweeps or endless streams.")],
    to: Annotated[
        list[str],
        typer.Option(metavar="TRACKER", help="tensorboard or mlflow, or tensorboard=FOLDER or mlflow=URI."),
    ],
) -> None:
    """Send runs to TensorBoard or MLflow: metrics, ε, settings, certificates, figures; to MLflow also the models.

    Only public and charged values are sent. Sending a run again adds what is new and repeats nothing.

    \b
    tacit track runs/quickstart-20260101-120000 --to mlflow
    tacit track runs/january runs/february --to mlflow=http://127.0.0.1:5000 --to tensorboard=logs
    """
    from tacit.errors import ConfigError
    from tacit.experiment.trackers import reason
    from tacit.report import find_trackers

    for tracker in find_trackers(to):
        for folder in folders:
            try:
                tracker.send(folder)
            except (ConfigError, OSError):
                raise
            except Exception as error:
                raise ConfigError(f"{folder} could not be sent to {tracker.name}: {reason(error)}") from error
            out.print(f"sent    {folder} to {tracker.name}: {tracker.describe()}")
