"""Correlation with bootstrap intervals, and what it says of a proxy or of two. No torch here."""

from epochzero.stats.correlation import Correlation, kendall, spearman
from epochzero.stats.paired import paired_difference
from epochzero.stats.pearson import pearson
from epochzero.stats.quality import ProxyQuality, Unscored, paired_quality, proxy_quality

__all__ = [
    "Correlation",
    "ProxyQuality",
    "Unscored",
    "kendall",
    "paired_difference",
    "paired_quality",
    "pearson",
    "proxy_quality",
    "spearman",
]
