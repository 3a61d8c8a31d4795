"""The quality of a proxy's scores, and networks without a score."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from epochzero.errors import UserError
from epochzero.stats import (
    kendall,
    kendall_within,
    partial_spearman,
    pearson,
    precision_at,
    proxy_quality,
    regret_at,
    spearman,
)
from epochzero.types import Score
from tests.stats.stats_samples import correlated, scores


def test_quality_is_signed_by_what_the_proxy_declares() -> None:
    falling = scores(4, 3, 2, 1)
    as_higher = proxy_quality(falling, [1, 2, 3, 4], higher_is_better=True)
    as_lower = proxy_quality(falling, [1, 2, 3, 4], higher_is_better=False)
    assert [as_higher.spearman, as_higher.kendall] == pytest.approx([-1, -1])
    assert [as_lower.spearman, as_lower.kendall] == pytest.approx([1, 1])
    assert as_lower.why == ""


def test_quality_agrees_with_the_correlations_it_reports() -> None:
    x, y = correlated(np.random.default_rng(5), 0.7, n=80)
    quality = proxy_quality(scores(*x), y, True, resamples=200, seed=9)
    rho, tau = spearman(x, y, resamples=200, seed=9), kendall(x, y, resamples=200, seed=9)
    assert (quality.n, quality.unscored, quality.unscored_why) == (80, 0, {})
    assert (quality.spearman, quality.spearman_ci) == (rho.value, (rho.low, rho.high))
    assert (quality.kendall, quality.kendall_ci) == (tau.value, (tau.low, tau.high))


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_networks_without_a_score_are_dropped_or_ranked_worst(higher_is_better: bool) -> None:
    sign = 1 if higher_is_better else -1
    given = scores(None, sign * 1.0, sign * 2.0, sign * 3.0, None)
    truth = [50.0, 20.0, 30.0, 40.0, 10.0]
    dropped = proxy_quality(given, truth, higher_is_better)
    worst = proxy_quality(given, truth, higher_is_better, unscored="worst")
    assert (dropped.n, dropped.unscored, dropped.unscored_why) == (3, 2, {"det K = 0": 2})
    assert (worst.n, worst.unscored, worst.unscored_why) == (3, 2, {"det K = 0": 2})
    assert dropped.spearman == pytest.approx(1)
    # C - D: the scored three +3; the first unscored with them -3, the last +3; one pair tied among ten.
    assert worst.kendall == pytest.approx(3 / math.sqrt(9 * 10))


def test_ranked_worst_lies_below_a_score_of_minus_infinity() -> None:
    quality = proxy_quality(scores(None, -math.inf, 0), [1, 2, 3], True, unscored="worst")
    assert quality.kendall == pytest.approx(1)


def test_reasons_are_tallied_most_frequent_first() -> None:
    given = [
        Score.failed("out of memory"),
        Score.degenerate("no path"),
        Score.degenerate("no path"),
        Score.failed(""),
        Score(math.nan),
        *scores(1, 2, 3),
    ]
    quality = proxy_quality(given, list(range(8)), True)
    assert (quality.n, quality.unscored) == (3, 5)
    assert quality.unscored_why == {"no path": 2, "out of memory": 1, "failed": 1, "the score is nan": 1}
    assert next(iter(quality.unscored_why)) == "no path"


@pytest.mark.parametrize("unscored", ["drop", "worst"])
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([None, None, None], "none of the 3 networks has a score"),
        ([], "none of the 0 networks has a score"),
        ([2.0, 2.0, 2.0], "all 3 scores are equal"),
    ],
)
def test_quality_says_why_there_is_none(unscored: Any, given: list[float | None], why: str) -> None:
    quality = proxy_quality(scores(*given), list(range(len(given))), True, unscored=unscored)
    assert why in quality.why
    assert quality.spearman is None
    assert quality.spearman_ci is None
    assert quality.kendall is None
    assert quality.kendall_ci is None


def test_too_few_scored_networks() -> None:
    quality = proxy_quality(scores(1, 2, None), [1, 2, 3], True)
    assert (quality.n, quality.unscored) == (2, 1)
    assert "needs at least 3" in quality.why


def test_quality_refuses_misuse() -> None:
    with pytest.raises(UserError, match="'drop' or 'worst', not 'keep'"):
        proxy_quality(scores(1, 2, 3), [1, 2, 3], True, unscored="keep")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="3 scores but 2 true values"):
        proxy_quality(scores(1, 2, 3), [1, 2], True)
    with pytest.raises(UserError, match="truth hold nan"):
        proxy_quality(scores(1, 2, 3), [1, math.nan, 2], True)
    with pytest.raises(UserError, match="The repeats score 3, 2 networks"):
        proxy_quality([scores(1, 2, 3), scores(1, 2)], [1, 2, 3], True)
    with pytest.raises(UserError, match=r"3 networks but flops has shape \(2,\)"):
        proxy_quality(scores(1, 2, 3), [1, 2, 3], True, flops=[1, 2])
    with pytest.raises(UserError, match=r"params hold nan \(first at position 1"):
        proxy_quality(scores(1, 2, 3), [1, 2, 3], True, params=[1, math.nan, 2])
    with pytest.raises(UserError, match="at least 1, not 0"):
        proxy_quality(scores(1, 2, 3), [1, 2, 3], True, top=[0])


def test_every_figure_is_that_of_its_own_function() -> None:
    rng = np.random.default_rng(0)
    x, y = correlated(rng, 0.8, 60)
    params, flops = y + rng.normal(size=(2, 60))
    how: Any = {"resamples": 100, "seed": 4, "confidence": 0.9}
    quality = proxy_quality(scores(*-x), y, False, params=params, flops=flops, top=(1, 5), bins=3, **how)
    expected = {
        "spearman": spearman(x, y, **how),
        "kendall": kendall(x, y, **how),
        "pearson": pearson(x, y, **how),
        "regret@1": regret_at(x, y, 1, **how),
        "precision@1": precision_at(x, y, 1, **how),
        "regret@5": regret_at(x, y, 5, **how),
        "precision@5": precision_at(x, y, 5, **how),
        "spearman|params": partial_spearman(x, y, {"params": params}, **how),
        "spearman|flops": partial_spearman(x, y, {"flops": flops}, **how),
        "spearman|params,flops": partial_spearman(x, y, {"params": params, "flops": flops}, **how),
        "kendall in flops bins": kendall_within(x, y, flops, bins=3, **how),
    }
    assert {name: figure.estimate for name, figure in quality.figures.items()} == expected
    assert list(proxy_quality(scores(*x), y, True, resamples=5).figures) == ["spearman", "kendall", "pearson"]


def test_each_figure_says_why_it_is_missing() -> None:
    quality = proxy_quality(scores(1, 2, 3, 4), [4, 1, 3, 2], True, params=[1, 2, 3, 4], top=(9,), resamples=20)
    assert quality.why == ""
    assert quality.figures["spearman"].estimate is not None
    assert quality.figures["regret@9"].why == "there are no first 9 of 4 networks"
    assert quality.figures["spearman|params"].why == "given params nothing is left of the order of the scores"
    nothing = proxy_quality(scores(None, None, None), [1, 2, 3], True, params=[1, 2, 3], top=(1,))
    assert {figure.why for figure in nothing.figures.values()} == {"none of the 3 networks has a score"}
    assert set(nothing.figures) == {"spearman", "kendall", "pearson", "regret@1", "precision@1", "spearman|params"}


def test_all_figures_leave_out_the_same_networks() -> None:
    """The unscored network is the best and the largest: dropped, it does not count for regret or size either."""
    kept: Any = {"params": [1, 2, 3, 4], "flops": [4, 3, 1, 2], "top": (1, 2), "bins": 2, "resamples": 60}
    whole = kept | {"params": [9, 1, 2, 3, 4], "flops": [9, 4, 3, 1, 2]}
    alone = proxy_quality(scores(1, 3, 2, 4), [1, 2, 3, 4], True, **kept)
    assert proxy_quality(scores(None, 1, 3, 2, 4), [99, 1, 2, 3, 4], True, **whole).figures == alone.figures
    worst = proxy_quality(scores(None, 1, 3, 2, 4), [99, 1, 2, 3, 4], True, unscored="worst", **whole)
    lowest = proxy_quality(scores(0, 1, 3, 2, 4), [99, 1, 2, 3, 4], True, **whole)
    assert "ranked worst, which is no number" in worst.figures["pearson"].why
    assert worst.figures | {"pearson": None} == lowest.figures | {"pearson": None}
    assert worst.figures["regret@1"].estimate is not None
    assert worst.figures["regret@1"].estimate.value == 95


def test_with_repeats_a_network_counts_where_every_repeat_scores_it() -> None:
    rows = [scores(1, 2, 3, 4, None), [*scores(1, 3, 2), Score.failed("no labels"), Score.failed("no labels")]]
    quality = proxy_quality(rows, [1, 2, 3, 4, 5], True, resamples=50)
    assert (quality.n, quality.unscored, quality.repeats) == (3, 2, 2)
    assert quality.unscored_why == {"no labels": 1, "det K = 0": 1}  # the reason of the first repeat that lacks it
    found = quality.figures["spearman"].estimate
    assert found is not None
    assert found.by_repeat == pytest.approx((1, 0.5))
    assert quality.spearman == pytest.approx(0.75)
    # ranked worst in each repeat by itself: (1, 2, 3, 4, 0) and (1, 3, 2, 0, 0) against 1..5, pairs C - D of 10:
    # 6 - 4 untied, and 2 - 7 with one tie in x
    worst = proxy_quality(rows, [1, 2, 3, 4, 5], True, unscored="worst", resamples=50).figures["kendall"].estimate
    assert worst is not None
    assert worst.by_repeat == pytest.approx((0.2, -5 / math.sqrt(9 * 10)))
    none = proxy_quality([scores(1, 2, 3), scores(None, None, None)], [1, 2, 3], True)
    assert none.why == "none of the 3 networks has a score in repeat 2"
    constant = proxy_quality([scores(1, 2, 3), scores(4, 4, 4)], [1, 2, 3], True)
    assert constant.why == "all 3 scores are equal in repeat 2, so nothing can be ranked"


def test_quality_goes_to_json_and_back() -> None:
    rng = np.random.default_rng(2)
    x, y = correlated(rng, 0.5, 20)
    quality = proxy_quality([scores(*x), scores(*x[::-1])], y, True, top=(3, 99), flops=x, resamples=30)
    read = json.loads(json.dumps(quality.to_json(), allow_nan=False))
    assert read["spearman"] == quality.spearman
    assert read["figures"]["regret@99"] == {"why": "there are no first 99 of 20 networks"}
    found = quality.figures["kendall"].estimate
    assert found is not None
    assert read["figures"]["kendall"]["by_repeat"] == list(found.by_repeat)
    assert read["figures"]["kendall"]["spread"] == pytest.approx(np.std(found.by_repeat, ddof=1))
