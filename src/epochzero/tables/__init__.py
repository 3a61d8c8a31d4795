"""Known accuracies of known networks: the truth that proxies are measured against. No torch here."""

from epochzero.tables.benchmark import Benchmark
from epochzero.tables.table import AccuracyTable
from epochzero.tables.tabular import Match, TabularBenchmark

__all__ = ["AccuracyTable", "Benchmark", "Match", "TabularBenchmark"]
