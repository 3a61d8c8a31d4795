"""A benchmark: what is known, or predicted, of trained networks.

    benchmark.accuracy("|nor_conv_3x3~0|+...", dataset="cifar10", split="test", epochs=200, seed=777)
    benchmark.cost("|nor_conv_3x3~0|+...")      # {"params": ..., "flops": ..., "latency": ...}

A tabular benchmark knows the networks of a table (`epochzero.tables.tabular`), a surrogate predicts any network of
its space (`epochzero.tables.nb301`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod


class Benchmark(ABC):
    """Architecture, as text, to accuracy and cost. What is not known is a `DataError` that says what is."""

    source: str
    """where the numbers come from, for messages"""

    @abstractmethod
    def accuracy(
        self,
        arch: str,
        dataset: str | None = None,
        split: str = "test",
        epochs: int | None = None,
        seed: int | None = None,
    ) -> float:
        """The accuracy of a network, in the benchmark's unit.

        `dataset` may be left out where there is one; `epochs` is the longest training by default; without a `seed`
        it is the mean over the runs that there are.
        """

    @abstractmethod
    def cost(self, arch: str, dataset: str | None = None) -> dict[str, float]:
        """What a network costs: params, flops, train_seconds, latencies and energies, as far as they are known.

        Where there are several of a kind, such as latencies, each has the name of its column. Times, latencies and
        energies are in the source's unit.
        """
