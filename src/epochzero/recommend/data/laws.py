r"""Laws of synthetic clicks beyond products of two columns: three columns at a time, a random network, or everything.

    third      z = b + sum_f w_f[c_f] + a x + s T,   T ~ sum over (i, j, k) of sum_r t_i[c_i]_r t_j[c_j]_r t_k[c_k]_r
    network    z = b + sum_f w_f[c_f] + a x + s N,   N ~ v tanh(W_2 tanh(W_1 [e_f[c_f], ..., x]))
    mixed      the law of `pairs`, and both T and N

T and N are shifted and scaled to mean 0 and standard deviation 1 over the rows. The vectors t of a column have mean 0
over its values, each weighted by its frequency, so no product of two columns replaces a product of three. The network
has random weights, and embeddings of the columns with fewer values. `pairs` is `synthetic.py`'s law.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from epochzero.recommend.data.synthetic import Floats, Planted, levels
from epochzero.registry import check_known

RANK = 2
"""of an interaction of three columns"""
WIDTH, HIDDEN, GAIN = 4, 48, 4.0
"""of the random network: width of an embedding and of a hidden layer, and the scale of what a hidden unit reads"""
OWN = 77
"""keeps these random numbers apart from those of rows"""

Part = Callable[[NDArray[np.int64], NDArray[np.int64]], Floats]


@dataclass(frozen=True)
class Beyond(Planted):
    """A law with interactions of three columns, a random network, or both."""

    pairs: tuple[tuple[int, int], ...] = ()
    gates: tuple[tuple[int, int], ...] = ()
    triples: tuple[tuple[int, int, int], ...] = ()
    """categorical columns that interact three at a time"""
    reads: tuple[int, ...] = ()
    """categorical columns that the random network reads, besides all dense ones; without any there is no network"""
    strength: float = 1.5
    """standard deviation of all triples together, and that of the network"""

    def logit(self, counts: NDArray[np.int64], values: NDArray[np.int64]) -> Floats:
        total = super().logit(counts, values)
        for part, mean, deviation in self.scales:
            total += self.strength * (part(counts, values) - mean) / deviation
        return total

    @cached_property
    def scales(self) -> list[tuple[Part, float, float]]:
        """The parts beyond pairs, each with its mean and standard deviation over a chunk of rows."""
        drawn = self.features(np.random.default_rng([OWN, self.seed]))
        named: list[Part] = [self.of_triples] if self.triples else []
        named += [self.of_network] if self.reads else []
        return [(part, float(part(*drawn).mean()), float(part(*drawn).std())) for part in named]

    @cached_property
    def vectors(self) -> list[list[Floats]]:
        """By triple and column, [n + 1, RANK]; the last row, of zeros, is for missing values."""
        rng = np.random.default_rng([OWN, self.seed, 1])
        return [[_centred(rng.standard_normal((self.sizes[f], RANK))) for f in triple] for triple in self.triples]

    def of_triples(self, counts: NDArray[np.int64], values: NDArray[np.int64]) -> Floats:
        total: Floats = np.zeros(len(values))
        for triple, (first, second, third) in zip(self.triples, self.vectors, strict=True):
            i, j, k = (values[:, f] for f in triple)
            total += (first[i] * second[j] * third[k]).sum(1)
        return total

    @cached_property
    def network(self) -> tuple[list[Floats], tuple[Floats, Floats, Floats]]:
        """The embeddings [n + 1, WIDTH] of the columns it reads, and its weights."""
        rng = np.random.default_rng([OWN, self.seed, 2])
        embeddings = [_with_missing(rng.standard_normal((self.sizes[f], WIDTH))) for f in self.reads]
        shapes = (WIDTH * len(self.reads) + self.num_dense, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 1)
        first, second, last = (GAIN * rng.standard_normal(shape) / shape[0] ** 0.5 for shape in shapes)
        return embeddings, (first, second, last)

    def of_network(self, counts: NDArray[np.int64], values: NDArray[np.int64]) -> Floats:
        embeddings, (first, second, last) = self.network
        read = [table[values[:, f]] for f, table in zip(self.reads, embeddings, strict=True)]
        z = np.concatenate([*read, levels(counts)], 1)  # [N, WIDTH F + D]
        outputs: Floats = (np.tanh(np.tanh(z @ first) @ second) @ last)[:, 0]
        return outputs


def _centred(table: Floats) -> Floats:
    """The vectors [n, R] minus their mean over rows: value c has the frequency ((c + 1) / n)^(1/3) - (c / n)^(1/3)."""
    frequency = np.diff((np.arange(len(table) + 1) / len(table)) ** (1 / 3))
    return _with_missing(table - frequency @ table)


def _with_missing(table: Floats) -> Floats:
    return np.concatenate([table, 0 * table[:1]])


TRIPLES = (6, 7, 8), (4, 8, 9), (5, 6, 9)
READS = (4, 5, 6, 7, 8, 9)
LAWS: dict[str, Planted] = {
    "pairs": Planted(),
    "third": Beyond(triples=TRIPLES),
    "network": Beyond(reads=READS),
    "mixed": Beyond(
        Planted.sizes, Planted.num_dense, Planted.pairs, Planted.gates, triples=TRIPLES, reads=READS, strength=1.0
    ),
}


def law(name: str) -> Planted:
    """The law of this name."""
    check_known(name, LAWS, f"No law of synthetic clicks is called '{name}'")
    return LAWS[name]
