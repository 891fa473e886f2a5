"""A search space: what it reads, what it draws, what it refuses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.errors import ConfigError
from tacit.experiment.tuning.space import Space

VALUES = {
    "learner.lr": {"low": 1e-4, "high": 1.0, "log": True},
    "learner.batch": {"low": 2, "high": 5, "whole": True},
    "learner.clip": {"low": 0.5, "high": 1.5},
    "model.hidden": {"choices": [[4], [8], [16]]},
}


def test_draws_are_independent_and_even_over_the_whole_space() -> None:
    space, rng = Space.of(VALUES), np.random.default_rng(0)
    drawn = [space.draw(rng) for _ in range(4000)]
    rate = np.log10([one["learner.lr"] for one in drawn])
    assert rate.min() >= -4 and rate.max() <= 0 and abs(rate.mean() + 2) < 0.1  # evenly in the logarithm
    batches = np.bincount([one["learner.batch"] for one in drawn], minlength=6)
    assert batches[:2].sum() == 0 and batches[2:].min() > 850 and {type(one["learner.batch"]) for one in drawn} == {int}
    clips = np.asarray([one["learner.clip"] for one in drawn])
    assert clips.min() >= 0.5 and clips.max() <= 1.5 and abs(clips.mean() - 1) < 0.03
    hidden = [one["model.hidden"] for one in drawn]
    assert min(hidden.count(choice) for choice in ([4], [8], [16])) > 1200
    assert abs(np.corrcoef(rate, clips)[0, 1]) < 0.06


def test_whole_numbers_by_the_logarithm_reach_both_ends() -> None:
    space, rng = Space.of({"k": {"low": 1, "high": 4, "whole": True, "log": True}}), np.random.default_rng(0)
    assert {space.draw(rng)["k"] for _ in range(500)} == {1, 2, 3, 4}


def test_a_file_says_the_same(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text(
        "learner.lr: {low: 1.0e-3, high: 1, log: true}\nmodel.hidden: {choices: [[4]]}"
    )
    space = Space.of(tmp_path / "space.yaml")
    assert space.keys == "learner.lr, model.hidden" and space.ranges["learner.lr"].ends == (1e-3, 1.0)
    assert space.ranges["model.hidden"].ends == ([4],)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "needs at least one key"),
        ({"learner.lr": 3}, r"learner.lr = 3 is not a valid range"),
        ({"learner.lr": {"low": 1}}, "learner.lr: a key of a search space needs low and high, or choices"),
        ({"learner.lr": {"low": 2, "high": 1}}, "low must be below high"),
        ({"learner.lr": {"low": 0, "high": 1, "log": True}}, "log=true needs low > 0"),
        ({"learner.lr": {"low": 0.5, "high": 1, "whole": True}}, "whole=true needs integers"),
        ({"learner.lr": {"low": 0, "high": 1, "choices": [1]}}, "this one has both"),
        ({"learner.lr": {"low": 0, "hihg": 1}}, "did you mean high"),
    ],
)
def test_what_is_wrong_is_one_sentence(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Space.of(values)


def test_files_that_are_no_space(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        Space.of(tmp_path / "none.yaml")
    for content, words in (("[1, 2]", "holds no keys"), ("a: {", "is not valid YAML")):
        (tmp_path / "s.yaml").write_text(content)
        with pytest.raises(ConfigError, match=words):
            Space.of(tmp_path / "s.yaml")


def test_a_list_is_told_both_ways_to_write_it() -> None:
    with pytest.raises(ConfigError) as error:
        Space.of({"learner.lr": [1, 2]})
    said = "write learner.lr: {low: 1, high: 2} for the numbers between two ends, or learner.lr: {choices: [1, 2]} for"
    assert said in str(error.value)
