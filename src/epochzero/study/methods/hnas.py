r"""HNAS, algorithm 7.1: Bayesian optimisation of two numbers decides which network of a scored pool to train next.

    for k = 1 ... K:   (mu, nu) by a Gaussian process; A_k = argmin of the objective over the pool; tell how good A_k is

    form=thesis        kappa/M + mu (M^2 - nu)^2                      eq. 7.7 with t = 1
    form=code          kappa/(M + 1e-6) + mu |M^2 - nu^2|             what the published code computes

The pool is scored once, by the metric M and by kappa, the condition number of the tangent kernel; networks that lack
either, or whose M is not positive, are left out. What was chosen before is not chosen again. What is told is the
validation accuracy of a table, `--proxy table:cifar10_val_12ep`, or of a short training; the winner is the best by it.
A network without one counts as the worst so far.

The process sees u in [0, 1] and c in [low, high], the powers of ten of mu.

    form=thesis   nu = the quantile u of M^2 in the pool,   mu = 10^c med(kappa/M) / med(M^2)^2       c in [-3, 3]
    form=code     nu = scale u,                             mu = 10^c                                 c in [-4, 0]

M_Trace and M_KNAS are roots, of the kernel's trace over the number of samples and of `nasi_trace`, the mean of all
inner products of gradients (eqs 7.4 and D.11). Those of KNAS are gradients of the loss here, as in KNAS itself;
knas_label has those of the labels' logits, as the thesis does. naswot_raw is NASWOT as the published code has it.

The thesis gives no ranges. Ours do not depend on the unit of M, whose tail is long: with nu in equal steps up to the
99 % quantile of M^2 most queries chose networks of poor accuracy (1,000 networks of NAS-Bench-201). The code's ranges
are as published, with scale 5000 (NAS-Bench-201). The first `probes` queries are u = 0 ... 1 in equal steps with c in
the middle, as in the published code.

Options:
    metric        M: grad, snip, grasp, trace, knas, knas_label, fisher, synflow, naswot or naswot_raw
    kappa         the proxy whose score is kappa
    samples       number of samples of the batch that the scores are of (trace in the code's form, which depends on the
                  unit of M); 0: that of the search, for scores that are not from a table
    form          thesis or code
    acquisition   ei (xi = 0, as on NAS-Bench-201) or ucb (kappa = 2.576, as on DARTS)
    networks      number of networks in the pool
    opens         number of further networks of the pool considered in each step; 0: all of them in every step
    probes        number of queries before the process decides
    scale         the largest nu (code)
    low, high     the range of c, if another; 0 and 0: that of the form

Shu. Understanding and improving neural architecture search (thesis, chapter 7); Shu, Dai, Wu, Low. Unifying and
boosting gradient-based training-free neural architecture search. NeurIPS 2022. arXiv:2201.09785
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from epochzero.errors import UserError
from epochzero.registry import check_known, searches
from epochzero.study.methods.base import Floats, Pool, Sampler, Wanted, bayesian

METRICS = {
    "grad": "grad_norm",
    "snip": "snip",
    "grasp": "grasp",
    "trace": "ntk_trace",
    "knas": "nasi_trace",
    "knas_label": "knas(variant=label)",
    "fisher": "fisher",
    "synflow": "synflow",
    "naswot": "naswot",
    "naswot_raw": "naswot(of=inputs)",
}
"""M to the proxy that it is made of; KNAS is that of NASI by another name, which takes one backward pass"""
ROOTED = ("trace", "knas", "knas_label")
"""metrics that are the root of their proxy"""
KAPPA = "ntk_cond"
RANGES = {"thesis": (-3.0, 3.0), "code": (-4.0, 0.0)}
"""of c"""
ACQUISITIONS = ("ei", "ucb")


@searches.registers("hnas")
class HNAS:
    """The network of a pool that a tuned bound likes best, and the bound tuned by what is told of it."""

    budget = 20
    batch = 1

    @dataclass(frozen=True)
    class Options:
        metric: str = "trace"
        form: str = "thesis"
        kappa: str = KAPPA
        samples: int = 0
        acquisition: str = "ei"
        networks: int = 2000
        opens: int = 0
        probes: int = 5
        scale: float = 5000.0
        low: float = 0.0
        high: float = 0.0

    def __init__(self, space: Sampler, seed: int, pool: Pool, options: Options = Options()) -> None:
        if options.form not in RANGES or options.acquisition not in ACQUISITIONS:
            raise UserError(f"hnas takes form={', '.join(RANGES)} and acquisition={', '.join(ACQUISITIONS)}.")
        if min(options.opens, options.probes, options.samples) < 0 or not 0 < options.scale < math.inf:
            raise UserError("hnas takes opens, probes and samples of at least 0, and a positive, finite scale.")
        low, high = RANGES[options.form] if options.low == options.high == 0 else (options.low, options.high)
        if not -math.inf < low < high < math.inf:
            raise UserError(f"hnas takes a range of c from low to high, not from {low:g} to {high:g}.")
        self.form, self.opens, self.scale = options.form, options.opens, options.scale
        samples = options.samples or pool.samples
        if options.form == "code" and options.metric == "trace" and not samples:
            raise UserError(
                "hnas with form=code and metric=trace needs the number of samples of a batch that the table's scores "
                "are of: give the option samples, such as --option samples=64."
            )
        self.archs, self.m, self.kappa = usable(pool, options.metric, options.kappa, samples or 1)
        self.left = np.ones(len(self.archs), bool)
        self.probes = [{"u": float(u), "c": (low + high) / 2} for u in np.linspace(0, 1, options.probes)]
        self.optimiser = bayesian("hnas", seed, options.acquisition, {"u": (0.0, 1.0), "c": (low, high)})
        self.queries: list[dict[str, float]] = []
        """u and c of each step"""
        self.worst = math.inf

    @staticmethod
    def wants(options: Mapping[str, Any]) -> Wanted:
        metric = options["metric"]
        check_known(metric, METRICS, f"hnas has no metric '{metric}'", "It has")
        return Wanted([METRICS[metric], options["kappa"]], options["networks"])

    def ask(self, n: int) -> list[Any]:
        looked_at = self.left.copy()
        if self.opens:
            looked_at[self.opens * (len(self.queries) + 1) :] = False
        if not looked_at.any():
            return []
        step = len(self.queries)
        query = self.probes[step] if step < len(self.probes) else dict(self.optimiser.suggest())
        self.queries.append(query)
        bound = np.where(looked_at, self.bound(query["u"], query["c"]), np.inf)
        best = int(bound.argmin()) if np.isfinite(bound).any() else int(looked_at.argmax())
        self.left[best] = False
        return [self.archs[best]]

    def tell(self, archs: Sequence[Any], merits: Sequence[float | None]) -> None:
        for merit in merits:
            if merit is not None:
                self.worst = min(self.worst, merit)
            if self.worst < math.inf:
                self.optimiser.register(params=self.queries[-1], target=self.worst if merit is None else merit)

    def bound(self, u: float, c: float) -> Floats:
        """The objective of every network of the pool, lower is better."""
        squares = self.m**2
        with np.errstate(over="ignore"):
            if self.form == "code":
                return np.asarray(self.kappa / (self.m + 1e-6) + 10**c * np.abs(squares - (self.scale * u) ** 2))
            first = self.kappa / self.m
            away = (squares - np.quantile(squares, min(max(u, 0), 1))) / np.median(squares)
            return np.asarray(first + 10**c * np.median(first) * away**2)


def usable(pool: Pool, metric: str, by: str = KAPPA, samples: int = 1) -> tuple[list[Any], Floats, Floats]:
    """Networks with both scores, their M and their kappa."""
    value, kappa = pool.values[METRICS[metric]], pool.values[by]
    m = m_of(metric, value, samples)
    whole = np.flatnonzero((m > 0) & np.isfinite(m) & np.isfinite(kappa)).tolist()
    if not whole:
        raise UserError(
            f"None of the {len(pool.archs)} networks of the pool has a positive {metric} and a finite kappa."
        )
    return [pool.archs[i] for i in whole], m[whole], kappa[whole]


def m_of(metric: str, value: Floats, samples: int = 1) -> Floats:
    """M from the score that it is made of, for M_Trace of that many samples."""
    if metric in ROOTED:
        return np.asarray(np.sqrt(value / samples if metric == "trace" else value))
    return np.abs(value) if metric == "grasp" else value
