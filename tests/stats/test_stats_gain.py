"""nDCG against a slow second version, and orders that can be checked by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from epochzero.errors import DegenerateError
from epochzero.stats import ndcg
from epochzero.stats.gain import ndcg_statistic


def slow(scores: list[float], truth: list[float]) -> float:
    """Mean over every order of the tied scores."""
    n, k = len(truth), math.ceil(len(truth) / 10)
    gains = [sum((b < a) + (b == a) / 2 for b in truth) / (n - 1) - 0.5 / (n - 1) for a in truth]

    def gained(keys: list[float]) -> float:
        orders = [
            o for o in itertools.permutations(range(n)) if all(keys[a] >= keys[b] for a, b in itertools.pairwise(o))
        ]
        dcgs = [sum(gains[i] / math.log2(p + 2) for p, i in enumerate(order[:k])) for order in orders]
        return sum(dcgs) / len(dcgs)

    return gained(scores) / gained(truth)


@pytest.mark.parametrize("seed", range(6))
def test_the_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores, truth = rng.integers(4, size=7).tolist(), rng.integers(5, size=7).tolist()
    assert ndcg(scores, truth, resamples=1).value == pytest.approx(slow(scores, truth))


def test_a_resample_counts_as_repeated_networks() -> None:
    rng = np.random.default_rng(0)
    x, y, counts = rng.normal(size=40), rng.normal(size=40), np.bincount(rng.integers(40, size=40), minlength=40)
    repeated = ndcg_statistic(np.repeat(x, counts), np.repeat(y, counts))
    assert ndcg_statistic(x, y)(counts[:, None].astype(float))[0] == pytest.approx(repeated(np.ones((40, 1)))[0])


def test_perfect_random_and_reversed_orders() -> None:
    truth = np.arange(1000.0)
    assert ndcg(truth, truth, resamples=20).value == pytest.approx(1)
    assert ndcg(-truth, truth, resamples=20).value == pytest.approx(0.025, abs=0.02)
    random = [ndcg(np.random.default_rng(seed).normal(size=1000), truth, resamples=1).value for seed in range(30)]
    assert np.mean(random) == pytest.approx(0.5 / 0.97, abs=0.03)
    with pytest.raises(DegenerateError):
        ndcg(np.zeros(10), truth[:10])
