"""How to repeat a run: its configuration, seeds, data and versions."""

from dataclasses import dataclass

from tacit.report.reading.run_data import RunData
from tacit.report.reading.safe_files import mapping, words

LONGEST = 20_000
"""Characters of a configuration that are shown."""
VERSIONS = ("tacit", "git_commit", "python", "torch", "numpy", "dp_accounting", "platform", "device")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What the page shows of one run.

    Attributes:
        name: Of the run.
        facts: Names and values.
        config: The configuration as YAML.
    """

    name: str
    facts: tuple[tuple[str, str], ...]
    config: str


def recipe(run: RunData) -> Recipe:
    """How to repeat a run.

    Args:
        run: The run.

    Returns:
        Its recipe.
    """
    data = mapping(run.config.get("data"))
    source = ", ".join(word for name in ("source", "scenario") if (word := words(data.get(name))))
    versions = [(name, words(run.environment.get(name))) for name in VERSIONS]
    facts = (
        ("method", run.method),
        ("data", source or "not stated"),
        ("tasks", ", ".join(run.tasks[:40]) + (" …" if len(run.tasks) > 40 else "") or "none"),
        ("seeds", ", ".join(map(str, run.seeds)) or "not stated"),
        ("versions", ", ".join(f"{name} {value}" for name, value in versions if value) or "not stated"),
    )
    shown = run.config_text[:LONGEST]
    return Recipe(name=run.label, facts=facts, config=shown + ("\n…" if len(run.config_text) > LONGEST else ""))
