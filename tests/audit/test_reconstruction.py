"""The attack on L2DP-ML as published finds records and labels; against independent noise it finds nothing."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tacit.audit import reconstruction
from tacit.audit.reconstruction import audit
from tacit.cli import app
from tacit.data.benchmarks.named import find
from tacit.errors import PlanError
from tacit.learners.published.functional import Functional


@pytest.mark.parametrize("victim", [0, 7, 123, 300])
def test_a_record_and_its_label_are_found(victim: int) -> None:
    report = audit(victim=victim)
    double, single, projected, honest = report.findings
    assert double.rmse < 1e-3 and double.label == report.label
    assert single.rmse < 0.2 and single.label == report.label
    assert projected.rmse < 0.3 and projected.label == report.label  # one of 64 directions is guessed
    assert honest.rmse > 0.3 and honest.label is None  # the control
    assert report.claimed == pytest.approx(0.5) and report.certified is None
    assert "one draw of noise" in report.reason and report.scale > 50
    assert abs(report.perturbed - report.victim).mean() > 10


@pytest.mark.parametrize("epsilon", [0.1, 5.0])
def test_however_much_noise_there_is(epsilon: float) -> None:
    report = audit(epsilon=epsilon)
    assert report.findings[0].rmse < 1e-3 and report.findings[0].label == report.label


def test_independent_noise_does_not_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same learner, network and attack; only the noise is drawn anew for every task."""
    honest: Callable[..., dict[str, torch.Tensor]] = Functional.gradient
    coins = torch.Generator().manual_seed(0)

    def gradient(self: Functional, x: torch.Tensor, y: torch.Tensor, size: int) -> dict[str, torch.Tensor]:
        scale = self.plan(self.stream_.tasks[0]).delta_r / self.plan(self.stream_.tasks[0]).epsilon1 / size
        uniform = torch.rand(x.shape[1:], generator=coins, dtype=x.dtype) - 0.5
        fresh = -scale * uniform.sign() * torch.log1p(-2 * uniform.abs())
        return honest(self, x - self.chi_["input"] / size + fresh, y, size)

    monkeypatch.setattr(Functional, "gradient", gradient)
    report = audit()
    assert min(one.rmse for one in report.findings) > 0.3


def test_the_adversary_gets_parameters_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    honest = reconstruction.reconstruct

    def watched(known: reconstruction.Known) -> tuple[torch.Tensor, int]:
        seen.append(known)
        return honest(known)

    monkeypatch.setattr(reconstruction, "reconstruct", watched)
    monkeypatch.setattr(reconstruction, "reconstruct_projected", watched)
    audit()
    for known in seen:
        names = {name.split(".")[0] for release in known.releases for name in release}
        assert names == {"encoder", "body", "head"}
        assert [len(x) for x, _ in known.records] == [499, 500, 500]
        assert max(float(x.abs().max()) for x, _ in known.records) <= 1  # not perturbed


def test_the_command_and_its_picture(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["audit", "lifelong-reconstruction", "--out", str(tmp_path / "a.png")])
    assert shown.exit_code == 0, shown.output
    assert shown.output.count("RECONSTRUCTED") == 3 and shown.output.count("not found") == 1
    assert "claimed: ε = 0.5" in shown.output and "certified: no finite ε" in shown.output
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads(CliRunner().invoke(app, ["audit", "lifelong-reconstruction", "--json"]).output)
    assert found["certified"] is None and found["findings"][0]["label"] == found["label"]


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
    report = audit(data="mnist", victim=victim)
    double, single, projected, honest = report.findings
    assert double.rmse < 1e-3 and single.rmse < 0.2 and projected.rmse < 0.2 and honest.rmse > 0.3
    assert double.label == single.label == projected.label == report.label
