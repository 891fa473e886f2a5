"""The command `tacit`. Every error is one sentence.

Exit code 0 when it is done, 1 when something is wrong, 2 for a wrong call, 3 for a mistake in tacit itself, 130 when
stopped by Ctrl-C.
"""

from typing import Annotated

import typer

from tacit.commands import attack, run, tune
from tacit.commands._shared import OneSentence, out
from tacit.commands.audit import audit
from tacit.commands.budget import budget
from tacit.commands.certificate import certificate
from tacit.commands.data import data
from tacit.commands.features import features
from tacit.commands.keys import keys
from tacit.commands.ledger import ledger
from tacit.commands.policy import policy

app = typer.Typer(
    cls=OneSentence,
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
run.register(app)
tune.register(app)
attack.register(app)
for name, group in GROUPS.items():
    app.add_typer(group, name=name)


def _version(asked: bool) -> None:
    if asked:
        from tacit import __version__

        out.print(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version of tacit and exit.")
    ] = False,
) -> None:
    """Differentially private continual learning."""
