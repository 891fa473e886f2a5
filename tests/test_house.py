"""The house: arrows point one way, records are read inside the vault only, and importing is quick and quiet."""

import ast
import importlib
import traceback
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from support.import_graph import FILES, MODULES, ROOT, cycle, folder, grouped, room
from tacit import Block, Budget, Declared, GradientPlan, Ledger, Read, SumPlan, Vault
from tacit.gradients.losses import cross_entropy

LIBRARY = {"errors", "lazy", "words"}
PRIVATE = LIBRARY | {"charge_flag", "data", "gradients", "privacy"}
LEARNING = PRIVATE | {"certificate", "learners", "memory", "models", "plugins"}
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "lazy": set(),
    "words": set(),
    "charge_flag": set(),
    "plugins": LIBRARY,
    "metrics": LIBRARY,
    "data": LIBRARY,
    "gradients": LIBRARY,
    "privacy": PRIVATE,
    "models": LIBRARY | {"gradients", "plugins"},
    "memory": PRIVATE,
    "certificate": PRIVATE,
    "learners": LEARNING,
    "prediction": LEARNING,
    "robustness": LEARNING,
    "audit": LEARNING,
    "presets": LIBRARY,
    "experiment": LEARNING | {"metrics", "presets", "robustness"},
    "report": LIBRARY | {"certificate", "experiment", "metrics", "tacit"},
    "commands": LEARNING | {"audit", "experiment", "metrics", "prediction", "report", "robustness", "tacit"},
    "cli": LIBRARY | {"commands", "tacit"},
    "__main__": LIBRARY | {"charge_flag", "cli"},
}
"""Each part of the package and the parts that it may import besides itself; a part imports only parts above its line.

`tacit` is the package's own `__init__`, which exports the public names lazily; only the version is imported from it.
"""
MOST_FILES = 20
"""In one folder, its `__init__` not counted."""


def test_each_room_imports_only_the_rooms_below_it() -> None:
    for module, imported in MODULES.items():
        allowed = ROOMS[room(module)] | {room(module)} if module != "tacit" else {*ROOMS}
        for other in imported:
            assert room(other) in allowed, f"{module} imports {other}"


def test_the_table_of_rooms_has_one_direction() -> None:
    assert set(ROOMS) == {room(module) for module in MODULES} - {"tacit"}
    for number, (name, allowed) in enumerate(ROOMS.items()):
        assert allowed - {"tacit", name} <= set(list(ROOMS)[:number]), name


def test_only_the_version_is_imported_from_the_package_itself() -> None:
    for module in MODULES:
        for node in ast.walk(ast.parse(FILES[module].read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "tacit":
                names = {alias.name for alias in node.names}
                assert all(name == "__version__" or f"tacit.{name}" in MODULES for name in names), (module, names)


def test_modules_do_not_import_each_other_in_a_cycle() -> None:
    assert cycle(MODULES) == []


def test_folders_do_not_import_each_other_in_a_cycle() -> None:
    assert cycle(grouped({module: folder(module) for module in MODULES})) == []


def test_folders_are_small() -> None:
    sizes = Counter(path.parent for path in FILES.values() if path.name != "__init__.py")
    assert {str(path.relative_to(ROOT)): size for path, size in sizes.items() if size > MOST_FILES} == {}


def test_a_file_name_occurs_once() -> None:
    """A name that several rooms use for their files says too little about what is in them."""
    names = Counter(path.name for path in FILES.values() if path.name != "__init__.py")
    assert len([name for name, number in names.items() if number > 1]) == 0


def test_compiled_loops_use_constants_of_their_own_file() -> None:
    """Their machine code is kept, and made anew only when that file changes."""
    loops = 0
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text())
        froms = [
            node for node in tree.body if isinstance(node, ast.ImportFrom) and str(node.module).startswith("tacit")
        ]
        imported = {alias.asname or alias.name for node in froms for alias in node.names}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and "compiled(" in "".join(map(ast.unparse, node.decorator_list)):
                loops += 1
                used = {name.id for part in node.body for name in ast.walk(part) if isinstance(name, ast.Name)}
                assert not used & imported, f"{path}: {node.name} uses {used & imported}"
    assert loops > 5


def test_classes_are_at_most_four_deep() -> None:
    def depth(cls: type) -> int:
        """The longest way up through classes of the package."""
        return cls.__module__.startswith("tacit") * (1 + max(map(depth, cls.__bases__), default=0))

    classes = {
        cls
        for module in MODULES
        if ".migrations." not in module  # these run inside Alembic only
        for cls in vars(importlib.import_module(module)).values()
        if isinstance(cls, type) and cls.__module__.startswith("tacit")
    }
    assert len(classes) > 300
    assert {cls.__qualname__: depth(cls) for cls in classes if depth(cls) > 4} == {}


def test_nothing_reads_or_writes_a_pickle() -> None:
    """One exception: the weights inside the package of EfficientNet-Lite0 are a file of torch's old format. Its SHA-256
    is compared with a constant before a byte of it is read as such, and then only tensors are read."""
    known = ROOT / "models" / "backbones_efficientnet.py"
    text = known.read_text()
    assert text.count("torch.load(") == 1 and text.index("!= SHA256") < text.index("torch.load(")
    assert "weights_only=True" in text[text.index("torch.load(") :]
    for path in set(ROOT.rglob("*.py")) - {known}:
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert "pickle" not in path.read_text().replace("never a pickle", "").replace("No pickle", ""), path
        assert not ("load" in names and "torch.load(" in path.read_text()), path


class Spied(Dataset[tuple[torch.Tensor, int]]):
    """Notes who asks for its features."""

    def __init__(self) -> None:
        self.askers: list[list[str]] = []

    def __len__(self) -> int:
        return 30

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        self.askers.append([f"{Path(f.filename).stem}.{f.name}" for f in traceback.extract_stack()])
        return torch.randn(4, generator=torch.Generator().manual_seed(i)), i % 2


WAYS_OUT = {f"{file}.__call__" for file in ("sums", "second_moment", "accuracy", "label_set", "count", "gradient_exit")}
WAYS_IN = {"admission.admit"}


def learner(info: dict[str, object], block: Block, vault: Vault) -> dict[str, torch.Tensor]:
    """A learner as issue after issue will write them: it sees public facts, handles and released values."""
    assert all(isinstance(value, int | float | str | tuple | bool | Budget | None) for value in vars(block).values())
    model = nn.Linear(4, 2)
    plan = GradientPlan(rate=0.5, steps=3, noise=2.0)
    moments = SumPlan(noise=5.0)
    vault.commit({block: [plan, moments, moments, moments, moments]})
    grant = vault.grant([Read(block=block, select=lambda x, y: y >= 0)], plan, model, cross_entropy)
    for _ in grant:
        grant.backward()
    vault.sums(block, moments)
    vault.second_moment(block, moments)
    vault.count(block, moments)
    vault.accuracy(block, model.eval(), moments)
    return {name: p.detach() for name, p in model.named_parameters()}


def test_records_are_read_inside_the_vaults_exits_only() -> None:
    data = Spied()
    with Ledger.throwaway() as ledger:
        vault = Vault(ledger)
        budget = Budget(epsilon=10.0, delta=1e-5)
        facts = Declared(stream="s", task="t", budget=budget, size=30, labels=(0, 1), shape=(4,), public=True)
        block = vault.admit(data, facts)
        admitted = len(data.askers)
        assert all(WAYS_IN & set(asker) for asker in data.askers)
        learner({"labels": (0, 1)}, block, vault)
    inside = data.askers[admitted:]
    assert inside
    for asker in inside:
        place = asker.index("test_house.learner")
        entry = asker[place + 1]
        assert entry in WAYS_OUT | {"grant.gradient", "grant.backward"}, asker


def test_the_ledger_is_charged_before_a_record_is_read() -> None:
    """At the first read of every exit the charge is already in the ledger."""
    with Ledger.throwaway() as ledger:
        seen: list[str] = []

        class Checking(Spied):
            def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
                seen.extend(grant.state for grant in ledger.statement(1).grants) if armed else None
                return super().__getitem__(i)

        armed = False
        vault = Vault(ledger)
        budget = Budget(epsilon=10.0, delta=1e-5)
        facts = Declared(stream="s", task="t", budget=budget, size=30, labels=(0, 1), shape=(4,), public=True)
        block = vault.admit(Checking(), facts)
        armed = True
        grant = vault.grant(block, GradientPlan(rate=0.9, steps=1, noise=2.0), nn.Linear(4, 2), cross_entropy)
        assert seen == []
        grant.gradient()
        assert seen and set(seen) == {"CHARGED"}


def test_a_block_says_nothing_of_its_records() -> None:
    with Ledger.throwaway() as ledger:
        vault = Vault(ledger)
        budget = Budget(epsilon=1.0, delta=1e-5)
        shown = []
        for stream, n in (("a", 10), ("a2", 11)):
            facts = Declared(stream=stream, task="t", budget=budget, size=10, labels=(0, 1), public=True)
            block = vault.admit((np.ones((n, 1)) * np.arange(n)[:, None], np.zeros(n)), facts)
            shown.append(
                {
                    key: value
                    for key, value in vars(block).items()
                    if key not in ("id", "name", "root", "stream_id", "stream")
                }
            )
        assert shown[0] == shown[1]
