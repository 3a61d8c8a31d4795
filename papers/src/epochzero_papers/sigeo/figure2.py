"""SiGeo, Figures 2, 5 and 6: loss, Fisher-Rao norm and gradients after a warm-up against final losses, on MNIST.

Two-layer ReLU perceptrons with 2, 4, ..., 48 hidden units; plain SGD, batches of 128, learning rates .02 (section 4.1)
and .01 (appendix F.1), three epochs of MNIST's 60,000 digits, which are 1,407 steps. The statistics are measured on the
four batches that follow 0, 48 and 192 steps (0, 10 and 40 % of an epoch), as in `sigeo/digits.py`. Spearman's and
Kendall's correlation over the 24 widths with the final loss over the training digits and over test digits, mean over
draws of the weights. A positive one means that larger values go with larger final losses. The paper plots and prints no
figures; it finds that a low loss, a high norm and large gradients go with low final losses, and that with more warm-up
the first two do so more closely, while the third does not change.

With fewer digits, as in `mnist5k.npz`, training cycles through them, in a new order each time; one in five is held out
for testing. Pixels are normalised with .4914 and .2023, CIFAR-10's first channel, as the paper does. The paper leaves
open what it plots in two places, so both are measured: a Fisher-Rao norm from gradients of batches or of single
samples, and the mean of absolute gradients over the parameters or their sum, as in its Theorem 2.

Zheng, Liu, Fedorov, Zhang, Chen, Wen. SiGeo: sub-one-shot NAS via information theory and geometry of loss landscape.
2023. arXiv:2311.13169
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from epochzero.errors import DegenerateError, UserError
from epochzero.registry import spaces
from epochzero.stats.bootstrap import Interval, estimate
from epochzero.stats.correlation import kendall_statistic, spearman_statistic
from epochzero.stats.few import kendall_interval, spearman_interval
from epochzero_papers.harness.base import Measurement, Quoted, Recipe, Row, Sample, Settings, Work, experiment
from epochzero_papers.harness.files import MNIST
from epochzero_papers.sigeo.digits import STATISTICS, Digits, History, Perceptrons, follow

RATES = (0.01, 0.02)
MEASURES = {"spearman": spearman_statistic, "kendall": kendall_statistic}
INTERVALS: dict[str, Callable[[int], Interval]] = {"spearman": spearman_interval, "kendall": kendall_interval}


@dataclass(frozen=True)
class Study(Settings):
    """`networks` widths; `repeats` draws of the weights of each."""

    batch_size: int = 128
    repeats: int = 10
    steps: int = 1407
    """3 epochs of 60,000 digits"""
    levels: tuple[int, ...] = (0, 48, 192)
    """steps of warm-up"""


@experiment
class SigeoFigure2(Recipe):
    """The study of perceptrons."""

    name = "sigeo-figure2"
    source = "SiGeo (arXiv:2311.13169), Figures 2, 5 and 6"
    full: Study = Study(networks=24)
    quick: Study = Study(networks=8, repeats=2, steps=300)
    needs = (MNIST,)
    targets: Sequence[str] = ("final training loss", "final test loss")
    quoted: Sequence[Quoted] = ()

    def measure(self, work: Work) -> Measurement:
        settings: Study = work.settings
        widths = _widths(settings.networks)
        if max(settings.levels) > settings.steps:
            raise UserError(
                f"A warm-up of {max(settings.levels)} steps is longer than the {settings.steps} of training."
            )
        (path,) = work.images(kind=MNIST)
        digits = Digits.read(path, settings.batch_size, work.seed, work.device)
        work.begin(file=path.name, digits=len(digits.y))
        histories = []
        seeds = range(work.seed, work.seed + settings.repeats)
        for done, hidden in enumerate(widths):
            work.progress(done, len(widths))
            networks = Perceptrons(hidden, [s for _ in RATES for s in seeds], [r for r in RATES for _ in seeds], digits)
            histories.append(follow(networks, digits, settings.levels, settings.steps))
        work.progress(len(widths), len(widths))
        about = (
            f"{len(digits.y)} digits of {path.name} in batches of {settings.batch_size}, in an order drawn with seed "
            f"{work.seed}; {len(digits.test_y)} others to test with."
        )
        samples, rows = {}, []
        for place, rate in enumerate(RATES):
            mine = slice(place * settings.repeats, (place + 1) * settings.repeats)
            name = f"lr {rate:g}".replace("0.", ".")
            columns = _columns(histories, mine)
            samples[name] = _sample(widths, list(seeds), columns, about)
            rows += self._rows(name, columns, settings.levels, work.seed)
        return Measurement(rows, samples)

    def _rows(self, sample: str, columns: dict[str, np.ndarray], levels: Sequence[int], seed: int) -> list[Row]:
        return [
            _row(sample, _after(statistic, level), target, measure, columns, seed)
            for level in levels
            for statistic in STATISTICS
            for target in self.targets
            for measure in MEASURES
        ]


def _widths(count: int) -> list[int]:
    """Returns `count` of the space's widths, evenly spread, from the narrowest to the widest."""
    widths = list(spaces["mlp"])
    if count > len(widths):
        raise UserError(f"There are {len(widths)} perceptrons to choose from, not {count}: ask for fewer --networks.")
    return [widths[i] for i in np.linspace(0, len(widths) - 1, count).round().astype(int)]


def _after(statistic: str, level: int) -> str:
    return f"{statistic} after {level}"


def _columns(histories: Sequence[History], mine: slice) -> dict[str, np.ndarray]:
    """By name, a matrix [repeats, widths]."""
    measured = {
        _after(statistic, level): [history.after[level][i] for history in histories]
        for level in histories[0].after
        for i, statistic in enumerate(STATISTICS)
    }
    measured["final training loss"] = [history.train for history in histories]
    measured["final test loss"] = [history.test for history in histories]
    return {name: torch.stack(by_width, 1)[mine].double().cpu().numpy() for name, by_width in measured.items()}


def _sample(widths: Sequence[int], seeds: Sequence[int], columns: dict[str, np.ndarray], about: str) -> Sample:
    return Sample(
        space="mlp",
        archs=[f"{hidden}, seed {seed}" for seed in seeds for hidden in widths],
        columns={name: name for name in columns},
        values={name: [float(v) if np.isfinite(v) else None for v in found.flat] for name, found in columns.items()},
        data=dict.fromkeys(columns, about),
        unscored={},
    )


def _row(sample: str, x: str, y: str, measure: str, columns: dict[str, np.ndarray], seed: int) -> Row:
    try:
        pairs = zip(columns[x], columns[y], strict=True)
        statistics = [MEASURES[measure](one, other) for one, other in pairs]
        n = columns[x].shape[1]
        return Row(sample, x, y, measure, estimate(statistics, n, seed=seed, interval=INTERVALS[measure](n)), 0)
    except DegenerateError as reason:
        return Row(sample, x, y, measure, None, 0, why=str(reason))
