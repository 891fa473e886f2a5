"""`tacit features`: builds, lists and deletes cached features of a public backbone."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tacit.commands.console import err, out, resume_hint
from tacit.commands.options import Json, complete_data_set
from tacit.errors import ConfigError

features = typer.Typer(no_args_is_help=True, help="Features of a public backbone: build, list, order, clear.")


@features.command("build")
def features_build(
    name: Annotated[str, typer.Argument(help="A public data set of images.", autocompletion=complete_data_set)],
    backbone: Annotated[
        str,
        typer.Option(help="A backbone by name (such as scattering), the folder or hub id of a ViT, or file.py:Class."),
    ] = "efficientnet-lite0",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first N records of each part.")] = None,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Use torch.compile; worthwhile for large data sets.")
    ] = False,
) -> None:
    """Compute the features of a public data set once; runs with data.features reuse them.

    After Ctrl-C, repeating the command continues where it stopped.

    \b
    tacit features build cifar10 --device cuda
    tacit features build cifar100 --backbone scattering-mirrored
    tacit run tobaben2025/split-cifar100 --set data.features=vit-b16
    """
    from tacit.data.benchmarks.named import load
    from tacit.experiment.display import display
    from tacit.experiment.features.features import Place, make, published_notices
    from tacit.experiment.progress import Stop, stop_on_ctrl_c

    stop = Stop()
    with resume_hint("repeat the command to continue"):
        data = load(name)
        with display(err, quiet=False) as progress, stop_on_ctrl_c(stop):
            folder = make(data, backbone, Place(device=device, compiled=compiled, progress=progress, stop=stop), limit)
        computed = f"features of {name} by {backbone} are in {folder}"
        out.print("\n".join(published_notices([name], backbone)) if folder is None else computed)


@features.command("list")
def features_list(as_json: Json = False) -> None:
    """List the cached features of public data sets."""
    from tacit.experiment.features.folders import decoded_bytes, kept

    cached = kept()
    if as_json:
        return out.print_json(data=[asdict(entry) for entry in cached])
    table = Table("data set", "backbone", "records", "features", "MB", "folder", box=None, padding=(0, 2, 0, 0))
    table.columns[-1].overflow = "fold"
    for entry in cached:
        size = f"{entry.bytes / 1e6:.1f}"
        table.add_row(entry.name, entry.backbone, str(entry.records), str(entry.width), size, entry.folder)
    out.print(table if cached else "no features are cached; compute some with: tacit features build NAME")
    if decoded := decoded_bytes():
        out.print(
            f"decoded copies of public data sets: {decoded / 1e6:.1f} MB; delete them with: "
            "tacit features clear --decoded"
        )


@features.command("order")
def features_order(
    name: Annotated[str, typer.Argument(help="A public data set.", autocompletion=complete_data_set)],
    file: Annotated[Path, typer.Argument(help="A new .npz file.")],
) -> None:
    """Write the records (x), labels (y) and part (test) of a data set in the order that a feature file must have.

    For your own embeddings: compute one row for each record of x, save the rows, and give the file to data.features.

    \b
    tacit features order digits digits.npz
    tacit run tobaben2025/label-spaces-digits --set data.features=embeddings.npy
    """
    from tacit.data.benchmarks.named import load
    from tacit.experiment.features.feature_files import write_order

    count = write_order(load(name), file)
    out.print(f"{count} records of {name} are in {file}; a feature file has one row for each, in this order")


@features.command("clear")
def features_clear(
    target: Annotated[
        str | None, typer.Argument(metavar="[NAME|RUN]", help="A data set or a run folder. Default: all data sets.")
    ] = None,
    decoded: Annotated[
        bool, typer.Option("--decoded", help="Delete decoded copies of public data sets instead of features.")
    ] = False,
) -> None:
    """Delete cached features: of a public data set, of all of them, or of the private records of a run.

    They can be computed again; an unfinished run recomputes those of its private records when it is resumed.
    """
    from tacit.data.benchmarks.named import NAMED
    from tacit.experiment.features.folders import clear, clear_decoded, clear_private
    from tacit.experiment.runs.folder import RunFolder
    from tacit.words import nearest

    if decoded and target is not None:
        raise ConfigError(f"--decoded deletes the copies of all data sets, got {target!r} as well; omit one of them")
    if decoded:
        out.print(clear_decoded())
    elif target is None or (target in NAMED and not Path(target).is_dir()):
        out.print(clear(target))
    elif RunFolder(path=Path(target)).has_run:
        out.print(clear_private(Path(target)))
    else:
        raise ConfigError(f"{target!r} is neither a data set nor a run folder; {nearest(target, NAMED)}")
