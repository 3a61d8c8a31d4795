"""Accuracies of trained networks, against which proxies are measured. Loads without torch."""

from epochzero.tables.benchmark import Benchmark
from epochzero.tables.table import AccuracyTable
from epochzero.tables.tabular import Match, TabularBenchmark

__all__ = ["AccuracyTable", "Benchmark", "Match", "TabularBenchmark"]
