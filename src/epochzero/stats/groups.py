r"""Groups of networks that are not significantly different, from repeated scores, by Tukey's test.

Network i has the score v_is in draw s = 1..S of weights and data; every network is scored in the same draws.

    v_is = network_i + draw_s + e_is        sigma^2 = sum of e_is^2 / ((n - 1)(S - 1))
    i, j differ  if  |mean_i - mean_j| > q sigma / sqrt(S)

with q the 95 % quantile of the studentized range of n means and (n - 1)(S - 1) degrees of freedom. If all networks are
equal, any two differ in 5 % of rankings. The errors e are taken to be normal and equally large for all networks.

A group is a network and those behind it that do not differ from it; the first that differs starts the next group.

Tukey. Comparing individual means in the analysis of variance. Biometrics 1949.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from epochzero.stats.bootstrap import Floats


def least_difference(values: Floats, confidence: float = 0.95) -> float:
    """Returns the least significant difference of two means of values [n, S]; nan for one network or one draw."""
    networks, draws = values.shape
    freedom = (networks - 1) * (draws - 1)
    if not freedom:
        return math.nan
    errors = values - values.mean(1, keepdims=True) - values.mean(0) + values.mean()
    sigma = math.sqrt(np.square(errors).sum() / freedom)
    rounding = 1e-12 * float(np.abs(values).max())
    return max(rounding, _quantile(confidence, networks, freedom) * sigma / math.sqrt(draws))


@cache
def _quantile(confidence: float, networks: int, freedom: int) -> float:
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(confidence, networks, freedom))


def grouped(means: Floats, least: float) -> list[int]:
    """Returns the number of each network's group, from 1; the means descend."""
    groups, first = [1], float(means[0])
    for mean in means[1:].tolist():
        new = first - mean > least
        first = mean if new else first
        groups.append(groups[-1] + new)
    return groups
