"""`tacit presets`: lists the experiments that `tacit run` knows by name."""

import textwrap
from dataclasses import asdict

from rich.text import Text

from tacit.commands.console import out
from tacit.commands.options import Json


def presets(as_json: Json = False) -> None:
    """List the presets of `tacit run`, the data that each needs, and which data is missing."""
    from tacit.data.benchmarks.named import way_out
    from tacit.experiment.config import loading

    listed = loading.presets()
    if as_json:
        return out.print_json(data=[asdict(preset) for preset in listed])
    for preset in listed:
        missing = f"  missing: {', '.join(preset.missing)}" if preset.missing else ""
        out.print(Text.assemble((preset.name, "bold"), (missing, "yellow")))
        short = textwrap.shorten(preset.description, out.width - 2, placeholder=" …")
        out.print(f"  {short if out.is_terminal else preset.description}")
    for name in dict.fromkeys(name for preset in listed for name in preset.missing):
        out.print(f"{name}: {way_out(name)}", style="yellow")
    out.print("--json prints the full descriptions and the data that each preset needs", style="dim")
