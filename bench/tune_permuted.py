"""Choose the settings of desai2021/permuted-mnist-wide on permutations that no test uses, with a copy of DP-SGD.

    python bench/tune_permuted.py FOLDER [--device cuda] [--seconds 80] [--tiny]

Trains on the first 50,000 images, judges by the next 5,000, reads no test set, and writes FOLDER/trials.json and
FOLDER/chosen.yaml, a sweep: `tacit sweep FOLDER/chosen.yaml`. The copy has torch's noise and no vault, so nothing here
is private (MNIST is public); the sweep itself is tacit's.

First single tasks from the initial weights: each combination of `GRID` in a fixed random order, as many as half of the
time allows, then the best six with two more seeds. Then streams of twelve tasks from the last expert (`aligned`), with
several learning rates for later tasks, judged by the mean over all tasks.
"""

import argparse
import itertools
import json
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
import yaml
from torch import Tensor

from tacit import Budget
from tacit.data.benchmarks.named import load
from tacit.learners.experts.alignment import matching
from tacit.learners.experts.experts import RoutedExperts, SumPlan
from tacit.privacy.accounting import calibrate, events

BUDGET, SHARE, RECORDS, USED, JUDGED = (
    Budget(epsilon=1.0, delta=1e-5),
    RoutedExperts.router_share,
    55_000,
    50_000,
    5_000,
)
BEST, SEEDS, TASKS, OF = 6, 2, 12, 17
TAILS = {"same": 0.0, "root": 0.5, "inverse": 1.0}
"""The learning rate of task k is lr · factor / k^power, k ≥ 2; here powers."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    hidden: int = 512
    length: float = 8.0
    batch: int = 8192
    steps: int = 200
    lr: float = 32.0
    average: float = 0.3


GRID = [
    Setting(hidden=hidden, length=length, steps=steps, lr=distance / steps)
    for hidden, length, steps, distance in itertools.product(
        (512, 1024), (4.0, 8.0, 16.0), (100, 200), (3200.0, 6400.0, 12800.0, 25600.0)
    )
]


def noise(setting: Setting, known: dict[tuple[int, int], float]) -> float:
    """The noise multiplier for which the steps and the router's sum fit the budget together."""
    key = (setting.batch, setting.steps)
    if key not in known:
        look, rate = SumPlan.for_budget(BUDGET, share=SHARE).event, setting.batch / RECORDS
        known[key] = calibrate.noise_for(
            BUDGET, lambda n: events.compose([events.poisson_gaussian(rate, n, setting.steps), look])
        )
    return known[key]


def rescaled(x: Tensor, length: float) -> Tensor:
    return length * torch.nn.functional.normalize(x - x.mean(1, keepdim=True), dim=1)


def initial(setting: Setting, coins: torch.Generator, device: str) -> list[Tensor]:
    """PyTorch's initial weights of Linear layers."""
    made = []
    for inputs, outputs in ((784, setting.hidden), (setting.hidden, 10)):
        for shape in ((outputs, inputs), (outputs,)):
            made.append((2 * torch.rand(shape, generator=coins, device=device) - 1) / inputs**0.5)
    return made


def logits(weights: Sequence[Tensor], x: Tensor) -> Tensor:
    return (x @ weights[0].T + weights[1]).relu() @ weights[2].T + weights[3]


def train(
    start: Sequence[Tensor], x: Tensor, y: Tensor, setting: Setting, std: float, lr: float, coins: torch.Generator
) -> list[Tensor]:
    """DP-SGD with the normalising clip at 1, a learning rate that falls linearly, and averaged last weights."""
    weights, rate, last = (
        [one.clone() for one in start],
        setting.batch / RECORDS,
        round(setting.average * setting.steps),
    )
    totals, squares = [torch.zeros_like(one) for one in weights], x.square().sum(1)
    for step in range(setting.steps):
        rows = (torch.rand(len(x), generator=coins, device=x.device) < rate).nonzero().squeeze(1)
        a = x[rows]
        h = (a @ weights[0].T + weights[1]).relu()
        b = (h @ weights[2].T + weights[3]).softmax(1)
        b[torch.arange(len(rows), device=x.device), y[rows]] -= 1
        d = (b @ weights[2]) * (h > 0)
        norms = (squares[rows] + 1) * d.square().sum(1) + (h.square().sum(1) + 1) * b.square().sum(1)
        clip = 1 / (norms.sqrt() + 0.01)[:, None]
        b, d = b * clip, d * clip
        for one, gradient in zip(weights, (d.T @ a, d.sum(0), b.T @ h, b.sum(0)), strict=True):
            gradient += std * torch.randn(gradient.shape, generator=coins, device=x.device)
            one -= lr * (1 - step / setting.steps) / (rate * len(x)) * gradient
        if step >= setting.steps - last:
            for total, one in zip(totals, weights, strict=True):
                total += one / last
    return totals


class Judge:
    """Runs settings on one device, and remembers what was tried."""

    def __init__(self, device: str, used: int, tasks: int) -> None:
        data = load("mnist").train
        x = torch.from_numpy(data.x.reshape(len(data.x), -1)[: used + JUDGED]).to(device).float() / 255
        y = torch.from_numpy(data.y[: used + JUDGED]).to(device).long()
        self.x, self.y, self.shown, self.asked = x[:used], y[:used], x[used:], y[used:]
        self.device, self.tasks = device, tasks
        self.trials: list[dict[str, object]] = []
        self._noise: dict[tuple[int, int], float] = {}

    def right(self, weights: Sequence[Tensor], order: Tensor, length: float) -> float:
        found = logits(weights, rescaled(self.shown[:, order], length)).argmax(1)
        return float((found == self.asked).float().mean())

    def single(self, setting: Setting, seed: int) -> float:
        """Accuracy on one task, which is like any permutation of it."""
        coins = torch.Generator(self.device).manual_seed(1000 + seed)
        start, std = initial(setting, coins, self.device), noise(setting, self._noise)
        made = train(start, rescaled(self.x, setting.length), self.y, setting, std, setting.lr, coins)
        found = self.right(made, torch.arange(784, device=self.device), setting.length)
        self.note("single", setting, seed, found)
        return found

    def stream(self, setting: Setting, factor: float, power: float, seed: int) -> float:
        """Mean accuracy over tasks that continue from the last expert."""
        coins = torch.Generator(self.device).manual_seed(2000 + seed)
        start, std = initial(setting, coins, self.device), noise(setting, self._noise)
        sums: list[Tensor] = []
        orders: list[Tensor] = []
        for k in range(self.tasks):
            orders.append(torch.randperm(784, generator=coins, device=self.device))
            x = self.x[:, orders[-1]]
            unit = torch.nn.functional.normalize(x, dim=1)
            sums.append(torch.zeros(10, 784, device=self.device).index_add_(0, self.y, unit))
            sums[-1] += SumPlan.for_budget(BUDGET, share=SHARE).std * torch.randn(
                (10, 784), generator=coins, device=self.device
            )
            if k:
                start = [start[0][:, self.match(sums[-2], sums[-1])], *start[1:]]
            lr = rates(setting.lr, factor, power, k + 1)[-1]
            start = train(start, rescaled(x, setting.length), self.y, setting, std, lr, coins)
        found = [
            self.right([start[0][:, self.match(sums[-1], one)], *start[1:]], order, setting.length)
            for one, order in zip(sums, orders, strict=True)
        ]
        mean = sum(found) / len(found)
        self.note("stream", setting, seed, mean, factor=factor, power=power)
        return mean

    def match(self, old: Tensor, new: Tensor) -> Tensor:
        return matching(old, new).to(self.device)

    def note(self, kind: str, setting: Setting, seed: int, found: float, **more: float) -> None:
        self.trials.append({"kind": kind, "seed": seed, "accuracy": found} | asdict(setting) | more)
        print(json.dumps(self.trials[-1]), flush=True)


def rates(lr: float, factor: float, power: float, tasks: int) -> list[float]:
    return [lr, *(round(lr * factor / k**power, 3) for k in range(2, tasks + 1))]


def sweep(setting: Setting, lrs: list[float]) -> dict[str, object]:
    """The configuration of the chosen settings."""
    wide = {
        "learner.method": "RoutedExperts",
        "learner.steps": setting.steps,
        "learner.batch": setting.batch,
        "learner.lr": setting.lr,
        "learner.lr_decay": "linear",
        "learner.clipping": "automatic",
        "learner.average": setting.average,
        "learner.momentum": 0.0,
        "model.hidden": [setting.hidden],
        "model.activation": "relu",
        "model.centred": True,
        "model.length": setting.length,
    }
    aligned = wide | {"learner.router": "prototypes", "learner.start_from": "aligned", "learner.lr": lrs}
    return {
        "kind": "sweep",
        "name": "permuted-mnist-wide",
        "base": "desai2021/permuted-mnist",
        "cells": [wide, aligned],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=80.0)
    parser.add_argument("--tiny", action="store_true", help="few records and steps, to test the script")
    options = parser.parse_args()
    begun, torch.backends.cuda.matmul.allow_tf32 = time.monotonic(), True
    judge = Judge(options.device, 1000 if options.tiny else USED, 2 if options.tiny else TASKS)
    grid = random.Random(0).sample(GRID, len(GRID))
    grid = [replace(one, hidden=8, steps=2) for one in grid[:3]] if options.tiny else grid

    def within(share: float) -> bool:
        return time.monotonic() - begun < share * options.seconds

    found = {one: [judge.single(one, 0)] for one in grid if within(0.5)}
    for one in sorted(found, key=lambda one: -found[one][0])[:BEST]:
        found[one] += [judge.single(one, seed) for seed in range(1, 1 + SEEDS)]
    full = [one for one in found if len(found[one]) > 1]
    best = max(full, key=lambda one: sum(found[one]))
    tails = [(factor, power) for power in TAILS.values() for factor in (1.0, 0.5, 0.25)]
    streams = {
        tail: judge.stream(best, *tail, seed=0) for tail in random.Random(1).sample(tails, len(tails)) if within(1.0)
    }
    tail = max(streams, key=lambda tail: streams[tail]) if streams else (0.5, 0.0)
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "trials.json").write_text(json.dumps(judge.trials, indent=1))
    chosen = sweep(best, rates(best.lr, *tail, OF))
    (options.folder / "chosen.yaml").write_text(yaml.safe_dump(chosen, sort_keys=False))
    print(f"{time.monotonic() - begun:.0f} s; {best}, later tasks: factor {tail[0]}, power {tail[1]}")


if __name__ == "__main__":
    main()
