"""`tacit tune`: chooses settings by trials and records how they were chosen."""

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from tacit.charge_flag import INTERRUPTED
from tacit.commands.console import err, out, resume_hint
from tacit.commands.ledger_access import ask_unit_cap
from tacit.commands.options import Epsilon, Json, Method, Quiet, RunLedger, Seeds, Sets, Target, UnitCap
from tacit.commands.sweep_command import folder_name
from tacit.errors import ConfigError
from tacit.words import accuracy_percent

if TYPE_CHECKING:
    from tacit.experiment.tuning.search import TuningResult


def tune(
    target: Target,
    space: Annotated[Path | None, typer.Option(help="A YAML file with the range or the choices of each key.")] = None,
    trials: Annotated[int, typer.Option(min=1, help="Number of trials; for private tuning, the expected number.")] = 20,
    how: Annotated[
        Literal["public-proxy", "held-tasks", "private"],
        typer.Option(
            help="Tune on public data, on held-out public tasks, or privately on the first task under one charge."
        ),
    ] = "public-proxy",
    protocol: Annotated[
        Literal["tobaben2025"] | None,
        typer.Option(help="Follow the protocol of a paper; for benchmarks only, not charged."),
    ] = None,
    proxy: Annotated[
        str | None, typer.Option(help="A preset or file with public data to tune on instead of your own.")
    ] = None,
    held_are_public: Annotated[
        bool, typer.Option("--held-are-public", help="Confirm that the held-out tasks of a private stream are public.")
    ] = False,
    sampler: Annotated[
        Literal["tpe", "gp", "random"], typer.Option(help="Optuna's sampler; gp is a Gaussian process.")
    ] = "tpe",
    objective: Annotated[
        Literal["average", "first"],
        typer.Option(help="Maximise the average accuracy of a run, or the accuracy on its first task."),
    ] = "average",
    shape: Annotated[
        Literal["logarithmic", "geometric"],
        typer.Option(help="For private tuning: the distribution of the number of trials."),
    ] = "geometric",
    sets: Sets = None,
    method: Method = None,
    epsilon: Epsilon = None,
    seeds: Seeds = None,
    tuner_seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The random seed of the search.")] = 0,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="The folder. Default: runs/NAME-tuned-TIME; for private tuning, the day only."),
    ] = None,
    ledger: RunLedger = None,
    unit_cap: UnitCap = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Choose settings by trials; write them to settings.yaml and tuned.yaml with a record of how they were tuned.

    \b
    tacit tune quickstart --method NaiveDPSGD --space space.yaml --trials 20
    tacit tune quickstart --method NaiveDPSGD --space space.yaml --how held-tasks --set data.held=2
    tacit tune visits.yaml --space space.yaml --proxy quickstart --set model.network=mlp
    tacit tune visits.yaml --space space.yaml --how private --ledger visits.ledger --method NaiveDPSGD
    tacit tune tobaben2025/split-cifar100 --method PEFTEnsemble --epsilon 1 --protocol tobaben2025

    A line of space.yaml: learner.lr: {low: 0.001, high: 1, log: true}. For a sweep, its base configuration is tuned.
    Records of a proxy may have another shape than yours, so choose a network that accepts any shape.
    After Ctrl-C, repeat the command with the same --out to continue; private tuning cannot be resumed and stays
    charged.
    """
    from tacit.commands.arguments import load_base_config, settings_from_options
    from tacit.experiment.config.config import Config
    from tacit.experiment.display import display
    from tacit.experiment.tuning.tuner import tune as run_tuning

    config = load_base_config(target, settings_from_options(sets, method, epsilon, seeds))
    if not isinstance(config, Config) or config.kind != "run":
        raise ConfigError(f"{target} has kind {config.kind!r}, and only runs are tuned; give a run or a sweep of runs")
    path = folder or Path("runs") / f"{folder_name(config.name)}-tuned-{_timestamp(how)}"
    hint = f"repeat the command with --out {shlex.quote(str(path))} to continue"
    with resume_hint(hint), _stop_private_tuning(how):
        cap = ask_unit_cap(unit_cap, ledger, config) if how == "private" else unit_cap
        with display(err, quiet=quiet) as progress:
            tuned = run_tuning(
                config,
                space,
                path,
                how=how,
                protocol=protocol,
                trials=trials,
                sampler=sampler,
                objective=objective,
                proxy=proxy,
                held_are_public=held_are_public,
                ledger=ledger,
                unit_cap=cap,
                shape=0.0 if shape == "logarithmic" else 1.0,
                seed=tuner_seed,
                progress=progress,
            )
        _show(tuned, path, as_json=as_json)


@contextmanager
def _stop_private_tuning(how: str) -> Iterator[None]:
    """Handles Ctrl-C in private tuning: the number of trials is secret, so nothing is kept to resume from."""
    try:
        yield
    except KeyboardInterrupt:
        if how != "private":
            raise
        message = (
            "stopped; private tuning cannot be resumed, and what was charged stays charged (see tacit ledger show)"
        )
        err.print(Text(message, style="yellow"))
        raise typer.Exit(INTERRUPTED) from None


def _timestamp(how: str) -> str:
    """The end of the folder's name; for private tuning the day only, because the duration is secret."""
    return time.strftime("%Y%m%d" if how == "private" else "%Y%m%d-%H%M%S")


def _show(tuned: "TuningResult", path: Path, *, as_json: bool) -> None:
    """Prints the best settings and how to use them."""
    if as_json:
        return out.print_json(data={"folder": str(path), "score": tuned.score, "settings": tuned.settings})
    for key, value in tuned.settings.items():
        out.print(f"{key}: {value}")
    if tuned.score is not None:
        out.print(f"score: {accuracy_percent(tuned.score)}")
    if tuned.config.tuned.how == "private":
        out.print(f"\ntask 1 is learned and released; learn the others with: tacit run {path} --resume")
    else:
        out.print(
            f"\nrun it with: tacit run {path / 'tuned.yaml'}; or use any preset with --set @{path / 'settings.yaml'}"
        )
