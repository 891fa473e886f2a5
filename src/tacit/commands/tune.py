"""`tacit tune`: choose settings honestly, and write down how."""

import json
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from tacit.commands._asked import asked, base
from tacit.commands._shared import Json, cap_asked, err, out, sentences, stopping
from tacit.commands._stopped import STOPPED
from tacit.commands.run import Quiet, Sets, TheLedger, UnitCap, What, plain_name
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.experiment.search import Found


def tune(
    what: What,
    space: Annotated[Path | None, typer.Option(help="A YAML file: key → low and high, or choices.")] = None,
    trials: Annotated[int, typer.Option(min=1, help="How many; privately, how many are expected.")] = 20,
    how: Annotated[
        Literal["public-proxy", "held-tasks", "private"],
        typer.Option(help="On public data, on first tasks that are public, or on the first task under one charge."),
    ] = "public-proxy",
    protocol: Annotated[
        Literal["tobaben2025"] | None, typer.Option(help="As a paper did; benchmarks only, not charged.")
    ] = None,
    proxy: Annotated[str | None, typer.Option(help="A preset or file whose data are used in place of the own.")] = None,
    held_are_public: Annotated[
        bool, typer.Option("--held-are-public", help="The held tasks of a private stream are public.")
    ] = False,
    sampler: Annotated[
        Literal["tpe", "gp", "random"], typer.Option(help="The sampler of Optuna; gp: Gaussian process.")
    ] = "tpe",
    objective: Annotated[
        Literal["average", "first"], typer.Option(help="The average accuracy of a run, or of its first task.")
    ] = "average",
    shape: Annotated[
        Literal["logarithmic", "geometric"], typer.Option(help="Privately: how the number of trials is drawn.")
    ] = "geometric",
    sets: Sets = None,
    method: Annotated[str | None, typer.Option(help="The learner: short for --set learner=…")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The budget: short for --set budget.epsilon=…")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many, from 0: short for --set seeds=…")] = None,
    tuner_seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The random seed of the search.")] = 0,
    folder: Annotated[
        Path | None, typer.Option("--out", help="The folder; otherwise runs/NAME-tuned-TIME; privately, -DAY.")
    ] = None,
    ledger: TheLedger = None,
    unit_cap: UnitCap = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Choose settings by trials; write them to settings.yaml and tuned.yaml, with how they were tuned.

    \b
    tacit tune quickstart --method NaiveDPSGD --space space.yaml --trials 20
    tacit tune quickstart --method NaiveDPSGD --space space.yaml --how held-tasks --set data.held=2
    tacit tune visits.yaml --space space.yaml --proxy quickstart --set model.network=mlp
    tacit tune visits.yaml --space space.yaml --how private --ledger visits.ledger --method NaiveDPSGD
    tacit tune tobaben2025/split-cifar100 --method PEFTEnsemble --epsilon 1 --protocol tobaben2025

    space.yaml: learner.lr: {low: 0.001, high: 1, log: true}. Of a sweep, its base is tuned. A proxy's records have
    another shape than yours, so the network must read any.
    After Ctrl-C, the same command with the same --out goes on; private tuning never does, and stays charged.
    """
    from tacit.experiment.config import Config
    from tacit.experiment.display import display
    from tacit.experiment.tuning import tune as tune_all

    with sentences():
        config = base(what, asked(sets, method, epsilon, seeds))
        if not isinstance(config, Config) or config.kind != "run":
            raise ConfigError(
                f"{what} is of the kind {config.kind!r}, and only runs are tuned; give a run or a sweep of runs"
            )
        place = folder or Path("runs") / f"{plain_name(config.name)}-tuned-{_when(how)}"
    with sentences(), stopping(f"the same command with --out {shlex.quote(str(place))} goes on"), _at_once(how):
        cap = cap_asked(unit_cap, ledger, config) if how == "private" else unit_cap
        with display(err, quiet=quiet) as tell:
            found = tune_all(
                config,
                space,
                place,
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
                tell=tell,
            )
        _show(found, place, as_json=as_json)


def register(app: typer.Typer) -> None:
    """Put the command into the app."""
    app.command("tune")(tune)


@contextmanager
def _at_once(how: str) -> Iterator[None]:
    """Ctrl-C in private tuning: how many trials there were is a secret, so none is kept to go on from."""
    try:
        yield
    except KeyboardInterrupt:
        if how != "private":
            raise
        said = "stopped; private tuning is never taken up again, and what was charged stays charged: tacit ledger show"
        err.print(Text(said, style="yellow"))
        raise typer.Exit(STOPPED) from None


def _when(how: str) -> str:
    """For the name of a folder. Private tuning: the day only, since how long it took is a secret."""
    return time.strftime("%Y%m%d" if how == "private" else "%Y%m%d-%H%M%S")


def _show(found: "Found", place: Path, *, as_json: bool) -> None:
    """The best settings, and what to do with them."""
    if as_json:
        out.print_json(json.dumps({"folder": str(place), "score": found.score, "settings": found.settings}))
        return
    for key, value in found.settings.items():
        out.print(f"{key}: {value}")
    if found.score is not None:
        out.print(f"score: {found.score:.1%}")
    if found.config.tuned.how == "private":
        out.print(f"\ntask 1 is learnt and released; the others: tacit run {place} --resume")
    else:
        out.print(f"\nrun it: tacit run {place / 'tuned.yaml'}, or any preset with --set @{place / 'settings.yaml'}")
