"""Known accuracies of known networks: the truth that proxies are measured against. No torch here."""

from epochzero.benchmarks.table import AccuracyTable

__all__ = ["AccuracyTable"]
