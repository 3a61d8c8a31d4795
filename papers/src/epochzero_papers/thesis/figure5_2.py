"""Thesis, Figure 5.2: the effect of delta in SVGD-RD, on a mixture of two Gaussians.

Means (-1, 0) and (0, 1), covariance diag(.25, .5), 15 particles from N(0, I), 1,000 steps of .1 without momentum, delta
-1, -.5, 0, .5 and 1; bandwidth by the median rule (the thesis does not give it). The thesis shows a picture and prints
no figure: as delta grows, particles move apart, and all stay where the density is high. Measured for each delta, mean
over starts: the distance of two particles, and the log of the density times 2 pi sqrt(.125) Z, so that each of the two
Gaussians is 1 at its peak. Proposition 5.2: a single particle ends at a mode, whatever delta; measured is the largest
slope of the log density where such particles end, over all deltas and starts.

`python -m epochzero_papers svgd-picture FOLDER` draws the picture.

Shu. Understanding and improving neural architecture search (thesis, chapter 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from epochzero.ensemble.svgd import svgd_rd
from epochzero.pictures import QUIET, new_panels, save, style
from epochzero.plan import generator
from epochzero.stats.bootstrap import Estimate, estimate
from epochzero_papers.harness.base import Measurement, Quoted, Recipe, Row, Sample, Settings, Work, experiment
from epochzero_papers.harness.options import option

MEANS = torch.tensor([[-1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)  # [2, d]
VARIANCES = torch.tensor([0.25, 0.5], dtype=torch.float64)  # [d]
DELTAS = (-1.0, -0.5, 0.0, 0.5, 1.0)
PANEL = 1.9
"""inches along each side of a picture"""


@dataclass(frozen=True)
class Study(Settings):
    """`networks` particles, `repeats` starts."""

    networks: int = 15
    repeats: int = 20
    steps: int = 1000


@experiment
class ThesisFigure52(Recipe):
    """Particles on a mixture of two Gaussians."""

    name = "thesis-figure5.2"
    source = "Shu, thesis, Figure 5.2"
    full: Study = Study()
    quick: Study = Study(repeats=3)
    quoted: Sequence[Quoted] = ()

    def measure(self, work: Work) -> Measurement:
        settings: Study = work.settings
        work.begin()
        particles = sampled(settings.networks, settings.repeats, settings.steps, work.seed)  # [starts, deltas, n, 2]
        distances, densities = mean_distance(particles), log_density(particles).mean(-1)  # [starts, deltas]
        rows = []
        for i, delta in enumerate(DELTAS):
            x, y = (f"{axis}, delta {delta:g}" for axis in ("x", "y"))
            rows.append(Row("mixture", x, y, "mean distance", _mean(distances[:, i], work.seed), 0))
            rows.append(Row("mixture", x, y, "mean log density", _mean(densities[:, i], work.seed), 0))
        alone = sampled(1, settings.repeats, settings.steps, work.seed)  # [starts, deltas, 1, 2]
        slope = float(score(alone).norm(dim=-1).max())
        largest = Estimate(slope, slope, slope, alone[..., 0, 0].numel())
        rows.append(Row("mixture", "one particle", "mode", "largest slope", largest, 0))
        work.progress(1, 1)
        return Measurement(rows, {"mixture": _sample(particles, alone)})


def log_density(x: Tensor) -> Tensor:
    """Returns the log of the sum of two Gaussians, each 1 at its peak; [..., 2] to [...]."""
    return torch.logsumexp(_exponents(x), -1)


def score(x: Tensor) -> Tensor:
    """Returns the gradient of the log density."""
    share = torch.softmax(_exponents(x), -1)[..., None]  # [..., 2, 1]
    return (share * (MEANS - x[..., None, :]) / VARIANCES).sum(-2)


def _exponents(x: Tensor) -> Tensor:
    return -((x[..., None, :] - MEANS).square() / VARIANCES).sum(-1) / 2


def sampled(particles: int, starts: int, steps: int, seed: int) -> Tensor:
    """Returns final positions [starts, deltas, particles, 2]; every delta has the same starts."""
    start = torch.randn(starts, 1, particles, 2, generator=generator(seed, "figure 5.2"), dtype=torch.float64)
    deltas = torch.tensor(DELTAS, dtype=torch.float64)[:, None, None]
    return svgd_rd(score, start.expand(-1, len(DELTAS), -1, -1), deltas, steps=steps, momentum=0.0)


def mean_distance(x: Tensor) -> Tensor:
    """Returns the mean distance of two particles; [..., n, 2] to [...]."""
    one, other = torch.triu_indices(x.shape[-2], x.shape[-2], 1)
    return torch.cdist(x, x)[..., one, other].mean(-1)


def _mean(values: Tensor, seed: int) -> Estimate:
    each = values.numpy()

    def of(counts: np.ndarray) -> np.ndarray:
        return np.asarray(each @ counts / counts.sum(0))

    return estimate([of], len(each), seed=seed)


def _sample(particles: Tensor, alone: Tensor) -> Sample:
    """Returns all final positions, one particle after another."""
    values = {
        f"{axis}, delta {delta:g}": particles[:, i, :, j].flatten().tolist()
        for i, delta in enumerate(DELTAS)
        for j, axis in enumerate(("x", "y"))
    }
    starts, _, count, _ = particles.shape
    values["one particle"] = score(alone).norm(dim=-1).flatten().tolist()
    archs = [f"particle {p}, start {s}" for s in range(starts) for p in range(count)]
    about = "a mixture of two Gaussians; no data."
    return Sample(
        "particles in the plane", archs, {name: name for name in values}, values, dict.fromkeys(values, about), {}
    )


@style()
def picture(folder: Path, stem: str, seed: int = 0) -> list[str]:
    """Draw the density and the particles of one start, a panel for each delta; returns the names of the files."""
    particles = sampled(15, 1, 1000, seed)[0]  # [deltas, n, 2]
    x, y = np.meshgrid(np.linspace(-2.8, 1.8, 80), np.linspace(-2.2, 3.2, 80))
    height = log_density(torch.from_numpy(np.stack([x, y], -1))).exp().numpy()
    figure, panels = new_panels(len(DELTAS), len(DELTAS), PANEL, PANEL)
    for axes, delta, own in zip(panels, DELTAS, particles, strict=True):
        axes.contour(x, y, height, levels=5, linewidths=0.5, colors=QUIET)
        axes.scatter(*own.mT.numpy(), s=8)
        axes.set_title(f"delta {delta:g}")
    return save(figure, folder, stem)


@dataclass(frozen=True)
class Asked:
    """The folder of the picture."""

    folder: Path = option(about="folder for svgd_rd.png and svgd_rd.svg", positional=True)


def draw(asked: Asked) -> str:
    """Draw the picture; returns the names of the files."""
    return " ".join(picture(asked.folder, "svgd_rd"))
