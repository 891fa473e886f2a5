"""The numbers that a paper printed, shown next to the measured ones: `reference: tobaben2025/A3` in a sweep.

They come from a file that holds them as printed, and are never mixed with measured ones. A cell without a row of its
own (another method, adapter, setting, ε or δ) has none. Other differences, such as backbone or tasks, are named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tacit.errors import ConfigError
from tacit.experiment.config.config import Config
from tacit.experiment.config.loading import base_of, preset_names
from tacit.experiment.config.setting_types import MISSING, looked_up
from tacit.experiment.files import read
from tacit.presets import PRESETS, REFERENCE
from tacit.words import nearest

WITHOUT_PRIVACY = 1000.0
"""From this ε on, a run is compared with the paper's runs without privacy."""


@dataclass(frozen=True, kw_only=True)
class Printed:
    """One row of a table, in %: mean and standard deviation, None where the paper prints none."""

    learner: str
    adapter: Literal["film", "last-layer"] | None = None
    epsilon: float | Literal["any"] | None
    """None: without privacy. any: the method has no ε."""
    aa: Sequence[float | None] | None
    af: Sequence[float | None] | None
    where: Mapping[str, Any] = field(default_factory=dict)
    """Other settings of a corresponding run, by key; any: a value that is not null."""
    worst: Sequence[float | None] | None = None
    """The worst forgetting of a task."""
    lca: Sequence[float | None] | None = None
    """The learning curve area, a share."""
    gain: float | None = None
    """The accuracy under attack, as a mean over attacks, above that of the cell before it."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """One table."""

    paper: str
    about: str
    at: str
    """Where in the paper."""
    backbone: str | None
    """None: the paper has none, and runs may have any."""
    backbone_words: str
    delta: float | None
    """None: the paper does not say."""
    tasks: int
    rows: tuple[Printed, ...]
    trends: Sequence[str] = ()
    """The paper's statements about its figures, where it prints no numbers."""

    @property
    def title(self) -> str:
        """The header of its columns."""
        return f"paper ({self.backbone_words.partition(',')[0]})" if self.backbone else "paper"

    def beside(self, config: Config) -> Printed | None:
        """The row that a run corresponds to."""
        if self.delta not in (None, config.budget.delta):
            return None
        epsilon = None if config.budget.epsilon >= WITHOUT_PRIVACY else config.budget.epsilon
        values = config.plain()
        return next(
            (
                row
                for row in self.rows
                if row.learner == config.learner.method
                and row.epsilon in ("any", epsilon)
                and row.adapter in (None, _adapter(config))
                and all(_agrees(looked_up(values, key), value) for key, value in row.where.items())
            ),
            None,
        )

    def differences(self, config: Config, tasks: int) -> list[str]:
        """Differences from the paper, in words."""
        ours = backbone_of(config)
        found = [] if self.backbone in (None, ours) else [f"backbone {ours or 'none'}"]
        found += shortened(config)
        return found + ([] if tasks == self.tasks else [f"{tasks} tasks in place of {self.tasks}"])

    @property
    def source(self) -> str:
        """The caption of the table."""
        return f"{self.paper}, {self.at} ({'; '.join(filter(None, (self.about, self.backbone_words)))})"


def reference(name: str) -> Reference:
    """A table by its name: the folder of the paper's presets, and the number."""
    folder, _, number = name.partition("/")
    file = PRESETS / folder / f"{REFERENCE}.yaml"
    if not number or not folder or not file.is_file():
        raise ConfigError(f"reference = {name!r} is not a table of a paper; write it like tobaben2025/A3")
    content = read(file)
    tables = content["tables"]
    if number not in tables:
        raise ConfigError(f"reference = {name!r}: the paper has no such table here; {nearest(number, tables)}")
    common = {key: content[key] for key in ("paper", "backbone", "backbone_words", "delta")}
    rows = tuple(Printed(**row) for row in tables[number]["rows"])
    return Reference(**{"at": f"Table {number}", **common, **tables[number], "rows": rows})


def shortened(config: Config) -> list[str]:
    """Overrides that make a run use other records than its preset does, in words."""
    values: Any = base_of(config.name) if config.name in preset_names() else {}
    own, now = values.get("data", {}), config.data.options
    return [f"data.{key} = {now[key]}" for key in ("limit", "records") if now.get(key) not in (None, own.get(key))]


def backbone_of(config: Config) -> str | None:
    """The pretrained network that computes a run's features, whichever key names it; None if there is none."""
    named = (
        getattr(config.data, "features", None),
        config.learner.options.get("backbone"),
        config.model.options.get("backbone"),
    )
    return next((str(one) for one in named if one is not None), None)


def printed(value: Sequence[float | None] | None) -> str:
    """A figure in the paper's format, in %."""
    if value is None:
        return "–"
    mean, std = value
    return f"{mean:g}%" if std is None else f"{mean:g}% ± {std:g}%"


def _adapter(config: Config) -> str | None:
    """The trained part: FiLM or the last layer of a pretrained network, or a linear layer on its features."""
    if config.model.network == "pretrained":
        return str(config.model.options["adapter"])
    return "last-layer" if config.model.network == "linear" else None


def _agrees(value: Any, wanted: Any) -> bool:
    return value not in (None, MISSING) if wanted == "any" else bool(value == wanted)
