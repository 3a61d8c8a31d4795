r"""RoBoT: Bayesian optimisation of the weights of proxies, then the favourites of the best weights.

    for t = 1 ... steps:   w by a Gaussian process;   A(w) = argmax_A sum_k w_k m_k(A);   tell how good A(w) is
    then:                  the networks of the pool with the largest sum_k w*_k m_k, w* being the best weights

w is in [-1, 1]^K, and m_k = log(1 + |proxy k|) with the proxy's sign, stretched to [0, 1] over the pool; a missing
score counts as 0. Weights whose favourite was evaluated before cost nothing, so that fewer than `steps` networks are
spent on them, and the rest of the budget on the second part: `steps` should be the budget. A network without a value
counts as the worst so far.

The paper's proxies are grad_norm, snip, grasp, fisher, synflow and jacov, its acquisition is UCB (kappa = 2.576). Its
code takes logarithms of proxies, of which grasp has both signs; how is not published, hence ours. Proxies that have no
score here are left out.

Options:
    networks   number of networks in the pool
    steps      weights tried
    proxies    the proxies, separated by commas

He, Shu, Dai, Low. Robustifying and boosting training-free neural architecture search. ICLR 2024. arXiv:2403.07591
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from epochzero.engine.proxy import split_list
from epochzero.errors import UserError
from epochzero.registry import searches
from epochzero.study.methods.base import Floats, Pool, Sampler, Wanted, bayesian

PROXIES = "grad_norm,snip,grasp,fisher,synflow,jacov"


@searches.registers("robot")
class RoBoT:
    """Weights of proxies by Bayesian optimisation, then greedy search by the best."""

    budget = 20
    batch = 1

    def __init__(
        self, space: Sampler, seed: int, pool: Pool, *, networks: int = 1000, steps: int = 20, proxies: str = PROXIES
    ) -> None:
        if steps < 1:
            raise UserError(f"The search robot tries at least 1 vector of weights, not {steps}.")
        self.archs, self.left, self.steps = pool.archs, np.ones(len(pool.archs), bool), steps
        columns = {name: stretched(column) for name, column in pool.values.items() if np.isfinite(column).any()}
        if not columns:
            raise UserError(f"None of {', '.join(pool.values)} has a score of a network of the pool.")
        self.metrics = np.stack(list(columns.values()), 1)  # [N, K]
        self.optimiser = bayesian("robot", seed, "ucb", dict.fromkeys(columns, (-1.0, 1.0)))
        self.told: dict[int, float] = {}
        self.asked = -1
        self.query: dict[str, float] | None = None
        """the weights whose favourite that is"""
        self.best, self.weights, self.worst = -math.inf, np.zeros(len(columns)), math.inf

    @staticmethod
    def wants(options: Mapping[str, Any]) -> Wanted:
        return Wanted(split_list(options["proxies"]), options["networks"], needed=False)

    def ask(self, n: int) -> list[Any]:
        if not self.left.any():
            return []
        self.asked = self._favourite()
        self.left[self.asked] = False
        return [self.archs[self.asked]]

    def tell(self, archs: Sequence[Any], merits: Sequence[float | None]) -> None:
        for merit in merits:
            self.worst = min(self.worst, math.inf if merit is None else merit)
            self.told[self.asked] = self.worst if merit is None else merit
            self._learn(self.told[self.asked])

    def _favourite(self) -> int:
        """The favourite of new weights, or of the best when all steps are taken."""
        while self.steps:
            self.steps -= 1
            self.query = dict(self.optimiser.suggest())
            first = int(np.argmax(self.metrics @ np.array(list(self.query.values()))))
            if self.left[first]:
                return first
            self._learn(self.told[first])
        self.query = None
        return int(np.argmax(np.where(self.left, self.metrics @ self.weights, -np.inf)))

    def _learn(self, value: float) -> None:
        if self.query is not None and value < math.inf:
            self.optimiser.register(params=self.query, target=value)
            if value >= self.best:
                self.best, self.weights = value, np.array(list(self.query.values()))


def stretched(values: Floats) -> Floats:
    """Returns signed logarithms between 0 and 1; 0 for a network without a score."""
    logs = np.sign(values) * np.log1p(np.abs(values))
    logs = np.where(np.isfinite(logs), logs, np.nan)
    low, high = np.nanmin(logs), np.nanmax(logs)
    return np.asarray(np.nan_to_num((logs - low) / (high - low or 1.0)))
