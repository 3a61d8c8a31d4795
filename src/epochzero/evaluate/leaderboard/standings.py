r"""Standings: every contestant on every board, and over all boards.

    standings(boards, contestants)        # a contestant gives the merits of a board's networks, or None

Over boards t with Spearman rho_t, a contestant that was run but has no score there (no network, or equal scores) counts
with 0, as a random order would; networks without a score are otherwise left out, and counted.

    mean      mean_t rho_t                worst     min_t rho_t
    rank      mean_t of its place among the contestants of all boards
    vs flops  min_t (rho_t - rho_t of FLOPs)

Intervals take percentiles of resamples of the networks, drawn for each board separately; repeats are resampled as in
`epochzero.stats`. The tables themselves are not resampled: the intervals say nothing of further spaces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from epochzero.errors import DegenerateError
from epochzero.evaluate.leaderboard.boards import SIZES, Board, Repeats
from epochzero.objectives.objective import Objective
from epochzero.progress import Progress, silent
from epochzero.stats import Figure, kendall, ndcg, partial_spearman, regret_at, spearman
from epochzero.stats.bootstrap import Estimate, Floats, percentile_interval, resampled
from epochzero.stats.correlation import spearman_statistic
from epochzero.stats.ranks import Ties
from epochzero.stats.sample import rankable
from epochzero.stats.unscored import comparable, reasons, scored

Contestant = Callable[[Board], Repeats | None]
STATISTICS = (
    *("spearman", "kendall", "ndcg", "regret@1", "regret@10"),
    *("spearman|params", "spearman|flops", "spearman|params,flops"),
)


@dataclass(frozen=True)
class Rules:
    """Settings of the statistics."""

    resamples: int = 200
    seed: int = 0
    full: bool = True
    """false: Spearman only"""


@dataclass(frozen=True)
class Result:
    """A contestant on one board."""

    n: int
    """networks with a score in every repeat"""
    unscored: int
    why: dict[str, int]
    """networks without a score, by reason"""
    repeats: int
    figures: dict[str, Figure]
    rho: float
    """Spearman, 0 without one"""
    draws: Floats = field(repr=False)
    """Spearman in each resample"""


@dataclass(frozen=True)
class Row:
    """A contestant on all boards."""

    name: str
    results: dict[str, Result]
    """by board, if its proxies were run there"""
    mean: Estimate
    worst: Estimate
    worst_on: str
    by_space: float
    """mean over spaces of the mean over their boards"""
    rank: float | None
    """mean place; None unless it is on all boards"""
    versus_flops: float | None
    """smallest difference from the Spearman of FLOPs over its boards"""


def standings(
    boards: Sequence[Board],
    contestants: Mapping[str, Contestant],
    rules: Rules = Rules(),
    progress: Progress = silent,
) -> list[Row]:
    """Returns the contestants on all boards first, each group by its mean Spearman."""
    results: dict[str, dict[str, Result]] = {}
    total = len(contestants) * len(boards)
    for i, (name, contestant) in enumerate(contestants.items()):
        results[name] = {}
        for j, board in enumerate(boards):
            if (merits := contestant(board)) is not None:
                results[name][board.name] = _result(board, merits, Rules(rules.resamples, rules.seed + j, rules.full))
            progress(i * len(boards) + j + 1, total, name)
    ranks = _ranks({name: of for name, of in results.items() if len(of) == len(boards)})
    spaces = {board.name: board.space for board in boards}
    flops = results.get("flops", {})
    rows = [_row(name, of, spaces, ranks.get(name), flops) for name, of in results.items() if of]
    return sorted(rows, key=lambda row: (row.rank is None, -row.mean.value))


def proxy_contestant(objective: Objective) -> Contestant:
    return lambda board: board.merits(objective)


def _result(board: Board, merits: Repeats, rules: Rules) -> Result:
    has = scored(merits)
    n = int(has.all(axis=0).sum())
    resampling: dict[str, int] = {"resamples": rules.resamples, "seed": rules.seed}
    try:
        x, kept = comparable(merits, has, True, "drop")
        y = board.truth[kept]
        rows, _ = rankable(x, y)
        measures = _measures({name: size[kept] for name, size in board.sizes.items()}, rules.full)
        figures = {name: _figure(partial(measure, x, y, **resampling)) for name, measure in measures.items()}
        draws = resampled([spearman_statistic(row, y) for row in rows], len(y), rules.resamples, rules.seed)
    except DegenerateError as error:
        figures = dict.fromkeys(STATISTICS if rules.full else STATISTICS[:1], Figure(None, str(error)))
        draws = np.zeros(rules.resamples)
    estimate = figures["spearman"].estimate
    rho = estimate.value if estimate else 0.0
    return Result(
        n, len(board.archs) - n, reasons(merits), len(merits), figures=figures, rho=rho, draws=np.nan_to_num(draws)
    )


def _measures(sizes: Mapping[str, Floats], full: bool) -> dict[str, Callable[..., Estimate]]:
    measures: dict[str, Callable[..., Estimate]] = {"spearman": spearman}
    if not full:
        return measures
    measures |= {"kendall": kendall, "ndcg": ndcg, "regret@1": partial(regret_at, k=1)}
    measures["regret@10"] = partial(regret_at, k=10)
    for names in (("params",), ("flops",), SIZES):
        if set(names) <= set(sizes):
            held = {name: sizes[name] for name in names}
            measures[f"spearman|{','.join(names)}"] = partial(partial_spearman, given=held)
    return measures


def _figure(measure: Callable[[], Estimate]) -> Figure:
    try:
        return Figure(measure())
    except DegenerateError as error:
        return Figure(None, str(error))


def _ranks(results: Mapping[str, Mapping[str, Result]]) -> dict[str, float]:
    """Returns the mean place over boards; contestants of equal Spearman share their mean place."""
    if not results:
        return {}
    rhos = np.array([[result.rho for result in of.values()] for of in results.values()])  # [contestants, boards]
    ones = np.ones((len(rhos), 1))
    places = [Ties(-column).centred_midranks(ones)[0][:, 0] + (len(rhos) + 1) / 2 for column in rhos.T]
    return dict(zip(results, np.mean(places, axis=0).tolist(), strict=True))


def _row(
    name: str,
    results: dict[str, Result],
    spaces: Mapping[str, str],
    rank: float | None,
    flops: Mapping[str, Result],
) -> Row:
    rhos = {board: result.rho for board, result in results.items()}
    draws = np.stack([result.draws for result in results.values()])  # [boards, R]
    worst_on = min(rhos, key=lambda board: rhos[board])
    of_space: dict[str, list[float]] = {}
    for board, rho in rhos.items():
        of_space.setdefault(spaces[board], []).append(rho)
    behind = [rho - flops[board].rho for board, rho in rhos.items() if board in flops]
    return Row(
        name,
        results,
        _over_boards(list(rhos.values()), draws, np.mean),
        _over_boards(list(rhos.values()), draws, np.min),
        worst_on,
        float(np.mean([np.mean(rhos_) for rhos_ in of_space.values()])),
        rank,
        min(behind, default=None),
    )


def _over_boards(rhos: Sequence[float], draws: Floats, over: Callable[..., Floats]) -> Estimate:
    value = float(over(rhos))
    low, high = percentile_interval(value, over(draws, axis=0), len(rhos), 0.95)
    return Estimate(value, min(low, value), max(high, value), len(rhos))
