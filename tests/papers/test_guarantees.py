"""Tuned bounds of the thesis: how mu and nu are found, which networks are judged, and the two ablations."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import ClassVar

import numpy as np
import pytest
from scipy.stats import spearmanr

import epochzero as ez
from epochzero import data
from epochzero.registry import spaces
from epochzero_papers.harness.base import Result
from epochzero_papers.harness.correlations import NB201_C10, Extent, Figures
from epochzero_papers.thesis.guarantees import (
    POWERS,
    QUANTILES,
    Bound,
    Guarantees,
    by_code,
    merits_of_the_rest,
    non_realizable,
    realizable,
    tuned,
    with_kappa,
    with_trade_off,
)
from epochzero_papers.thesis.table7_10 import ThesisTable710
from epochzero_papers.thesis.table7_11 import ThesisTable711, Widened
from tests.papers.small import small_images

NETWORKS = 8
pytestmark = pytest.mark.usefixtures("shallow_nb201")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight connected networks, and images that stand for CIFAR-10."""
    folder = tmp_path_factory.mktemp("data")
    small_images(folder, "cifar10.npz")
    space, rng = spaces["nb201"], Random(6)
    drawn = {space.text(("nor_conv_3x3", *space.sample(rng)[1:-1], "nor_conv_1x1")) for _ in range(20)}
    rows = [[arch, round(50 + 40 * rng.random(), 2)] for arch in sorted(drawn)[:NETWORKS]]
    with (folder / "nb201.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["arch_str", "cifar10_test"], *rows])
    return folder


def some(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    m, kappa = rng.lognormal(size=n), rng.lognormal(size=n)
    return m, kappa, rng.normal(size=n) - np.abs(m - 1.5)


def test_the_best_pair_is_that_of_a_slow_search_of_the_first_half() -> None:
    m, kappa, truth = some(40)
    found = tuned(m, kappa, truth)
    assert found is not None
    a, b, y = m[:20], kappa[:20], truth[:20]

    def slow(bound: Bound) -> float:
        return float(spearmanr([-(k / v + bound.mu * (v**2 - bound.nu) ** 2) for v, k in zip(a, b, strict=True)], y)[0])

    scale = np.median(b / a) / np.median(a**2) ** 2
    pairs = [Bound(10**c * scale, float(nu)) for nu in np.quantile(a**2, QUANTILES) for c in POWERS]
    assert len(pairs) == 525, "and mu = 0"
    assert slow(found) == pytest.approx(max(map(slow, pairs)))
    assert slow(found) > slow(Bound(0, 0)), "the truth was made with a trade-off"
    assert tuned(m, kappa, np.where(np.arange(40) < 20, truth, -truth)) == found, "the second half is not used"


def test_no_trade_off_is_one_of_the_choices() -> None:
    m, kappa, _ = some(30)
    assert tuned(m, kappa, -kappa / m) == Bound(0, 0)


def test_networks_without_a_score_are_not_tuned_on_and_too_few_are_refused() -> None:
    m, kappa, truth = some(12)
    m[0], kappa[1], m[2] = np.nan, np.inf, -1
    fair = tuned(m, kappa, truth)
    truth[:3] = [1e9, -1e9, 1e9]
    assert tuned(m, kappa, truth) == fair is not None
    m[3] = np.nan
    assert tuned(m, kappa, truth) is None
    (why,) = {score.why for score in merits_of_the_rest(None, m, kappa)}
    assert why == "mu and nu need 3 networks with M and kappa to be tuned on"


def test_the_other_half_is_judged_by_hand() -> None:
    m, kappa = np.array([1.0, 2.0, 2.0, 0.0, 1.0]), np.array([1.0, 1.0, 6.0, 1.0, np.nan])
    first, second, third, fourth, fifth = merits_of_the_rest(Bound(mu=0.5, nu=3.0), m, kappa)
    assert first.why == second.why == "mu and nu were tuned on it"
    assert third.value == -(6 / 2 + 0.5 * (4 - 3) ** 2)
    assert fourth.why == fifth.why == "it has no positive M, or no finite kappa"


class Small(Guarantees):
    """Four scenarios of one metric."""

    name = "small guarantees"
    source = "nowhere"
    full = Extent(networks=NETWORKS, batch_size=4)
    targets = (NB201_C10,)
    metrics = ("snip",)
    spearman: ClassVar[Figures] = {
        realizable("snip"): (0.1,),
        with_kappa("snip"): (None,),
        with_trade_off("snip"): (0.2,),
        non_realizable("snip"): (0.3,),
        by_code("snip"): (0.3,),
    }


def columns(result: Result) -> Mapping[str, list[float | None]]:
    (sample,) = result.samples.values()
    return {name: list(values) for name, values in sample.values.items()}


def slow_scores(folder: Path, arch: str, size: int) -> dict[str, float]:
    batch = data.load(folder / "cifar10.npz", size=size, seed=0)
    return {name: one.value for name, one in ez.score(arch, ["snip", "ntk_cond"], space="nb201", data=batch).items()}


def bounds(
    found: list[tuple[float, float]], tuned_with: list[tuple[float, float]], truth: list[float], power: int = 2
) -> list[float]:
    """The tuned bound of the second half, from M and kappa of every network."""
    m, kappa = np.array(tuned_with).T
    bound = tuned(m, kappa, np.array(truth), power)
    assert bound is not None
    return [-float(bound(*np.array(pair))) for pair in found[len(found) // 2 :]]


def test_rows_are_those_of_networks_scored_one_by_one(folder: Path) -> None:
    result = Small().run(folder=folder)
    (sample,) = result.samples.values()
    truth = [float(value) for value in sample.values["NB201-C10"] if value is not None]
    scores = [slow_scores(folder, arch, 4) for arch in sample.archs]
    plain = [(one["snip"], one["ntk_cond"]) for one in scores]
    without = [(m, 1.0) for m, _ in plain]
    for name, pairs, power in (
        (non_realizable("snip"), plain, 2),
        (by_code("snip"), plain, 1),
        (with_trade_off("snip"), without, 2),
    ):
        expected = bounds(pairs, pairs, truth, power)
        assert columns(result)[name] == [None] * 4 + [pytest.approx(value, rel=1e-6) for value in expected]
        row = next(row for row in result.rows if row.x == name)
        assert row.found is not None and (row.found.n, row.unscored) == (4, 4)
        assert row.found.value == pytest.approx(spearmanr(expected, truth[4:])[0])
        assert sample.unscored[name] == {"mu and nu were tuned on it": 4}
    for name, proxy in (
        (realizable("snip"), "hnas(form=realizable,metric=snip)"),
        (with_kappa("snip"), "hnas(metric=snip)"),
    ):
        batch = data.load(folder / "cifar10.npz", size=4, seed=0)
        hnas = [ez.score(arch, proxy, space="nb201", data=batch)[proxy].value for arch in sample.archs]
        assert columns(result)[name] == [pytest.approx(-value, rel=1e-6) for value in hnas]
    first = next(row for row in result.rows if row.x == realizable("snip"))
    assert first.found is not None and first.found.n == NETWORKS, "what is not tuned is judged on all networks"
    assert result.left_out == []


def test_batches_of_the_metric_and_of_kappa_vary_apart(folder: Path) -> None:
    result = ThesisTable710().run(Extent(networks=NETWORKS, batch_size=8), folder=folder)
    (sample,) = result.samples.values()
    truth = [float(value) for value in sample.values["NB201-C10"] if value is not None]
    four, eight = ([slow_scores(folder, arch, size) for arch in sample.archs] for size in (4, 8))
    usual = [(one["snip"], one["ntk_cond"]) for one in eight]
    for name, of_m, of_kappa in (("M, b = 4, snip", four, eight), ("kappa, b = 4, snip", eight, four)):
        pairs = [(m["snip"], kappa["ntk_cond"]) for m, kappa in zip(of_m, of_kappa, strict=True)]
        expected = [None if math.isnan(value) else value for value in bounds(pairs, usual, truth)]
        assert columns(result)[name][4:] == [value and pytest.approx(value, rel=1e-6) for value in expected]
    assert columns(result)["M, b = 8, snip"] == columns(result)["kappa, b = 8, snip"]
    assert [row.paper for row in result.rows if row.x == "M, b = 4, trace"] == [0.684, 0.501]
    assert len(result.rows) == 2 * 2 * 4 * 2, "larger batches than the settings have are left out"


def test_channels_vary_and_a_run_resumes(folder: Path, tmp_path: Path) -> None:
    small = replace(ThesisTable711().quick, networks=6, batch_size=2)
    first = ThesisTable711().run(small, folder=folder, store=tmp_path / "run.db")
    assert len(first.rows) == 8 * 4 * 2
    assert {row.found.n for row in first.rows if row.found is not None} <= {3}
    again = ThesisTable711().run(small, folder=folder, store=tmp_path / "run.db")
    assert again.rows == first.rows


def test_a_widened_space_is_nb201_but_for_its_channels() -> None:
    space = spaces["nb201"]
    arch = space.parse("|nor_conv_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|none~0|avg_pool_3x3~1|nor_conv_3x3~2|")
    plan, same, thin = space.plan(arch), Widened(16).plan(arch), Widened(4).plan(arch)
    assert same.nodes == plan.nodes
    assert thin.params < plan.params / 10
    assert Widened(4).name != Widened(8).name != space.name, "or the store would take one for the other"
