"""The cleaning steps of Lai et al. 2022, App. D, on small recordings whose answers are known."""

from typing import Any

import numpy as np
import pytest

from tacit.data.benchmarks.sensors import cut, stride
from tacit.data.benchmarks.sessions import Recordings, sessions
from tacit.data.samples import Samples
from tacit.errors import DataError

RATE = 10.0


def recordings(*lengths: int, time: Any = None, labels: Any = None) -> Recordings:
    """Recordings of so many samples at 10 Hz; the first axis counts the samples of each."""
    x = np.concatenate([np.arange(length) for length in lengths]).astype(np.float32)
    which = np.repeat(np.arange(len(lengths)), lengths)
    y = which % 2 if labels is None else np.asarray(labels)[which]
    stamps = None if time is None else np.asarray(time, dtype=np.float64)
    return Recordings(x=np.stack([x, -x, x], 1), y=y, ids=which // 2, recording=which, rate=RATE, time=stamps)


def counts(found: Samples) -> list[list[int]]:
    """The first axis, session after session."""
    session = found.groups["session"]
    return [found.x[session == one, 0].tolist() for one in dict.fromkeys(session.tolist())]


def test_samples_of_one_moment_become_their_mean() -> None:
    found = sessions(recordings(5, time=[0.0, 0.1, 0.1, 0.1, 0.2]), trim=0)
    assert counts(found) == [[0, 2, 4]]
    assert found.x[:, 1].tolist() == [0, -2, -4] and found.x.dtype == np.float32


def test_the_same_moment_in_two_recordings_is_not_merged() -> None:
    found = sessions(recordings(2, 2, time=[0.0, 0.1, 0.1, 0.2]), trim=0)
    assert counts(found) == [[0, 1], [0, 1]]


def test_stamps_out_of_order_are_put_in_order() -> None:
    assert counts(sessions(recordings(4, time=[0.3, 0.1, 0.2, 0.0]), trim=0)) == [[3, 1, 2, 0]]


@pytest.mark.parametrize(("gap", "whole"), [(0.3, True), (0.301, False), (5.0, False)])
def test_only_a_gap_of_more_than_300_ms_begins_a_new_session(gap: float, whole: bool) -> None:
    found = sessions(recordings(6, time=[0.0, 0.1, 0.2, 0.2 + gap, 0.3 + gap, 0.4 + gap]), trim=0)
    assert counts(found) == ([[0, 1, 2, 3, 4, 5]] if whole else [[0, 1, 2], [3, 4, 5]])


def test_ten_seconds_are_left_out_at_both_ends_of_a_recording() -> None:
    found = sessions(recordings(300, 200, 205))
    assert counts(found) == [list(range(100, 200)), list(range(100, 105))]
    assert found.ids is not None and set(found.ids[:100].tolist()) == {0} and set(found.ids[100:].tolist()) == {1}


def test_trimming_is_by_the_recording_and_not_by_the_session() -> None:
    stamps = np.arange(300) / RATE + np.where(np.arange(300) >= 150, 1.0, 0.0)
    assert counts(sessions(recordings(300, time=stamps))) == [list(range(100, 150)), list(range(150, 200))]


def test_a_recording_ends_after_thirty_minutes() -> None:
    found = sessions(recordings(20_000, 18_200))
    assert [(one[0], one[-1], len(one)) for one in counts(found)] == [(100, 18_099, 18_000)] * 2


def test_without_stamps_nothing_is_merged_and_no_gap_is_found() -> None:
    raw = recordings(50, 30)
    assert counts(sessions(raw, trim=0)) == [list(range(50)), list(range(30))]


def test_one_recording_does_not_change_another() -> None:
    alone, beside = (counts(sessions(recordings(*lengths))) for lengths in ((300,), (300, 999)))
    assert beside[0] == alone[0]


def test_recordings_without_a_sample_or_too_short_leave_none() -> None:
    assert len(sessions(recordings(0))) == 0 and len(sessions(recordings(150))) == 0
    assert len(sessions(recordings(0, time=[]))) == 0


def test_windows_lie_within_a_session_and_overlap_by_their_class() -> None:
    stamps = np.concatenate([np.arange(30) / RATE, np.arange(30) / RATE + 4, np.arange(40) / RATE])
    found = sessions(recordings(60, 40, time=stamps), trim=0)
    made = cut(found, 10, [stride(10, 0.25), stride(10, 0.9)], 1)
    first, second = made.x[made.y == 0][:, :, 0], made.x[made.y == 1][:, :, 0]
    assert first[:, 0].tolist() == [0, 8, 16, 30, 38, 46]  # a stride of 7.5 samples is 8
    assert second[:, 0].tolist() == list(range(31))
    assert (np.diff(made.x[:, :, 0], axis=1) == 1).all()


def test_a_derived_rate_keeps_one_sample_in_so_many() -> None:
    made = cut(sessions(recordings(50), trim=0), 10, [5], 2)
    assert made.x[:, :, 0].tolist() == [list(range(start, start + 20, 2)) for start in (0, 10, 20, 30)]


def test_wrong_constants_and_columns_are_refused() -> None:
    with pytest.raises(DataError, match=r"trim ≥ 0, cap > 0 and gap > 0 seconds, got -1, 1800 and 0\.3"):
        sessions(recordings(5), trim=-1)
    with pytest.raises(DataError, match="lengths differ"):
        recordings(5, time=[0.0])
