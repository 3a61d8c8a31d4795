"""Statistics of proxies against accuracies, with bootstrap intervals over networks and repeats. Needs no torch."""

from epochzero.stats.bootstrap import Estimate
from epochzero.stats.correlation import Correlation, kendall, spearman
from epochzero.stats.gain import ndcg
from epochzero.stats.paired import paired_difference
from epochzero.stats.partial import partial_spearman
from epochzero.stats.pearson import pearson
from epochzero.stats.quality import Figure, ProxyQuality, paired_quality, proxy_quality
from epochzero.stats.top import precision_at, regret_at
from epochzero.stats.unscored import Unscored
from epochzero.stats.within import kendall_within

__all__ = [
    "Correlation",
    "Estimate",
    "Figure",
    "ProxyQuality",
    "Unscored",
    "kendall",
    "kendall_within",
    "ndcg",
    "paired_difference",
    "paired_quality",
    "partial_spearman",
    "pearson",
    "precision_at",
    "proxy_quality",
    "regret_at",
    "spearman",
]
