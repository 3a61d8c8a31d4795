"""RoBoT: whose favourite is asked for, what the Gaussian process is told, and the greedy part by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from epochzero.errors import UserError
from epochzero.study.methods.base import Pool
from epochzero.study.methods.robot import PROXIES, RoBoT, stretched
from tests.study.methods.kin import Digits

pytest.importorskip("bayes_opt")


def pool(networks: int = 100, seed: int = 0) -> Pool:
    rng = np.random.default_rng(seed)
    return Pool(list(range(networks)), {"snip": rng.lognormal(size=networks), "grasp": rng.normal(size=networks)}, {})


def made(**options: Any) -> RoBoT:
    return RoBoT(Digits(), options.pop("seed", 0), options.pop("pool", pool()), **options)


def test_metrics_by_hand() -> None:
    values = np.array([math.e - 1, 0.0, 1 - math.e**3, math.nan])
    assert stretched(values) == pytest.approx([1.0, 0.75, 0.0, 0.0])
    assert stretched(np.array([2.0, 2.0])).tolist() == [0.0, 0.0]


def test_the_favourites_of_weights_are_asked_for_and_then_those_of_the_best() -> None:
    search, quality = made(steps=8), np.random.default_rng(1).random(100)
    asked: list[int] = []
    first_part = 0
    while len(asked) < 20:
        (arch,) = search.ask(1)
        if search.query is not None:
            first_part += 1
            weights = np.array([search.query["snip"], search.query["grasp"]])
            assert arch == np.argmax(search.metrics @ weights)
        else:
            by_best = search.metrics @ search.weights
            assert arch == max(set(range(100)) - set(asked), key=lambda i: by_best[i])
        asked.append(arch)
        search.tell([arch], [quality[arch]])
    assert 1 <= first_part <= 8 == len(search.optimiser.space), "weights with the same favourite are told as well"
    assert search.best == max(quality[asked[:first_part]]) == max(search.optimiser.space.target)
    assert len(set(asked)) == 20


def test_what_is_told_tunes_the_weights() -> None:
    """Quality is one metric alone: greedy search finds the best by it."""
    networks = pool(400)
    search, snip = made(pool=networks), networks.values["snip"]
    asked: list[int] = []
    while len(asked) < 20:
        asked += search.ask(1)
        search.tell(asked[-1:], [float(snip[asked[-1]])])
    assert int(np.argmax(snip)) in asked


def test_networks_without_a_value_count_as_the_worst() -> None:
    search = made()
    search.tell(search.ask(1), [None])
    assert len(search.optimiser.space) == 0, "there is no worst yet"
    for merit in (3.0, None):
        search.tell(search.ask(1), [merit])
    assert set(search.optimiser.space.target) == {3.0}


def test_a_small_pool_ends_and_missing_proxies_are_left_out() -> None:
    few = Pool(["a", "b"], {"snip": np.array([1.0, 2.0]), "fisher": np.array([math.nan, math.nan])}, {})
    search = made(pool=few)
    assert search.metrics.shape == (2, 1)
    asked: list[str] = []
    while new := search.ask(1):
        search.tell(new, [1.0])
        asked += new
    assert sorted(asked) == ["a", "b"]


def test_mistakes_are_sentences() -> None:
    with pytest.raises(UserError, match="at least 1 vector of weights, not 0"):
        made(steps=0)
    with pytest.raises(UserError, match="None of snip has a score"):
        made(pool=Pool(["a"], {"snip": np.array([math.nan])}, {}))
    assert RoBoT.wants({"proxies": PROXIES, "networks": 9}) == (PROXIES.split(","), 9, False)
