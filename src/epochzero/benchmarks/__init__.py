"""Known accuracies of known networks: the truth that proxies are measured against. No torch here."""

from epochzero.benchmarks.benchmark import Benchmark
from epochzero.benchmarks.table import AccuracyTable
from epochzero.benchmarks.tabular import Match, TabularBenchmark

__all__ = ["AccuracyTable", "Benchmark", "Match", "TabularBenchmark"]
