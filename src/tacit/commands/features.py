"""`tacit features`: features of public data sets, made beforehand and kept; and those of private records, cleared."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tacit.commands._shared import Json, err, out, sentences, stopping
from tacit.errors import ConfigError

features = typer.Typer(no_args_is_help=True, help="Features of a pretrained backbone: make, list, order, clear.")


def _names(incomplete: str) -> list[str]:
    """For tab completion."""
    from tacit.data.named import NAMED

    return [name for name in NAMED if name.startswith(incomplete)]


@features.command("build")
def features_build(
    name: Annotated[str, typer.Argument(help="A public data set of pictures.", autocompletion=_names)],
    backbone: Annotated[
        str, typer.Option(help="A backbone's name, the directory or hub id of a ViT, or file.py:Class.")
    ] = "efficientnet-lite0",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many of each part.")] = None,
    compiled: Annotated[bool, typer.Option("--compile", help="By torch.compile: pays off for much data.")] = False,
) -> None:
    """Put a public data set through a backbone once; runs with data.features find the result.

    After Ctrl-C the same command goes on from what is made.

    \b
    tacit features build cifar10 --device cuda
    tacit run tobaben2025/split-cifar100 --set data.features=vit-b16
    """
    from tacit.data.named import load
    from tacit.experiment.display import display
    from tacit.experiment.events import Stop, ctrl_c
    from tacit.experiment.features import Place, make, notice

    stop = Stop()
    with sentences(), stopping("the same command goes on"):
        data = load(name)
        with display(err, quiet=False) as tell, ctrl_c(stop):
            folder = make(data, backbone, Place(device=device, compiled=compiled, tell=tell, stop=stop), limit)
        said = notice(name, backbone) if folder is None else [f"features of {name} by {backbone} are in {folder}"]
        out.print("\n".join(said))


@features.command("list")
def features_list(as_json: Json = False) -> None:
    """The features of public data sets that are kept here."""
    from tacit.experiment.feature_folders import decoded_bytes, kept

    with sentences():
        found = kept()
        if as_json:
            out.print_json(json.dumps([asdict(one) for one in found]))
            return
        table = Table("data set", "backbone", "records", "features", "MB", "where", box=None, padding=(0, 2, 0, 0))
        table.columns[-1].overflow = "fold"
        for one in found:
            size = f"{one.bytes / 1e6:.1f}"
            table.add_row(one.name, one.backbone, str(one.records), str(one.width), size, one.folder)
        out.print(table if found else "no features are kept; make some with: tacit features build NAME")
        if decoded := decoded_bytes():
            out.print(
                f"decoded files of public sets: {decoded / 1e6:.1f} MB; they go by: tacit features clear --decoded"
            )


@features.command("order")
def features_order(
    name: Annotated[str, typer.Argument(help="A public data set.", autocompletion=_names)],
    file: Annotated[Path, typer.Argument(help="A new .npz file.")],
) -> None:
    """Write a set's records (x), labels (y) and part (test) in the order that a file of features has.

    For embeddings of your own: compute a row for each record of x, save them, and use the file.

    \b
    tacit features order digits digits.npz
    tacit run tobaben2025/label-spaces-digits --set data.features=embeddings.npy
    """
    from tacit.data.named import load
    from tacit.experiment.feature_files import write_order

    with sentences():
        count = write_order(load(name), file)
        out.print(f"{count} records of {name} are in {file}; a file of features has a row for each, in this order")


@features.command("clear")
def features_clear(
    what: Annotated[
        str | None, typer.Argument(metavar="[NAME|RUN]", help="A data set, or a run folder; all sets if left out.")
    ] = None,
    decoded: Annotated[
        bool, typer.Option("--decoded", help="Delete decoded copies of public data sets instead of features.")
    ] = False,
) -> None:
    """Delete kept features: of a public data set, of all of them, or of the private records of a run.

    They can be made again. A run that is not finished makes those of its private records anew when it goes on."""
    from tacit.experiment.feature_folders import clear, clear_decoded

    with sentences():
        if decoded and what is not None:
            raise ConfigError(f"--decoded deletes those of all sets, got {what!r} as well; leave one out")
        out.print(clear_decoded() if decoded else clear(what))
