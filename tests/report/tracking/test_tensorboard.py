"""TensorBoard, read by its own reader: curves, figures and texts, each value of each step once."""

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.months import MONTHS, config_of, declare, grow
from support.report_folders import HOSTILE, hostile
from support.tracked import SECRET
from tacit import Certificate
from tacit.certificate.binding import check
from tacit.errors import ConfigError
from tacit.experiment import run
from tacit.report import TensorBoard
from tacit.report.tracking.event_file import EventFile
from tacit.report.tracking.run_tree import tracked


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"tensors": 0, "images": 0, "scalars": 0})
    found.Reload()
    return found


def curve(folder: Path, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in read(folder).Scalars(tag)]


def test_curves_figures_and_texts(a_run: Path) -> None:
    tracker = TensorBoard()
    tracker.send(a_run)
    assert tracker.describe() == f"tensorboard --logdir {shlex.quote(str((a_run / 'tensorboard').resolve()))}"
    above, *seeds = tracked(a_run)
    for folder, entry in [(a_run / "tensorboard", above), (a_run / "tensorboard" / "seed-1", seeds[1])]:
        found = read(folder)
        assert set(found.Tags()["scalars"]) == set(entry.series)
        for tag, values in entry.series.items():
            assert dict(curve(folder, tag)) == pytest.approx(values)
    found = read(a_run / "tensorboard")
    assert {"figures/accuracy", "figures/matrix", "figures/epsilon"} <= set(found.Tags()["images"])
    (picture,) = found.Images("figures/accuracy")
    assert picture.encoded_image_string.startswith(b"\x89PNG") and picture.width > 100 and picture.step == 3
    (text,) = read(a_run / "tensorboard" / "seed-0").Tensors("certificate")
    assert b"PRIVACY CERTIFICATE" in text.tensor_proto.string_val[0]


def test_sending_it_again_repeats_nothing(a_run: Path) -> None:
    TensorBoard().send(a_run, final=False)
    file = next((a_run / "tensorboard" / "seed-0").iterdir())
    before = file.read_bytes()
    tracker = TensorBoard()
    for _ in range(2):
        tracker.send(a_run)
    TensorBoard().send(a_run)
    assert file.read_bytes()[: len(before)] == before
    assert len(curve(a_run / "tensorboard", "average_accuracy")) == 3
    assert len(read(a_run / "tensorboard").Images("figures/accuracy")) == 1


def test_an_event_that_a_crash_tore_is_written_again(a_run: Path) -> None:
    TensorBoard().send(a_run, final=False)
    file = next((a_run / "tensorboard" / "seed-0").iterdir())
    whole = file.read_bytes()
    for end in (len(whole) - 1, len(whole) - 9, 30, 3, 0):
        file.write_bytes(whole[:end])
        TensorBoard().send(a_run, final=False)
        assert file.read_bytes() == whole, end
    file.write_bytes(b"no events at all")
    TensorBoard().send(a_run, final=False)
    assert file.read_bytes() == whole


def test_a_sweep_in_a_folder_of_its_own(swept: Path, tmp_path: Path) -> None:
    TensorBoard(tmp_path / "logs").send(swept, final=False)
    below = {path.parent.relative_to(tmp_path / "logs").parts for path in (tmp_path / "logs").rglob("events*")}
    assert sorted(len(one) for one in below) == [1, 2, 2, 2, 3, 3, 3, 3, 3, 3]
    assert curve(tmp_path / "logs" / swept.name, "runs_done") == [(3, 3.0)]


def test_nothing_private_is_written(with_secrets: Path, tmp_path: Path) -> None:
    TensorBoard(tmp_path / "logs").send(with_secrets)
    written = b"".join(path.read_bytes() for path in (tmp_path / "logs").rglob("*") if path.is_file())
    assert written and SECRET.encode() not in written
    assert str(with_secrets).encode() not in written


def test_a_run_on_private_data_tells_no_times(tmp_path: Path) -> None:
    """They follow the number of records."""
    declared = declare(tmp_path / "private")
    grow(declared, *MONTHS)
    config = config_of(declared, "NaiveDPSGD", repeatable_noise=False)
    tracker = TensorBoard(tmp_path / "logs")
    run(config, tmp_path / "r", ledger=tmp_path / "visits.ledger", trackers=[tracker])
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    files = [path for path in (tmp_path / "logs").rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"events.out.tfevents.0000000001.tacit"}
    events = [event for path in files for event in EventFileLoader(str(path)).Load()]
    assert len(events) > 10 and {(event.wall_time - event.step) % 86_400 for event in events} == {0.0}
    written = b"".join(path.read_bytes() for path in files)
    assert str(tmp_path / "r").encode() not in written and b"visits.ledger" not in written
    (entry,) = tracked(tmp_path / "r")
    card = (entry.releases[-1].folder / "README.md").read_text()
    assert "one person, in at most 2 task(s)" in card and "charged query" in card
    certificate = Certificate.load(entry.releases[-1].certificate)
    assert certificate.id in card and check(entry.releases[-1].folder, certificate)


def test_hostile_names_are_text_and_stay_in_the_folder(tmp_path: Path, trained: Path) -> None:
    bad = hostile(tmp_path / "bad", trained)
    for cell in bad.iterdir():
        if cell.is_dir():
            for log in cell.rglob("progress.jsonl"):
                log.write_text(log.read_text() + '{"task": 0, "settled": true}\n')
    TensorBoard(tmp_path / "logs").send(bad, final=False)
    files = [path for path in (tmp_path / "logs").rglob("*") if path.is_file()]
    assert files
    for path in files:
        found = read(path.parent)
        for text in found.Tensors("configuration") if "configuration" in found.Tags()["tensors"] else []:
            lines = text.tensor_proto.string_val[0].decode().split("\n")
            assert all(line.startswith("    ") for line in lines)
            assert not any(line.startswith(HOSTILE) for line in lines)


def test_values_after_those_that_are_there_are_appended(tmp_path: Path) -> None:
    from tensorboard.compat.proto.summary_pb2 import Summary

    for last in (2, 2, 5):
        EventFile(tmp_path, tmp_path).add([("a", step, Summary.Value(simple_value=step)) for step in range(last)], 1000)
    assert curve(tmp_path, "a") == [(step, float(step)) for step in range(5)]
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("link", ["", "seed-0", "seed-0/events.out.tfevents.0000000001.tacit"])
def test_no_link_of_a_run_leads_to_a_file_of_somebody_else(a_run: Path, tmp_path: Path, link: str) -> None:
    others = tmp_path / "others"
    others.mkdir()
    file = others / "events.out.tfevents.0000000001.tacit"
    file.write_text("what tacit did not write")
    place = a_run / "tensorboard" / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(file if link.endswith("tacit") else others)
    with pytest.raises(ConfigError, match="remove the link"):
        TensorBoard().send(a_run, final=False)
    assert file.read_text() == "what tacit did not write" and list(others.iterdir()) == [file]


def test_without_tensorboard_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.report.tracking import tensorboard_tracker

    monkeypatch.setattr(tensorboard_tracker, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"TensorBoard is not installed; pip install '\.\[tensorboard\]'"):
        TensorBoard()
