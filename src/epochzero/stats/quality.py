"""All statistics of a proxy's scores against the truth, and the networks without a score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import compress
from typing import Any, Unpack

import numpy as np

from epochzero.errors import DegenerateError, UserError
from epochzero.stats.bootstrap import Estimate, Floats, Resampling
from epochzero.stats.correlation import kendall, spearman
from epochzero.stats.paired import Ranking, paired_difference
from epochzero.stats.partial import as_quantity, partial_spearman
from epochzero.stats.pearson import pearson
from epochzero.stats.sample import Truth
from epochzero.stats.top import precision_at, regret_at
from epochzero.stats.unscored import GivenScores, Mask, Unscored, as_rows, comparable, reasons, scored
from epochzero.stats.within import kendall_within

Measure = Callable[..., Estimate]


@dataclass(frozen=True)
class Figure:
    """One statistic with its interval, or the reason why it is missing."""

    estimate: Estimate | None
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"why": self.why} if self.estimate is None else {**asdict(self.estimate), "spread": self.estimate.spread}


@dataclass(frozen=True)
class ProxyQuality:
    """The quality of a proxy. Correlations are positive if its declared direction is right."""

    n: int
    """number of networks with a score in every repeat"""
    unscored: int
    unscored_why: dict[str, int]
    """number of networks without a score by reason, the most frequent first"""
    spearman: float | None
    spearman_ci: tuple[float, float] | None
    kendall: float | None
    kendall_ci: tuple[float, float] | None
    why: str = ""
    """reason for a missing rank correlation; empty otherwise"""
    repeats: int = 1
    figures: dict[str, Figure] = field(default_factory=dict)
    """every statistic by name: spearman, kendall, pearson, regret@10, spearman|params, kendall in flops bins, ..."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"figures": {name: figure.to_json() for name, figure in self.figures.items()}}


def proxy_quality(
    scores: GivenScores,
    truth: Truth,
    higher_is_better: bool,
    *,
    unscored: Unscored = "drop",
    params: Truth | None = None,
    flops: Truth | None = None,
    top: Sequence[int] = (),
    bins: int | None = None,
    **resampling: Unpack[Resampling],
) -> ProxyQuality:
    """Returns all statistics of scores [networks] or [repeats][networks] and the truth, of which more is better.

    They are correlations; regret and precision for every k in `top`; if sizes are known, partial correlations given
    `params`, `flops` and both, and tau within `bins` bins of `flops` (10, or fewer for few networks).
    """
    rows = as_rows(scores)
    n = len(rows[0])
    if n != len(truth):
        raise UserError(f"There are {n} scores but {len(truth)} true values; give one for each network.")
    has = scored(rows)
    given = {"params": params, "flops": flops}
    sizes = {name: as_quantity(name, size, n) for name, size in given.items() if size is not None}
    try:
        x, kept = comparable(rows, has, higher_is_better, unscored)
    except DegenerateError as error:
        figures = dict.fromkeys(_measures(sizes, top, bins), Figure(None, str(error)))
    else:
        y = np.asarray(truth, np.float64)[kept]
        measures = _measures({name: size[kept] for name, size in sizes.items()}, top, bins)
        figures = {name: _figure(partial(measure, x, y, **resampling)) for name, measure in measures.items()}
        if unscored == "worst" and not has.all():
            figures["pearson"] = Figure(None, "networks without a score are ranked worst, which is no number")
    rho, tau = figures["spearman"], figures["kendall"]
    there = int(has.all(axis=0).sum())
    return ProxyQuality(
        n=there,
        unscored=n - there,
        unscored_why=reasons(rows),
        spearman=rho.estimate.value if rho.estimate else None,
        spearman_ci=(rho.estimate.low, rho.estimate.high) if rho.estimate else None,
        kendall=tau.estimate.value if tau.estimate else None,
        kendall_ci=(tau.estimate.low, tau.estimate.high) if tau.estimate else None,
        why=rho.why,
        repeats=len(rows),
        figures=figures,
    )


def paired_quality(
    first: GivenScores,
    second: GivenScores,
    truth: Truth,
    *,
    unscored: Unscored = "drop",
    statistic: Ranking = "spearman",
    **resampling: Unpack[Resampling],
) -> Estimate:
    """Returns the first's correlation minus the second's on the same networks, higher scores being better.

    `drop` keeps the networks that both score in every repeat. Raises `DegenerateError` if there is no difference.
    """
    proxies = [as_rows(first), as_rows(second)]
    counts = [len(rows[0]) for rows in proxies]
    if set(counts) != {len(truth)}:
        raise UserError(
            f"There are {counts[0]} and {counts[1]} scores but {len(truth)} true values; give one for each network."
        )
    y = np.asarray(truth, np.float64)
    if unscored == "drop":
        shared: Mask = np.logical_and.reduce([scores for rows in proxies for scores in scored(rows)])
        if not shared.any():
            raise DegenerateError("no network is scored by both")
        proxies = [[list(compress(row, shared)) for row in rows] for rows in proxies]
        y = y[shared]
    a, b = (comparable(rows, scored(rows), True, unscored)[0] for rows in proxies)
    return paired_difference(a, b, y, statistic=statistic, **resampling)


def _measures(sizes: Mapping[str, Floats], top: Sequence[int], bins: int | None) -> dict[str, Measure]:
    """Returns the statistics to compute, by name."""
    measures: dict[str, Measure] = {"spearman": spearman, "kendall": kendall, "pearson": pearson}
    for k in top:
        measures[f"regret@{k}"] = partial(regret_at, k=k)
        measures[f"precision@{k}"] = partial(precision_at, k=k)
    for names in (("params",), ("flops",), ("params", "flops")):
        if set(names) <= set(sizes):
            held = {name: sizes[name] for name in names}
            measures[f"spearman|{','.join(names)}"] = partial(partial_spearman, given=held)
    if "flops" in sizes:
        measures["kendall in flops bins"] = partial(kendall_within, size=sizes["flops"], bins=bins)
    return measures


def _figure(measure: Callable[[], Estimate]) -> Figure:
    try:
        return Figure(measure())
    except DegenerateError as error:
        return Figure(None, str(error))
