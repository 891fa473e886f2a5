"""`tacit predict`: the answers of a released model for new records."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tacit.commands.console import err, out
from tacit.commands.release_folders import locate
from tacit.errors import DataError
from tacit.words import counted


def predict(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="The folder of a release, or of a run.")],
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="CSV, Parquet, .npz or .npy, an image, or a folder of images."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--out", help="The file of the predictions: .csv or .parquet. Default: CSV to stdout."),
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="The task of the records, for models that have to be told; or a column says it.")
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Copy a column beside the predictions; repeat it.")
    ] = None,
    abstain_below: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Leave the prediction empty below this probability.")
    ] = 0.0,
    probabilities: Annotated[
        bool | None,
        typer.Option(
            "--probabilities/--no-probabilities", help="One column for each label. Default: up to 100 labels."
        ),
    ] = None,
    any_range: Annotated[
        bool, typer.Option("--any-range", help="Accept columns of which most values are outside the declared limits.")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
) -> None:
    """Predict the labels of new records with a released model.

    Records are read as those of the training were: the release contains the columns, categories and limits. A column
    that is missing, of another type or in another unit is refused by name. Predictions are post-processing: they cost
    the people in the training data nothing.

    \b
    tacit predict visits-run new.csv --out predicted.csv --keep patient
    tacit predict release new.parquet --abstain-below 0.8 --out predicted.parquet
    """
    from tacit.prediction import load

    folder = locate(release)[1]
    if folder is None:
        raise DataError(f"{release} is no release; give the folder of a release, or of the run that made it")
    found = load(folder, device=device).predictions(
        file, task=task, keep=tuple(keep or ()), abstain_below=abstain_below, any_range=any_range
    )
    for note in found.notes:
        err.print(note, style="yellow")
    if output is None:
        sys.stdout.write(found.csv(probabilities=probabilities))
        return
    found.write(output, probabilities=probabilities)
    silent = int(found.abstained.sum())
    out.print(
        f"{output}: {counted(len(found.labels), 'prediction')} of {folder.name}"
        + (f", {silent} left empty below {abstain_below:g}" if silent else "")
    )
