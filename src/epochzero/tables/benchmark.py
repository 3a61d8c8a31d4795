"""A benchmark: measured or predicted accuracies and costs of trained networks.

    benchmark.accuracy("|nor_conv_3x3~0|+...", dataset="cifar10", split="test", epochs=200, seed=777)
    benchmark.cost("|nor_conv_3x3~0|+...")      # {"params": ..., "flops": ..., "latency": ...}

A tabular benchmark knows the networks of a table (`epochzero.tables.tabular`), a surrogate predicts any network of
its space (`epochzero.tables.formats.nb301`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod


class Benchmark(ABC):
    """Accuracies and costs of architectures given as text. An unknown value raises a `DataError`."""

    source: str
    """file or folder of the numbers, for messages"""

    @abstractmethod
    def accuracy(
        self,
        arch: str,
        dataset: str | None = None,
        split: str = "test",
        epochs: int | None = None,
        seed: int | None = None,
    ) -> float:
        """Returns the accuracy of a network, in the benchmark's unit.

        `dataset` may be left out if there is only one; `epochs` defaults to the longest training; without a `seed` the
        result is the mean over all runs.
        """

    @abstractmethod
    def cost(self, arch: str, dataset: str | None = None) -> dict[str, float]:
        """Returns the known costs of a network: params, flops, train_seconds, latencies and energies.

        If there are several of a kind, such as latencies, each has the name of its column. Times, latencies and
        energies are in the source's unit.
        """
