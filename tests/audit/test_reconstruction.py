"""The attacks on L2DP-ML as published find records, labels and which data set it was; against independent noise,
nothing."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tacit.audit import reconstruction, reconstruction_attack
from tacit.audit.distinguishing_attack import Distinguished, distinguish, moved
from tacit.audit.reconstruction import audit
from tacit.cli import app
from tacit.data.benchmarks.named import find
from tacit.errors import PlanError
from tacit.learners.published.functional import Functional


def test_a_record_and_its_label_are_found() -> None:
    report = audit(victim=123, runs=1)
    double, single, honest = report.findings
    assert double.rmse < 1e-6 and double.label == report.label
    assert single.rmse < 1e-3 and single.label == report.label
    assert honest.rmse > 0.3 and honest.label is None  # the control
    assert report.claimed == pytest.approx(0.5) and report.certified is None
    assert "one draw of noise" in report.reason and report.scale > 50
    assert abs(report.perturbed - report.victim).mean() > 10


@pytest.mark.parametrize("epsilon", [0.1, 10.0])
def test_however_much_noise_there_is(epsilon: float) -> None:
    report = audit(epsilon=epsilon, victim=7, runs=1)
    assert report.findings[0].rmse < 1e-6 and report.findings[0].label == report.label


def test_noise_of_their_own_does_not_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same learner, network and attack; only each record has noise of its own, of the same scale."""
    honest: Callable[..., dict[str, torch.Tensor]] = Functional.gradient
    coins = torch.Generator().manual_seed(0)

    def gradient(self: Functional, x: torch.Tensor, y: torch.Tensor, size: int) -> dict[str, torch.Tensor]:
        scale = self.plan(self.stream_.tasks[0]).delta_r / self.plan(self.stream_.tasks[0]).epsilon1 / size
        uniform = torch.rand(x.shape, generator=coins, dtype=x.dtype) - 0.5
        own = -scale * uniform.sign() * torch.log1p(-2 * uniform.abs())
        return honest(self, x - self.chi_["input"] / size + own, y, size)

    monkeypatch.setattr(Functional, "gradient", gradient)
    monkeypatch.setattr(reconstruction_attack, "STEPS", 40)
    assert min(one.rmse for one in audit(runs=1).findings) > 0.3


def test_the_adversary_gets_parameters_and_other_records(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[reconstruction.Known] = []

    def watched(known: reconstruction.Known) -> tuple[torch.Tensor, int]:
        seen.append(known)
        return known.records[0], 0

    monkeypatch.setattr(reconstruction, "reconstruct", watched)
    audit(runs=1)
    assert len(seen) == 2
    for known in seen:
        assert {name.split(".")[0] for name in (*known.before, *known.after)} == {"encoder", "body", "head"}
        assert len(known.records) == len(known.labels) == 499
        assert float(known.records.abs().max()) <= 1  # not perturbed


def test_the_codes_data_sets_are_told_apart() -> None:
    found = distinguish(epsilon=0.5, runs=4)
    assert (found.right, found.wrong) == (4, 0)
    hit = 0.025 ** (1 / 20)  # the lower bound of Clopper and Pearson of 20 of 20
    bound = Distinguished(runs=20, right=20, wrong=0).at_least
    assert bound == pytest.approx(math.log((hit - 1e-5) / (1 - hit))) and bound > 1.5
    assert Distinguished(runs=50, right=25, wrong=25).at_least == 0
    assert Distinguished(runs=50, right=0, wrong=50).at_least == 0
    with pytest.raises(PlanError, match="runs must be at least 1, got 0"):
        distinguish(epsilon=0.5, runs=0)


def test_noise_of_their_own_would_hide_which_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """With independent noise the body moves whether or not a record differs."""
    honest: Callable[..., dict[str, torch.Tensor]] = Functional.gradient
    coins = torch.Generator().manual_seed(0)

    def gradient(self: Functional, x: torch.Tensor, y: torch.Tensor, size: int) -> dict[str, torch.Tensor]:
        return honest(self, x + torch.randn(x.shape, generator=coins, dtype=x.dtype), y, size)

    monkeypatch.setattr(Functional, "gradient", gradient)
    assert moved(0.5, other=False) and moved(0.5, other=True)


def test_the_command_and_its_picture(tmp_path: Path) -> None:
    few = ["--victim", "123", "--runs", "2"]
    shown = CliRunner().invoke(app, ["audit", "lifelong-reconstruction", *few, "--out", str(tmp_path / "a.png")])
    assert shown.exit_code == 0, shown.output
    assert shown.output.count("RECONSTRUCTED") == 2 and shown.output.count("not found") == 1
    assert "claimed: ε = 0.5" in shown.output and "certified: no finite ε" in shown.output
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads(CliRunner().invoke(app, ["audit", "lifelong-reconstruction", *few, "--json"]).output)
    assert found["certified"] is None and found["findings"][0]["label"] == found["label"]
    assert found["code"]["right"] == found["code"]["runs"] == 2 and found["code"]["wrong"] == 0


def test_wrong_calls_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="0 to 499, got 500"):
        audit(victim=500)
    with pytest.raises(PlanError, match="mnist or digits, got 'cifar10'"):
        audit(data="cifar10")
    for place in (tmp_path, tmp_path / "a.jpg"):
        wrong = CliRunner().invoke(app, ["audit", "lifelong-reconstruction", "--out", str(place)])
        assert wrong.exit_code == 1 and "--out must be a PNG file" in wrong.output
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(find("mnist") is None, reason="MNIST is not in TACIT_DATA")
@pytest.mark.parametrize("victim", [3, 2000])
def test_on_mnist_at_the_papers_size(victim: int) -> None:
    report = audit(data="mnist", victim=victim, runs=1)
    double, single, honest = report.findings
    assert double.rmse < 1e-3 and single.rmse < 0.2 and honest.rmse > 0.3
    assert double.label == single.label == report.label
