r"""Guided: what is told of a few networks chooses and weighs the proxies for this space and these data.

Feedback, such as a short training, is expensive, and proxies are cheap: N networks of a pool are scored first. Of
network i, x_i [K] are the proxies' ranks in the pool as normal scores, and its quality is

    f_i = b + w x_i + g(x_i) + u_i         b ~ N(0, 1),   g ~ GP(0, .3^2 exp(-|x - x'|^2 / K)),   u_i ~ N(0, .3^2)
    w   = (C + I)^-1 r                     C = X'X / N [K, K], how the proxies correlate in this pool
    r_k ~ N(mean_s r_sk, var_s r_sk)       r_sk: correlation of proxy k with accuracy on the tables of space s

All of it is normal, so that what is told gives means and variances of all f in closed form. The evidence r_sk is in
`guided.json`, from `benchmarks/guided.py`; a variance is shrunk towards .3^2, and a proxy without evidence has r_k ~
N(0, .3^2). Proxies that most networks lack, or with one score for all, are left out, and the remarks say why; a network
without a score has the mean one. Only the order of what is told counts: its ranks are made normal scores v, in the unit
that the model expects of the same networks. A network without a value counts as the worst.

First comes the best by the evidence, then the least certain of the better half, then always the network of the largest
expected improvement E max(0, f_i - max v), which weighs what may be won and what is not known; as long as all that was
told is equal, the least certain one. Networks that every
proxy scores as one that was evaluated are mostly the same network, and wait until no others are left. The winner is the
best of the evaluated ones. At the end a remark says how well what was told of each is predicted from the others, and
by FLOPs.

Options:
    networks   number of networks in the pool
    proxies    the proxies, separated by commas
    without    spaces whose evidence is left out, separated by commas
    batch      networks chosen at a time, each as if the others had come out as predicted

The ancestors are HNAS and RoBoT (`hnas`, `robot`). Expected improvement: Jones, Schonlau, Welch. Efficient global
optimization of expensive black-box functions. Journal of Global Optimization 1998; leaving out one in closed form:
Sundararajan, Keerthi. Predictive approaches for choosing hyperparameters in Gaussian processes. Neural Computation 2001
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from epochzero.engine.proxy import split_list
from epochzero.errors import DegenerateError, UserError
from epochzero.registry import searches
from epochzero.stats.correlation import spearman
from epochzero.study.methods.base import Floats, Pool, Sampler, Wanted, lowest

PROXIES = (
    "params,flops,depth,layers,width,activations,"
    "az_expressivity,az_progressivity,az_trainability,naswot,synflow,near,grad_norm,l2_norm,meco"
)
UNKNOWN = 0.3
"""standard deviation of a correlation over spaces where there is no evidence"""
WEIGHT_OF_UNKNOWN = 2
"""spaces that it counts as"""
LOCAL, OWN = 0.3, 0.3
"""standard deviations of g and u"""
FEW = 3
"""networks from which correlations are told"""


class Prediction(NamedTuple):
    """Mean and standard deviation of every f [N]; of a network that is not evaluated yet with its own u."""

    mean: Floats
    deviation: Floats


class Regression:
    """The model of f, given features [N, K] and mean and standard deviation [K] of the correlations r."""

    def __init__(self, features: Floats, mean: Floats, deviation: Floats) -> None:
        within = features.T @ features / len(features) + np.eye(len(mean))  # [K, K]
        self.weights, self.spread = np.linalg.solve(within, mean), np.linalg.inv(within) * deviation  # [K], [K, K]
        self.features, self.prior, self.root = features, features @ self.weights, features @ self.spread
        """[N, K], the expected w x [N], and R [N, K], R R' being their covariance"""

    def covariance(self, rows: Any, columns: Sequence[int]) -> Floats:
        """The covariance of b + w x + g(x) between networks [rows, columns]; without b, 1 less."""
        a, b = self.features[rows], self.features[columns]
        squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
        local = LOCAL**2 * np.exp(-squares / max(a.shape[1], 1))
        return np.asarray(1 + self.root[rows] @ self.root[columns].T + local)

    def among(self, seen: Sequence[int]) -> Floats:
        """Covariance of what is told of these networks [n, n]."""
        return self.covariance(seen, seen) + OWN**2 * np.eye(len(seen))

    def scaled(self, seen: Sequence[int], told: Floats) -> Floats:
        """Normal scores of what is told [n], with the variance that the model expects among these networks."""
        scores = normal_scores(told)
        expected = np.trace(_centred(self.among(seen))) + np.sum(_centred(self.prior[seen]) ** 2)
        spread = np.sum(scores**2)
        return scores * math.sqrt(expected / spread) if spread > 0 else scores

    def given(self, seen: Sequence[int], v: Floats, pending: Sequence[int] = ()) -> Prediction:
        """The prediction after v; `pending` networks are treated as if they had come out as predicted."""
        both = [*seen, *pending]
        cross = self.covariance(slice(None), both)  # [N, n]
        mean = self.prior.copy()
        if len(seen):
            mean += cross[:, : len(seen)] @ np.linalg.solve(self.among(seen), v - self.prior[seen])
        known = np.einsum("in,ni->i", cross, np.linalg.solve(self.among(both), cross.T)) if both else 0.0
        variance = 1 + (self.root**2).sum(1) + LOCAL**2 + OWN**2 - known
        return Prediction(mean, np.sqrt(np.maximum(variance, OWN**2)))

    def left_out(self, seen: Sequence[int], v: Floats) -> Floats:
        """The prediction w x + g(x) of each network from all others [n].

        b is not in it: it is lower where a good network is left out, which makes any prediction look bad.
        """
        inverse = np.linalg.inv(self.among(seen))
        residual = inverse @ (v - self.prior[seen])
        others = self.covariance(seen, seen) - 1
        np.fill_diagonal(others, 0.0)
        own = (others * inverse).sum(1) * residual / inverse.diagonal()
        return np.asarray(self.prior[seen] + others @ residual - own)


@searches.registers("guided")
class Guided:
    """Bayesian regression of what is told on the proxies of a pool, with evidence of other spaces as its prior."""

    budget = 20
    overlaps = True

    def __init__(
        self,
        space: Sampler,
        seed: int,
        pool: Pool,
        *,
        networks: int = 1000,
        proxies: str = PROXIES,
        without: str = "",
        batch: int = 1,
    ) -> None:
        self.batch, self.archs = batch, pool.archs
        differ = {name: len(np.unique(column[~np.isnan(column)])) > 1 for name, column in pool.values.items()}
        whole = {name: np.mean(~np.isnan(column)) > 0.5 for name, column in pool.values.items()}
        self.values = {name: column for name, column in pool.values.items() if differ[name] and whole[name]}
        why = {name: "most networks lack it" if differ[name] else "all networks have the same score" for name in differ}
        self.dropped = {name: said for name, said in (why | dict(pool.why)).items() if name not in self.values}
        self.known = evidence(split_list(without))
        features = np.array([unit_scores(column) for column in self.values.values()]).reshape(-1, len(pool.archs)).T
        self.model = Regression(features, *prior_of(list(self.values), self.known))
        _, groups = np.unique(features, axis=0, return_inverse=True)
        self.group = groups.reshape(-1)
        """of networks that every proxy scores alike"""
        self.waiting: list[int] = []
        """asked for and not told yet"""
        self.seen: list[int] = []
        self.told: list[float] = []

    @staticmethod
    def wants(options: Mapping[str, Any]) -> Wanted:
        proxies = split_list(options["proxies"])
        if not proxies:
            raise UserError("The search guided needs proxies: leave the option out, or name some.")
        return Wanted(proxies, options["networks"], needed=False)

    def ask(self, n: int) -> list[Any]:
        chosen: list[int] = []
        while len(chosen) < n and len(self.seen) + len(self.waiting) < len(self.archs):
            chosen.append(self._next())
            self.waiting.append(chosen[-1])
        return [self.archs[i] for i in chosen]

    def tell(self, archs: Sequence[Any], merits: Sequence[float | None]) -> None:
        self.seen += self.waiting[: len(archs)]
        self.told += lowest(merits)
        del self.waiting[: len(archs)]

    def _next(self) -> int:
        """The network to evaluate next."""
        past = [*self.seen, *self.waiting]
        v = self.model.scaled(self.seen, np.array(self.told)) if self.seen else np.empty(0)
        mean, deviation = self.model.given(self.seen, v, self.waiting)
        if not past:
            gain = mean
        elif len(past) == 1:
            gain = np.where(mean >= np.median(mean), deviation, -np.inf)
        elif not v.any():
            gain = deviation
        else:
            gain = improvement(mean, deviation, v.max())
        gain = np.where(np.isin(self.group, self.group[past]), -1e9, gain)
        gain[past] = -np.inf
        return int(np.argmax(gain))

    @property
    def remarks(self) -> list[str]:
        """Sentences on how well it predicts, what it weighs and what it left out."""
        said = [f"guided does without {name}: {why}." for name, why in self.dropped.items()]
        if not self.values:
            return [*said, "guided has no proxy that orders these networks: they were drawn at random."]
        n, told, names = len(self.seen), np.array(self.told), list(self.values)
        if n >= FEW and told.max() == told.min() > -math.inf:
            said.append(f"What was told is the same of all {n} networks: there was nothing to learn.")
        elif n >= FEW and told.max() > -math.inf:
            v = self.model.scaled(self.seen, told)
            flops = (
                _correlation(self.model.features[self.seen, names.index("flops")], v) if "flops" in names else "none"
            )
            said.append(
                f"Rank correlation of what was told of {n} networks with what guided predicts of each from the others: "
                f"{_correlation(self.model.left_out(self.seen, v), v)}; with FLOPs: {flops}. They were chosen and are "
                "alike: among random networks it is mostly larger."
            )
        order = np.argsort(-np.abs(self.weights), kind="stable")[:3]
        most = ", ".join(f"{names[k]} {self.weights[k]:+.2f}" for k in order)
        return [*said, f"Largest weights: {most}. Evidence before: {', '.join(self.known) or 'none'}."]

    @property
    def weights(self) -> Floats:
        """The expected weight of each proxy after what was told [K]."""
        model = self.model
        if not self.seen:
            return np.asarray(model.weights)
        v = model.scaled(self.seen, np.array(self.told))
        residual = np.linalg.solve(model.among(self.seen), v - model.prior[self.seen])
        return np.asarray(model.weights + model.spread @ (model.root[self.seen].T @ residual))


def normal_scores(values: Floats) -> Floats:
    """Returns the normal quantiles of the ranks, 0 for values that are nan."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    there = ~np.isnan(values)
    scores = np.zeros(len(values))
    scores[there] = ndtri((rankdata(values[there]) - 0.5) / len(values[there]))
    return scores


def unit_scores(values: Floats) -> Floats:
    """Returns normal scores with variance 1, whatever the ties."""
    scores = normal_scores(values)
    return np.asarray(scores / scores.std())


def improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Returns E max(0, f - best) of normal f."""
    from scipy.special import ndtr

    z = (mean - best) / deviation
    return np.asarray(deviation * (z * ndtr(z) + np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)))


@cache
def _evidence() -> dict[str, dict[str, float]]:
    read: dict[str, dict[str, float]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return read


def evidence(without: Sequence[str] = ()) -> dict[str, dict[str, float]]:
    """Returns the correlation of each proxy with accuracy by space, but for spaces that are left out."""
    return {space: by_proxy for space, by_proxy in _evidence().items() if space not in without}


def prior_of(proxies: Sequence[str], known: Mapping[str, Mapping[str, float]]) -> tuple[Floats, Floats]:
    """Returns mean and standard deviation over spaces of each proxy's correlation [K]."""
    mean, deviation = np.zeros(len(proxies)), np.full(len(proxies), UNKNOWN)
    for k, name in enumerate(proxies):
        own = [by_proxy[name] for by_proxy in known.values() if name in by_proxy]
        if own:
            mean[k] = np.mean(own)
            squares = np.sum((own - mean[k]) ** 2) + WEIGHT_OF_UNKNOWN * UNKNOWN**2
            deviation[k] = math.sqrt(squares / (len(own) - 1 + WEIGHT_OF_UNKNOWN))
    return mean, deviation


def _centred(values: Floats) -> Floats:
    """Values minus their mean; of a matrix, over rows and columns."""
    for axis in range(values.ndim):
        values = values - values.mean(axis, keepdims=True)
    return values


def _correlation(x: Floats, y: Floats) -> str:
    try:
        found = spearman(x, y)
    except DegenerateError as error:
        return f"no value ({error})"
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"
