r"""NESBS with inherited weights alone: Figures 5.3, 5.5, 5.6 and 5.7 and Table 5.6 of the thesis.

Ensembles are chosen by the loss of their averaged prediction on held-out images, and reported by its error on test
images, both with inherited weights.

    curves          test error of the best of the first 1, 2, ..., T candidates, for URS, NES-RS, MC and SVGD-RD, over
                    ensemble sizes (5.3), and for MC and SVGD-RD over temperatures of the posterior (5.6). NES-RS has a
                    pool of as many networks as the others evaluate, budget times size.
    deltas          test error for each delta and temperature, and the delta with the lowest held-out loss (5.7)
    discrepancy     test error of the most probable architecture minus the lowest of those evaluated (5.5)
    correlations    of estimated with true errors, over all ensembles of a size from a pool that was trained (5.6)

Shu. Understanding and improving neural architecture search (thesis, chapter 5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from epochzero.ensemble.choosing import forward_greedy
from epochzero.ensemble.metrics import ensemble_error, nll
from epochzero.ensemble.nesbs import GRID, Members, monte_carlo, svgd_ensembles
from epochzero.ensemble.posterior import Posterior
from epochzero.plan import generator
from epochzero.supernet import SharedWeights
from epochzero.supernet.single_path import Picks
from epochzero_papers.thesis.best_response import most_probable

TEMPERATURES = (0.1, 1.0, 10.0)
SIZES = (3, 5, 7)
COMPARED = 5
"""members, where temperatures and deltas are compared"""
MOST = 500
"""the most ensembles of a pool in a correlation"""


@dataclass
class Inherited:
    """Predictions with inherited weights on held-out and on test images, cached by architecture."""

    shared: SharedWeights
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    steps: int = 1000
    """of SVGD-RD"""

    def __post_init__(self) -> None:
        self.held_out: Callable[[Picks], Tensor] = lru_cache(maxsize=None)(self._of(self.x))
        self.test: Callable[[Picks], Tensor] = lru_cache(maxsize=None)(self._of(self.test_x))

    def _of(self, x: Tensor) -> Callable[[Picks], Tensor]:
        return lambda picks: self.shared.predict(picks, x, size=1000)

    def loss(self, members: Members) -> float:
        return nll(torch.stack([self.held_out(picks) for picks in members]), self.y)

    def error(self, members: Members) -> float:
        """On the held-out images."""
        return ensemble_error(torch.stack([self.held_out(picks) for picks in members]), self.y)

    def test_error(self, members: Members) -> float:
        return ensemble_error(torch.stack([self.test(picks) for picks in members]), self.test_y)

    def best_so_far(self, candidates: Sequence[Members]) -> list[float]:
        """Returns the test error of the best of the first 1, 2, ... by held-out loss."""
        losses = [self.loss(members) for members in candidates]
        best = [min(range(count), key=lambda i: losses[i]) for count in range(1, len(losses) + 1)]
        return [self.test_error(candidates[i]) for i in best]


def curves(
    inherited: Inherited, posterior: Posterior, delta: Mapping[float, float], budget: int, trials: int, seed: int
) -> dict[str, Any]:
    """Returns test errors [trials][budget] by sampler, size and temperature; `delta` is by temperature."""
    cases = [(way, size, 1.0) for way in ("URS", "NES-RS", "MC", "SVGD-RD") for size in SIZES]
    cases += [(way, COMPARED, tau) for way in ("MC", "SVGD-RD") for tau in TEMPERATURES if tau != 1]
    errors: dict[str, Any] = {}
    for way, size, tau in cases:
        rngs = [generator(seed, "curves", way, size, tau, trial) for trial in range(trials)]
        own, at = replace(posterior, temperature=tau), delta[tau]
        errors[f"{way}, n = {size}, tau = {tau:g}"] = [curve(inherited, way, own, size, at, budget, g) for g in rngs]
    return errors


def curve(
    inherited: Inherited, way: str, posterior: Posterior, size: int, delta: float, budget: int, rng: Generator
) -> list[float]:
    """Returns test errors after 1, 2, ... evaluations of an ensemble."""
    if way == "MC":
        return inherited.best_so_far([monte_carlo(posterior, size, rng) for _ in range(budget)])
    if way == "SVGD-RD":
        return inherited.best_so_far(svgd_ensembles(posterior, size, [delta] * budget, rng, steps=inherited.steps))
    pool = [inherited.shared.network.uniform(rng) for _ in range(size * budget)]
    if way == "NES-RS":
        return _nes_rs(inherited, pool, size)
    return inherited.best_so_far([tuple(pool[i : i + size]) for i in range(0, len(pool), size)])


def _nes_rs(inherited: Inherited, pool: Sequence[Picks], size: int) -> list[float]:
    """Returns test errors of greedy choices from the first `size`, 2 `size`, ... of a pool."""
    found = []
    for count in range(size, len(pool) + 1, size):
        predictions = torch.stack([inherited.held_out(picks) for picks in pool[:count]])
        chosen = forward_greedy(predictions, inherited.y, size)
        found.append(inherited.test_error(tuple(pool[i] for i in chosen)))
    return found


def deltas(inherited: Inherited, posterior: Posterior, trials: int, seed: int) -> dict[str, Any]:
    """Returns test errors of one ensemble a trial by temperature and delta, and the delta of the lowest mean loss."""
    found: dict[str, Any] = {}
    for tau in TEMPERATURES:
        at = [delta for delta in GRID for _ in range(trials)]
        rng = generator(seed, "deltas", tau)
        ensembles = svgd_ensembles(replace(posterior, temperature=tau), COMPARED, at, rng, steps=inherited.steps)
        losses = np.array([inherited.loss(members) for members in ensembles]).reshape(len(GRID), trials)
        errors = np.array([inherited.test_error(members) for members in ensembles]).reshape(len(GRID), trials)
        found[f"{tau:g}"] = {
            "test_error": {f"{delta:g}": row.tolist() for delta, row in zip(GRID, errors, strict=True)},
            "held_out_loss": {f"{delta:g}": row.tolist() for delta, row in zip(GRID, losses, strict=True)},
            "best": GRID[int(losses.mean(1).argmin())],
        }
    return found


def discrepancy(inherited: Inherited, posterior: Posterior, looked_at: int, seed: int) -> dict[str, float]:
    """Returns the test error of the most probable architecture, and the lowest of it and of twice `count` others.

    Half of these are drawn uniformly, half from the posterior.
    """
    network, rng = inherited.shared.network, generator(seed, "discrepancy")
    probable = most_probable(posterior)
    drawn = [network.uniform(rng) for _ in range(looked_at)] + [posterior.sample(rng) for _ in range(looked_at)]
    errors = [inherited.test_error((picks,)) for picks in [probable, *drawn]]
    return {
        "most_probable": errors[0],
        "best": min(errors),
        "gap": errors[0] - min(errors),
        "uniform_mean": float(np.mean(errors[1 : looked_at + 1])),
        "posterior_mean": float(np.mean(errors[looked_at + 1 :])),
    }


def of_ensembles(predictions: Tensor, y: Tensor) -> dict[str, list[float]]:
    """Returns error and loss of ensembles from one pool by size; predictions are [pool, images, classes]."""
    measures: dict[str, list[float]] = {}
    for size in (size for size in (1, *SIZES) if size < len(predictions)):
        every = list(combinations(range(len(predictions)), size))
        kept = [every[i] for i in np.linspace(0, len(every) - 1, min(MOST, len(every))).round().astype(int)]
        for name, measure in (("error", ensemble_error), ("nll", nll)):
            measures[f"{name}, n = {size}"] = [measure(predictions[list(members)], y) for members in kept]
    return measures


def correlations(
    estimated: Mapping[str, Sequence[float]], true: Mapping[str, Sequence[float]]
) -> dict[str, dict[str, float | None]]:
    """Returns correlations of ensembles with inherited and with own weights, both from `of_ensembles`."""
    statistics: dict[str, dict[str, float | None]] = {}
    for case in estimated:
        one, other = np.array(estimated[case]), np.array(true[case])
        statistics[case] = {
            "spearman": pearson(ranks(one), ranks(other)),
            "pearson": pearson(one, other),
            "agreement": agreement(one, other, 0.3),
            "ensembles": len(one),
        }
    return statistics


def ranks(values: np.ndarray) -> np.ndarray:
    """Returns ranks; equal values share their mean rank."""
    return np.asarray((values[:, None] > values).sum(1) + ((values[:, None] == values).sum(1) - 1) / 2)


def pearson(one: np.ndarray, other: np.ndarray) -> float | None:
    """Returns Pearson's correlation; None if one side is constant."""
    a, b = one - one.mean(), other - other.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale > 0 else None


def agreement(one: np.ndarray, other: np.ndarray, share: float) -> float:
    """Returns how many of the lowest `share` by one are also among the lowest by the other."""
    count = max(1, round(share * len(one)))
    best = [set(np.argsort(values, kind="stable")[:count].tolist()) for values in (one, other)]
    return len(best[0] & best[1]) / count
