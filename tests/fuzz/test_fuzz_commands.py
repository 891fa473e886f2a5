"""Command lines from the real tree of commands, with valid and wrong values in any places."""

from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from support.worlds import QUICK, RELEASE, copied, paid_for, profile, sound, tacit
from support.wrong import FILES, WORDS, words
from tacit.cli import app
from tacit.experiment.config.setting_types import choices

Command = Any


def tree(command: Command, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Command]:
    """Every command by its words."""
    inner = getattr(command, "commands", None)
    if inner is None:
        return {path: command}
    return {key: one for name, sub in inner.items() for key, one in tree(sub, (*path, name)).items()}


COMMANDS = tree(typer.main.get_command(app))
LONG = {("audit", "label-space"), ("audit", "replacement-cascade"), ("audit", "lifelong-reconstruction")}
"""These take seconds when nothing is wrong, so something always is."""
ALWAYS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("run",): QUICK,
    ("sweep",): (*QUICK, "--limit-minutes", "0"),
    ("tune",): ("--trials", "1", *QUICK),
    ("features", "build"): ("--limit", "2", "--backbone", "nowhere.py:Net"),
    ("keys", "backup"): ("--passphrase", "long enough for a backup"),
    ("data", "declare"): ("--yes",),
    **dict.fromkeys(LONG - {("audit", "replacement-cascade")}, ("--epsilon", "nan", "--seed", "-1", "--runs", "1")[:2]),
    ("audit", "replacement-cascade"): ("--runs", "1"),
}
NEVER = {
    ("data", "fetch"): ("digits", "foo", "folder"),
    ("features", "build"): ("digits", "foo"),
    ("features", "order"): ("digits", "foo"),
}
"""In place of any word: names that are here, so that nothing is fetched or decoded at length."""


MEANT = {
    "what": ("visits.yaml", "r", "half", "visits.csv", "r/config.yaml", "nowhere", "hassanpour2022/nowhere"),
    "folder": ("r", "half", "folder", "r/seeds", "nowhere"),
    "path": ("r", "half", "r/seeds", RELEASE, f"{RELEASE}/certificate.json", "junk"),
    "file": ("visits.csv", f"{RELEASE}/certificate.json", "policy.toml", "new", "junk", "folder"),
    "stream": ("visits", "nobody"),
    "source": ("visits.yaml", "digits", "visits.csv", "r/config.yaml"),
}
NUMBERS = ("1", "2", "3", "0.5", "0.1", "1e-5", "0", "-1", "nan", "inf", "1e300", "1e-300", "1.5", "100000000000")
NAMED = {
    "--key": ("key", "key.pub", "junk", "folder", "nowhere"),
    "--certificate": ("r/seeds/seed-0/releases/02-2026-02/certificate.json", "junk", "r"),
    "--passphrase": ("short", "long enough for a backup"),
    "--space": ("space.yaml", "visits.yaml", "junk", "nowhere"),
    "--set": ("learner.lr=1", "learner.lr=nan", "budget.epsilon=0.5", "data.held=1", "seeds=1", "@space.yaml", "@junk"),
    "--grid": ("learner.lr=1,2", "learner.lr=", "learner.method=DPCL,DPER", "budget.epsilon=nan", "=", "seeds=1,2"),
    "--method": ("DPCL", "DPER", "AGEM", "Joint", "Cosine", "d", "foo", "junk:Net"),
    "--out": ("made", "made/deep", "folder", "junk", "r", "half", "visits.csv", "new.yaml", "new.png"),
    "--until": ("2026-01", "2026-02", "2027-01"),
    "--label": ("diagnosis", "age", "nowhere"),
    "--task": ("month", "diagnosis"),
    "--person": ("patient", "month"),
    "--labels": ("well,sick", "0..9", "0..99999999999", "a,a", ","),
    "--tasks": ("2026-01,2026-02", "2026-01..2026-12", "1..3", "a..b", "a,a", "9..1"),
}


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """A command with its arguments, some of its options, and now and then what it does not have."""
    path = draw(st.sampled_from(sorted(COMMANDS)))
    command, found = COMMANDS[path], list(path)
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            if draw(st.integers(0, 9)):
                found.append(draw(argument(draw, path, parameter.name)))
        elif draw(st.integers(0, 3)) == 0 or (parameter.required and draw(st.integers(0, 9))):
            found += option(draw, parameter)
    found += ALWAYS.get(path, ())
    if draw(st.integers(0, 14)) == 0:
        found.insert(draw(st.integers(0, len(found))), draw(words()))
    return found


def argument(draw: st.DrawFn, path: tuple[str, ...], name: str) -> st.SearchStrategy[str]:
    if path in NEVER:
        return st.sampled_from(NEVER[path])
    return st.sampled_from(MEANT[name]) if name in MEANT and draw(st.integers(0, 2)) else words()


def option(draw: st.DrawFn, parameter: Command) -> list[str]:
    name = parameter.opts[-1]
    if name == "--ledger":
        return [name, draw(st.sampled_from(["new.ledger", "v.ledger", *FILES]))]
    if getattr(parameter, "is_flag", False):
        return [name]
    if name == "--processes":
        return [name, "1"]
    hint, fitting = parameter.type_descriptor.annotation, words()
    if allowed := choices(hint):
        fitting = st.sampled_from([str(one) for one in allowed])
    elif hint in (int, float):
        fitting = st.sampled_from(NUMBERS)
    elif name in NAMED:
        fitting = st.sampled_from(NAMED[name])
    wanted = fitting if draw(st.integers(0, 4)) else words()
    return [name, *(draw(wanted) for _ in range(max(1, parameter.nargs)))]


def holds(line: list[str]) -> None:
    with copied() as folder:
        result = tacit(line)
        sound(line, result)
        for ledger in folder.glob("new*"):
            if ledger.suffix in ("", ".ledger") and ledger.is_file() and line[0] in ("run", "tune", "sweep"):
                runs = [config.parent for config in folder.rglob("config.yaml")]
                paid_for(ledger, next((run for run in runs if (run / "ledger.json").exists()), Path("none")))


def test_the_tree_of_commands_is_the_real_one() -> None:
    assert {("run",), ("ledger", "verify"), ("data", "declare"), ("budget", "stream")} <= set(COMMANDS)


@profile(60)
@given(lines())
def test_any_command_line(line: list[str]) -> None:
    holds(line)


@pytest.mark.slow
@profile(2500)
@given(lines())
def test_any_command_line_at_length(line: list[str]) -> None:
    holds(line)


SETTINGS = (
    "learner.steps", "learner.batch", "learner.clip", "learner.clipping", "learner.most", "learner.noise",
    "learner.epochs", "learner.router_share", "learner.method", "learner", "data.held", "data.source", "data.scenario",
    "data.features",
    "data.label_space", "data.outside", "data.prior_missing", "model", "model.network", "model.hidden",
    "budget.epsilon",
    "budget.unit", "budget.adjacency", "seeds", "per_seed", "lca", "evaluation.test", "evaluation.share", "tuned.how",
    "repeatable_noise", "device", "threads", "name", "kind",
)  # fmt: skip
NEAR = [
    "0",
    "1",
    "2",
    "3",
    "-1",
    "0.5",
    "1.5",
    "1e-9",
    "1e9",
    "1e300",
    ".nan",
    ".inf",
    "nan",
    "[]",
    "[1]",
    "[2, 3]",
    "null",
]
CHOICES = {
    "learner.clipping": ["flat", "automatic", "per-layer", "foo"],
    "learner.method": ["DPCL", "DPER", "DPAGEM", "NaiveDPSGD", "Joint", "AGEM", "Pool", "d", "junk.py:Net"],
    "learner": ["DPCL", "Moments", "Cosine", "Lifelong", "Centralised", "{}", "[]"],
    "data.source": ["digits", "[digits]", "visits.yaml", "visits.csv", "[]"],
    "data.scenario": ["declared", "split", "permuted", "single", "drifting"],
    "data.features": ["efficientnet-lite0", "visits.csv", "junk.npy", "null"],
    "data.label_space": ["task", "constant", "learned", "data"],
    "data.outside": ["drop", "remap"],
    "model.network": ["linear", "mlp", "tabular_mlp", "cnn", "noisy", "pretrained"],
    "budget.unit": ["person", "record", "null"],
    "budget.adjacency": ["add-or-remove", "zero-out", "replace-one"],
    "evaluation.test": ["none", "public", "charged", "auto"],
    "tuned.how": ["none", "private", "held-tasks", "public-proxy"],
    "repeatable_noise": ["true", "false"],
    "device": ["cpu", "cuda", "cuda:7", "tpu"],
    "kind": ["run", "endless", "sweep", "accounting"],
}
OTHERWISE = [*WORDS[:-8], "[nan]", "{}", "[[1]]"]


@st.composite
def settings_of_a_run(draw: st.DrawFn, most: int) -> dict[str, str]:
    keys = draw(st.lists(st.sampled_from(SETTINGS), min_size=1, max_size=most, unique=True))
    return {
        key: draw(st.sampled_from(CHOICES.get(key, NEAR) if draw(st.integers(0, 4)) else OTHERWISE)) for key in keys
    }


def runs_or_refuses(settings: dict[str, str]) -> None:
    """A run on private records with any settings: it learns, or it refuses and has charged nothing in vain."""
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    line = ["run", "visits.yaml", "--ledger", "new.ledger", "--out", "made", *QUICK, *words]
    with copied("visits") as folder:
        result = tacit(line)
        sound(line, result)
        paid_for(folder / "new.ledger", folder / "made")
        if result.exit_code == 1:
            assert not (folder / "made").exists() or (folder / "made" / "config.yaml").exists()


@profile(25)
@given(settings_of_a_run(2))
def test_any_settings_of_a_run_on_private_records(settings: dict[str, str]) -> None:
    runs_or_refuses(settings)


@pytest.mark.slow
@profile(800)
@given(settings_of_a_run(3))
def test_any_settings_of_a_run_at_length(settings: dict[str, str]) -> None:
    runs_or_refuses(settings)
