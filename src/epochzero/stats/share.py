r"""The interval of a share, such as an accuracy: `right` of n independent trials.

    (p + z^2/2n  -+  z sqrt(p (1 - p) / n + z^2/4n^2)) / (1 + z^2/n)      p = right / n,  z = 1.96 for 95 %

Wilson. Probable inference, the law of succession, and statistical inference. JASA, 1927.
"""

from __future__ import annotations

import math
from statistics import NormalDist


def share_interval(right: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """The ends of the interval, from 0 to 1."""
    z, p = NormalDist().inv_cdf((1 + level) / 2), right / n
    half = z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    middle, whole = p + z**2 / (2 * n), 1 + z**2 / n
    return max(0.0, (middle - half) / whole), min(1.0, (middle + half) / whole)


def share_text(right: int, n: int) -> str:
    """`71.20 % [69.17, 73.14]`"""
    low, high = share_interval(right, n)
    return f"{100 * right / n:.2f} % [{100 * low:.2f}, {100 * high:.2f}]"
