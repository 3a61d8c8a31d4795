"""Rank correlation with bootstrap intervals, and what it says of a proxy. No torch here."""

from epochzero.stats.correlation import Correlation, kendall, spearman
from epochzero.stats.quality import ProxyQuality, Unscored, proxy_quality

__all__ = ["Correlation", "ProxyQuality", "Unscored", "kendall", "proxy_quality", "spearman"]
