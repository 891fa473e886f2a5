"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer


def _complete_preset(incomplete: str) -> list[str]:
    from tacit.experiment.config.loading import preset_names

    return [name for name in preset_names() if name.startswith(incomplete)]


def complete_data_set(incomplete: str) -> list[str]:
    """Tab completion for the names of public data sets."""
    from tacit.data.benchmarks.named import NAMED

    return [name for name in NAMED if name.startswith(incomplete)]


Target = Annotated[
    str,
    typer.Argument(
        metavar="PRESET_OR_FILE",
        autocompletion=_complete_preset,
        help="A preset (see `tacit presets`), a configuration file, a declaration of your own data, or a run folder.",
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change one configuration key, such as learner.steps=100; @FILE sets all keys in a YAML file.",
    ),
]
Method = Annotated[str | None, typer.Option(help="The learner; short for --set learner=…")]
Epsilon = Annotated[float | None, typer.Option(help="The privacy budget ε; short for --set budget.epsilon=…")]
Seeds = Annotated[
    int | None, typer.Option(min=1, help="Number of random seeds, counted from 0; short for --set seeds=…")
]
RunLedger = Annotated[
    Path | None,
    typer.Option("--ledger", envvar="TACIT_LEDGER", help="The ledger of private data. Public data needs none."),
]
UnitCap = Annotated[
    str | None,
    typer.Option(
        metavar="EPS|none",
        help="For a new ledger: the maximum privacy loss of one unit over all streams, as ε or ε,δ. Default: asked on "
        "a terminal, otherwise the budget of this run.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Processes = Annotated[
    int | None,
    typer.Option("--processes", "--jobs", min=1, help="Number of runs in parallel. Default: the number of CPU cores."),
]
LedgerPath = Annotated[Path, typer.Option("--ledger", envvar="TACIT_LEDGER", help="The ledger file.")]
By = Annotated[str, typer.Option(help="Who decides; recorded in the ledger. With --key, the officer's name.")]
Keys = Annotated[
    list[Path] | None,
    typer.Option(
        "--key", metavar="FILE", help="An officer's private key; repeat it if the policy requires several signatures."
    ),
]
Why = Annotated[str, typer.Option(help="The reason; recorded in the ledger.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
