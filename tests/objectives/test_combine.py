"""Combining scores: ranks by hand, missing scores, and the text that names a combination."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import rankdata

from epochzero.errors import UnknownNameError, UserError
from epochzero.objectives.objective import Objective, members, parse_objective, parse_objectives, single
from epochzero.objectives.ranks import Ranking, Term, combined, harmonic
from epochzero.types import Score

# ---- ranks


def test_log_ranks_by_hand() -> None:
    # First scores 5, 1, 3: ranks 3, 1, 2. Second 10, 20, 30: ranks 1, 2, 3. Out of 3 networks.
    found = combined("rank", [[5, 10], [1, 20], [3, 30]])
    expected = [math.log(3 / 3 * 1 / 3), math.log(1 / 3 * 2 / 3), math.log(2 / 3 * 3 / 3)]
    assert found == pytest.approx(expected)


def test_equal_scores_share_their_mean_rank() -> None:
    # 7, 7, 1, 9: the two 7s stand on ranks 2 and 3, so on 2.5 each.
    merits = [[7, 0.5], [7, 0.1], [1, 0.2], [9, 0.2]]
    assert combined("mean_rank", merits) == [(2.5 + 4) / 2, (2.5 + 1) / 2, (1 + 2.5) / 2, (4 + 2.5) / 2]
    expected = [math.log(a / 4) + math.log(b / 4) for a, b in ((2.5, 4), (2.5, 1), (1, 2.5), (4, 2.5))]
    assert combined("rank", merits) == pytest.approx(expected)


def test_equal_scores_leave_no_gap_in_te_nas_ranks() -> None:
    # 7, 7, 1, 9 are on 2, 2, 1, 3; 0.5, 0.1, 0.2, 0.2 on 3, 1, 2, 2.
    assert combined("te_rank", [[7, 0.5], [7, 0.1], [1, 0.2], [9, 0.2]]) == [5, 3, 3, 5]


def test_agreement_by_hand() -> None:
    """The mean share of the first two is 1/2; the second one's scores agree on it, and the first one's do not."""
    found = combined("agreement", [[3, 1], [2, 2], [1, 3], [4, 4]])
    shares = [(5 / 8, 1 / 8), (3 / 8, 3 / 8), (1 / 8, 5 / 8), (7 / 8, 7 / 8)]
    expected = [(a + b) / 2 - abs(a - b) / 2 / math.sqrt(2) for a, b in shares]
    assert found == pytest.approx(expected) and found[1] > found[0] == found[2]  # type: ignore[operator]


def test_a_score_without_weight_does_not_count_in_an_agreement() -> None:
    rows = np.random.default_rng(2).normal(size=(9, 3))
    ranking = Ranking("agreement", 3, [Term(1.0, (0,)), Term(0.0, (1,)), Term(1.0, (2,))])
    ranking.add(rows)
    assert ranking.merits.tolist() == pytest.approx(combined("agreement", rows[:, [0, 2]].tolist()))


def test_ranks_are_scipys() -> None:
    rng = np.random.default_rng(0)
    table = rng.integers(0, 6, (20, 3)).astype(float)  # many ties
    mean, dense = (np.stack([rankdata(c, how) for c in table.T]) for how in ("average", "dense"))  # [3, 20]
    merits = table.tolist()
    assert combined("rank", merits) == pytest.approx(np.log(mean / 20).sum(0).tolist())
    assert combined("mean_rank", merits) == pytest.approx(mean.mean(0).tolist())
    assert combined("te_rank", merits) == pytest.approx(dense.sum(0).tolist())


@pytest.mark.parametrize("method", ["rank", "mean_rank", "te_rank"])
def test_a_set_that_grows_is_ranked_as_if_it_came_at_once(method: str) -> None:
    rng = np.random.default_rng(1)
    table = rng.integers(0, 9, (60, 3)).astype(float)  # many ties
    table[rng.random(table.shape) < 0.1] = np.nan
    ranking, seen = Ranking(method, 3), 0
    for more in (1, 0, 7, 2, 30, 20):
        ranking.add(table[seen : seen + more])
        seen += more
        whole = ~np.isnan(table[:seen]).any(axis=1)
        ranks = [rankdata(c, "dense" if method == "te_rank" else "average") for c in table[:seen][whole].T]
        by_hand = {"rank": np.log(np.array(ranks) / whole.sum()).sum(0), "mean_rank": np.mean(ranks, 0)}
        assert ranking.merits[whole] == pytest.approx(by_hand.get(method, np.sum(ranks, 0)))
        assert np.isnan(ranking.merits[~whole]).all() and ranking.networks == seen == len(whole)


def test_a_network_that_lacks_a_score_gets_none_and_takes_no_rank() -> None:
    for method in ("rank", "mean_rank", "te_rank", "agreement"):
        found = combined(method, [[5, 10], [99, None], [1, 20], [None, None]])
        assert [found[0], found[2]] == combined(method, [[5, 10], [1, 20]])
        assert found[1] is found[3] is None


@pytest.mark.parametrize("method", ["rank", "mean_rank", "te_rank", "agreement"])
def test_nothing_to_rank(method: str) -> None:
    assert combined(method, []) == []
    assert combined(method, [[None, 1.0], [2.0, None]]) == [None, None]


def test_only_the_order_of_scores_matters() -> None:
    merits = [[3.0, -1.0], [1.0, 5.0], [2.0, 0.0]]
    stretched = [[math.exp(a), 100 * b] for a, b in merits]
    for method in ("rank", "mean_rank", "te_rank", "agreement"):
        assert combined(method, merits) == combined(method, stretched)


def test_the_whole_set_matters() -> None:
    """Another network between the two breaks their tie."""
    two = combined("mean_rank", [[2.0, 1.0], [1.0, 2.0]])
    assert two[0] == two[1]
    three = combined("mean_rank", [[2.0, 1.0], [1.0, 2.0], [1.5, 0.0]])
    assert three[0] == three[1] + 0.5  # type: ignore[operator]


def test_harmonic_means() -> None:
    found = harmonic([[2, 6], [3, 3], [1, None], [4, 0], [-1, 2]])
    assert found[:2] == pytest.approx([2 * 2 * 6 / (2 + 6), 3])
    assert found[2:] == [None, None, None]
    assert harmonic([[1, 2, 4]]) == pytest.approx([3 / (1 + 1 / 2 + 1 / 4)])


# ---- text


def test_a_proxy_alone() -> None:
    objective = parse_objective(" zico( batches = 4 ) ")
    assert objective.text == "zico(batches=4)"
    assert not objective.method
    assert not objective.of_a_set


@pytest.mark.parametrize("method", ["rank", "mean_rank", "te_rank", "agreement", "harmonic"])
def test_proxies_with_settings_within_a_combination(method: str) -> None:
    objective = parse_objective(f"{method}(dextr(points=8),zico(batches=4),flops)")
    assert [proxy.text for proxy in objective.proxies] == ["dextr(points=8)", "zico(batches=4)", "flops"]
    assert objective.proxies[0].settings == {"points": 8}
    assert objective.method == method
    assert objective.text == f"{method}(dextr(points=8),zico(batches=4),flops)"
    assert parse_objective(objective.text) == objective
    assert objective.of_a_set == (method != "harmonic")


def test_several_settings_and_blanks() -> None:
    objective = parse_objective(" rank ( dextr( points=8 , q=2 ) ,\n zico ) ")
    assert objective.text == "rank(dextr(points=8,q=2.0),zico)"


def test_settings_at_their_defaults_are_left_out() -> None:
    assert parse_objective("rank(zico(batches=2),flops)").text == "rank(zico,flops)"


def test_several_objectives() -> None:
    found = parse_objectives("rank(dextr(points=8),zico),flops, rank(dextr(points=8),zico),mean_rank(flops,zico)")
    assert [o.text for o in found] == ["rank(dextr(points=8),zico)", "flops", "mean_rank(flops,zico)"]
    assert [proxy.text for proxy in members(found)] == ["dextr(points=8)", "zico", "flops"]


@pytest.mark.parametrize(
    "text",
    [
        *("rank(dextr)", "rank()", "rank(flops,flops)", "rank(zico,zico(batches=2))"),
        *("rank(dextr,zico", "rank dextr,zico)", "rank(dextr,(zico))", "rank(flops,rank(dextr,zico))"),
        *("rank(dextr(points=many),zico)", "rank(dextr(pionts=8),zico)", "ranks(dextr,zico)", "rank", ""),
    ],
)
def test_text_that_is_no_objective(text: str) -> None:
    with pytest.raises(UserError):
        parse_objective(text)


def test_a_misspelt_proxy_gets_a_hint() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'dextr'"):
        parse_objective("rank(dexter,zico)")


@pytest.mark.parametrize("text", ["", " , ,"])
def test_no_objective_at_all(text: str) -> None:
    with pytest.raises(UserError, match="No proxy is named"):
        parse_objectives(text)


# ---- merits


def scores_of(objective: Objective, *rows: tuple[float | None, ...]) -> list[dict[str, Score]]:
    """Scores by proxy for each network; None for a degenerate one."""
    names = [proxy.text for proxy in objective.proxies]
    return [
        {n: Score.degenerate(f"no {n}") if v is None else Score(v) for n, v in zip(names, row, strict=True)}
        for row in rows
    ]


def test_the_merit_of_one_proxy_points_up() -> None:
    """The condition number is better when it is lower."""
    for text, sign in (("zico", 1), ("ntk_cond", -1)):
        objective = parse_objective(text)
        found = objective.merits(scores_of(objective, (3.0,), (None,), (7.0,)))
        assert found == [sign * 3.0, None, sign * 7.0]


def test_ranks_go_by_merit() -> None:
    """As TE-NAS combines them: a low condition number and many regions."""
    objective = parse_objective("te_rank(ntk_cond(of=sum),linear_regions)")
    found = objective.merits(scores_of(objective, (10.0, 5.0), (20.0, 5.0), (None, 9.0), (15.0, 6.0)))
    assert found == [3 + 1, 1 + 1, None, 2 + 2]


def test_the_harmonic_mean_is_of_each_network_alone() -> None:
    objective = parse_objective("harmonic(fmi,curvature)")
    alone = objective.merits(scores_of(objective, (2.0, 6.0)))
    assert alone == pytest.approx([3.0])
    assert objective.merits(scores_of(objective, (2.0, 6.0), (9.0, 9.0)))[0] == alone[0]


def test_why_a_network_has_no_merit() -> None:
    objective = parse_objective("rank(zico,flops,dextr)")
    assert objective.why_not(scores_of(objective, (None, 1.0, None))[0]) == "zico: no zico; dextr: no dextr"
    alone = parse_objective("zico")
    assert alone.why_not(scores_of(alone, (None,))[0]) == "no zico"
    harmonic_mean = parse_objective("harmonic(zico,flops)")
    negative = scores_of(harmonic_mean, (-1.0, 2.0))
    assert harmonic_mean.merits(negative) == [None]
    assert "not positive" in harmonic_mean.why_not(negative[0])


@pytest.mark.parametrize("method", ["rank", "mean_rank", "te_rank"])
def test_a_ranker_refuses_one_network_alone(method: str) -> None:
    with pytest.raises(UserError, match="is not defined for a single one"):
        single(parse_objectives(f"flops,{method}(dextr,zico)"))


def test_single_proxies_are_given_back() -> None:
    assert [proxy.text for proxy in single(parse_objectives("flops,zico(batches=4),flops"))] == [
        "flops",
        "zico(batches=4)",
    ]
