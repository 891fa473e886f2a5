"""`tacit data`: lists, fetches and checks data sets, and declares private data."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from tacit.commands.console import out
from tacit.commands.declare_command import declare
from tacit.commands.options import Json, complete_data_set
from tacit.errors import DataError

data = typer.Typer(no_args_is_help=True, help="Data sets: list, fetch, check; declare your own.")
data.command("declare")(declare)

Root = Annotated[
    Path | None,
    typer.Option("--root", help="The folder of data sets. Default: TACIT_DATA, or else tacit's cache folder."),
]


@data.command("list")
def list_data_sets(root: Root = None, as_json: Json = False) -> None:
    """List the public data sets and the folder of each."""
    from tacit.data.benchmarks.file_check import listing
    from tacit.data.benchmarks.named import data_folder

    rows = listing(root)
    if as_json:
        return out.print_json(data=[asdict(row) for row in rows])
    table = Table("name", "description", "folder", box=None)
    for row in rows:
        folder = Text(row.found) if row.found else Text(f"missing: {row.way_out}", style="yellow")
        table.add_row(row.name, row.about, folder)
    out.print(table)
    out.print(f"searched in {data_folder(root)}")


@data.command("fetch")
def fetch_data_set(
    name: Annotated[str, typer.Argument(help="A public data set.", autocompletion=complete_data_set)],
    root: Root = None,
    source: Annotated[str | None, typer.Option(help="Another hub id, or a local folder with the same columns.")] = None,
) -> None:
    # A backslash keeps the bracket from being read as markup.
    r"""Download a public data set from the Hugging Face hub (needs `pip install '.\[hub]'`)."""
    from tacit.data.benchmarks.hub import fetch

    out.print(f"{name} is in {fetch(name, root, source)}")


@data.command("pack")
def pack_data_set(
    name: Annotated[str, typer.Argument(help="A public set of pictures.", autocompletion=complete_data_set)],
    file: Annotated[
        Path | None, typer.Option("--out", help="The file, NAME.npz. Default: in the present folder.")
    ] = None,
    train: Annotated[int | None, typer.Option(min=1, help="Training pictures. Default: all.")] = None,
    test: Annotated[int | None, typer.Option(min=1, help="Test pictures. Default: all.")] = None,
    root: Root = None,
) -> None:
    """Pack a set of pictures, or a subset, into one file for a machine that has none.

    A set is found by its name wherever TACIT_DATA names the folder of the file.

    \b
    tacit data pack mnist --out shared/mnist.npz
    tacit data pack cifar100 --train 15000 --test 5000
    """
    from tacit.data.benchmarks.packing import pack

    path = file or Path(f"{name}.npz")
    sizes = pack(name, path, train=train, test=test, root=root)
    out.print(f"{path}: {sizes[0]:,} training and {sizes[1]:,} test pictures, {path.stat().st_size / 1e6:.1f} MB")
    out.print(f"there: export TACIT_DATA={shlex.quote(str(path.parent))}", highlight=False)


@data.command("check")
def check_data(
    source: Annotated[
        str, typer.Argument(help="A data set by name, or a declaration (.yaml).", autocompletion=complete_data_set)
    ],
    root: Root = None,
    as_json: Json = False,
    look: Annotated[
        bool,
        typer.Option(
            "--look",
            help="For the owner only: also show how private cells are read. Do not share the output. --look always "
            "exits with 0, so that the exit code reveals nothing.",
        ),
    ] = False,
) -> None:
    """Check a named data set, or a declaration and its files.

    Private values and counts are not shown, unless the owner gives --look. Declared tasks and labels are compared with
    the rows of public files only.
    """
    from tacit.data.benchmarks.named import NAMED
    from tacit.experiment.owner.declaration_check import check

    if look and (as_json or source in NAMED):
        raise DataError("--look is for the owner of a private file, on a screen; omit it here")
    rows = check(source, root)
    if as_json:
        out.print_json(data=[asdict(row) for row in rows])
    else:
        for row in rows:
            passed_mark = ("warning ", "yellow") if row.warns else ("ok ", "green")
            mark, style = passed_mark if row.ok else ("failed ", "red")
            out.print(Text.assemble((mark, style), f"{row.what}: {row.says}"))
    passed = all(row.ok for row in rows)
    if look:
        if passed:
            _show_private_cells(source)
        return
    if not passed:
        raise typer.Exit(1)
    if source not in NAMED and not as_json:
        from tacit.data.declared.declaration import Declaration

        ledger = f" --ledger {shlex.quote(str(Path(source).with_suffix('.ledger')))}"
        out.print(f"next: tacit run {shlex.quote(source)}{'' if Declaration.load(source).public else ledger}")


def _show_private_cells(source: str) -> None:
    """Shows the owner how private cells are read. The exit code does not depend on their content."""
    from tacit.experiment.owner.preview import WARNING, preview

    out.print(Text(WARNING, style="yellow"))
    try:
        for line in preview(source):
            out.print(f"{line.what}: {line.says}")
    except DataError as error:
        out.print(str(error))
