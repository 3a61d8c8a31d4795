"""`epochzero bench`: rank correlations of proxies with known accuracies."""

from epochzero.cli.bench.command import bench

__all__ = ["bench"]
