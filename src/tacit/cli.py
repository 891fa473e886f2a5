"""The command `tacit`: its commands and groups of commands.

Exit codes: 0 success, 1 an error, 2 wrong usage, 3 an unexpected error in tacit itself, 130 stopped by Ctrl-C.
"""

from typing import Annotated

import typer

from tacit.commands import (
    attack_command,
    predict_command,
    presets_command,
    report_command,
    reproduce_command,
    run_command,
    sweep_command,
    track_command,
    tune_command,
)
from tacit.commands.audit_commands import audit
from tacit.commands.console import CommandGroup, out
from tacit.commands.data_commands import data
from tacit.commands.features_commands import features
from tacit.commands.privacy.budget_commands import budget
from tacit.commands.privacy.certificate_papers import certificate
from tacit.commands.privacy.keys_commands import keys
from tacit.commands.privacy.ledger_commands import ledger
from tacit.commands.privacy.policy_commands import policy

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    help="Differentially private continual learning.",
    pretty_exceptions_enable=False,
)
GROUPS = {
    "data": data,
    "features": features,
    "budget": budget,
    "ledger": ledger,
    "certificate": certificate,
    "keys": keys,
    "policy": policy,
    "audit": audit,
}
app.command("run")(run_command.run)
app.command("sweep")(sweep_command.sweep)
app.command("predict")(predict_command.predict)
app.command("report")(report_command.report)
app.command("plot")(report_command.plot)
app.command("track")(track_command.track)
app.command("presets")(presets_command.presets)
app.command("reproduce")(reproduce_command.reproduce)
app.command("tune")(tune_command.tune)
app.command("attack")(attack_command.attack)
for name, group in GROUPS.items():
    app.add_typer(group, name=name)


def _print_version(requested: bool) -> None:
    if requested:
        from tacit import __version__

        out.print(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version of tacit and exit."),
    ] = False,
) -> None:
    """Differentially private continual learning."""
